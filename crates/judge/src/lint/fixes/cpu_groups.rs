//! Groups of processes that leave a guest too few CPUs for its pins.

use super::command;
use super::shell::{quoted, unit_argument};
use crate::lint::prelude::*;
use crate::placement::GuestPlan;
use kvm::CpuSet;
use sample::GroupCpus;
use std::collections::BTreeMap;

/// The outermost group that lacks CPUs which a pin names.
pub(crate) fn bound<'a>(guest: &GuestContext<'a>, wanted: &CpuSet) -> Option<&'a GroupCpus> {
    guest.domain.facts.cpu_groups.iter().find(|group| !wanted.is_subset(&group.cpus))
}

/// A group by its last folder, as systemd names its units.
pub(crate) fn name(group: &GroupCpus) -> String {
    group.folder.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The commands without which the kernel refuses the pins of a plan: from the root downwards, one for each group.
pub(super) fn widen<'a>(changed: impl Iterator<Item = (&'a GuestContext<'a>, &'a GuestPlan)>) -> Vec<Fix> {
    let widened = |(group, cpus): (&GroupCpus, CpuSet)| {
        command(set(group, &cpus)).needing(&format!(
            "comes first: {} leaves its guests only CPUs {}, and the kernel refuses pins beyond them; to keep that \
             bound, pin the guests within it instead",
            name(group),
            group.cpus
        ))
    };
    too_narrow(changed).into_iter().map(widened).collect()
}

/// The commands that undo a guest's widening, the innermost group first.
pub(super) fn narrow<'a>(guest: &'a GuestContext<'a>, part: &'a GuestPlan) -> impl Iterator<Item = String> {
    too_narrow(std::iter::once((guest, part))).into_iter().rev().map(|(group, _)| set(group, &group.cpus))
}

/// The groups that pins go beyond, from the root downwards, and the CPUs that each needs.
fn too_narrow<'a>(
    changed: impl Iterator<Item = (&'a GuestContext<'a>, &'a GuestPlan)>,
) -> Vec<(&'a GroupCpus, CpuSet)> {
    // A folder is shorter than those in it.
    let mut groups: BTreeMap<(usize, &str), (&GroupCpus, CpuSet)> = BTreeMap::new();
    for (guest, part) in changed {
        let pins = part.vcpus.values().chain(&part.emulator).chain(part.iothreads.values());
        let wanted = pins.fold(CpuSet::new(), |all, cpus| all.union(cpus));
        for group in guest.domain.facts.cpu_groups.iter().filter(|group| !wanted.is_subset(&group.cpus)) {
            let all = &mut groups.entry((group.folder.len(), &group.folder)).or_insert((group, group.cpus.clone())).1;
            *all = all.union(&wanted);
        }
    }
    groups.into_values().collect()
}

/// The command that gives a group these CPUs.
fn set(group: &GroupCpus, cpus: &CpuSet) -> String {
    let unit = name(group);
    if [".slice", ".scope", ".service"].iter().any(|end| unit.ends_with(end)) {
        format!("systemctl set-property {} AllowedCPUs={cpus}", unit_argument(&unit))
    } else {
        format!("echo {cpus} > {}", quoted(&format!("{}/cpuset.cpus", group.folder)))
    }
}
