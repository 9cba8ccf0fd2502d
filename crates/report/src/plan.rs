//! `kvmtop plan`: the host before and after, why each thread moves, and what to paste.

use super::document::SCHEMA;
use super::json::TOOL;
use crate::objects;
use crate::table::{Column, cut, or_dash, table, wrapped};
use judge::analysis::DomainFilter;
use judge::lint::{Fix, FixKind, HostPlan, PlannedGuest};
use judge::placement::{GuestLayout, HelperLayout, MoveReason, PhysicalCore};
use kvm::{CpuSet, sanitize_name};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

objects! {
    /// One placement of all guests (`plan --json`). Nothing is applied.
    #[schemars(rename = "plan")]
    pub struct JsonPlan(plan: &HostPlan, input: &str, filter: &DomainFilter) {
        /// Version of this format.
        #[schemars(extend("const" = 1))]
        schema: u32 = SCHEMA,
        /// `kvmtop` and its version.
        tool: &'static str = TOOL,
        /// Kind of input, as in a report.
        source: String = input.to_owned(),
        /// The host before and after.
        host: JsonPlanHost = JsonPlanHost::new(plan),
        /// The selected guests, in order of the input.
        guests: Vec<JsonPlannedGuest> =
            selected_guests(plan, filter).map(JsonPlannedGuest::new).collect(),
    }

    /// The host of a plan.
    pub struct JsonPlanHost(plan: &HostPlan) {
        /// The CPUs that are online; empty where they are unknown, and then nothing is planned.
        cpus: Vec<JsonPlanCpu> = plan_cpus(plan),
    }

    /// A CPU before and after the plan.
    pub struct JsonPlanCpu(
        number: u32, core: &PhysicalCore, plan: &HostPlan, now: Vec<String>, then: Vec<String>
    ) {
        /// Its number.
        cpu: u32 = number,
        /// Its NUMA node. `null`: unknown.
        node: Option<u32> = core.node,
        /// The online hardware threads of its core, itself included.
        siblings: Vec<u32> = core.cpus.clone(),
        /// Whether the scheduler balances no load on it.
        isolated: bool = plan.map.isolated.contains(number),
        /// What the host's own tasks use of it, percent, where that is why nobody is moved there
        /// while others are free. `null`: little, or unknown.
        host_tasks_percent: Option<f64> = plan.busy.get(&number).copied(),
        /// Who may run there: `guest/2` is vCPU 2, pinned to this CPU alone; `guest/~` a set of
        /// several CPUs that reaches it.
        before: Vec<String> = now,
        /// The same after the plan, optional moves included.
        after: Vec<String> = then,
    }

    /// A guest of a plan.
    pub struct JsonPlannedGuest(guest: &PlannedGuest) {
        /// Its name.
        name: String = guest.facts.name.value.clone(),
        /// Its vCPUs.
        vcpus: usize = guest.before.vcpus.len(),
        /// Nothing is wrong with it: it is not pinned and could have CPUs of its own.
        optional: bool = guest.plan.optional,
        /// Its vCPUs get a set to share, because too few CPUs are left for CPUs of their own.
        shares: bool = guest.plan.shares,
        /// The threads that get other CPUs; empty where it stays.
        moves: Vec<ThreadMove> = thread_moves(guest),
        /// The commands and XML to get there.
        fix: Vec<Fix> = guest.fix.clone(),
        /// What brings its threads back to where they may run now; empty where it stays.
        undo: Vec<Fix> = guest.undo.clone(),
    }
}

/// A thread that gets other CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ThreadMove {
    /// `vCPU 2`, `emulator` or `IOThread 1`.
    thread: String,
    /// The CPUs that it may use now. `null`: nothing restricts it, and where it runs is not
    /// measured.
    from: Option<String>,
    /// The CPUs that it gets.
    to: String,
    /// Why.
    reason: String,
}

/// The reason for a move, as a clause.
fn reason_clause(reason: MoveReason) -> &'static str {
    match reason {
        MoveReason::Absent => "its pin names CPUs that are offline or missing",
        MoveReason::Drift => "it runs elsewhere than its configuration says",
        MoveReason::Overlap => "another vCPU has the CPU",
        MoveReason::Partly => "it may run on the CPUs of the guest's pinned vCPUs",
        MoveReason::Isolated => "nothing balances load among isolated CPUs",
        MoveReason::ThreadsApart => "the threads of its guest core are on different cores",
        MoveReason::SharedCore => "it shares a core that the guest takes for two",
        MoveReason::NodeSplit => "the guest is on several nodes and sees one",
        MoveReason::HostStarved => "the host has no CPU of its own",
        MoveReason::PoolOverlap => "pinned vCPUs have CPUs within its set",
        MoveReason::Together => "it moves with the rest of its guest core",
        MoveReason::Unpinned => "it is not pinned, and there is room for a CPU of its own",
    }
}

/// The reason why an emulator or `IOThread` moves.
fn helper_reason(before: &HelperLayout) -> &'static str {
    if before.absent {
        return reason_clause(MoveReason::Absent);
    }
    if before.drifted.is_some() {
        return reason_clause(MoveReason::Drift);
    }
    "it may run on the CPUs of pinned vCPUs"
}

/// Why a vCPU moves that has no reason of its own.
const WITH_GUEST: &str = "it moves with the other vCPUs of its guest";

/// The threads of a guest that move.
fn thread_moves(guest: &PlannedGuest) -> Vec<ThreadMove> {
    let PlannedGuest { plan, before, .. } = guest;
    let sharing = if plan.shares {
        "; too few CPUs for CPUs of their own"
    } else {
        ""
    };
    let mut moves = Vec::new();
    for (v, to) in &plan.vcpus {
        let reason = plan.reasons.iter().find(|(_, vcpus)| vcpus.contains(*v));
        let reason = reason.map_or(WITH_GUEST, |(reason, _)| reason_clause(*reason));
        moves.push(ThreadMove {
            thread: format!("vCPU {v}"),
            from: cpus_text(before.vcpus.get(*v as usize)),
            to: to.to_string(),
            reason: format!("{reason}{sharing}"),
        });
    }
    for (id, to) in &plan.helpers {
        let Some(layout) = before.helpers.get(id) else {
            continue;
        };
        moves.push(ThreadMove {
            thread: id.map_or_else(|| "emulator".into(), |id| format!("IOThread {id}")),
            from: cpus_text(layout.cpus.as_ref()),
            to: to.to_string(),
            reason: format!("{}{sharing}", helper_reason(layout)),
        });
    }
    moves
}

/// CPUs as text; `None` without any.
fn cpus_text(cpus: Option<&CpuSet>) -> Option<String> {
    cpus.map(CpuSet::to_string).filter(|cpus| !cpus.is_empty())
}

/// Who may run on each CPU, as [`JsonPlanCpu`] has it.
fn users_of_cpus(
    plan: &HostPlan,
    layout: fn(&PlannedGuest) -> &GuestLayout,
) -> BTreeMap<u32, Vec<String>> {
    let mut users: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for guest in &plan.guests {
        let name = &guest.facts.name.value;
        let layout = layout(guest);
        for (vcpu, cpu) in layout.pins(&plan.map) {
            users.entry(cpu).or_default().push(format!("{name}/{vcpu}"));
        }
        for cpu in layout.reach(&plan.map).iter() {
            users.entry(cpu).or_default().push(format!("{name}/~"));
        }
    }
    users
}

/// The guests that the filter selects.
fn selected_guests<'a>(
    plan: &'a HostPlan,
    filter: &'a DomainFilter,
) -> impl Iterator<Item = &'a PlannedGuest> {
    plan.guests.iter().filter(|g| filter.matches(&g.facts))
}

fn plan_cpus(plan: &HostPlan) -> Vec<JsonPlanCpu> {
    let mut before = users_of_cpus(plan, |g| &g.before);
    let mut after = users_of_cpus(plan, |g| &g.after);
    let mut cpus = Vec::new();
    for core in &plan.map.cores {
        for cpu in &core.cpus {
            let now = before.remove(cpu).unwrap_or_default();
            let then = after.remove(cpu).unwrap_or_default();
            cpus.push(JsonPlanCpu::new(*cpu, core, plan, now, then));
        }
    }
    cpus.sort_by_key(|c| c.cpu);
    cpus
}

const MAP: &[Column<JsonPlanCpu>] = &[
    ("CPU", |c| c.cpu.to_string()),
    ("NODE", |c| or_dash(c.node)),
    ("<CORE", |c| {
        c.siblings
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(",")
    }),
    ("<ISOLATED", |c| if c.isolated { "yes" } else { "" }.into()),
    ("<BEFORE", |c| cut(&c.before.join(" "), 24)),
    ("<AFTER", |c| cut(&c.after.join(" "), 24)),
];

/// The plan as text, for the selected guests; the map shows all.
pub fn text(plan: &HostPlan, filter: &DomainFilter, columns: usize) -> String {
    if plan.map.all.is_empty() {
        let why = "no plan: the CPUs of this host are unknown (add the output of `lscpu -p` or \
            `virsh capabilities`)";
        return wrapped(why, 2, columns);
    }
    let changed: Vec<&PlannedGuest> = selected_guests(plan, filter)
        .filter(|g| !g.plan.is_empty())
        .collect();
    let (used, free): (Vec<_>, Vec<_>) = plan_cpus(plan)
        .into_iter()
        .partition(|c| !c.before.is_empty() || !c.after.is_empty());
    let mut out = table(0, &used, usize::MAX, MAP);
    let free: CpuSet = free.iter().map(|c| c.cpu).collect();
    out.push_str(&wrapped(
        &format!("free: {}", or_dash(cpus_text(Some(&free)))),
        2,
        columns,
    ));
    if changed.is_empty() {
        out.push_str("\nnothing has to move\n");
        return out;
    }
    for guest in changed {
        write_guest(&mut out, guest, columns);
    }
    out.push_str("\nkvmtop changes nothing by itself\n");
    out
}

/// What moves of a guest, why, and what to paste.
fn write_guest(out: &mut String, guest: &PlannedGuest, columns: usize) {
    let optional = if guest.plan.optional {
        " (optional: nothing is wrong with it)"
    } else {
        ""
    };
    let name = sanitize_name(&guest.facts.name.value, 64);
    let _ = writeln!(out, "\n{name}{optional}");
    for m in thread_moves(guest) {
        let from = m.from.as_deref().unwrap_or("-");
        let step = format!("{}: {from} -> {}", m.thread, m.to);
        out.push_str(&wrapped(&format!("  {step:<20} {}", m.reason), 23, columns));
    }
    for fix in &guest.fix {
        write_fix(out, fix, columns);
    }
    if !guest.undo.is_empty() {
        out.push_str("  to go back:\n");
        for line in guest.undo.iter().flat_map(|fix| fix.text.lines()) {
            let _ = writeln!(out, "    {line}");
        }
    }
}

fn write_fix(out: &mut String, fix: &Fix, columns: usize) {
    if fix.kind == FixKind::Advice {
        out.push_str(&wrapped(&format!("  {}", fix.text), 2, columns));
        return;
    }
    out.push_str(&wrapped(
        &format!("  {}:", fix.needs.as_deref().unwrap_or(fix.kind.as_str())),
        2,
        columns,
    ));
    for line in fix.text.lines() {
        let _ = writeln!(out, "    {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use judge::lint::{Options, plan};
    use judge::testing::FixtureModel as _;
    use kvm::domain_xml::{self, DomainXml};
    use sample::{Known, Origin};
    use std::sync::Arc;
    use testkit::{Fixture, Guest, Host};

    fn two_guests_on_one_cpu() -> HostPlan {
        let pinned = |name, pid, cpus: &'static [u32]| {
            Guest::new(name, pid).vcpus(cpus.len() as u32, move |v, t| t.pinned(cpus[v as usize]))
        };
        let fixture = Fixture::new(Host::numa(1, 4, 2).isolated("6-7"))
            .guest(pinned("db", 10, &[1, 5]))
            .guest(pinned("web", 20, &[5, 2]));
        plan(&fixture.model(), &Options::default())
    }

    #[test]
    fn the_plan_as_text() {
        insta::with_settings!({
            snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/../../snapshots"),
            prepend_module_to_snapshot => false,
        }, {
            insta::assert_snapshot!("plan__two_guests", text(&two_guests_on_one_cpu(), &DomainFilter::default(), 100));
        });
    }

    #[test]
    fn the_plan_as_json_names_every_move() {
        let plan = two_guests_on_one_cpu();
        let value =
            serde_json::to_value(JsonPlan::new(&plan, "live", &DomainFilter::default())).unwrap();
        let moves: Vec<&serde_json::Value> = value["guests"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|g| g["moves"].as_array().unwrap())
            .collect();
        assert_eq!(moves.len(), 1, "{value:#}");
        assert_eq!(
            (moves[0]["thread"].as_str(), moves[0]["from"].as_str()),
            (Some("vCPU 0"), Some("5"))
        );
        assert_eq!(
            value["host"]["cpus"][5]["before"],
            serde_json::json!(["db/1", "web/0"])
        );
    }

    #[test]
    fn the_way_back_is_the_pins_of_now() {
        let pinned = Guest::new("db", 10)
            .vcpus(2, |v, t| t.pinned(v * 4))
            .emulator(|t| t.may_run("0-3"));
        let free = Guest::new("web", 20)
            .vcpus(2, |_, t| t.may_run("4"))
            .iothread(1, |t| t.may_run("0-7"));
        let xml = "<domain><vcpu>2</vcpu><iothreads>1</iothreads><cputune><vcpupin vcpu='1' \
                cpuset='4'/></cputune></domain>";
        let xml = Known::new(Arc::new(domain_xml::parse(xml).unwrap()), Origin::Libvirt);
        let fixture = Fixture::new(Host::numa(1, 8, 1))
            .guest(pinned)
            .guest(free.facts(|f| f.xml = Some(xml)));
        let plan = plan(&fixture.model(), &Options::default());
        let lines = |fixes: &[Fix]| {
            fixes
                .iter()
                .flat_map(|f| f.text.lines())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let undo: Vec<String> = plan.guests.iter().flat_map(|g| lines(&g.undo)).collect();
        let done: Vec<String> = plan.guests.iter().flat_map(|g| lines(&g.fix)).collect();
        assert!(!undo.is_empty());
        for line in &undo {
            let thread = |line: &str| {
                line.split_whitespace()
                    .take(4)
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert!(
                done.iter().any(|d| thread(d) == thread(line)),
                "{line} of {done:#?}"
            );
        }
        assert!(
            undo.contains(&"virsh vcpupin web 0 4 --live --config".to_owned()),
            "{undo:#?}"
        );
    }

    #[test]
    fn a_guest_that_is_shut_off_is_changed_in_its_configuration_alone() {
        let xml = "<domain><vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' \
            cpuset='2'/><emulatorpin cpuset='0'/></cputune></domain>";
        let lines = |state: Option<&str>| {
            let xml = DomainXml {
                state: state.map(str::to_owned),
                ..domain_xml::parse(xml).unwrap()
            };
            let mut guest = Guest::new("db", 10).facts(|f| {
                f.pid = None;
                f.xml = Some(Known::new(Arc::new(xml), Origin::File));
            });
            guest.threads.clear();
            let plan = plan(
                &Fixture::new(Host::numa(1, 4, 1)).guest(guest).model(),
                &Options::default(),
            );
            let of = |fixes: &[Fix]| {
                fixes
                    .iter()
                    .find(|f| f.kind == FixKind::Command)
                    .unwrap()
                    .text
                    .clone()
            };
            (of(&plan.guests[0].fix), of(&plan.guests[0].undo))
        };
        let both = (
            "virsh vcpupin db 1 1 --live --config".to_owned(),
            "virsh vcpupin db 1 2 --live --config".to_owned(),
        );
        assert_eq!(lines(None), both);
        let config = |line: &String| line.replace(" --live", "");
        assert_eq!(
            lines(Some(domain_xml::SHUT_OFF)),
            (config(&both.0), config(&both.1))
        );
    }

    #[test]
    fn lines_of_a_plan_fit_a_terminal() {
        let guest = Guest::new("a-guest-with-a-long-name", 10).vcpus(2, |_, t| t.pinned(3));
        for host in [
            Host::numa(2, 16, 2),
            Host::numa(1, 14, 1),
            Host::numa(4, 30, 2),
        ] {
            let plan = plan(
                &Fixture::new(host).guest(guest.clone()).model(),
                &Options::default(),
            );
            let text = text(&plan, &DomainFilter::default(), 80);
            let wide: Vec<&str> = text.lines().filter(|l| l.chars().count() > 80).collect();
            assert!(wide.is_empty(), "{wide:#?}");
        }
    }

    #[test]
    fn an_unknown_host_has_no_plan() {
        let plan = plan(
            &Fixture::new(Host::default())
                .guest(Guest::new("a", 5))
                .model(),
            &Options::default(),
        );
        assert!(text(&plan, &DomainFilter::default(), 80).starts_with("no plan"));
    }
}
