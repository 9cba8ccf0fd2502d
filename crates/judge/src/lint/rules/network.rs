//! Network: packets that guests lose, and links of the host that are full.

use crate::figures::{figure, rate};
use crate::lint::facts::rule::Check::{Behaviour, Host};
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Hold, Mark, Rule, RuleDoc, RuleId, Severity,
    Verdicts, known, links, thresholds,
};
use crate::lint::fixes;
use crate::model::ThreadModel;
use kvm::thread_name::Role;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::NicDrops, Behaviour(drops), Hold::LONG).described(RuleDoc {
        sees: "packets for the guest are dropped at its network interface",
        problem: "packets to it are dropped",
        why: "A tap device holds so many packets (txqueuelen) until the guest, or vhost for it, \
            takes them. It drops what comes while the queue is full: the guest's vCPU or its vhost \
            thread did not run in time, or there is more than they can take",
        thresholds: thresholds![network.drops, network.drop_percent, network.vhost_busy],
        limits: "Counts drops towards the guest alone: what it sends is dropped by limits and \
            filters. Interfaces without a device on the host (vhost-user, passed-through cards) \
            are counted by their switch only",
        fix: "What keeps the vCPU or vhost from running, more queues, or a longer queue",
        links: &[links::CPU_TUNING, links::INTERFACES],
    }),
    Rule::new(RuleId::HostLinkFull, Host(full_links), Hold::LONG).described(RuleDoc {
        sees: "a network link of the host carries all that it can",
        problem: "the host's link is full",
        why: "What guests send and receive beyond the link's speed waits or is dropped",
        thresholds: thresholds![network.link_full],
        limits: "Needs a driver that says the link's speed",
        fix: "The guests that send or receive most, a limit for them, or a faster link",
        links: &[links::INTERFACES],
    }),
];

fn drops(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let limits = &ctx.thresholds().network;
    let nics = guest.domain.nics.iter();
    let dropping = nics.filter_map(|nic| Some((nic, nic.rx_drops?)));
    let Some((nic, lost)) = dropping.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return;
    };
    let percent = 100.0 * lost / (nic.rx_packets + lost).max(1.0);
    if lost < limits.drops || percent < limits.drop_percent {
        return;
    }
    let cause = cause(ctx, guest);
    let evidence = known([
        Some(format!(
            "interface {}: {} packets/s for the guest are dropped, {} % of them, between the last \
                two readings",
            nic.name,
            rate(lost),
            figure(percent)
        )),
        cause.as_ref().map(|cause| cause.seen.clone()),
    ]);
    let confidence = if cause.is_some() {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let mut fix = match cause {
        Some(cause) => cause.fix,
        None => fixes::setting(
            guest,
            "<driver rx_queue_size='1024'/>",
            "-device virtio-net-pci,rx_queue_size=1024",
        ),
    };
    let longer = format!("ip link set {} txqueuelen 10000", nic.name);
    fix.push(fixes::command(longer).needing(
        "takes effect at once, until the guest's next start; it helps against bursts alone",
    ));
    verdicts.find(Finding {
        marks: vec![Mark::Nic(nic.name.clone())],
        ..Finding::new(Severity::Warning, confidence, evidence, fix)
    });
}

/// Why the queue is not emptied in time.
struct Cause {
    seen: String,
    fix: Vec<Fix>,
}

fn cause(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<Cause> {
    let busiest = |role: Role| {
        let threads = guest.domain.threads.iter().filter(|t| t.role == role);
        threads.max_by(|a, b| busy(a).total_cmp(&busy(b)))
    };
    // The wait of a vCPU that wants hardly any time means nothing.
    if let Some((vcpu, wait)) = guest.domain.worst_wait()
        && vcpu.cpu.and_then(|cpu| ctx.severity_of_wait(&cpu)) >= Some(Severity::Warning)
    {
        return Some(Cause {
            seen: format!(
                "{} is ready to run, but has no CPU for {} % of that time",
                vcpu.label(),
                figure(wait)
            ),
            fix: vec![fixes::advice("First mend that vCPUs wait for CPUs")],
        });
    }
    let queues = fixes::setting(
        guest,
        "<driver name='vhost' queues='4'/>",
        "-netdev tap,queues=4 and -device virtio-net-pci,mq=on,vectors=10",
    );
    let vhost_busy = ctx.thresholds().network.vhost_busy;
    for role in [Role::Vhost, Role::Vcpu] {
        let Some(thread) = busiest(role).filter(|thread| busy(thread) >= vhost_busy) else {
            continue;
        };
        return Some(Cause {
            seen: format!(
                "{} uses {} % of a CPU",
                thread.label(),
                figure(busy(thread))
            ),
            fix: queues,
        });
    }
    None
}

fn busy(thread: &ThreadModel) -> f64 {
    thread.cpu.map_or(0.0, |cpu| cpu.busy())
}

fn full_links(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for link in ctx.model.host.links.iter().flatten() {
        let Some(mbit) = link.speed_mbit.filter(|mbit| *mbit > 0) else {
            continue;
        };
        let bytes = link
            .rate_of(link.rx_bytes.max(link.tx_bytes))
            .unwrap_or(0.0);
        let percent = 100.0 * bytes * 8.0 / (mbit as f64 * 1e6);
        if percent < ctx.thresholds().network.link_full {
            continue;
        }
        let way = if link.rx_bytes > link.tx_bytes {
            "receives"
        } else {
            "sends"
        };
        let evidence = vec![format!(
            "{} {way} {}B/s, {} % of its {mbit} Mbit/s",
            link.name,
            rate(bytes),
            figure(percent)
        )];
        let fix = vec![fixes::advice(
            "See which guest it is (key t, sorted by NET/s), and limit its interface or move it",
        )];
        verdicts.find(Finding {
            title: format!("The host's link {} is full", link.name),
            ..Finding::new(Severity::Warning, Confidence::High, evidence, fix)
        });
    }
}
