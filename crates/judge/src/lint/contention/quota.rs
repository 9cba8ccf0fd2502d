//! A CFS quota that runs out.

use super::texts;
use crate::lint::fixes::shell::unit_argument;
use crate::lint::prelude::*;

pub(super) fn quota(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let t = &ctx.thresholds().pinning;
    let mut worst: Option<(Severity, f64, f64, String)> = None;
    for g in guest.domain.throttling.iter().filter(|g| g.throttled > 0) {
        let time = g.throttled_ns as f64 / (seconds * 1e7);
        let periods = if g.periods > 0 { 100.0 * g.throttled as f64 / g.periods as f64 } else { 100.0 };
        let severity = if time >= t.throttled_time { Some(Severity::Critical) } else { t.throttled.of(periods) };
        if let Some(s) = severity
            && worst.as_ref().is_none_or(|w| (s, time) > (w.0, w.2))
        {
            worst = Some((s, periods, time, g.group.clone()));
        }
    }
    let Some((severity, periods, time, group)) = worst else { return };
    let vcpu = group.strip_prefix("vcpu").and_then(|n| n.parse::<u32>().ok());
    // The kernel adds up the stopped time of all CPUs of the group.
    let stopped = if time <= 100.0 {
        format!("it was stopped for {} % of the time", figure(time))
    } else {
        format!("the stops cost its CPUs together {} % of one CPU's time", figure(time))
    };
    let (window, info) = (guest.window(), fixes::virsh(guest, "schedinfo", ""));
    let evidence = vec![
        format!("{group}: the quota ran out in {} % of the periods {window}; {stopped}", figure(periods)),
        format!("look at: {info} and cpu.stat (nr_throttled) in the guest's cgroup"),
    ];
    let fix = vec![lift(guest, &group), fixes::advice(texts::FEWER_VCPUS)];
    verdicts.find(Finding {
        target: vcpu.map_or(Target::Domain, Target::Vcpu),
        cost: Some(time),
        marks: vcpu.map(Mark::Vcpu).into_iter().collect(),
        ..Finding::new(severity, Confidence::High, evidence, fix)
    });
}

/// Removes a group's quota.
fn lift(guest: &GuestContext<'_>, group: &str) -> Fix {
    let numbered = |name: &str| group.strip_prefix(name).is_some_and(|n| n.parse::<u32>().is_ok());
    // The characters of unit names (systemd.unit(5)).
    let of_unit = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let is_unit = |name: &str| {
        [".slice", ".scope", ".service"].iter().any(|end| name.ends_with(end)) && name.chars().all(of_unit)
    };
    let which = match group {
        "domain" => "global_quota",
        "emulator" => "emulator_quota",
        _ if numbered("vcpu") => "vcpu_quota",
        _ if numbered("iothread") => "iothread_quota",
        unit if is_unit(unit) => {
            let lift = format!("systemctl set-property --runtime {} CPUQuota=", unit_argument(unit));
            return fixes::command(lift).needing(texts::UNIT_QUOTA_NEED);
        }
        other => {
            return fixes::advice(format!(
                "The limit belongs to cgroup {other}, which contains the guest's: raise its cpu.max (cpu.cfs_quota_us \
                 in version 1)"
            ));
        }
    };
    if guest.config.libvirt == Some(false) {
        return fixes::advice(texts::RAISE_CGROUP_LIMIT);
    }
    let set = fixes::virsh(guest, "schedinfo", &format!("--set {which}=-1 {}", fixes::scope(guest)));
    let need = if fixes::is_transient(guest) { texts::TRANSIENT_QUOTA_NEED } else { texts::QUOTA_NEED };
    fixes::command(set).needing(need)
}
