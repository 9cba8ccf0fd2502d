//! Guests whose command line names a monitor that is not theirs, or whose monitor is hostile.
//! kvmtop still queries the monitors of other users' guests.

use crate::common;
use crate::common::qemu::Running;
use crate::common::watch::Watch;
use kvm::Space;
use kvm::cmdline::QemuCommand;
use kvm::device_map::DeviceMap;
use live::metadata::libvirt::Libvirt;
use live::{LibvirtAndQmp, MonitorUse, WatchedGuest};
use sample::{DomainFacts, Known, Origin, SourceStatus};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const GREETING: &str = "{\"QMP\": {\"version\": {}}}\r\n";

fn start_of(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(19)
        .unwrap()
        .parse()
        .unwrap()
}

fn guest(pid: i32, socket: &Path) -> WatchedGuest {
    guest_at(pid, start_of(pid), socket)
}

fn guest_at(pid: i32, start_ticks: u64, socket: &Path) -> WatchedGuest {
    let command = QemuCommand {
        qmp_sockets: vec![socket.to_str().unwrap().to_owned()],
        debug_threads: true,
        ..Default::default()
    };
    let facts = DomainFacts {
        pid: Some(pid),
        start_ticks,
        command: Some(Arc::new(command)),
        ..DomainFacts::default()
    };
    WatchedGuest {
        pid,
        start_ticks,
        facts: Arc::new(facts),
        claim: None,
        stopped: false,
        quiet: false,
        turned: false,
    }
}

fn source() -> LibvirtAndQmp {
    let libvirt = Libvirt::start(None, false);
    LibvirtAndQmp::new(libvirt, MonitorUse::OwnSocket)
}

fn monitor(source: &mut LibvirtAndQmp) -> SourceStatus {
    source.status().pop().unwrap()
}

/// Returns the guest's device map, or why it is missing.
fn map_of(source: &mut LibvirtAndQmp, guest: &WatchedGuest) -> Result<Arc<DeviceMap>, String> {
    source.watch(std::slice::from_ref(guest));
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(known) = source.metadata(guest).devices.clone() {
            return Ok(known.value);
        }
        if let Some(cause) = monitor(source).cause {
            return Err(cause);
        }
        assert!(Instant::now() < until, "neither a map nor a reason");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process of the user `nobody`.
fn of_nobody() -> Option<Running> {
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "sleep",
        "300",
    ]);
    let child = Running(command.stdin(Stdio::null()).spawn().ok()?);
    let until = Instant::now() + Duration::from_secs(10);
    while !std::fs::read_to_string(format!("/proc/{}/comm", child.pid()))
        .ok()?
        .starts_with("sleep")
    {
        assert!(Instant::now() < until, "setpriv did not start sleep");
        std::thread::yield_now();
    }
    Some(child)
}

/// Serves one client at a time with `serve`, and counts them.
fn serve(path: &Path, serve: impl Fn(UnixStream) + Send + 'static) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(path).unwrap();
    let clients = Arc::new(AtomicUsize::new(0));
    let counted = clients.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            serve(stream);
        }
    });
    clients
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

#[test]
fn another_users_socket_is_not_opened() {
    const TEST: &str = "another_users_socket_is_not_opened";
    let _beside = common::beside_others();
    if !rustix::process::geteuid().is_root() {
        return common::skipped(TEST, "not root");
    }
    let Some(hostile) = of_nobody() else {
        return common::skipped(TEST, "no setpriv");
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let secret = dir.path().join("secret");
    let clients = serve(&secret, |mut stream| {
        let _ = stream.write_all(GREETING.as_bytes());
    });
    let why = map_of(&mut source(), &guest(hostile.pid(), &secret)).unwrap_err();
    assert_eq!(clients.load(Ordering::SeqCst), 0, "{why}");
    assert!(why.contains("Permission denied"), "{why}");
    // Nor does the source connect through a link in a folder that everyone can read.
    let open = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let link = open.path().join("link");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let why = map_of(&mut source(), &guest(hostile.pid(), &link)).unwrap_err();
    assert_eq!(clients.load(Ordering::SeqCst), 0, "{why}");
    common::ran(TEST);
}

#[test]
fn nested_json_costs_little() {
    let _alone = common::alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp");
    serve(&path, |mut stream| {
        // Each empty object of a JSON tree in memory costs a hundred times its text.
        let text = format!("{{\"QMP\":[{}0]}}", "{\"\":0},".repeat(900_000));
        // The reader gives up in between.
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.write_all(b"\n");
    });
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find(|l| l.starts_with("VmHWM:"))
            .unwrap()
            .to_owned();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let before = peak();
    let why = map_of(&mut source(), &guest(own_pid(), &path)).unwrap_err();
    assert!(
        peak() - before < 100_000,
        "{} kB more: {why}",
        peak() - before
    );
}

#[test]
fn a_full_backlog_leaves_no_thread_and_no_file() {
    let _alone = common::alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    // The queue takes a client or two more than its length; nothing accepts them.
    let waiting: Vec<_> = (0..2).map(|_| stuffed(&path)).collect();
    let mut source = source();
    let mut most = 0;
    let (threads, files) = (threads_at_rest(), count("fd"));
    for round in 0..200 {
        // Each round is another guest, as far as the source can tell.
        let guest = guest_at(own_pid(), start_of(own_pid()) + round, &path);
        source.watch(std::slice::from_ref(&guest));
        source.metadata(&guest);
        most = most.max(count("task"));
    }
    assert!(most < threads + 40, "{most} threads at once");
    settle(threads, files);
    drop(waiting);
}

/// A client in the listener's queue, without waiting for a place.
fn stuffed(path: &Path) -> rustix::fd::OwnedFd {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let _ = connect(&client, &SocketAddrUnix::new(path).unwrap());
    client
}

#[test]
fn a_monitor_that_stalls_holds_up_no_other_and_leaves_nothing() {
    let _beside = common::beside_others();
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = ["closes", "greets", "babbles", "silent"]
        .map(|n| dir.path().join(n))
        .into();
    serve(&paths[0], drop);
    serve(&paths[1], |mut stream| {
        let _ = stream.write_all(GREETING.as_bytes());
    });
    serve(&paths[2], |mut stream| {
        let _ = stream.write_all(
            format!("{GREETING}{{\"return\": {{}}}}\r\n{{\"return\": \"no tree\"}}\r\n").as_bytes(),
        );
    });
    let _silent = UnixListener::bind(&paths[3]).unwrap();
    let mut source = source();
    map_of(&mut source, &guest(own_pid(), &paths[0])).unwrap_err();
    let (threads, files) = (threads_at_rest(), count("fd"));
    for round in 0..200 {
        let guest = guest_at(own_pid(), start_of(own_pid()), &paths[round % 4]);
        // The source forgets the guest of the round before and meets this one as new.
        source.watch(&[]);
        source.watch(std::slice::from_ref(&guest));
        assert!(
            source.metadata(&guest).devices.is_none(),
            "an answer at once"
        );
    }
    settle(threads, files);
}

#[test]
fn a_stopped_qemu_is_given_up_and_asked_again() {
    const TEST: &str = "a_stopped_qemu_is_given_up_and_asked_again";
    let _beside = common::beside_others();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp");
    let Some(qemu) = qemu(&path, &[]) else {
        return common::skipped(TEST, "no qemu-system-x86_64");
    };
    let pid = rustix::process::Pid::from_raw(qemu.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let why = map_of(&mut source(), &guest(qemu.pid(), &path)).unwrap_err();
    assert!(why.contains("no answer in time"), "{why}");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    // QEMU first takes the client that gave up out of its queue, which has room for one.
    let asked_again =
        (0..100).find_map(|_| match map_of(&mut source(), &guest(qemu.pid(), &path)) {
            Err(why) if why.contains("its queue of clients is full") => {
                std::thread::sleep(Duration::from_millis(50));
                None
            }
            answer => Some(answer),
        });
    asked_again.expect("it takes clients again").expect("a map");
    common::ran(TEST);
}

#[test]
fn a_monitor_of_another_process_is_not_asked() {
    const TEST: &str = "a_monitor_of_another_process_is_not_asked";
    let _beside = common::beside_others();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp");
    let Some(qemu) = qemu(&path, &[]) else {
        return common::skipped(TEST, "no qemu-system-x86_64");
    };
    let why = map_of(&mut source(), &guest(own_pid(), &path)).unwrap_err();
    assert!(
        why.contains(&format!(
            "process {} listens there, not the guest's process",
            qemu.pid()
        )),
        "{why}"
    );
    let map = map_of(&mut source(), &guest(qemu.pid(), &path)).unwrap();
    assert!(map.lookup(Space::Pio, 0x60).is_some());
    // A PID that another process has by now is not the guest's.
    let why = map_of(&mut source(), &guest_at(qemu.pid(), 1, &path)).unwrap_err();
    assert!(why.contains("the guest's process ended"), "{why}");
    common::ran(TEST);
}

/// Checks that a UUID claimed by two processes makes neither process libvirt's, but that each keeps
/// its own monitor.
#[test]
fn a_uuid_that_another_claims_takes_no_monitor_away() {
    const TEST: &str = "a_uuid_that_another_claims_takes_no_monitor_away";
    let _beside = common::beside_others();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp");
    let Some(qemu) = qemu(&path, &[]) else {
        return common::skipped(TEST, "no qemu-system-x86_64");
    };
    let claiming = |pid: i32| {
        let mut guest = guest(pid, &path);
        let facts = Arc::make_mut(&mut guest.facts);
        facts.uuid = Some(Known::new(
            "1b1d2c0a-0000-4000-8000-00000000000f".into(),
            Origin::CommandLine,
        ));
        guest
    };
    let (victim, hostile) = (claiming(qemu.pid()), claiming(own_pid()));
    let mut source = source();
    source.watch(&[hostile, victim.clone()]);
    let until = Instant::now() + Duration::from_secs(30);
    while source.metadata(&victim).devices.is_none() {
        assert!(Instant::now() < until, "{:?}", source.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    common::ran(TEST);
}

/// Checks two guests with the same path: kvmtop queries the guest in a container in its own folder,
/// not in the host's.
#[test]
fn a_path_is_that_of_the_guests_own_root() {
    const TEST: &str = "a_path_is_that_of_the_guests_own_root";
    let _beside = common::beside_others();
    if !rustix::process::geteuid().is_root() {
        return common::skipped(TEST, "not root");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp");
    let Some(host) = qemu(&path, &[]) else {
        return common::skipped(TEST, "no qemu-system-x86_64");
    };
    let has_device = |guest: &WatchedGuest| {
        let map = map_of(&mut source(), guest).unwrap_or_else(|why| panic!("{why}"));
        map.lookup(Space::Pio, 0x501)
            .is_some_and(|r| r.name.contains("debug-exit"))
    };
    let here = dir.path().display();
    let inside = format!(
        "exec qemu-system-x86_64 {} -device isa-debug-exit,iobase=0x501",
        qemu_options(&path).join(" ")
    );
    for script in [
        format!("mount -t tmpfs none {here} && {inside}"),
        format!(
            "mkdir {here}/root && mount --rbind / {here}/root && mount -t tmpfs none \
             {here}/root{here} && exec chroot {here}/root sh -c '{inside}'"
        ),
    ] {
        let contained = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .stdin(Stdio::null())
            .spawn();
        let contained = Running(contained.unwrap());
        let own = format!("/proc/{}/root{}", contained.pid(), path.display());
        let until = Instant::now() + Duration::from_secs(20);
        while std::fs::read(format!("/proc/{}/cmdline", contained.pid()))
            .is_ok_and(|c| !c.starts_with(b"qemu"))
            || !Path::new(&own).exists()
        {
            assert!(
                Instant::now() < until,
                "no QEMU in a mount namespace of its own"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(has_device(&guest(contained.pid(), &path)), "{script}");
        assert!(!has_device(&guest(host.pid(), &path)));
    }
    common::ran(TEST);
}

fn qemu_options(socket: &Path) -> Vec<String> {
    let monitor = format!("unix:{},server=on,wait=off", socket.display());
    [
        "-accel",
        "tcg",
        "-machine",
        "pc",
        "-S",
        "-nodefaults",
        "-display",
        "none",
        "-m",
        "32",
        "-qmp",
        &monitor,
    ]
    .map(str::to_owned)
    .into()
}

/// A QEMU that needs no KVM and runs no guest, with its monitor at `socket`.
fn qemu(socket: &Path, more: &[&str]) -> Option<Running> {
    let mut command = Command::new("qemu-system-x86_64");
    let qemu = Running(
        command
            .args(qemu_options(socket))
            .args(more)
            .stdin(Stdio::null())
            .spawn()
            .ok()?,
    );
    let until = Instant::now() + Duration::from_secs(20);
    while !is_listening(socket) {
        assert!(Instant::now() < until, "QEMU has no monitor");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(qemu)
}

/// Whether a process listens at `socket`, whose file is there before that.
fn is_listening(socket: &Path) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // The flag __SO_ACCEPTCON.
        fields.get(3) == Some(&"00010000") && fields.get(7).map(Path::new) == Some(socket)
    })
}

fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}"))
        .unwrap()
        .count()
}

/// The number of threads, once the thread of the next test has come, which waits for the machine.
fn threads_at_rest() -> usize {
    let (mut threads, mut alike) = (count("task"), 0);
    while alike < 10 {
        std::thread::sleep(Duration::from_millis(20));
        let now = count("task");
        alike = if now == threads { alike + 1 } else { 0 };
        threads = now;
    }
    threads
}

/// Waits until this process has at most `threads` threads and `files` open files.
fn settle(threads: usize, files: usize) {
    let until = Instant::now() + Duration::from_secs(30);
    while count("task") > threads || count("fd") > files {
        assert!(
            Instant::now() < until,
            "{} of {threads} threads, {} of {files} files",
            count("task"),
            count("fd")
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the source says that a quiet guest is paused, once it had time to ask.
fn is_paused(source: &mut LibvirtAndQmp, guest: &WatchedGuest, wanted: bool) -> bool {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        source.watch(std::slice::from_ref(guest));
        let is_paused = source.metadata(guest).stop().is_some();
        if is_paused == wanted || Instant::now() > until {
            return is_paused;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_guest_that_waits_for_its_monitor_is_paused() {
    const TEST: &str = "a_guest_that_waits_for_its_monitor_is_paused";
    let _beside = common::beside_others();
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("qmp");
    let Some(child) = qemu(&socket, &[]) else {
        return common::skipped(TEST, "no qemu-system-x86_64");
    };
    let mut source = source();
    let mut quiet = WatchedGuest {
        quiet: true,
        ..guest(child.pid(), &socket)
    };
    assert!(is_paused(&mut source, &quiet, true));
    quiet.quiet = false;
    assert!(
        !is_paused(&mut source, &quiet, false),
        "whose vCPUs run is not paused, whatever was said before"
    );
    common::ran(TEST);
}

/// A QEMU of `nobody` by this name, under KVM, that reads its disk for ever, its files and its monitor in a folder
/// that is his alone.
fn guest_of_nobody(folder: &Path, name: &str) -> Result<Running, String> {
    let (disk, socket) = (folder.join("disk.img"), folder.join("qmp"));
    let mut image = common::qemu::reader();
    image.resize(16 << 20, 0);
    std::fs::write(&disk, image).map_err(|e| e.to_string())?;
    for path in [&disk, folder] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).map_err(|e| e.to_string())?;
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
        .map_err(|e| e.to_string())?;
    let group = std::fs::metadata("/dev/kvm")
        .map_err(|e| e.to_string())?
        .gid();
    let mut qemu = as_nobody(&format!("--groups={group}"));
    qemu.args([
        "qemu-system-x86_64",
        "-name",
        &format!("{name},debug-threads=on"),
        "-accel",
        "kvm",
        "-m",
        "32",
    ]);
    qemu.args([
        "-display",
        "none",
        "-nodefaults",
        "-device",
        "virtio-blk-pci,drive=d0",
    ]);
    qemu.arg("-drive")
        .arg(format!("file={},if=none,id=d0,format=raw", disk.display()));
    qemu.arg("-qmp")
        .arg(format!("unix:{},server=on,wait=off", socket.display()));
    let mut qemu = Running(
        qemu.stdin(Stdio::null())
            .spawn()
            .map_err(|e| format!("setpriv: {e}"))?,
    );
    let until = Instant::now() + Duration::from_secs(30);
    while !is_listening(&socket) {
        if let Ok(Some(status)) = qemu.0.try_wait() {
            return Err(format!("QEMU of another user: {status}"));
        }
        assert!(Instant::now() < until, "QEMU has no monitor");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(qemu)
}

/// Starts `guest_of_nobody` in a new folder, or logs why the test did not run.
fn with_guest_of_nobody(test: &str) -> Option<(TempDir, Running)> {
    let not_root =
        (!rustix::process::geteuid().is_root()).then(|| "not root, who can be another user".into());
    let start = || {
        common::cannot_run_guests()
            .or(not_root)
            .map_or(Ok(()), Err)?;
        let folder = tempfile::tempdir_in("/tmp").map_err(|e| e.to_string())?;
        let qemu = guest_of_nobody(folder.path(), test)?;
        Ok((folder, qemu))
    };
    start()
        .map_err(|why: String| common::skipped(test, &why))
        .ok()
}

const NOBODY: u32 = 65_534;

fn as_nobody(groups: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", groups, "--"])
        .stdin(Stdio::null());
    command
}

/// Until this command, which becomes kvmtop, says that the guest reads its disk, and what else is
/// wanted of the guest.
fn wait_for_its_disk(
    mut command: Command,
    name: &str,
    pid: i32,
    wanted: impl Fn(&serde_json::Value) -> bool,
) {
    command.args(["--batch", "--json", "-n", "1000", "-d", "0.5"]);
    let mut watch = Watch::of(command);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let domains = watch.last()["domains"].as_array().unwrap();
        let guest = domains
            .iter()
            .find(|d| d["pid"] == pid)
            .unwrap_or(&serde_json::Value::Null);
        let disk = guest["disks"]
            .as_array()
            .and_then(|disks| disks.first())
            .unwrap_or(&serde_json::Value::Null);
        if disk["name"] == "d0" && disk["read_ops"].as_f64() > Some(0.0) && wanted(guest) {
            assert_eq!(guest["name"], name);
            watch.stop();
            return;
        }
        assert!(Instant::now() < until, "{guest}");
        watch.next();
    }
}

/// Root without the right to pass over permissions may connect to that monitor as its user alone.
#[test]
fn a_guest_of_another_user_is_asked_as_that_user() {
    const TEST: &str = "a_guest_of_another_user_is_asked_as_that_user";
    let _beside = common::beside_others();
    let Some((_folder, qemu)) = with_guest_of_nobody(TEST) else {
        return;
    };
    let mut root = Command::new("setpriv");
    root.args([
        "--bounding-set=-dac_override",
        "--inh-caps=-dac_override",
        "--",
        env!("CARGO_BIN_EXE_kvmtop"),
    ]);
    let traced = common::cannot_trace().is_none();
    wait_for_its_disk(root, TEST, qemu.pid(), |guest| {
        let is_disk = |device: &serde_json::Value| {
            device
                .as_str()
                .is_some_and(|name| name.contains("virtio-blk"))
        };
        !traced
            || guest["accesses"]
                .as_array()
                .unwrap()
                .iter()
                .any(|access| is_disk(&access["device"]))
    });
    common::ran(&format!("{TEST} (device names: {traced})"));
}

/// Without any right a user sees the disks of his own guest.
#[test]
fn a_user_sees_his_own_guest() {
    const TEST: &str = "a_user_sees_his_own_guest";
    let _beside = common::beside_others();
    let Some((folder, qemu)) = with_guest_of_nobody(TEST) else {
        return;
    };
    let program = folder.path().join("kvmtop");
    // A child that another test starts meanwhile would hold a file open that is written here: it
    // could not be run.
    let copied = Command::new("install")
        .args(["-m", "755", env!("CARGO_BIN_EXE_kvmtop")])
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let mut kvmtop = as_nobody("--clear-groups");
    kvmtop.arg(&program);
    wait_for_its_disk(kvmtop, TEST, qemu.pid(), |_| true);
    common::ran(TEST);
}
