//! KVM's statistics as `grep . /sys/kernel/debug/kvm/*` and `grep -r . /sys/kernel/debug/kvm/PID-FD` print them
//! (`kvm_create_vm_debugfs` in the kernel's `virt/kvm/kvm_main.c`).

use super::{GuestStats, MAX_LINES, StatsReading, add, clock_ms};
use std::collections::BTreeMap;

/// Statistics that tell that lines without a path are KVM's.
const TELLING: &[&str] = &["exits", "halt_exits", "io_exits", "irq_injections", "halt_wakeup", "mmio_exits"];

/// One value: the VMM's process where the path names it, the vCPU, the name and the value.
struct DebugfsLine<'a> {
    pid: Option<i32>,
    vcpu: Option<u32>,
    name: &'a str,
    value: &'a str,
}

fn line(text: &str) -> Option<DebugfsLine<'_>> {
    let (path, value) = text.split_once(':')?;
    let value = value.trim();
    if path.len() > 256 || value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut parts: Vec<&str> = path.trim_start_matches("./").split('/').collect();
    let name = parts.pop()?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
        return None;
    }
    let vcpu = parts.last().and_then(|part| part.strip_prefix("vcpu")?.parse().ok());
    if vcpu.is_some() {
        parts.pop();
    }
    // `4391-12`: the process and its descriptor of the VM.
    let pid = parts.last().and_then(|part| {
        let (pid, fd) = part.split_once('-')?;
        fd.parse::<u32>().ok()?;
        pid.parse::<i32>().ok()
    });
    if pid.is_some() {
        parts.pop();
    }
    let rest = parts.join("/");
    (rest.is_empty() || rest.ends_with("debug/kvm")).then_some(DebugfsLine { pid, vcpu, name, value })
}

pub(super) fn parse(text: &str) -> Vec<GuestStats> {
    let lines = || text.lines().take(MAX_LINES);
    let telling = |text: &str| line(text).is_some_and(|found| TELLING.contains(&found.name));
    // Values without a path have to be of KVM by their names.
    if lines().filter(|text| telling(text)).take(3).count() < 3 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut open: BTreeMap<Option<i32>, StatsReading> = BTreeMap::new();
    let mut clock = None;
    let end = |open: &mut BTreeMap<Option<i32>, StatsReading>, found: &mut Vec<GuestStats>| {
        // The files above those of each guest are the sums of all guests.
        let single = open.len() == 1;
        for (pid, reading) in std::mem::take(open) {
            if pid.is_some() || single {
                add(found, GuestStats { pid, reading, ..GuestStats::default() });
            }
        }
    };
    for text in lines() {
        let Some(DebugfsLine { pid, vcpu, name, value }) = line(text) else {
            clock = clock_ms(text).or(clock);
            continue;
        };
        let key = match vcpu {
            Some(vcpu) => format!("vcpu.{vcpu}.{name}.sum"),
            None => format!("vm.{name}.sum"),
        };
        if open.get(&pid).is_some_and(|reading| reading.values.contains_key(&key)) {
            end(&mut open, &mut found);
        }
        if open.len() < super::MAX_READINGS {
            let reading =
                open.entry(pid).or_insert_with(|| StatsReading { clock_ms: clock, ..StatsReading::default() });
            reading.insert(&key, value);
        }
    }
    end(&mut open, &mut found);
    found
}
