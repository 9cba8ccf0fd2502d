//! The program as a script meets it: exit statuses, what goes to stdout and what to stderr,
//! signals, pipes.

use crate::common;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

const BEFORE: &str = "\
             VM-EXIT    Samples  Samples%     Time%    Min Time    Max Time         Avg time

      IO_INSTRUCTION       9000    90.00%    99.00%      1.49us   1235.12us     11.00us ( +-   0.36% )
           MSR_WRITE       1000    10.00%     1.00%      0.80us     55.25us      1.00us ( +-   2.00% )

Total Samples:10000, Total events handled time:100000.00us.
";
const AFTER: &str = "\
             VM-EXIT    Samples  Samples%     Time%    Min Time    Max Time         Avg time

           MSR_WRITE       1000   100.00%   100.00%      0.80us     55.25us      1.00us ( +-   2.00% )

Total Samples:1000, Total events handled time:1000.00us.
";

fn run(args: &[&str]) -> Output {
    let mut command = common::kvmtop();
    // Nobody's config file speaks here.
    command
        .args(args)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("NO_COLOR");
    command.output().expect("kvmtop runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("before.txt"), BEFORE).expect("written");
    std::fs::write(dir.path().join("after.txt"), AFTER).expect("written");
    dir
}

fn path(dir: &tempfile::TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

#[test]
fn without_a_terminal_it_points_to_batch() {
    let out = run(&[]);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(text(&out.stdout), "");
    assert_eq!(
        text(&out.stderr),
        "kvmtop: the screen needs a terminal, and standard output is none; `kvmtop --batch` prints \
         text, `kvmtop --batch --json` prints JSON\n"
    );
}

#[test]
fn wrong_usage_is_status_2_and_help_is_0() {
    let wrong = run(&["-d", "0"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("the interval is seconds from 0.1 to 60"));
    assert_eq!(text(&wrong.stdout), "");
    let help = run(&["--help"]);
    assert_eq!(
        (help.status.code(), text(&help.stderr).as_str()),
        (Some(0), "")
    );
    assert!(text(&help.stdout).contains("Examples:"));
    assert_eq!(text(&run(&["help"]).stdout), text(&help.stdout));
    assert_eq!(
        text(&run(&["help", "plan"]).stdout),
        text(&run(&["plan", "--help"]).stdout)
    );
    assert_eq!(
        text(&run(&["--version"]).stdout),
        format!("kvmtop {}\n", env!("CARGO_PKG_VERSION"))
    );
}

/// As root and with variables that it does not know: a rescue system or an empty root may have no
/// `/proc`.
#[test]
fn what_needs_no_rights_needs_no_proc() {
    let dir = folder();
    let before = path(&dir, "before.txt");
    let demo = ["demo", "--batch", "-n", "1"];
    let check = ["check", "--duration", "1s", "--engine", "none"];
    let all: [(&[&str], i32, &str); 5] = [
        (&["--version"], 0, "kvmtop "),
        (&["--help"], 0, "Examples:"),
        (&["report", &before], 0, "IO_INSTRUCTION"),
        (&demo, 0, "CPU%"),
        (
            &check,
            3,
            "/proc cannot be read; `mount -t proc proc /proc`",
        ),
    ];
    let script = "mount -t tmpfs none /proc || exit 77; exec \"$@\"";
    for (args, status, wanted) in all {
        let mut command = std::process::Command::new("unshare");
        command.args([
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_kvmtop"),
        ]);
        let out = command.args(args).env("UNKNOWN", "1").output();
        let Some(out) = out.ok().filter(|out| out.status.code() != Some(77)) else {
            return common::skipped("what_needs_no_rights_needs_no_proc", "no namespaces here");
        };
        assert_eq!(
            out.status.code(),
            Some(status),
            "{args:?}: {}",
            text(&out.stderr)
        );
        assert!(
            text(&out.stdout).contains(wanted),
            "{args:?}: {}",
            text(&out.stdout)
        );
    }
}

#[test]
fn batch_prints_an_object_a_line() {
    let out = run(&[
        "--batch",
        "--json",
        "-n",
        "2",
        "-d",
        "0.2",
        "--engine",
        "none",
        "--no-monitor",
    ]);
    assert_eq!(
        (out.status.code(), text(&out.stderr).as_str()),
        (Some(0), "")
    );
    let all = common::intervals(&out.stdout);
    assert_eq!(all.len(), 2);
    for interval in &all {
        assert_eq!(
            (
                &interval["schema"],
                &interval["source"],
                &interval["engine"]
            ),
            (&1.into(), &"live".into(), &"none".into())
        );
        let seconds = interval["interval_s"].as_f64().expect("seconds");
        assert!((0.1..5.0).contains(&seconds), "{seconds}");
        let cpus = interval["host"]["cpus"].as_array().expect("cpus");
        assert!(!cpus.is_empty());
        for cpu in cpus {
            let parts = [
                "usr",
                "sys",
                "guest",
                "irq",
                "softirq",
                "steal",
                "iowait",
                "idle",
                "unsampled",
            ];
            let sum: f64 = parts.iter().filter_map(|p| cpu[p].as_f64()).sum();
            assert!(
                (sum - 100.0).abs() < 0.1 || cpu["usr"].is_null(),
                "the parts of a CPU's time add up: {cpu}"
            );
        }
        let tracepoints = interval["sources"]
            .as_array()
            .expect("sources")
            .iter()
            .find(|s| s["name"] == "tracepoints");
        assert_eq!(
            tracepoints.expect("tracepoints")["state"],
            "missing",
            "--engine none is reported"
        );
    }
    assert!(all[0]["time"].as_str() < all[1]["time"].as_str());
}

#[test]
fn a_pattern_that_matches_nothing_is_said() {
    let args = [
        "--batch",
        "--json",
        "-n",
        "1",
        "-d",
        "0.1",
        "--engine",
        "none",
        "--domain",
        "no-such-guest-*",
    ];
    let out = run(&args);
    assert_eq!(out.status.code(), Some(0));
    let said = text(&out.stderr);
    assert!(
        said.starts_with("kvmtop: --domain no-such-guest-* matches no guest; "),
        "{said}"
    );
    let all = common::intervals(&out.stdout);
    assert_eq!(all[0]["domains"], Value::Array(Vec::new()));
    let source = all[0]["sources"]
        .as_array()
        .expect("sources")
        .last()
        .expect("one")
        .clone();
    assert_eq!(
        (&source["name"], &source["state"]),
        (&"domain".into(), &"missing".into())
    );
    let plain = run(&[
        "-b",
        "-n",
        "1",
        "-d",
        "0.1",
        "--engine",
        "none",
        "--domain",
        "no-such-guest-*",
    ]);
    assert!(text(&plain.stdout).contains("--domain no-such-guest-* matches no guest"));
    let export = "export --listen 127.0.0.1:0 -d 0.1 --engine none --domain no-such-guest-*";
    let mut some_seconds = std::process::Command::new("timeout");
    some_seconds
        .args(["5", env!("CARGO_BIN_EXE_kvmtop")])
        .args(export.split(' '));
    let said = text(&some_seconds.output().expect("timeout of coreutils").stderr);
    assert_eq!(
        said.matches("--domain no-such-guest-* matches no guest; ")
            .count(),
        1,
        "{said}"
    );
}

#[test]
fn signals_end_it_cleanly() {
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = common::kvmtop()
            .args(["--batch", "--json", "-d", "0.1", "--engine", "none"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kvmtop starts");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
        lines.next().expect("an interval").expect("text");
        kill_process(Pid::from_child(&child), signal).expect("it lives");
        for line in lines {
            serde_json::from_str::<Value>(&line.expect("text"))
                .expect("the last line is whole, too");
        }
        let mut said = String::new();
        child
            .stderr
            .take()
            .expect("stderr")
            .read_to_string(&mut said)
            .expect("text");
        assert_eq!(
            (child.wait().expect("it ends").code(), said.as_str()),
            (Some(0), ""),
            "{signal:?}"
        );
    }
}

/// Writes into a full pipe that nobody reads, and is asked to end once it waits. Returns the exit
/// status.
fn ended_while_nobody_reads(args: &[&str], with_stderr: bool) -> Option<i32> {
    use rustix::process::{Pid, Signal, kill_process};
    const PIPE_BYTES: usize = 4096;
    let (_unread, writer) = rustix::pipe::pipe().expect("a pipe");
    assert_eq!(
        rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES).expect("a small pipe"),
        PIPE_BYTES
    );
    rustix::io::write(&writer, &[b'x'; PIPE_BYTES]).expect("room");
    let stderr = if with_stderr {
        writer.try_clone().expect("a descriptor").into()
    } else {
        Stdio::piped()
    };
    let mut child = common::kvmtop()
        .args(args)
        .stdout(writer)
        .stderr(stderr)
        .spawn()
        .expect("kvmtop starts");
    let waits_in = [
        libc::SYS_write,
        libc::SYS_ppoll,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
    ];
    // It may wait elsewhere for a moment.
    let mut looks = 0;
    while looks < 10 {
        let call =
            std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).expect("it lives");
        let number = call
            .split(' ')
            .next()
            .and_then(|number| number.trim().parse().ok());
        looks = if number.is_some_and(|number| waits_in.contains(&number)) {
            looks + 1
        } else {
            0
        };
        std::thread::sleep(Duration::from_millis(30));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it lives");
    let hung = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("its status").is_none() {
        if Instant::now() > hung {
            child.kill().expect("it lives");
            panic!("{args:?} did not end by one SIGTERM");
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    child.wait().expect("it ended").code()
}

#[test]
fn one_signal_ends_a_writer_that_nobody_reads() {
    let batch = ["--batch", "-d", "0.1", "--engine", "none"];
    assert_eq!(ended_while_nobody_reads(&batch, false), Some(1));
    let check = [
        "check",
        "--duration",
        "0.2",
        "-d",
        "0.1",
        "--engine",
        "none",
    ];
    for with_stderr in [false, true] {
        assert_eq!(ended_while_nobody_reads(&check, with_stderr), Some(3));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = common::kvmtop()
        .args(["--batch", "--json", "-d", "0.1", "--engine", "none"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kvmtop starts");
    let mut reader = BufReader::new(child.stdout.take().expect("stdout"));
    reader.read_line(&mut String::new()).expect("an interval");
    drop(reader);
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(
        (out.status.code(), text(&out.stderr).as_str()),
        (Some(0), "")
    );
}

#[test]
fn a_wrong_config_file_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("kvmtop.toml");
    std::fs::write(&file, "[sampling]\ninterval = 99\n").expect("written");
    let file = file.display().to_string();
    let out = run(&["-b", "-n", "1", "--config", &file]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(
        said.starts_with(&format!(
            "kvmtop: {file}: TOML parse error at line 2, column 12\n"
        )),
        "{said}"
    );
    assert!(
        said.ends_with("kvmtop: the interval is seconds from 0.1 to 60, as in -d 0.5\n"),
        "{said}"
    );
    let out = run(&["-b", "-n", "1", "--config", "/no/such/file"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr)
            .starts_with("kvmtop: cannot read the config file /no/such/file: No such file")
    );
}

#[test]
fn the_users_config_file_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(dir.path().join("kvmtop")).expect("made");
    std::fs::write(
        dir.path().join("kvmtop/config.toml"),
        "[sampling]\ninterval = 0.3\nengine = 'none'\n",
    )
    .expect("written");
    let out = common::kvmtop()
        .args(["-b", "--json", "-n", "1"])
        .env("XDG_CONFIG_HOME", dir.path())
        .output()
        .expect("kvmtop runs");
    let all = common::intervals(&out.stdout);
    assert_eq!(all[0]["engine"], "none");
    assert!(all[0]["interval_s"].as_f64().expect("seconds") >= 0.29);
}

#[test]
fn check_answers_by_its_status() {
    let out = run(&[
        "check",
        "--json",
        "--duration",
        "1s",
        "-d",
        "0.5",
        "--engine",
        "none",
    ]);
    let said: Value = serde_json::from_slice(&out.stdout).expect("one object");
    let worst = said["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .filter_map(|f| f["severity"].as_str())
        .fold(0, |w, s| {
            w.max(match s {
                "critical" => 2,
                "warning" => 1,
                _ => 0,
            })
        });
    // A user sees no other user's files, and a second is too short for a guest that runs on this
    // machine.
    let any = |list: &str, wanted: fn(&Value) -> bool| {
        said[list]
            .as_array()
            .is_some_and(|all| all.iter().any(wanted))
    };
    let is_unsure = any("sources", |s| s["name"] == "procfs" && s["state"] != "ok")
        || any("watching", |_| true);
    assert_eq!(
        out.status.code(),
        Some(if worst == 0 && is_unsure { 3 } else { worst })
    );
    assert!((0.9..10.0).contains(&said["interval_s"].as_f64().expect("seconds")));
    assert_eq!(
        run(&["check", "--config", "/no/such/file"]).status.code(),
        Some(3),
        "it could not look"
    );
    for wrong in [
        &["check", "--duration", "0"][..],
        &["check", "--no-such-option"],
        &["-d", "1", "check"],
    ] {
        assert_eq!(
            run(wrong).status.code(),
            Some(3),
            "2 is critical: {wrong:?}"
        );
    }
    assert_eq!(
        run(&["report", "check", "--no-such-option"]).status.code(),
        Some(2),
        "of another command"
    );
    assert_eq!(run(&["check", "--help"]).status.code(), Some(0));
    let nobody = [
        "check",
        "--duration",
        "0.5",
        "--engine",
        "none",
        "--domain",
        "no such guest",
    ];
    assert_eq!(
        run(&nobody).status.code(),
        Some(3),
        "a guest that is not there is not well"
    );
    let only_info = [
        "check",
        "--duration",
        "0.5",
        "-d",
        "0.1",
        "--engine",
        "none",
        "--allow",
        "all",
    ];
    let out = run(&only_info);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
    // What this machine's kernel log holds may be unjudged.
    let none = ["no findings"];
    assert!(
        text(&out.stdout).lines().any(|line| none.contains(&line)),
        "{}",
        text(&out.stdout)
    );
}

/// Without room for open files it sees no guest, and says so instead of "all is well". With less
/// room it does not start. What the kernel's log of this machine holds is not judged here.
#[test]
fn check_that_cannot_look_says_so() {
    let with_room = |files: u32| {
        let kvmtop = env!("CARGO_BIN_EXE_kvmtop");
        let command = format!(
            "ulimit -n {files}; exec {kvmtop} check --duration 0.2s --engine none --allow all"
        );
        std::process::Command::new("sh")
            .args(["-c", &command])
            .output()
            .expect("a shell")
    };
    let started = (4..16)
        .map(with_room)
        .find(|out| !out.stdout.is_empty())
        .expect("it starts");
    let said = text(&started.stdout);
    assert_eq!(
        started.status.code(),
        Some(3),
        "{said}{}",
        text(&started.stderr)
    );
    assert!(
        said.contains("\nprocfs ") && said.contains("ulimit -n 65536"),
        "{said}"
    );
}

/// A start without the variables of the environment, which fails for a program whose file is gone.
#[test]
fn check_that_cannot_start_says_so() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED check_that_cannot_start_says_so: not root");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("kvmtop");
    let start = |command: &str| {
        std::fs::copy(env!("CARGO_BIN_EXE_kvmtop"), &program).expect("copied");
        let script = "exec 3<\"$0\"; rm \"$0\"; exec /proc/self/fd/3 \"$1\"";
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", script])
            .arg(&program)
            .arg(command)
            .env("UNKNOWN", "1");
        let out = shell.output().expect("a shell");
        assert!(
            text(&out.stderr).contains("cannot start again"),
            "{}",
            text(&out.stderr)
        );
        out.status.code()
    };
    assert_eq!((start("check"), start("doctor")), (Some(3), Some(1)));
}

#[test]
fn check_whose_result_nobody_reads_is_not_well() {
    let status = |args: &[&str]| {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        drop(reader);
        common::kvmtop()
            .args(args)
            .stdout(writer)
            .status()
            .expect("kvmtop runs")
            .code()
    };
    assert_eq!(
        status(&[
            "check",
            "--duration",
            "0.2",
            "-d",
            "0.1",
            "--engine",
            "none"
        ]),
        Some(3)
    );
}

#[test]
fn check_lists_the_rules() {
    let out = run(&["check", "--list-rules"]);
    assert!(out.status.success());
    let list = text(&out.stdout);
    let rules: Vec<&str> = list.lines().filter_map(|l| l.strip_prefix("  ")).collect();
    let named: Vec<&str> = judge::lint::rules().map(|r| r.id.as_str()).collect();
    assert_eq!(
        rules
            .iter()
            .filter_map(|l| l.split("  ").next())
            .collect::<Vec<_>>(),
        named
    );
    assert!(rules.iter().all(|l| l.len() > 40), "{list}");
}

#[test]
fn doctor_lists_every_source() {
    let out = run(&["doctor", "--json", "--engine", "none"]);
    assert_eq!(
        (out.status.code(), text(&out.stderr).as_str()),
        (Some(0), "")
    );
    let said: Value = serde_json::from_slice(&out.stdout).expect("one object");
    let names: Vec<_> = said["sources"]
        .as_array()
        .expect("sources")
        .iter()
        .filter_map(|s| s["name"].as_str())
        .collect();
    for name in ["procfs", "tracepoints", "libvirt", "monitor"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let facts = said["host"]
        .as_array()
        .expect("host")
        .iter()
        .filter_map(|fact| fact["name"].as_str());
    let all = [
        "rights",
        "lockdown",
        "kernel.perf_event_paranoid",
        "tracefs",
        "KVM",
    ];
    assert_eq!(facts.collect::<Vec<_>>(), all);
    let plain = text(&run(&["doctor", "--engine", "none"]).stdout);
    assert!(plain.contains("start kvmtop with --engine auto"));
    assert!(
        all.iter()
            .all(|name| plain.lines().any(|line| line.starts_with(name))),
        "{plain}"
    );
}

#[test]
fn a_table_is_reported() {
    let dir = folder();
    let out = run(&[
        "report",
        &path(&dir, "before.txt"),
        "--json",
        "--duration",
        "10s",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let said: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!(
        (&said["engine"], said["interval_s"].as_f64()),
        (&"file".into(), Some(10.0))
    );
    let row = &said["domains"][0]["exits"][0];
    assert_eq!(
        (&row["reason"], &row["count"], &row["rate"]),
        (&"IO_INSTRUCTION".into(), &9000.into(), &900.0.into())
    );
    let plain = text(&run(&["report", &path(&dir, "before.txt")]).stdout);
    assert!(
        plain.contains("duration unknown") && plain.contains("IO_INSTRUCTION"),
        "{plain}"
    );
}

#[test]
fn a_file_that_cannot_be_used_is_named_and_the_rest_reported() {
    let dir = folder();
    std::fs::write(
        dir.path().join("poem.txt"),
        "The fog comes\non little cat feet.\n",
    )
    .expect("written");
    let out = run(&[
        "report",
        "--json",
        &path(&dir, "poem.txt"),
        &path(&dir, "before.txt"),
        "/no/such/file",
    ]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(said.lines().all(|l| l.starts_with("kvmtop: ")), "{said}");
    assert!(
        said.contains("poem.txt: ") && said.contains("/no/such/file: "),
        "{said}"
    );
    let report: Value =
        serde_json::from_slice(&out.stdout).expect("the table is reported all the same");
    assert_eq!(report["domains"][0]["exits"][0]["count"], 9000);
    let out = run(&["report", "/no/such/file"]);
    assert_eq!(
        (out.status.code(), text(&out.stdout).as_str()),
        (Some(1), "")
    );
    assert!(
        text(&out.stderr)
            .ends_with("kvmtop: nothing to report: none of the inputs could be read\n")
    );
}

#[test]
fn two_tables_are_compared() {
    let dir = folder();
    let (before, after) = (path(&dir, "before.txt"), path(&dir, "after.txt"));
    let out = run(&["diff", &before, &after, "--duration", "10s"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let said = text(&out.stdout);
    let first = said.lines().next().expect("a summary");
    assert!(
        first.contains("1000 exits/s before, 100 after (-90.0 %)")
            && said.contains("IO_INSTRUCTION"),
        "{said}"
    );
    let out = run(&["diff", "--json", &before, &before]);
    let said: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!(
        (&said["cause"], &said["schema"]),
        (&"nothing".into(), &1.into())
    );
    assert_eq!(
        run(&["diff", &before, "/no/such/file"]).status.code(),
        Some(1)
    );
    assert!(Path::new(&before).exists());
}

#[test]
fn a_session_is_recorded_replayed_and_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = path(&dir, "night.kvmtop");
    let out = run(&[
        "record",
        &file,
        "--duration",
        "4s",
        "-d",
        "0.2",
        "--engine",
        "none",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(
        text(&out.stdout).starts_with("recorded "),
        "{}",
        text(&out.stdout)
    );

    let all = common::intervals(&run(&["replay", &file, "--batch", "--json"]).stdout);
    assert!(all.len() >= 3, "{} intervals", all.len());
    assert!(all.iter().all(|i| i["source"] == "session"
        && i["engine"] == "none"
        && i["interval_s"].as_f64().is_some()));
    // Any interval of it again, alone, by its time: the same to the last digit.
    let third = all[2]["time"].as_str().expect("time");
    let alone = run(&[
        "replay", &file, "--batch", "--json", "--at", third, "-n", "1",
    ]);
    assert_eq!(common::intervals(&alone.stdout), [all[2].clone()]);

    let whole: Value =
        serde_json::from_slice(&run(&["report", "--json", &file]).stdout).expect("one object");
    let sum: f64 = all
        .iter()
        .map(|i| i["interval_s"].as_f64().expect("seconds"))
        .sum();
    assert!((whole["interval_s"].as_f64().expect("seconds") - sum).abs() < 0.01);
    let same: Value =
        serde_json::from_slice(&run(&["diff", "--json", &file, &file]).stdout).expect("one object");
    assert!(
        ["nothing", "not-comparable"].contains(&same["cause"].as_str().expect("cause")),
        "{}",
        same["summary"]
    );

    // Parts of it: the halves against each other.
    let seconds = |out: std::process::Output| {
        let said: Value = serde_json::from_slice(&out.stdout).expect("one object");
        ["interval_s", "before_s", "after_s"].map(|key| said[key].as_f64().unwrap_or_default())
    };
    let [part, ..] = seconds(run(&["report", "--json", &file, "--to", third]));
    let three: f64 = all[..3]
        .iter()
        .map(|i| i["interval_s"].as_f64().expect("seconds"))
        .sum();
    assert!((part - three).abs() < 0.01, "{part} of {three} s");
    let [_, before, after] = seconds(run(&[
        "diff", "--json", &file, &file, "--to", third, "--from", third,
    ]));
    assert!(
        (before - three).abs() < 0.01 && (before + after - sum).abs() < 0.01,
        "{before} and {after} of {sum} s"
    );

    // Cut in the middle of a sample it plays up to there and says so.
    let bytes = std::fs::read(&file).expect("the session");
    let cut = path(&dir, "cut.kvmtop");
    let shorter = (1..bytes.len() / 64)
        .map(|step| bytes.len() - 64 * step)
        .find_map(|length| {
            std::fs::write(&cut, &bytes[..length]).expect("written");
            let out = run(&["replay", &cut, "--batch", "--json"]);
            assert_eq!(
                out.status.code(),
                Some(0),
                "cut at {length}: {}",
                text(&out.stderr)
            );
            (common::intervals(&out.stdout).len() < all.len()).then_some(out)
        });
    let said = text(&shorter.expect("a cut that costs a sample").stderr);
    assert!(
        said.starts_with(&format!("kvmtop: {cut} is cut off at byte ")),
        "{said}"
    );

    for command in ["replay", "report"] {
        let out = run(&[command, &path(&dir, "none.kvmtop"), "--at", "+1s"]);
        assert_eq!(out.status.code(), Some(1), "{command}");
        assert!(
            text(&out.stderr).starts_with("kvmtop: "),
            "{}",
            text(&out.stderr)
        );
    }
    assert_eq!(
        run(&["replay", &file]).status.code(),
        Some(1),
        "no terminal"
    );
    assert_eq!(
        run(&["record", "/no/such/folder/x", "--duration", "1"])
            .status
            .code(),
        Some(1)
    );
}
