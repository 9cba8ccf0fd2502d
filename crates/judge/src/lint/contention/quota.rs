//! A CFS quota that runs out.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Fix, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;

pub(super) fn quota(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let t = &ctx.thresholds().pinning;
    let mut worst: Option<(Severity, f64, f64, String)> = None;
    for g in guest.domain.throttling.iter().filter(|g| g.throttled > 0) {
        let time = g.throttled_ns as f64 / (seconds * 1e7);
        let periods = if g.periods > 0 { 100.0 * g.throttled as f64 / g.periods as f64 } else { 100.0 };
        let mut severity = t.throttled.of(periods);
        if time >= t.throttled_time {
            severity = Some(Severity::Critical);
        }
        if let Some(s) = severity
            && worst.as_ref().is_none_or(|w| (s, time) > (w.0, w.2))
        {
            worst = Some((s, periods, time, g.group.clone()));
        }
    }
    let Some((severity, periods, time, group)) = worst else { return };
    let vcpu = group.strip_prefix("vcpu").and_then(|n| n.parse::<u32>().ok());
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        target: vcpu.map_or(Target::Domain, Target::Vcpu),
        evidence: vec![
            texts::throttled(&group, periods, &guest.window(), time),
            texts::check_quota(&fixes::virsh(guest, "schedinfo", "")),
        ],
        fix: vec![lift(guest, &group), fixes::advice(texts::FEWER_VCPUS)],
        cost: Some(time),
        marks: vcpu.map(Mark::Vcpu).into_iter().collect(),
        ..texts::QUOTA.finding()
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
            return fixes::command(texts::lift_unit_quota(unit)).needing(texts::UNIT_QUOTA_NEED);
        }
        other => return fixes::advice(texts::raise_group_limit(other)),
    };
    if guest.config.libvirt == Some(false) {
        return fixes::advice(texts::RAISE_CGROUP_LIMIT);
    }
    let set = fixes::virsh(guest, "schedinfo", &format!("--set {which}=-1 {}", fixes::scope(guest)));
    let need = if fixes::is_transient(guest) { texts::TRANSIENT_QUOTA_NEED } else { texts::QUOTA_NEED };
    fixes::command(set).needing(need)
}
