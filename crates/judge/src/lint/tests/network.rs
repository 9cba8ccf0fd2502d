use super::*;
use crate::model::HostLinkModel;
use kvm::thread_name::Role;
use sample::{HostLink, NicSample};

/// A guest whose interface was read over 5 s: packets per second, drops towards it per second, the
/// wait of its vCPU and the CPU time of its vhost thread, percent.
fn with(packets: u64, drops: Option<u64>, wait: f64, vhost: f64) -> Model {
    let mut guest = Guest::new("g", 5)
        .linux("")
        .vcpus(1, move |v, t| t.on(v).cpu(50.0, 0.5, 4.0, wait))
        .thread(Thread::new(99, Role::Vhost, "vhost-5").cpu(0.0, 0.0, vhost, 0.0));
    guest.rest.nics_ns = 5_000_000_000;
    guest.rest.nics = vec![NicSample {
        name: "vnet0".into(),
        rx_packets: 5 * packets,
        drops: 5 * drops.unwrap_or(0),
        rx_drops: drops.map(|n| 5 * n),
        ..NicSample::default()
    }];
    on(guest).model()
}

#[test]
fn nic_drops() {
    let report = judge(&with(10_000, Some(300), 0.0, 20.0));
    fires(&report, RuleId::NicDrops, Severity::Warning);
    let found = get(&report, RuleId::NicDrops);
    assert!(
        found.evidence[0]
            .starts_with("interface vnet0: 300 packets/s for the guest are dropped, 2.91 %"),
        "{found:#?}"
    );
    assert!(found.fix[0].text.contains("rx_queue_size='1024'"));
    let last = found.fix.last().map(|fix| fix.text.as_str());
    assert_eq!(last, Some("ip link set vnet0 txqueuelen 10000"));
    assert_eq!(found.confidence, Confidence::Medium, "why is not seen");

    // The cause: a wait for a CPU, or a vhost thread without time.
    let waiting = judge(&with(10_000, Some(300), 12.5, 20.0));
    let found = get(&waiting, RuleId::NicDrops);
    assert!(
        found.evidence[1].contains("ready to run, but has no CPU"),
        "{found:#?}"
    );
    let busy = judge(&with(10_000, Some(300), 0.0, 95.0));
    let found = get(&busy, RuleId::NicDrops);
    assert!(
        found.evidence[1].ends_with("uses 95 % of a CPU"),
        "{found:#?}"
    );
    assert!(found.fix.iter().any(|fix| fix.text.contains("queues='4'")));

    // Hardly any, a small part, only what it sends, and a recording that does not tell.
    silent(&judge(&with(10, Some(0), 0.0, 20.0)), RuleId::NicDrops);
    silent(
        &judge(&with(100_000, Some(50), 0.0, 20.0)),
        RuleId::NicDrops,
    );
    silent(&judge(&with(10_000, None, 0.0, 20.0)), RuleId::NicDrops);
}

#[test]
fn host_link_full() {
    let carrying = |rx_bytes: u64, speed_mbit| {
        let mut model = on(Guest::new("g", 5).linux("").vcpus(1, |_, t| t)).model();
        model.host.links = Some(vec![HostLinkModel {
            of: HostLink {
                name: "eno1".into(),
                rx_bytes,
                speed_mbit,
                ..HostLink::default()
            },
            seconds: Some(1.0),
            device: None,
        }]);
        judge(&model)
    };
    let full = carrying(120_000_000, Some(1000));
    fires(&full, RuleId::HostLinkFull, Severity::Warning);
    assert_eq!(
        get(&full, RuleId::HostLinkFull).evidence[0],
        "eno1 receives 120MB/s, 96 % of its 1000 Mbit/s"
    );
    silent(&carrying(120_000_000, Some(10_000)), RuleId::HostLinkFull);
    silent(&carrying(120_000_000, None), RuleId::HostLinkFull);
}
