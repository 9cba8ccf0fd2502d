use super::*;
use crate::tests::fake_proc::FakeProc;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

const XML: &str = "<domstatus state='running' reason='booted' pid='77'>\
    <vcpus><vcpu id='0' pid='80'/></vcpus>\
    <domain type='kvm' id='1'><name>a</name><uuid>1B1D2C0A-0000-4000-8000-000000000001</uuid><vcpu>1</vcpu>\
    <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os></domain></domstatus>";

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn guest(pid: i32, uid: u32, name: &str) -> StatusQuery {
    StatusQuery { pid, uid: Some(uid), name: name.into(), answered: false }
}

/// The status of a process with a text of `bytes`.
fn status(pid: i32, name: &str, bytes: usize) -> String {
    let text = XML.replace("pid='77'", &format!("pid='{pid}'")).replace("<name>a", &format!("<name>{name}"));
    let padding = " ".repeat(bytes.saturating_sub(text.len()));
    text.replace("</domain>", &format!("{padding}</domain>"))
}

fn write_user(fake: &FakeProc, uid: u32, name: &str, text: &str) {
    fake.write(&format!("run/user/{uid}/libvirt/qemu/run/{name}.xml"), text);
}

fn limited(fake: &FakeProc, limits: ReadLimits) -> StatusFiles {
    StatusFiles { limits, ..StatusFiles::new(fake.paths().run) }
}

fn cause(files: &StatusFiles) -> String {
    files.problem().and_then(|p| p.cause).unwrap_or_default()
}

#[test]
fn a_status_file_is_found_by_name_and_read_again_when_it_changes() {
    let fake = FakeProc::new();
    let mut files = StatusFiles::new(fake.paths().run);
    let guests = [guest(77, 64055, "a"), guest(78, 64055, "broken")];
    files.refresh(0, true, &guests);
    assert!(files.status_of(77).is_none() && files.problem().is_none());
    fake.write("run/libvirt/qemu/a.xml", XML);
    fake.write("run/libvirt/qemu/broken.xml", "<domstatus");
    files.refresh(1, false, &guests);
    assert!(files.status_of(77).is_none(), "not yet due");
    files.refresh(1, true, &guests);
    let status = files.status_of(77).unwrap();
    assert_eq!(status.state(), Some(DomainState::Running));
    assert_eq!(status.xml.vcpu_threads.get(&0), Some(&80));
    assert!(status.text.starts_with("<domain ") && status.text.ends_with("</domain>"));
    let paused = XML.replace("running", "paused");
    let path = fake.paths().run.join("libvirt/qemu/a.xml");
    std::fs::write(&path, paused).unwrap();
    let later = SystemTime::now() + Duration::from_secs(5);
    std::fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
    files.refresh(ROUND_NS + 1, false, &guests);
    assert_eq!(files.status_of(77).unwrap().state(), Some(DomainState::Paused));
    std::fs::remove_file(path).unwrap();
    files.refresh(2 * ROUND_NS + 1, false, &guests);
    assert!(files.status_of(77).is_none());
}

#[test]
fn a_users_file_speaks_for_no_process_of_another_user() {
    let fake = FakeProc::new();
    let uid = own_uid();
    // The user names root's guest of process 77, which runs as another user and lacks a status file.
    write_user(&fake, uid, "mail", &status(77, "mine-now", 0));
    write_user(&fake, uid, "own", &status(90, "own", 0));
    let mut files = StatusFiles::new(fake.paths().run);
    let guests = [guest(77, uid + 1, "mail"), guest(90, uid, "own"), guest(91, uid, "mail")];
    files.refresh(0, true, &guests);
    assert!(files.status_of(77).is_none() && files.status_of(91).is_none());
    assert_eq!(files.status_of(90).unwrap().xml.name.as_deref(), Some("own"));
    // Root's file goes before the user's.
    fake.write("run/libvirt/qemu/own.xml", &status(90, "system", 0));
    files.refresh(0, true, &guests);
    assert_eq!(files.status_of(90).unwrap().xml.name.as_deref(), Some("system"));
    assert_eq!(files.system_pid("1b1d2c0a-0000-4000-8000-000000000001"), Some(90));
}

#[test]
fn a_folder_that_is_not_the_users_own_is_left_out_and_named() {
    let fake = FakeProc::new();
    let other = own_uid() + 1;
    write_user(&fake, other, "a", XML);
    let mut files = StatusFiles::new(fake.paths().run);
    files.refresh(0, true, &[guest(77, other, "a")]);
    assert!(files.status_of(77).is_none());
    assert!(cause(&files).contains("belongs to another user"), "{}", cause(&files));
}

#[test]
fn links_and_pipes_are_left_out_and_named_and_nothing_hangs() {
    let fake = FakeProc::new();
    let uid = own_uid();
    write_user(&fake, uid, "big", &status(1, "big", 200_000));
    let folder = fake.paths().run.join(format!("user/{uid}/libvirt/qemu/run"));
    symlink(folder.join("big.xml"), folder.join("link.xml")).unwrap();
    symlink("/dev/zero", folder.join("zero.xml")).unwrap();
    let pipe = folder.join("pipe.xml");
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let mut files = StatusFiles::new(fake.paths().run);
    files.refresh(0, true, &[guest(1, uid, "link"), guest(2, uid, "zero"), guest(3, uid, "pipe")]);
    assert!((1..=3).all(|pid| files.status_of(pid).is_none()));
    assert!(cause(&files).contains("a link") && cause(&files).contains("and 2 more"), "{}", cause(&files));
    // Files that no guest asks for are not even opened.
    files.refresh(0, true, &[]);
    assert!(files.problem().is_none());
}

/// Needs root, for folders of several owners.
#[test]
fn a_user_who_floods_takes_nothing_from_the_others() {
    if own_uid() != 0 {
        return;
    }
    let fake = FakeProc::new();
    let mut guests = Vec::new();
    let users: [u32; 4] = [3001, 3002, 3003, 3004];
    for (uid, pid) in users.into_iter().zip((0..).step_by(100)) {
        // The last of the users has one guest, the others write as much as they can.
        for pid in pid..pid + if uid == 3004 { 1 } else { 20 } {
            write_user(&fake, uid, &format!("g{pid}"), &status(pid, "g", 50_000));
            guests.push(guest(pid, uid, &format!("g{pid}")));
        }
        for path in ["", "libvirt/qemu/run"].map(|below| fake.paths().run.join(format!("user/{uid}")).join(below)) {
            std::os::unix::fs::chown(&path, Some(uid), None).unwrap();
            for file in std::fs::read_dir(&path).unwrap().flatten() {
                std::os::unix::fs::lchown(file.path(), Some(uid), None).unwrap();
            }
        }
    }
    let small = ReadLimits { file: 60_000, user_bytes: 100_000, bytes: 200_000, ..ReadLimits::default() };
    let mut files = limited(&fake, small);
    files.refresh(0, true, &guests);
    let served = |files: &StatusFiles| [0, 100, 200, 300].map(|pid| files.status_of(pid).is_some());
    assert_eq!(served(&files), [true, true, false, false]);
    files.refresh(0, true, &guests);
    assert_eq!(served(&files), [true, true, true, true], "who waited goes first");
}

#[test]
fn a_flood_is_read_bit_by_bit_and_said() {
    let fake = FakeProc::new();
    let uid = own_uid();
    let guests: Vec<_> = (1..=8).map(|pid| guest(pid, uid, &format!("g{pid}"))).collect();
    for (pid, guest) in (1..).zip(&guests) {
        write_user(&fake, uid, &guest.name, &status(pid, &guest.name, 40_000));
    }
    let small = ReadLimits { user_bytes: 100_000, user_kept: 250_000, ..ReadLimits::default() };
    let mut files = limited(&fake, small);
    let known = |files: &StatusFiles| (1..=8).filter(|pid| files.status_of(*pid).is_some()).count();
    let mut seen = Vec::new();
    for _ in 0..4 {
        files.refresh(0, true, &guests);
        seen.push(known(&files));
    }
    assert_eq!(seen, [2, 4, 6, 6], "two at a time, and no more than may be kept");
    assert!(cause(&files).starts_with("2 status files in /run/user"), "{}", cause(&files));
    // Root's own files are not counted against the users' share.
    fake.write("run/libvirt/qemu/g8.xml", &status(8, "g8", 300_000));
    files.refresh(0, true, &guests);
    assert!(files.status_of(8).is_some());
}

#[test]
fn a_file_that_is_not_a_status_is_parsed_once() {
    let fake = FakeProc::new();
    let uid = own_uid();
    write_user(&fake, uid, "a", &"<a>".repeat(30_000));
    let once = ReadLimits { user_bytes: 100_000, ..ReadLimits::default() };
    let mut files = limited(&fake, once);
    let guests = [guest(77, uid, "a"), guest(78, uid, "b")];
    files.refresh(0, true, &guests);
    write_user(&fake, uid, "b", &status(78, "b", 90_000));
    files.refresh(0, true, &guests);
    assert!(files.status_of(77).is_none() && files.status_of(78).is_some(), "{}", cause(&files));
    assert!(cause(&files).contains("a.xml is not read: it is not the status"), "{}", cause(&files));
}

#[test]
fn names_that_are_no_file_names_are_not_looked_for() {
    assert!(is_file_name("vm-1 ä") && !is_file_name("../x") && !is_file_name("") && !is_file_name(&"x".repeat(251)));
}
