//! A small /proc in a temporary folder, for tests.

use crate::proc::paths::SystemPaths;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A process's `status` with these lines; the other lines that each kernel has are made up.
pub(crate) fn status(lines: &[(&str, &str)]) -> String {
    let known = [
        ("Name", "x"),
        ("State", "S (sleeping)"),
        ("Tgid", "1"),
        ("Pid", "1"),
        ("PPid", "1"),
        ("TracerPid", "0"),
        ("Uid", "0\t0\t0\t0"),
        ("Gid", "0\t0\t0\t0"),
        ("FDSize", "64"),
        ("Groups", "36 107 "),
        ("Threads", "1"),
        ("SigQ", "0/1"),
    ];
    let sets = [
        "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff",
    ]
    .map(|name| (name, "0"));
    let mut all: BTreeMap<_, _> = known.into_iter().chain(sets).collect();
    all.extend(lines.iter().copied());
    let mut text = String::new();
    for (name, value) in all {
        writeln!(text, "{name}:\t{value}").unwrap();
    }
    text
}

/// A folder with `proc`, `sys`, `run` and `dev`.
pub(crate) struct FakeProc {
    root: tempfile::TempDir,
}

/// A process in it. Each change is written at once.
pub(crate) struct FakeProcess<'a> {
    fake: &'a FakeProc,
    pid: i32,
    tid: i32,
}

impl FakeProc {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["proc", "sys", "run", "dev"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        Self { root }
    }

    pub fn paths(&self) -> SystemPaths {
        SystemPaths::under(self.root.path())
    }

    /// Writes a file below the root, with its folders.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A process with its main thread; one that exists is renamed.
    pub fn process(&self, pid: i32, comm: &str) -> FakeProcess<'_> {
        let p = FakeProcess {
            fake: self,
            pid,
            tid: pid,
        };
        fs::create_dir_all(p.dir().join("fd")).unwrap();
        if !p.task().join("stat").exists() {
            p.create();
        }
        p.comm(comm)
    }

    /// Ends a process.
    pub fn end(&self, pid: i32) {
        fs::remove_dir_all(self.root.path().join(format!("proc/{pid}"))).unwrap();
    }

    /// Ends a thread.
    pub fn end_thread(&self, pid: i32, tid: i32) {
        fs::remove_dir_all(self.root.path().join(format!("proc/{pid}/task/{tid}"))).unwrap();
    }

    /// Closes a file of a process.
    pub fn close(&self, pid: i32, fd: i32) {
        fs::remove_file(self.root.path().join(format!("proc/{pid}/fd/{fd}"))).unwrap();
    }
}

impl<'a> FakeProcess<'a> {
    fn dir(&self) -> PathBuf {
        self.fake.root.path().join(format!("proc/{}", self.pid))
    }

    fn task(&self) -> PathBuf {
        self.dir().join(format!("task/{}", self.tid))
    }

    fn create(&self) {
        fs::create_dir_all(self.task()).unwrap();
        let mut line = format!("{} (new) S", self.tid);
        for field in 4..=52 {
            let value = match field {
                20 => 1,
                22 => 100,
                _ => 0,
            };
            write!(line, " {value}").unwrap();
        }
        self.put_stat(&line);
        self.schedstat(0, 0, 0);
    }

    fn put_stat(&self, line: &str) {
        fs::write(self.task().join("stat"), line).unwrap();
        if self.pid == self.tid {
            fs::write(self.dir().join("stat"), line).unwrap();
        }
    }

    /// Sets a field of `stat` by its number.
    pub fn field(self, number: usize, value: &str) -> Self {
        let line = fs::read_to_string(self.task().join("stat")).unwrap();
        let close = line.rfind(')').unwrap();
        let mut words: Vec<_> = line[close + 2..].split(' ').collect();
        words[number - 3] = value;
        self.put_stat(&format!("{} {}", &line[..=close], words.join(" ")));
        self
    }

    pub fn comm(self, comm: &str) -> Self {
        let line = fs::read_to_string(self.task().join("stat")).unwrap();
        let close = line.rfind(')').unwrap();
        self.put_stat(&format!("{} ({comm}{}", self.tid, &line[close..]));
        fs::write(self.task().join("comm"), format!("{comm}\n")).unwrap();
        self
    }

    pub fn start(self, ticks: u64) -> Self {
        self.field(22, &ticks.to_string())
    }

    pub fn state(self, state: char) -> Self {
        self.field(3, &state.to_string())
    }

    pub fn kernel(self) -> Self {
        self.field(9, "2129984")
    }

    /// User (guest included), system and guest ticks.
    pub fn ticks(self, user: u64, system: u64, guest: u64) -> Self {
        self.field(14, &user.to_string())
            .field(15, &system.to_string())
            .field(43, &guest.to_string())
    }

    pub fn schedstat(&self, run: u64, wait: u64, arrivals: u64) -> &Self {
        fs::write(
            self.task().join("schedstat"),
            format!("{run} {wait} {arrivals}\n"),
        )
        .unwrap();
        self
    }

    /// Any file of the thread's folder.
    pub fn file(self, name: &str, text: &str) -> Self {
        fs::write(self.task().join(name), text).unwrap();
        self
    }

    /// Any file of the process's folder.
    pub fn process_file(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        fs::write(self.dir().join(name), text).unwrap();
        self
    }

    pub fn fd(self, fd: i32, target: &str) -> Self {
        let link = self.dir().join(format!("fd/{fd}"));
        let _ = fs::remove_file(&link);
        symlink(target, link).unwrap();
        self
    }

    /// Another thread of the same process.
    pub fn thread(&self, tid: i32, comm: &str) -> FakeProcess<'a> {
        let t = FakeProcess {
            fake: self.fake,
            pid: self.pid,
            tid,
        };
        if !t.task().join("stat").exists() {
            t.create();
        }
        t.comm(comm)
    }
}
