//! What kvmtop says where a right or a place is missing: the line, the cure and the exit status.

use crate::common;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use rustix::thread::CapabilitySet;
use sample::EngineKind;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs a program that runs kvmtop; `None` if it is not here or may not.
fn under(program: &str, arguments: &[&str]) -> Option<Output> {
    Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|_| rustix::process::geteuid().is_root())
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

const CHECK: [&str; 9] = [
    "check",
    "--json",
    "--duration",
    "1s",
    "--engine",
    "none",
    "--no-monitor",
    "--allow",
    "all",
];

/// `check` says why not all processes could be seen, names the cure, and ends with 3; or it did not
/// run.
fn assert_could_not_look(out: &Output, why: &str) -> Result<(), String> {
    let check = serde_json::from_slice::<Value>(&out.stdout).map_err(|_| said(out))?;
    let sources = check["sources"].as_array().expect("sources");
    let procfs = sources
        .iter()
        .find(|s| s["name"] == "procfs")
        .expect("procfs");
    assert_eq!(procfs["state"], "degraded", "{procfs}");
    let [cause, fix] = ["cause", "fix"].map(|key| procfs[key].as_str().expect("a text"));
    assert!(cause.contains(why), "{cause}");
    assert!(fix.contains("cap_sys_ptrace"), "{fix}");
    assert_eq!(
        out.status.code(),
        Some(3),
        "it could not look: {}",
        said(out)
    );
    Ok(())
}

/// Checks root without `CAP_SYS_PTRACE`, who sees no open files of processes with more rights:
/// guests among those processes lack a name.
#[test]
fn root_without_ptrace_could_not_look() {
    const TEST: &str = "root_without_ptrace_could_not_look";
    let _beside = common::beside_others();
    let without = [
        "--bounding-set=-sys_ptrace",
        "--inh-caps=-sys_ptrace",
        env!("CARGO_BIN_EXE_kvmtop"),
    ];
    let Some(out) = under("setpriv", &[&without[..], &CHECK].concat()) else {
        return common::skipped(TEST, "not root, or no setpriv");
    };
    match assert_could_not_look(&out, "processes are not readable") {
        Ok(()) => common::ran(TEST),
        Err(why) => common::skipped(TEST, &format!("setpriv: {why}")),
    }
}

/// Checks a user who sees only his own processes in /proc.
#[test]
fn a_user_from_whom_processes_are_hidden_could_not_look() {
    const TEST: &str = "a_user_from_whom_processes_are_hidden_could_not_look";
    let _beside = common::beside_others();
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("kvmtop");
    std::fs::copy(env!("CARGO_BIN_EXE_kvmtop"), &program).expect("a copy");
    for path in [folder.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let script = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=65534 \
                  --regid=65534 --clear-groups -- \"$0\" \"$@\"";
    let arguments = ["-m", "sh", "-c", script, program.to_str().expect("text")];
    let Some(out) = under("unshare", &[&arguments[..], &CHECK].concat()) else {
        return common::skipped(TEST, "not root, or no unshare");
    };
    match assert_could_not_look(&out, "is mounted with hidepid=") {
        Ok(()) => common::ran(TEST),
        Err(why) => common::skipped(TEST, &why),
    }
}

/// A file system that is read-only refuses the recording before anything is sampled.
#[test]
fn a_read_only_place_is_said() {
    const TEST: &str = "a_read_only_place_is_said";
    let _beside = common::beside_others();
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("place");
    std::fs::create_dir(&place).expect("a folder");
    let script = "mount -t tmpfs -o ro tmpfs \"$1\" || exit 77; exec \"$2\" record --duration 1s \
        \"$1/a.kvmtop\"";
    let place_text = place.to_string_lossy();
    let arguments = [
        "-m",
        "sh",
        "-c",
        script,
        "sh",
        &place_text,
        env!("CARGO_BIN_EXE_kvmtop"),
    ];
    let Some(out) = under("unshare", &arguments) else {
        return common::skipped(TEST, "not root, or no unshare");
    };
    if !matches!(out.status.code(), Some(0..=3)) {
        return common::skipped(TEST, &said(&out));
    }
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(
        said(&out).contains("Read-only file system"),
        "{}",
        said(&out)
    );
    assert!(said(&out).contains("a.kvmtop"), "{}", said(&out));
    common::ran(TEST);
}

/// A running kvmtop; ended with the test.
struct Watched(Child);

impl Drop for Watched {
    fn drop(&mut self) {
        // kvmtop may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What one thread may do.
#[derive(Debug)]
struct ThreadRights {
    name: String,
    /// Permitted, effective, inheritable, ambient and bounding set.
    sets: [CapabilitySet; 5],
    /// Real, effective, saved and file-system ids, and the supplementary groups.
    ids: [String; 3],
    /// Whether some system calls are forbidden.
    filtered: bool,
}

fn threads(pid: u32) -> Vec<ThreadRights> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let statuses = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let rights = |status: String| {
        let field = |name: &str| {
            status
                .lines()
                .find_map(|l| l.strip_prefix(name))
                .expect("a field")
                .trim()
                .to_owned()
        };
        let set = |name| {
            CapabilitySet::from_bits_retain(u64::from_str_radix(&field(name), 16).expect("a set"))
        };
        assert_eq!(field("NoNewPrivs:"), "1", "{}", field("Name:"));
        ThreadRights {
            name: field("Name:"),
            sets: ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:", "CapBnd:"].map(set),
            ids: ["Uid:", "Gid:", "Groups:"].map(|name| field(name).replace('\t', " ")),
            filtered: field("Seccomp:") == "2",
        }
    };
    statuses.map(rights).collect()
}

/// Asserts that the sampling thread has exactly `expected`, that the threads for rings and files
/// have what they need, and that all others have nothing; that nobody but the threads of libvirt is
/// root, unless kvmtop writes files; and that no thread makes a system call that kvmtop does not
/// need. A thread that has not run yet still has its inherited rights, and not yet a name.
fn assert_rights(pid: u32, sampler: &str, expected: CapabilitySet, writes: bool) {
    let expected_of = |name: &str| match name {
        name if name == sampler => expected,
        "kvmtop/rings" => rights::for_rings(),
        "kvmtop/files" => rights::for_reading() & own_rights(),
        _ => CapabilitySet::empty(),
    };
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let threads = threads(pid);
        assert!(
            threads.iter().any(|thread| thread.name == sampler),
            "{threads:?}"
        );
        let wrong = threads.iter().find(
            |ThreadRights {
                 name,
                 sets,
                 ids,
                 filtered,
             }| {
                let [permitted, effective, inheritable, ambient, bounding] = *sets;
                let kept = expected_of(name);
                let is_root = writes || name.starts_with("libvirt");
                let id = if is_root { 0 } else { rights::NO_ACCOUNT };
                let ids_are_right = ids[..2]
                    .iter()
                    .all(|ids| *ids == format!("{id} {id} {id} {id}"))
                    && (is_root || ids[2].is_empty());
                (permitted, effective) != (kept, kept)
                    || !(inheritable | ambient | bounding).is_empty()
                    || !ids_are_right
                    || !filtered
            },
        );
        let Some(thread) = wrong else { return };
        let (kept, has) = (
            rights::named(expected_of(&thread.name)),
            thread.sets.map(rights::named),
        );
        assert!(
            Instant::now() < until,
            "{thread:?} has {has:?}, expected {kept}"
        );
        std::thread::yield_now();
    }
}

/// A right that this process does not have, kvmtop cannot keep either.
fn own_rights() -> CapabilitySet {
    rustix::thread::capabilities(None)
        .expect("capabilities")
        .permitted
}

/// The lines up to the first one that contains the sign.
fn lines_up_to(source: impl Read, sign: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in BufReader::new(source).lines().map_while(Result::ok) {
        let last = line.contains(sign);
        lines.push(line);
        if last {
            return lines;
        }
    }
    panic!("it ended: {lines:?}");
}

/// Each command that samples keeps what docs/security.md lists and no more, while it samples.
#[test]
fn samplers_keep_what_the_page_lists() {
    const TEST: &str = "samplers_keep_what_the_page_lists";
    let _beside = common::beside_others();
    if !rustix::process::geteuid().is_root() {
        return common::skipped(TEST, "not root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("a.kvmtop");
    let page = std::fs::read_to_string("docs/security.md").expect("the page");
    for (engine, kind) in [
        ("bpf", EngineKind::Bpf),
        ("perf", EngineKind::Perf),
        ("none", EngineKind::None),
    ] {
        let batch = ["--batch", "-d", "0.2", "--engine", engine];
        let record = [
            "record",
            recording.to_str().expect("text"),
            "-d",
            "0.2",
            "--engine",
            engine,
            "--no-monitor",
        ];
        for (arguments, monitor) in [(&batch[..], true), (&record[..], false)] {
            let mut command = common::kvmtop();
            let output = if monitor {
                command.stdout(Stdio::piped())
            } else {
                command.stderr(Stdio::piped())
            };
            let mut kvmtop = Watched(output.args(arguments).spawn().expect("kvmtop"));
            // This line comes when all sources are open.
            let (source, sign): (Box<dyn Read>, &str) =
                match (kvmtop.0.stdout.take(), kvmtop.0.stderr.take()) {
                    (Some(stdout), _) => (Box::new(stdout), ""),
                    (_, stderr) => (Box::new(stderr.expect("a pipe")), "recording into"),
                };
            let lines = lines_up_to(source, sign);
            if let Some(why) = lines
                .iter()
                .find(|line| line.contains("going on without exits"))
            {
                common::skipped(&format!("{TEST} ({engine})"), why);
                continue;
            }
            let expected = rights::for_sampling(kind, monitor) & own_rights();
            assert_rights(kvmtop.0.id(), "kvmtop", expected, !monitor);
            for (name, _) in expected.iter_names() {
                assert!(
                    page.contains(&format!("cap_{}", name.to_lowercase())),
                    "{name}"
                );
            }
        }
    }
    common::ran(TEST);
}

/// The live screen: the collector samples, the threads of keys and drawing have nothing.
#[test]
fn the_screens_threads_have_no_rights() {
    const TEST: &str = "the_screens_threads_have_no_rights";
    let _beside = common::beside_others();
    if !rustix::process::geteuid().is_root() {
        return common::skipped(TEST, "not root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pair = native_pty_system()
        .openpty(PtySize {
            rows: 40,
            cols: 120,
            ..PtySize::default()
        })
        .expect("a terminal");
    for (arguments, sampler, expected) in [
        (
            &["-d", "0.2", "--engine", "none"][..],
            "kvmtop/collect",
            rights::for_sampling(EngineKind::None, true),
        ),
        (&["demo"][..], "kvmtop", CapabilitySet::empty()),
    ] {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_kvmtop"));
        command.args(arguments);
        command.cwd(folder.path());
        command.env("TERM", "xterm-256color");
        let mut child = pair.slave.spawn_command(command).expect("kvmtop");
        let mut reader = pair.master.try_clone_reader().expect("a reader");
        let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&shown).contains("help") {
            let n = reader.read(&mut piece).expect("output");
            shown.extend_from_slice(&piece[..n]);
        }
        assert_rights(
            child.process_id().expect("a process"),
            sampler,
            expected & own_rights(),
            true,
        );
        child.kill().expect("kill");
        child.wait().expect("its end");
    }
    common::ran(TEST);
}

/// What reads files can only read while it reads: a pipe of root's keeps it there.
#[test]
fn readers_can_only_read() {
    const TEST: &str = "readers_can_only_read";
    let _beside = common::beside_others();
    if !rustix::process::geteuid().is_root() {
        return common::skipped(TEST, "not root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a pipe");
    for command in [
        &["report"][..],
        &["diff", "tests/fixtures/readme/vmexit.txt"],
    ] {
        let mut kvmtop = common::kvmtop();
        let mut kvmtop = Watched(
            kvmtop
                .args(command)
                .arg(&pipe)
                .stderr(Stdio::piped())
                .spawn()
                .expect("kvmtop"),
        );
        // Opens as soon as kvmtop opens its end.
        let writer = std::fs::OpenOptions::new()
            .write(true)
            .open(&pipe)
            .expect("a reader");
        assert_rights(
            kvmtop.0.id(),
            "kvmtop",
            CapabilitySet::DAC_READ_SEARCH,
            false,
        );
        drop(writer);
        assert_eq!(
            kvmtop.0.wait().expect("its end").code(),
            Some(1),
            "an empty file"
        );
    }
    common::ran(TEST);
}

/// A user who has kvmtop's rights from the file of the program reads no file with them that he
/// could not read himself.
#[test]
fn file_capabilities_open_no_foreign_file() {
    const TEST: &str = "file_capabilities_open_no_foreign_file";
    let _beside = common::beside_others();
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("kvmtop");
    std::fs::copy(env!("CARGO_BIN_EXE_kvmtop"), &program).expect("a copy");
    let secret = folder.path().join("secret.txt");
    std::fs::write(&secret, "the word is mallorn").expect("a file");
    for (path, mode) in [(folder.path(), 0o755), (&program, 0o755), (&secret, 0o600)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }
    let [program, secret] = [&program, &secret].map(|path| path.to_str().expect("text"));
    let rights = format!(
        "{}=ep",
        rights::named(rights::for_start(true) & own_rights())
    );
    match under("setcap", &[&rights, program]) {
        Some(out) if out.status.success() => {}
        other => return common::skipped(TEST, &format!("setcap: {other:?}")),
    }
    let as_nobody = |arguments: &[&str]| {
        let user = [
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
            program,
        ];
        under("setpriv", &[&user[..], arguments].concat())
    };
    for arguments in [
        &["report", secret][..],
        &["diff", secret, secret],
        &["--config", secret, "-b"],
        &["replay", secret],
    ] {
        let Some(out) = as_nobody(arguments) else {
            return common::skipped(TEST, "no setpriv");
        };
        assert_eq!(out.status.code(), Some(1), "{arguments:?}: {}", said(&out));
        assert!(
            said(&out).contains("ermission denied") && !said(&out).contains("mallorn"),
            "{}",
            said(&out)
        );
    }
    let out = as_nobody(&[
        "--batch", "--json", "-n", "1", "-d", "0.1", "--engine", "none",
    ])
    .expect("setpriv");
    let interval: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let procfs = interval["sources"]
        .as_array()
        .expect("sources")
        .iter()
        .find(|s| s["name"] == "procfs");
    assert_eq!(procfs.expect("procfs")["state"], "ok", "{}", said(&out));
    common::ran(TEST);
}

/// Neither libraries nor files come from the environment.
#[test]
fn the_environment_chooses_no_library() {
    const TEST: &str = "the_environment_chooses_no_library";
    let _beside = common::beside_others();
    let folder = tempfile::tempdir().expect("a folder");
    let (source, trace, log) = (
        folder.path().join("l.c"),
        folder.path().join("loaded"),
        folder.path().join("log"),
    );
    let code = format!(
        "#include <fcntl.h>\n__attribute__((constructor)) void f(void) {{ creat(\"{}\", 0600); \
            }}\n",
        trace.display()
    );
    std::fs::write(&source, code).expect("a file");
    let library = folder.path().join("libvirt-qemu.so.0");
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .output();
    if !made.is_ok_and(|out| out.status.success()) || !rustix::process::geteuid().is_root() {
        return common::skipped(TEST, "no cc, or not root");
    }
    let out = common::kvmtop()
        .args([
            "doctor",
            "--engine",
            "none",
            "--libvirt-uri",
            "test:///default",
        ])
        .env("LD_LIBRARY_PATH", folder.path())
        .env("GIO_MODULE_DIR", folder.path())
        .env("LIBVIRT_DEBUG", "1")
        .env("LIBVIRT_LOG_OUTPUTS", format!("1:file:{}", log.display()))
        .output()
        .expect("kvmtop");
    assert!(out.status.success(), "{}", said(&out));
    assert!(!trace.exists(), "a library of LD_LIBRARY_PATH was loaded");
    assert!(!log.exists(), "libvirt wrote where the environment says");
    common::ran(TEST);
}

/// One binary for hosts with and without libvirt: it starts where the library is not, and says what
/// to install.
#[test]
fn it_starts_without_libvirts_library() {
    const TEST: &str = "it_starts_without_libvirts_library";
    let _beside = common::beside_others();
    let doctor = "exec \"$0\" doctor --json --engine none --libvirt-uri test:///default";
    let hidden = "for f in $(ldconfig -p | sed -n 's/.*libvirt.* => //p'); do mount --bind \
            /dev/null $f || exit 1; done";
    let libvirt = |before: &str| {
        let script = format!("{before}; {doctor}");
        let out = under(
            "unshare",
            &["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_kvmtop")],
        )?;
        let doctor: Value = serde_json::from_slice(&out.stdout).ok()?;
        doctor["sources"]
            .as_array()?
            .iter()
            .find(|source| source["name"] == "libvirt")
            .cloned()
    };
    let (Some(with), Some(without)) = (libvirt(":"), libvirt(hidden)) else {
        return common::skipped(TEST, "not root, or no unshare");
    };
    if with["state"] != "ok" {
        return common::skipped(TEST, &format!("no libvirt: {with}"));
    }
    assert_eq!(without["state"], "missing");
    assert!(
        without["cause"]
            .as_str()
            .expect("a cause")
            .contains("libvirt-qemu.so.0"),
        "{without}"
    );
    assert!(
        without["fix"].as_str().expect("a fix").contains("libvirt0"),
        "{without}"
    );
    common::ran(TEST);
}

/// HOME of another user: what root is shown is not decided there, unless that user ran sudo.
#[test]
fn a_foreign_config_file_is_not_used() {
    const TEST: &str = "a_foreign_config_file_is_not_used";
    let _beside = common::beside_others();
    if !rustix::process::geteuid().is_root() {
        return common::skipped(TEST, "not root");
    }
    let home = tempfile::tempdir().expect("a folder");
    let config = home.path().join("kvmtop/config.toml");
    std::fs::create_dir(home.path().join("kvmtop")).expect("a folder");
    std::fs::write(&config, "[sampling]\ninterval = 0.1\nengine = \"none\"\n").expect("a file");
    std::os::unix::fs::chown(&config, Some(65_534), None).expect("an owner");
    let batch = |sudo: &str| {
        let mut kvmtop = common::kvmtop();
        kvmtop
            .args(["--batch", "-n", "1", "--no-monitor"])
            .env("XDG_CONFIG_HOME", home.path())
            .env("SUDO_UID", sudo);
        kvmtop.output().expect("kvmtop")
    };
    let out = batch("1000");
    assert!(
        out.status.code() == Some(1) && said(&out).contains("belongs to user 65534"),
        "{}",
        said(&out)
    );
    assert_eq!(batch("65534").status.code(), Some(0));
    common::ran(TEST);
}

/// What doctor says of this host as a command sees it: name, and the cure where something is wrong.
fn cures(out: &Output) -> Vec<(String, Option<String>)> {
    let doctor: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(out)));
    let host = doctor["host"].as_array().expect("host").iter();
    host.map(|p| {
        (
            p["name"].as_str().expect("a name").to_owned(),
            p["fix"].as_str().map(str::to_owned),
        )
    })
    .collect()
}

fn cure_of(cures: &[(String, Option<String>)], name: &str) -> Option<String> {
    cures
        .iter()
        .find(|(other, _)| other == name)
        .expect("an entry")
        .1
        .clone()
}

/// Unmounts tracefs in a separate mount namespace and runs doctor's command: doctor is then
/// content.
#[test]
fn the_cure_of_an_unmounted_tracefs_cures() {
    const TEST: &str = "the_cure_of_an_unmounted_tracefs_cures";
    let _beside = common::beside_others();
    let kvmtop = env!("CARGO_BIN_EXE_kvmtop");
    let unmount = "umount -l /sys/kernel/debug/tracing 2>/dev/null; umount -l /sys/kernel/debug \
                   2>/dev/null; umount -l /sys/kernel/tracing || exit 77;";
    let doctor = |cure: &str| {
        let script = format!("{unmount} {cure} exec \"$0\" doctor --json --engine none");
        under("unshare", &["-m", "sh", "-c", &script, kvmtop])
    };
    let Some(before) = doctor("").filter(|out| out.status.success()) else {
        return common::skipped(TEST, "no tracefs to unmount");
    };
    let cure = cure_of(&cures(&before), "tracefs").expect("a complaint");
    let after = doctor(&format!("{cure} || exit 78;")).expect("unshare");
    assert_eq!(cure_of(&cures(&after), "tracefs"), None, "{cure}");
    common::ran(TEST);
}

/// A user without rights, doctor's command run by root, and doctor is content.
#[test]
fn the_cure_of_missing_rights_cures() {
    const TEST: &str = "the_cure_of_missing_rights_cures";
    let _beside = common::beside_others();
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("kvmtop");
    std::fs::copy(env!("CARGO_BIN_EXE_kvmtop"), &program).expect("a copy");
    for path in [folder.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let program = program.to_str().expect("text");
    let doctor = || {
        let arguments = [
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
            program,
            "doctor",
            "--json",
        ];
        under("setpriv", &arguments)
    };
    let Some(before) = doctor() else {
        return common::skipped(TEST, "not root, or no setpriv");
    };
    let before = cures(&before);
    let cure = cure_of(&before, "rights").expect("a complaint");
    for (_, other) in before
        .iter()
        .filter(|(_, fix)| fix.as_deref().is_some_and(|fix| fix.contains("setcap")))
    {
        assert_eq!(other.as_ref(), Some(&cure), "one command");
    }
    let command = cure.split_once("once: ").expect("a command").1;
    match under("sh", &["-c", command]) {
        Some(out) if out.status.success() => {}
        other => return common::skipped(TEST, &format!("{command}: {other:?}")),
    }
    let after = doctor().expect("setpriv");
    for name in ["rights", "tracefs", "kernel.perf_event_paranoid"] {
        assert_eq!(
            cure_of(&cures(&after), name),
            None,
            "{name}: {}",
            String::from_utf8_lossy(&after.stdout)
        );
    }
    let doctor: Value = serde_json::from_slice(&after.stdout).expect("JSON");
    let with_cure = |s: &&Value| s["fix"].as_str().is_some_and(|fix| fix.contains("setcap"));
    assert_eq!(
        doctor["sources"]
            .as_array()
            .expect("sources")
            .iter()
            .find(with_cure),
        None,
        "nothing is missing"
    );
    common::ran(TEST);
}
