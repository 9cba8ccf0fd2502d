//! Whose files a recorder writes, moves and deletes, as in a folder where others may write; and
//! what becomes of a recording whose file is taken away.

use crate::common;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use sample::Sample;
use session::{Limits, Recorder, Session};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A part of a recording lasts a second.
const AGE: Limits = Limits {
    size: None,
    age: Some(Duration::from_secs(8)),
};

fn sample(time_ms: i64) -> Sample {
    Sample {
        time_ms,
        ..Sample::default()
    }
}

fn refused(path: &Path) -> String {
    format!(
        "{:#}",
        Recorder::create(path, Limits::default()).err().unwrap()
    )
}

fn recording(path: &Path) -> Vec<u8> {
    let mut recorder = Recorder::create(path, Limits::default()).unwrap();
    recorder.append(&sample(0)).unwrap();
    recorder.close().unwrap();
    fs::read(path).unwrap()
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

#[test]
fn a_recording_is_its_users_alone_and_goes_through_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let [own, link, dangling, pipe] =
        ["own", "link", "dangling", "pipe"].map(|name| dir.path().join(name));
    let bytes = recording(&own);
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o600);
    symlink(&own, &link).unwrap();
    symlink(dir.path().join("none"), &dangling).unwrap();
    fifo(&pipe);
    assert!(refused(&link).contains("symbolic link"));
    assert!(refused(&dangling).contains("symbolic link"));
    assert!(!dir.path().join("none").exists());
    assert!(refused(&pipe).contains("not a regular file"));
    assert_eq!(fs::read(&own).unwrap(), bytes);
    if !rustix::process::geteuid().is_root() {
        return common::skipped("a recording of another user", "not root");
    }
    chown(&own, Some(65_534), None).unwrap();
    assert!(refused(&own).contains("belongs to another user (uid 65534)"));
    assert_eq!(fs::read(&own).unwrap(), bytes);
    common::ran("a recording of another user");
}

/// The suffix of the file in the way, a function that creates the file, and the error's words for
/// it.
type Case = (&'static str, fn(&Path), &'static str);

#[test]
fn rotation_touches_no_file_that_is_not_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [Case; 5] = [
        (
            ".next",
            |p| fs::write(p, "another's").unwrap(),
            "is in the way",
        ),
        (
            ".next",
            |p| symlink("/etc/passwd", p).unwrap(),
            "is a symbolic link",
        ),
        (".next", fifo, "is not a regular file"),
        (".1", fifo, "is not a regular file"),
        (
            ".1",
            |p| symlink("/nowhere", p).unwrap(),
            "is a symbolic link",
        ),
    ];
    for (n, (suffix, make, error)) in cases.into_iter().enumerate() {
        let path = dir.path().join(n.to_string());
        let stranger = beside(&path, suffix);
        make(&stranger);
        let before = fs::symlink_metadata(&stranger).unwrap();
        let mut recorder = Recorder::create(&path, AGE).unwrap();
        recorder.append(&sample(0)).unwrap();
        let said = format!("{:#}", recorder.append(&sample(5000)).unwrap_err());
        assert!(
            said.contains(error) && said.contains(&*stranger.to_string_lossy()),
            "{said}"
        );
        let after = fs::symlink_metadata(&stranger).unwrap();
        assert_eq!((before.ino(), before.len()), (after.ino(), after.len()));
        drop(recorder);
        assert_eq!(Session::open(&path).unwrap().len(), 1, "{said}");
    }
    // A file left by a killed recorder does not stop a new recorder.
    let path = dir.path().join("killed");
    fs::write(beside(&path, ".next"), "").unwrap();
    let mut recorder = Recorder::create(&path, AGE).unwrap();
    [0, 5000]
        .into_iter()
        .for_each(|ms| recorder.append(&sample(ms)).unwrap());
    recorder.close().unwrap();
    assert_eq!(Session::open(&path).unwrap().len(), 2);
}

#[test]
fn a_pipe_in_the_place_of_a_part_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    recording(&path);
    fifo(&beside(&path, ".1"));
    assert_eq!(Session::open(&path).unwrap().len(), 1);
    let pipe = dir.path().join("pipe");
    fifo(&pipe);
    for arguments in [["replay", "-b"], ["report", "--json"]] {
        // The folder has the pipes in it.
        let input = if arguments[0] == "replay" {
            &pipe
        } else {
            dir.path()
        };
        let out = common::kvmtop()
            .args(arguments)
            .arg(input)
            .output()
            .unwrap();
        assert_eq!(out.status.success(), arguments[0] == "report", "{out:?}");
    }
    // A pipe that the user names is read: `report <(zcat table.gz)`.
    let table = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/forged/guest.xml"
    );
    let mut child = common::kvmtop()
        .arg("report")
        .arg(&pipe)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    fs::write(&pipe, fs::read(table).unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_recording_that_is_taken_away_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("folder/a");
    let begin = || {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut recorder = Recorder::create(&path, Limits::default()).unwrap();
        recorder.append(&sample(0)).unwrap();
        recorder
    };
    let mut recorder = begin();
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert!(recorder.is_lost());
    let said = format!("{:#}", recorder.append(&sample(1)).unwrap_err());
    assert!(said.contains("was deleted or moved away"), "{said}");
    let said = format!("{:#}", recorder.close().unwrap_err());
    assert!(said.contains("was deleted"), "{said}");
    let recorder = begin();
    fs::rename(&path, dir.path().join("elsewhere")).unwrap();
    let said = format!("{:#}", recorder.close().unwrap_err());
    assert!(said.contains("was deleted or moved away"), "{said}");
    assert_eq!(
        Session::open(&dir.path().join("elsewhere")).unwrap().len(),
        1
    );
}

#[test]
fn a_recording_that_is_cut_while_it_is_written_ends_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let fixture = testkit::Fixture::busy_host();
    let mut recorder = Recorder::create(&path, Limits::default()).unwrap();
    recorder.append(&fixture.sample(1.0)).unwrap();
    fs::File::create(&path).unwrap();
    let said = format!("{:#}", recorder.append(&fixture.sample(2.0)).unwrap_err());
    assert!(
        said.contains("was cut while it was being recorded into: samples are lost"),
        "{said}"
    );
    assert!(recorder.is_lost() && recorder.close().is_err());
}

#[test]
fn the_program_says_that_its_recording_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("a");
    let mut command = common::kvmtop();
    command
        .arg("record")
        .arg(&path)
        .args(["-d", "0.1", "--engine", "none", "--no-monitor"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("recording into") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0);
    }
    fs::remove_dir_all(&folder).unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
    assert!(
        rest.contains("was deleted or moved away while it was being recorded into"),
        "{rest}"
    );
}
