//! The cgroups of guests: how often their CPU bandwidth was throttled.
//!
//! libvirt puts the vCPUs, the emulator and the IOThreads of a domain into groups below the
//! domain's (`machine-qemu….scope/libvirt/vcpu0`; without systemd `qemu-1-NAME.libvirt-qemu/vcpu0`;
//! before libvirt 7.1 without the `libvirt` folder, docs/cgroups.rst). Other guests have the group
//! of their process.

use super::stagger;
use crate::proc::file;
use crate::proc::read_context::ReadContext;
use crate::proc::stat::count;
use kvm::sanitize_name;
use procfs::ProcessCGroups;
use sample::Throttling;
use std::path::{Path, PathBuf};

/// The group of a domain and the one that holds its parts, where this one is the emulator's.
fn libvirt_groups(own: &Path) -> Option<(&Path, &Path)> {
    if own.file_name()? != "emulator" {
        return None;
    }
    let parts = own.parent()?;
    let domain = if parts.file_name().is_some_and(|name| name == "libvirt") {
        parts.parent().unwrap_or(parts)
    } else {
        parts
    };
    Some((domain, parts))
}

/// Groups are nested less deep than this.
const MAX_LEVELS: usize = 64;
/// At most this many entries of a group's folder are looked at: a user may own a part of the
/// hierarchy.
const MAX_ENTRIES: usize = 4096;
/// At most this many groups of one guest are watched.
const MAX_WATCHED: usize = 1024;
/// Time between two searches for groups.
const LOOK_NS: u64 = 10_000_000_000;
/// Time between two readings of a group without a limit, plus up to 2 s: a new limit shows a few
/// seconds later.
const UNLIMITED_NS: u64 = 2_000_000_000;

/// One group.
#[derive(Debug)]
struct CpuGroup {
    name: String,
    folder: PathBuf,
    /// Whether it has a limit: otherwise its figures never change.
    limited: bool,
}

/// The groups of one guest.
#[derive(Debug, Default)]
pub(crate) struct CpuLimits {
    groups: Vec<CpuGroup>,
    /// The group that holds this guest and nothing else.
    pub own: Option<PathBuf>,
    look_due_ns: u64,
    unlimited_due_ns: u64,
}

impl CpuLimits {
    /// Reads the groups that have a limit.
    pub fn read(&mut self, pid: i32, reader: &ReadContext) -> Vec<Throttling> {
        let now_ns = reader.now_ns;
        let look = now_ns >= self.look_due_ns;
        if look {
            self.look_due_ns = now_ns + LOOK_NS + stagger(pid);
            self.find_groups(pid, reader);
        }
        let all = look || now_ns >= self.unlimited_due_ns;
        if all {
            self.unlimited_due_ns = now_ns + UNLIMITED_NS + stagger(pid) / 4;
        }
        let mut found = Vec::new();
        for group in self.groups.iter_mut().filter(|g| g.limited || all) {
            let Ok(text) = file::read_text(&group.folder.join("cpu.stat"), 2048) else {
                continue;
            };
            let Some(throttling) = parse(&text, &group.name) else {
                continue;
            };
            group.limited = throttling.periods > 0;
            if group.limited {
                found.push(Throttling {
                    limit_millis: limit_millis(&group.folder),
                    ..throttling
                });
            }
        }
        found
    }

    fn find_groups(&mut self, pid: i32, reader: &ReadContext) {
        (self.groups, self.own) = (Vec::new(), None);
        let file = reader.paths.process(pid, "cgroup");
        let Some(groups) = file::read_as::<ProcessCGroups>(&file, 64 * 1024) else {
            return;
        };
        // Version 1 has no pressure.
        if let Some(own) = reader.cgroups.unified(&groups) {
            self.own = own_group(&own);
        }
        let Some(own) = reader.cgroups.cpu(&groups) else {
            return;
        };
        let mut folders = Vec::new();
        if let Some((domain, parts)) = libvirt_groups(&own) {
            folders.push(("domain".to_owned(), domain.to_owned()));
            folders.extend(above(domain));
            folders.extend(parts_of(parts));
        } else {
            folders.extend(above(&own));
            folders.push(("domain".to_owned(), own));
        }
        folders.truncate(MAX_WATCHED);
        for (name, folder) in folders {
            self.groups.push(CpuGroup {
                name,
                folder,
                limited: false,
            });
        }
    }
}

/// The group whose pressure is the guest's: its domain's, else the one of its process, if that is
/// alone in it.
fn own_group(own: &Path) -> Option<PathBuf> {
    if let Some((domain, _)) = libvirt_groups(own) {
        return Some(domain.to_owned());
    }
    let processes = file::read_text(&own.join("cgroup.procs"), 1024).ok()?;
    if processes.lines().count() == 1 {
        Some(own.to_owned())
    } else {
        None
    }
}

/// The folder names of a group's ancestors up to the root: a limit of theirs holds for all groups
/// in them.
fn above(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut groups = Vec::new();
    for path in folder.ancestors().skip(1).take(MAX_LEVELS) {
        let Some(name) = path.file_name() else { break };
        if !path.join("cpu.stat").exists() {
            break;
        }
        groups.push((sanitize_name(&name.to_string_lossy(), 128), path.to_owned()));
    }
    groups
}

/// `vcpuN`, `iothreadN` and `emulator` of a domain.
fn parts_of(folder: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    for entry in entries.take(MAX_ENTRIES).flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let is_part =
            name == "emulator" || name.starts_with("vcpu") || name.starts_with("iothread");
        if is_part && entry.path().is_dir() {
            parts.push((sanitize_name(&name, 32), entry.path()));
        }
    }
    parts.sort();
    parts
}

/// CPU time that a group may use, thousandths of a CPU: `cpu.max` of version 2, in version 1 a quota
/// of -1 means no limit.
fn limit_millis(folder: &Path) -> Option<u64> {
    let read = |name: &str| file::read_text(&folder.join(name), 256).ok();
    let text = read("cpu.max").or_else(|| {
        let quota = read("cpu.cfs_quota_us")?;
        Some(format!("{quota} {}", read("cpu.cfs_period_us")?))
    })?;
    let mut words = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let quota_us = words.next()??;
    (quota_us.checked_mul(1000)?).checked_div(words.next()??)
}

/// `cpu.stat`: microseconds in version 2 (Documentation/admin-guide/cgroup-v2.rst), nanoseconds in
/// version 1 (Documentation/scheduler/sched-bwc.rst). `None` for a group whose `cpu` controller is
/// off.
fn parse(text: &str, group: &str) -> Option<Throttling> {
    let throttled_ns = match count(text, "throttled_usec") {
        Some(us) => us.saturating_mul(1000),
        None => count(text, "throttled_time")?,
    };
    Some(Throttling {
        group: group.to_owned(),
        periods: count(text, "nr_periods")?,
        throttled: count(text, "nr_throttled")?,
        throttled_ns,
        limit_millis: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    const V2: &str = "usage_usec 5\nnr_periods 100\nnr_throttled 7\nthrottled_usec 12\nnr_bursts \
        0\n";

    const V1: &str = "nr_periods 100\nnr_throttled 7\nthrottled_time 12000\n";

    fn guest(fake: &FakeProc, cgroup: &str) -> Vec<Throttling> {
        guest_at(fake, cgroup, "cgroup2 none rw")
    }

    fn guest_at(fake: &FakeProc, cgroup: &str, kind: &str) -> Vec<Throttling> {
        let mount = fake.paths().sys.join("fs/cgroup");
        fake.write(
            "proc/self/mountinfo",
            &format!(
                "30 25 0:26 / {} rw,nosuid shared:4 - {kind}\n",
                mount.display()
            ),
        );
        fake.process(10, "qemu")
            .process_file("cgroup", cgroup.as_bytes());
        let mut limits = CpuLimits::default();
        let mut reader = ReadContext::new(&fake.paths());
        let first = limits.read(10, &reader);
        reader.now_ns = 1;
        assert_eq!(
            limits.read(10, &reader),
            first,
            "limited groups are read each time"
        );
        first
    }

    fn names(found: &[Throttling]) -> Vec<(&str, u64, u64, u64)> {
        found
            .iter()
            .map(|t| (t.group.as_str(), t.periods, t.throttled, t.throttled_ns))
            .collect()
    }

    #[test]
    fn a_limit_is_cpu_time_per_time() {
        let fake = FakeProc::new();
        let folder = fake.paths().sys.join("fs/cgroup/a");
        let limit = |files: &[(&str, &str)]| {
            for (name, text) in files {
                fake.write(&format!("sys/fs/cgroup/a/{name}"), text);
            }
            limit_millis(&folder)
        };
        assert_eq!(limit(&[]), None);
        let v1 = |quota| {
            [
                ("cpu.cfs_quota_us", quota),
                ("cpu.cfs_period_us", "100000\n"),
            ]
        };
        assert_eq!(limit(&v1("150000\n")), Some(1500));
        assert_eq!(limit(&v1("-1\n")), None);
        assert_eq!(limit(&[("cpu.max", "20000 100000\n")]), Some(200));
        assert_eq!(limit(&[("cpu.max", "max 100000\n")]), None);
        assert_eq!(limit(&[("cpu.max", "20000 0\n")]), None);
    }

    #[test]
    fn a_domain_of_systemd_and_cgroup_v2() {
        let fake = FakeProc::new();
        let scope = "machine.slice/machine-qemu\\x2d1\\x2da.scope";
        for (part, text) in [
            ("", V2),
            ("/libvirt/vcpu0", V2),
            (
                "/libvirt/vcpu1",
                "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
            ),
            ("/libvirt/emulator", V2),
        ] {
            fake.write(&format!("sys/fs/cgroup/{scope}{part}/cpu.stat"), text);
        }
        let found = guest(&fake, &format!("0::/{scope}/libvirt/emulator\n"));
        assert_eq!(
            names(&found),
            [
                ("domain", 100, 7, 12_000),
                ("emulator", 100, 7, 12_000),
                ("vcpu0", 100, 7, 12_000)
            ]
        );
    }

    #[test]
    fn the_pressure_is_that_of_a_group_without_other_processes() {
        let folder = tempfile::tempdir().unwrap();
        let group = |name: &str, processes: &str| {
            let group = folder.path().join(name);
            std::fs::create_dir_all(&group).unwrap();
            std::fs::write(group.join("cgroup.procs"), processes).unwrap();
            group
        };
        let scope = folder.path().join("machine-qemu.scope");
        let emulator = group("machine-qemu.scope/libvirt/emulator", "9\n10\n");
        assert_eq!(own_group(&emulator), Some(scope));
        let alone = group("100.scope", "10\n");
        assert_eq!(own_group(&alone), Some(alone.clone()));
        assert_eq!(own_group(&group("user.slice", "9\n10\n")), None);
    }

    #[test]
    fn a_limit_from_above_counts_too() {
        let fake = FakeProc::new();
        for group in ["", "/machine.slice", "/machine.slice/vm.scope"] {
            let text = if group == "/machine.slice" {
                V2
            } else {
                "usage_usec 5\n"
            };
            fake.write(&format!("sys/fs/cgroup{group}/cpu.stat"), text);
        }
        assert_eq!(
            names(&guest(&fake, "0::/machine.slice/vm.scope\n")),
            [("machine.slice", 100, 7, 12_000)]
        );
    }

    #[test]
    fn a_limit_set_later_is_seen_within_seconds() {
        let fake = FakeProc::new();
        let idle = "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
        fake.write("sys/fs/cgroup/a.service/cpu.stat", idle);
        assert_eq!(guest(&fake, "0::/a.service\n"), []);
        let mut limits = CpuLimits::default();
        let mut reader = ReadContext::new(&fake.paths());
        let mut read = |second: u64| {
            reader.now_ns = second * 1_000_000_000;
            limits.read(10, &reader).len()
        };
        assert_eq!([0, 1, 2].map(&mut read), [0; 3]);
        fake.write("sys/fs/cgroup/a.service/cpu.stat", V2);
        assert!((3..=6).any(|second| read(second) == 1));
    }

    #[test]
    fn a_domain_of_cgroup_v1_without_systemd() {
        let fake = FakeProc::new();
        let domain = "machine/qemu-1-a.libvirt-qemu";
        for part in ["", "/vcpu0", "/emulator"] {
            fake.write(&format!("sys/fs/cgroup/{domain}{part}/cpu.stat"), V1);
        }
        let cgroup = format!("5:cpuset:/x\n4:cpu,cpuacct:/{domain}/emulator\n0::/y\n");
        let found = guest_at(&fake, &cgroup, "cgroup none rw,cpu,cpuacct");
        assert_eq!(
            names(&found),
            [
                ("domain", 100, 7, 12_000),
                ("emulator", 100, 7, 12_000),
                ("vcpu0", 100, 7, 12_000)
            ]
        );
    }

    #[test]
    fn any_process_has_a_group_but_the_root_limits_nothing() {
        let fake = FakeProc::new();
        fake.write("sys/fs/cgroup/a.service/cpu.stat", V2);
        assert_eq!(
            names(&guest(&fake, "0::/a.service\n")),
            [("domain", 100, 7, 12_000)]
        );
        let fake = FakeProc::new();
        fake.write("sys/fs/cgroup/cpu.stat", V2);
        assert_eq!(names(&guest(&fake, "0::/\n")), []);
        assert_eq!(names(&guest(&fake, "0::/../b\n")), []);
    }
}
