//! A host that QEMU emulates in software, with a real KVM in it: `tests/nested/` prepares and boots
//! it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Kernels panic now and then in emulation, towards the end of a run.
const TRIES: usize = 3;

/// What this machine lacks to emulate a host in which these programs run too.
pub fn missing(host: Host, tools: &[&str]) -> Option<String> {
    if let Some(why) = super::guests_refused() {
        return Some(why);
    }
    let emulator = match host.machine {
        Machine::Arm64 => "qemu-system-aarch64",
        _ if !cfg!(target_arch = "x86_64") => {
            return Some("the emulated host is an x86 one".into());
        }
        _ => "qemu-system-x86_64",
    };
    let have = |tool: &str| {
        Command::new("sh")
            .args(["-c", &format!("command -v {tool}")])
            .output()
            .is_ok_and(|o| o.status.success())
    };
    let all = [emulator, "apt-get", "dpkg-deb", "timeout"];
    all.iter()
        .chain(tools)
        .find(|tool| !have(tool))
        .map(|tool| format!("no {tool}"))
}

/// The folder of the scripts.
pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nested")
}

/// A script of that folder that is a job, after what jobs share.
pub fn job(name: &str) -> String {
    let read = |name: &str| std::fs::read_to_string(scripts().join(name)).expect("a script");
    read("wait.sh") + &read(name)
}

/// What is emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// An AMD host whose clock follows real time, on two CPUs where the kernel takes them
    /// (`boot.sh`): whatever else runs on this machine takes time from the emulated one.
    Amd,
    /// The same with a clock of instructions, 16 ns each, on one CPU: no other program shows in its
    /// times.
    AmdOfInstructions,
    /// An arm64 host in real time. It does not run the programs of this machine, whose files it has
    /// in `/machine`.
    Arm64,
}

/// A machine with a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    pub machine: Machine,
    /// The suite of Debian whose kernel it runs.
    pub suite: &'static str,
}

impl Host {
    /// With Linux 6.1.
    pub const AMD: Self = Self {
        machine: Machine::Amd,
        suite: "bookworm",
    };

    /// How the scripts name the machine.
    fn word(self) -> &'static str {
        match self.machine {
            Machine::Amd => "amd64",
            Machine::AmdOfInstructions => "amd64-instructions",
            Machine::Arm64 => "arm64",
        }
    }

    /// The folder of its kernel and initrd.
    pub fn folder(self) -> PathBuf {
        let architecture = if self.machine == Machine::Arm64 {
            "-arm64"
        } else {
            ""
        };
        let name = format!("nested{architecture}-{}", self.suite);
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
    }

    /// The version of its kernel, once it is prepared.
    pub fn kernel(self) -> String {
        std::fs::read_to_string(self.folder().join("version"))
            .unwrap_or_default()
            .trim()
            .to_owned()
    }
}

/// How a life of the emulated host ended before its job had.
enum Failure {
    /// It cannot be prepared, or it died.
    Host(String),
    /// The host lived, and the job ended with an error.
    Job(String),
}

/// Runs a job in the emulated host for at most `seconds`, until the job has written `finished` to
/// its shared folder. Returns that folder, or why the host did not live to see that.
///
/// # Panics
/// When the job failed in its last try, in a host that lived.
pub fn run(name: &str, host: Host, job: &str, seconds: u32) -> Result<PathBuf, String> {
    let dir = host.folder();
    {
        static PREPARES: Mutex<()> = Mutex::new(());
        let _one = PREPARES.lock().unwrap_or_else(PoisonError::into_inner);
        script("prepare.sh", &[&dir], "", host)?;
    }
    let mut last = Failure::Host(String::new());
    for _ in 0..TRIES {
        match life(&dir.join(name), host, job, seconds) {
            Ok(shared) => return Ok(shared),
            Err(failure) => last = failure,
        }
    }
    match last {
        Failure::Host(why) => Err(format!(
            "the emulated host did not finish in {TRIES} tries: {why}"
        )),
        Failure::Job(why) => panic!(
            "{name}, {}: the job failed in an emulated host that lived: {why}",
            host.kernel()
        ),
    }
}

/// Runs these tests of the calling binary in the emulated host, with these environment settings,
/// for at most `seconds`. The tests have to pass and to say `ran` times that they ran. Returns an
/// error if the host is not available.
pub fn run_tests(
    name: &str,
    environment: &str,
    tests: &[&str],
    seconds: u32,
    ran: usize,
) -> Result<(), String> {
    let shared = run(
        name,
        Host::AMD,
        &(tests_job(environment, tests) + "touch /shared/finished\n"),
        seconds,
    )?;
    assert_passed(&shared, ran);
    Ok(())
}

/// Runs tests as [`run_tests`] does, then the tests of `alone` as `alone.sh` runs them. The log
/// lines of the latter go to this machine's test log.
pub fn run_tests_then_alone(
    name: &str,
    environment: &str,
    (tests, ran): (&[&str], usize),
    alone: &[&str],
    seconds: u32,
) -> Result<(), String> {
    let script = std::fs::read_to_string(scripts().join("alone.sh")).map_err(|e| e.to_string())?;
    let job = format!(
        "{}TEST={} KVMTOP={} TESTS='{}'\n{script}",
        tests_job(environment, tests),
        own_path(),
        env!("CARGO_BIN_EXE_kvmtop"),
        alone.join(" ")
    );
    let shared = run(name, Host::AMD, &job, seconds)?;
    assert_passed(&shared, ran);
    let read = |name: &str| std::fs::read_to_string(shared.join(name)).unwrap_or_default();
    if read("alone-status").is_empty() {
        alone.iter().for_each(|test| {
            super::skipped(test, "the emulated host did not come back from it");
        });
    } else {
        assert_eq!(read("alone-status").trim(), "0", "{}", read("alone-said"));
        read("alone-log").lines().for_each(super::log);
    }
    Ok(())
}

fn own_path() -> String {
    std::env::current_exe()
        .expect("own path")
        .display()
        .to_string()
}

fn tests_job(environment: &str, tests: &[&str]) -> String {
    format!(
        "cd /run\n{environment} KVMTOP_TEST_LOG=/shared/log {} --exact --nocapture \
         --test-threads=1 {} > /shared/said 2>&1\necho $? > /shared/status\n",
        own_path(),
        tests.join(" ")
    )
}

fn assert_passed(shared: &Path, ran: usize) {
    let read = |name: &str| std::fs::read_to_string(shared.join(name)).unwrap_or_default();
    let (log, said) = (read("log"), read("said"));
    assert_eq!(read("status").trim(), "0", "{said}");
    assert_eq!(
        log.lines().filter(|line| line.starts_with("RAN")).count(),
        ran,
        "{log}{said}"
    );
}

/// Runs a script of `tests/nested`; its output, or the last line of what went wrong.
fn script(name: &str, args: &[&Path], last: &str, host: Host) -> Result<String, String> {
    let mut command = Command::new("sh");
    command.arg(scripts().join(name)).args(args).arg(last);
    command.env("MACHINE", host.word()).env("SUITE", host.suite);
    let out = command.output().map_err(|e| e.to_string())?;
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    if out.status.success() {
        return Ok(stdout);
    }
    let said = if stderr.trim().is_empty() {
        stdout
    } else {
        stderr
    };
    Err(format!("{name}: {}", last_line(&said)))
}

fn last_line(text: &str) -> &str {
    text.lines()
        .rfind(|line| !line.trim().is_empty() && !line.contains("reboot:"))
        .unwrap_or("it said nothing")
        .trim()
}

/// One life of the emulated host.
fn life(shared: &Path, host: Host, job: &str, seconds: u32) -> Result<PathBuf, Failure> {
    let no_folder = |e: std::io::Error| Failure::Host(format!("{}: {e}", shared.display()));
    let _ = std::fs::remove_dir_all(shared);
    std::fs::create_dir_all(shared).map_err(no_folder)?;
    std::fs::write(shared.join("job"), job).map_err(no_folder)?;
    let said = script(
        "boot.sh",
        &[&host.folder(), shared],
        &seconds.to_string(),
        host,
    );
    if shared.join("finished").exists() {
        return Ok(shared.to_path_buf());
    }
    let lines = said.map_err(Failure::Host)?;
    // The last words of `init`.
    if let Some((before, _)) = lines.split_once("emulated host: the job ended with") {
        return Err(Failure::Job(last_line(before).to_owned()));
    }
    Err(Failure::Host(last_line(&lines).to_owned()))
}
