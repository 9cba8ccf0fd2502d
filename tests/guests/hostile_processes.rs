//! Processes that hold a VM and block what kvmtop reads about them: the tick continues, and other
//! guests keep their names.
#![allow(unsafe_code, reason = "asks the kernel what no crate asks")]

use crate::common;
use crate::common::guest::{Guest, LOADS_ENV, USER_ENV, Work, become_user};
use crate::common::stalled_fs;
use crate::common::watch::Watch;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ENV: &str = "KVMTOP_TEST_HELD_BACK";
const SERVER: &str = "KVMTOP_TEST_STALLED_FS";
/// Names the process of the test.
const PARENT: &str = "KVMTOP_TEST_PARENT";
const PROCESSES: usize = 6;
const READY: &str = "held back";
/// Makes a process a program with the name of a QEMU.
const FALSE_QEMU: &str = "KVMTOP_TEST_FALSE_QEMU";
const NOBODY: u32 = 65_534;

/// A process with a VM, whose command line nobody can read to its end.
struct HeldBack {
    child: Child,
    /// Serves the file system that never answers.
    server: Option<Pid>,
    _folder: tempfile::TempDir,
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // The server first: the child cannot end while it waits for the server's answer. Both may
        // have ended already.
        let _ = self.server.map(|server| kill_process(server, Signal::KILL));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl HeldBack {
    /// Waits until nobody can read its command line.
    fn once_held(self) -> Result<Self, String> {
        let path = format!("/proc/{}/cmdline", self.child.id());
        for _ in 0..50 {
            let (send, read) = std::sync::mpsc::channel();
            let path = path.clone();
            // A thread that waits ends with the process.
            std::thread::spawn(move || send.send(std::fs::read(path).is_ok()));
            if read.recv_timeout(Duration::from_secs(1)).is_err() {
                return Ok(self);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err("this kernel lets others read its command line".into())
    }

    /// `Err`: this kernel does not let a process do this.
    fn start() -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(std::env::current_exe().expect("own path"))
            .args([
                "hostile_processes::held_back_process",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ENV, folder.path())
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary starts itself");
        let said = BufReader::new(child.stdout.take().expect("stdout"));
        let mut held = Self {
            child,
            server: None,
            _folder: folder,
        };
        let mut lines = said.lines().map_while(Result::ok);
        match lines.find_map(|line| Some(line.split_once(READY)?.1.trim().to_owned())) {
            Some(said) => match said.parse().ok().and_then(Pid::from_raw) {
                Some(server) => {
                    held.server = Some(server);
                    held.once_held()
                }
                None => Err(said),
            },
            None => Err("it ended".into()),
        }
    }
}

/// The process itself; returns at once where this is an ordinary test run.
#[test]
fn held_back_process() {
    let Some(folder) = std::env::var_os(ENV) else {
        return;
    };
    let vm = kvm_ioctls::Kvm::new()
        .and_then(|kvm| kvm.create_vm())
        .expect("a VM");
    if let Err(why) = hold_back_memory(folder.as_ref()) {
        println!("{READY} {why}");
    }
    drop(vm);
}

/// The server of its file system; returns at once where this is an ordinary test run.
#[test]
fn stalled_fs_server() {
    if std::env::var_os(SERVER).is_none() {
        return;
    }
    let device = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .expect("stdin");
    let parent = format!("/proc/{}", std::env::var(PARENT).expect("the test"));
    // Whatever becomes of the test, nobody waits for ever.
    stalled_fs::serve(device.into(), || Path::new(&parent).exists());
    std::process::exit(0);
}

/// Makes reading `/proc/PID/cmdline` wait for ever, as any user can. A read of memory that maps a
/// file whose server does not answer holds the lock of this process's memory. A change of the
/// memory waits for that lock, and whoever reads the command line then waits for the change
/// (mm/memory.c, `__access_remote_vm`; fs/proc/base.c).
fn hold_back_memory(folder: &Path) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    let server = Command::new(std::env::current_exe()?)
        .args([
            "hostile_processes::stalled_fs_server",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(SERVER, "1")
        .stdin(stalled_fs::mount(folder)?)
        .stdout(Stdio::null())
        .spawn()?;
    let file = std::fs::File::open(folder.join(stalled_fs::FILE))?;
    let map = |fd: i32, kind: i32| {
        // SAFETY: a new mapping, which nothing here touches.
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, kind, fd, 0) as usize }
    };
    let page = map(file.as_raw_fd(), libc::MAP_PRIVATE);
    println!("{READY} {}", server.id());
    let memory = std::fs::File::open("/proc/self/mem")?;
    std::thread::spawn(move || memory.read_at(&mut [0; 16], page as u64));
    // The reader is in the kernel soon; until then a change of the memory does not wait. So it is
    // changed for ever.
    loop {
        map(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    }
}

#[test]
fn a_command_line_that_is_held_back_holds_up_no_tick() {
    const TEST: &str = "a_command_line_that_is_held_back_holds_up_no_tick";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_run_guests() {
        return common::skipped(TEST, &why);
    }
    let held: Result<Vec<HeldBack>, String> = (0..PROCESSES).map(|_| HeldBack::start()).collect();
    let held = match held {
        Ok(held) => held,
        Err(why) => return common::skipped(TEST, &why),
    };
    let begun = Instant::now();
    let mut watch = Watch::start(&["-d", "0.5", "--engine", "none", "--no-monitor"]);
    for _ in 0..16 {
        watch.next();
    }
    let took = begun.elapsed();
    let pids: Vec<u32> = held.iter().map(|process| process.child.id()).collect();
    let shown = |watch: &Watch| {
        let domains = watch.last()["domains"].as_array().expect("domains").iter();
        domains
            .filter(|d| {
                d["pid"]
                    .as_u64()
                    .is_some_and(|pid| pids.contains(&(pid as u32)))
            })
            .count()
    };
    assert_eq!(shown(&watch), PROCESSES, "each is shown, by its process");
    let threads = std::fs::read_dir(format!("/proc/{}/task", watch.pid()))
        .expect("kvmtop lives")
        .count();
    assert!(
        threads > PROCESSES && threads < 48,
        "{threads} threads of kvmtop"
    );
    assert!(
        took < Duration::from_secs(30),
        "16 intervals of 0.5 s took {took:?}"
    );
    let status = watch.last()["sources"]
        .as_array()
        .expect("sources")
        .iter()
        .find(|s| s["name"] == "procfs")
        .cloned();
    let cause = status.expect("procfs")["cause"].to_string();
    assert!(cause.contains("command line"), "{cause}");
    // They end, and so do the threads that wait for them.
    drop(held);
    let until = Instant::now() + Duration::from_secs(20);
    while std::fs::read_dir(format!("/proc/{}/task", watch.pid()))
        .expect("kvmtop lives")
        .count()
        + PROCESSES
        > threads
    {
        assert!(
            Instant::now() < until,
            "the threads that waited are still there"
        );
        watch.next();
    }
    // A guest that comes then has its name.
    let guest = Guest::start(&[Work::Idle], true);
    let pid = guest.pid();
    watch.next();
    watch.next();
    assert!(
        !common::of_pid(std::slice::from_ref(watch.last()), pid).is_empty(),
        "a new guest is seen"
    );
    watch.stop();
    common::ran(TEST);
}

/// A program with the name of a QEMU that is none; returns at once where this is an ordinary test
/// run.
#[test]
fn false_qemu_process() {
    let Ok(works) = std::env::var(FALSE_QEMU) else {
        return;
    };
    std::fs::write("/proc/self/comm", "qemu-system-x86").expect("a name");
    become_user(NOBODY);
    if works == "1" {
        let vcpu = std::thread::Builder::new().name("CPU 0/TCG".into());
        vcpu.spawn(|| std::thread::sleep(Duration::from_secs(300)))
            .expect("a thread");
    }
    println!("{READY}");
    std::thread::sleep(Duration::from_secs(300));
}

/// A program of another user that calls itself QEMU, with the options of a guest.
struct FalseQemu(Child);

impl FalseQemu {
    /// `works`: it has a vCPU's thread by its name.
    fn start(works: bool) -> Self {
        // In place of the test's own path, which would name no QEMU.
        use std::os::unix::process::CommandExt;
        let mut child = Command::new(std::env::current_exe().expect("own path"))
            .arg0("qemu-system-x86_64")
            .args([
                "hostile_processes::false_qemu_process",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .args(["--", "-name", "guest=payroll"])
            .env(FALSE_QEMU, if works { "1" } else { "0" })
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary starts itself");
        let said = BufReader::new(child.stdout.take().expect("stdout"));
        let is_ready = said
            .lines()
            .map_while(Result::ok)
            .any(|line| line.contains(READY));
        assert!(is_ready, "it ended");
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for FalseQemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        common::skipped(test, "not root, who can be another user");
    }
    is_root
}

/// Any user can start a program with any name: it is a guest only if it does what a guest does, and
/// no alarm then.
#[test]
fn a_program_that_calls_itself_qemu_raises_no_alarm() {
    const TEST: &str = "a_program_that_calls_itself_qemu_raises_no_alarm";
    let _beside = common::beside_others();
    if !is_root(TEST) {
        return;
    }
    let (asleep, threaded) = (FalseQemu::start(false), FalseQemu::start(true));
    // QEMU opens its VM in its first two seconds; what has none by then may emulate.
    std::thread::sleep(Duration::from_secs(2));
    let mut check = common::kvmtop();
    let out = check
        .args(["check", "--json", "--duration", "4", "--engine", "none"])
        .output()
        .expect("kvmtop runs");
    let seen = common::intervals(&out.stdout);
    assert!(
        common::of_pid(&seen, asleep.pid()).is_empty(),
        "it only sleeps"
    );
    let guests = common::of_pid(&seen, threaded.pid());
    assert!(
        matches!(&guests[..], [guest] if guest["name"] == "payroll"),
        "{guests:?}"
    );
    let findings = seen[0]["findings"].as_array().expect("findings");
    let about: Vec<_> = findings
        .iter()
        .filter(|finding| finding["domain"] == "payroll")
        .collect();
    assert!(
        about.iter().any(|finding| finding["rule"] == "no-kvm"),
        "{findings:?}"
    );
    assert!(
        about
            .iter()
            .all(|finding| finding["severity"] != "critical"),
        "{about:?}"
    );
    common::ran(TEST);
}

/// Whoever takes a guest's name, the one of root keeps it; with it the series of its metrics.
#[test]
fn another_users_guest_takes_no_name_away() {
    const TEST: &str = "another_users_guest_takes_no_name_away";
    let _beside = common::beside_others();
    if !is_root(TEST) {
        return;
    }
    if let Some(why) = common::cannot_run_guests() {
        return common::skipped(TEST, &why);
    }
    let named = |user: Option<u32>| {
        let mut command = Guest::command(&[Work::Idle], true);
        command.args(["--", "-name", "guest=db-prod"]);
        if let Some(user) = user {
            command.env(USER_ENV, user.to_string());
        }
        Guest::spawn(&mut command)
    };
    let theirs = named(Some(NOBODY));
    let mut watch = Watch::start(&["-d", "0.5", "--engine", "none", "--no-monitor"]);
    let name = |watch: &Watch, guest: &Guest| {
        common::of_pid(std::slice::from_ref(watch.last()), guest.pid())
            .first()
            .map(|d| d["name"].clone())
    };
    assert_eq!(name(&watch, &theirs).expect("it runs"), "db-prod");
    let ours = named(None);
    let until = Instant::now() + Duration::from_secs(20);
    while name(&watch, &ours).is_none() {
        assert!(Instant::now() < until, "the guest is not seen");
        watch.next();
    }
    assert_eq!(name(&watch, &ours).expect("seen"), "db-prod");
    assert_eq!(
        name(&watch, &theirs).expect("it runs"),
        format!("db-prod#{}", theirs.pid())
    );
    watch.stop();
    common::ran(TEST);
}

/// What a QEMU uses while it starts is no load of the host, before it has a VM and after.
#[test]
fn a_guest_that_starts_is_no_task_of_the_host() {
    const TEST: &str = "a_guest_that_starts_is_no_task_of_the_host";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_run_guests() {
        return common::skipped(TEST, &why);
    }
    let mut watch = Watch::start(&["-d", "0.3", "--engine", "none", "--no-monitor"]);
    for _ in 0..3 {
        let guest = Guest::spawn(Guest::command(&[Work::Idle], true).env(LOADS_ENV, "1200"));
        for _ in 0..8 {
            watch.next();
        }
        let domains = watch.last()["domains"].as_array().expect("domains");
        assert!(
            domains.iter().any(|d| d["pid"] == guest.pid()),
            "it is a guest by now"
        );
    }
    for interval in watch.stop() {
        let tasks = interval["host"]["tasks"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        assert!(
            tasks.iter().all(|task| task["comm"] != "qemu-system-x86"),
            "{tasks:?}"
        );
    }
    common::ran(TEST);
}
