//! kvmtop watching real guests: what it finds, and when.

use super::cpu_group::CpuGroup;
use super::watch::Watch;
use serde_json::Value;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

/// A finding appears this soon after its cause began, on a host that compiles too. That rules need
/// 10 s at most is tested with simulated time.
pub const REPORTED: Duration = Duration::from_secs(30);
/// A finding is withdrawn this soon after its cause has ended.
pub const WITHDRAWN: Duration = Duration::from_secs(30);

/// kvmtop with guests judged from their first second on.
pub struct Judge {
    watch: Watch,
    /// The last interval.
    pub last: Value,
    _config: tempfile::NamedTempFile,
    _group: Option<CpuGroup>,
}

impl Judge {
    pub fn start() -> Self {
        Self::guarding(0)
    }

    /// The same with guests judged this many seconds after their start.
    pub fn guarding(seconds: u32) -> Self {
        Self::with(seconds, &[])
    }

    /// The same with further options.
    pub fn with(seconds: u32, options: &[&str]) -> Self {
        let config = tempfile::NamedTempFile::new().expect("a file");
        let guards = format!("[findings]\nstartup_guard = {seconds}\nresume_guard = 0\n");
        std::fs::write(config.path(), guards).expect("written");
        let mut arguments = vec![OsStr::new("--config"), config.path().as_os_str()];
        arguments.extend(options.iter().map(OsStr::new));
        let watch = Watch::start(&arguments);
        // kvmtop runs before other load of this machine: the test measures the time of the rules.
        // Without cgroups it competes with that load.
        let group = CpuGroup::new(&format!("kvmtop-judge-{}", watch.pid())).ok();
        if let Some(group) = &group {
            group.first();
            group.take(watch.pid());
        }
        Self {
            last: watch.last().clone(),
            watch,
            _config: config,
            _group: group,
        }
    }

    pub fn next(&mut self) -> &Value {
        self.last.clone_from(self.watch.next());
        &self.last
    }

    /// Waits until a test of an interval holds, at most `limit`; returns how long it took.
    pub fn until(
        &mut self,
        limit: Duration,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Duration {
        let began = Instant::now();
        while !holds(self.next()) {
            assert!(
                began.elapsed() < limit,
                "{what}: not within {limit:?}; the last interval found {}",
                rules(&self.last)
            );
        }
        eprintln!("{what}: {:.1} s", began.elapsed().as_secs_f64());
        began.elapsed()
    }

    /// The name that a process's guest goes by, once it is seen.
    pub fn name(&mut self, pid: u32) -> String {
        self.until(REPORTED, "the guest is seen", |v| {
            domain(v, pid).is_some_and(|d| d["threads"].as_array().is_some_and(|t| t.len() > 1))
        });
        domain(&self.last, pid).expect("seen")["name"]
            .as_str()
            .expect("a name")
            .to_owned()
    }

    /// The thread of the guest's first vCPU.
    pub fn vcpu(&self, pid: u32) -> i32 {
        let threads = domain(&self.last, pid).expect("the guest")["threads"]
            .as_array()
            .expect("threads");
        let thread = threads
            .iter()
            .find(|t| t["role"] == "vcpu")
            .expect("a vCPU");
        i32::try_from(thread["tid"].as_i64().expect("a TID")).expect("a TID")
    }
}

fn domain(interval: &Value, pid: u32) -> Option<&Value> {
    interval["domains"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|d| d["pid"] == pid)
}

/// All findings of an interval.
pub fn findings(interval: &Value) -> impl Iterator<Item = &Value> {
    interval["findings"].as_array().into_iter().flatten()
}

/// Who found what, for messages.
pub fn rules(interval: &Value) -> String {
    let all: Vec<String> = findings(interval)
        .map(|f| format!("{} of {}: {}", f["rule"], f["domain"], f["title"]))
        .collect();
    all.join(", ")
}

/// The findings that concern a guest, alone or with others.
pub fn about<'v>(interval: &'v Value, domain: &'v str) -> impl Iterator<Item = &'v Value> {
    let also = move |f: &Value| {
        f["also"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|other| other == domain)
    };
    findings(interval).filter(move |f| f["domain"] == domain || also(f))
}

/// The findings of a rule about a guest, alone or as part of another finding.
fn of<'v>(interval: &'v Value, rule: &'v str, domain: &'v str) -> impl Iterator<Item = &'v Value> {
    about(interval, domain).filter(move |f| {
        let folded = f["folded"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|r| r == rule);
        f["rule"] == rule || folded
    })
}

/// Whether a rule reports a guest.
pub fn reported(interval: &Value, rule: &str, domain: &str) -> bool {
    of(interval, rule, domain).next().is_some()
}

/// What a rule shows of a guest.
pub fn evidence(interval: &Value, rule: &str, domain: &str) -> String {
    of(interval, rule, domain)
        .map(|f| f["evidence"].to_string())
        .collect()
}
