use super::*;
use crate::model::Base;
use crate::testing::FixtureModel as _;
use kvm::isa::Isa;
use sample::{Direction, ExitCell, OtherTask, Timing};
use testkit::{Fixture, Guest, Host, Thread};

/// The costs that matter in one interval.
fn guest_costs(model: &Model) -> Vec<GuestCosts> {
    let all = super::guest_costs(model);
    all.iter().map(|one| GuestCosts::mean(&[one])).collect()
}

#[test]
fn a_mean_counts_nothing_where_an_interval_lacks_a_cost() {
    let waits_for = |name: &str, percent: f64| GuestCosts {
        costs: vec![Cost {
            of_cpu: percent,
            ..Cost::new(
                CostKind::Wait,
                percent,
                Unit::OfDemand,
                parts([(name.to_owned(), percent)]),
            )
        }],
        lost: Some(percent),
    };
    let (rustc, backupd) = (waits_for("rustc", 40.0), waits_for("backupd", 60.0));
    let mean = GuestCosts::mean(&[&rustc, &backupd, &rustc, &GuestCosts::default()]);
    assert_eq!(
        (heads(&mean), mean.lost),
        (
            vec!["waits for a CPU 35 %: rustc 20, backupd 15".to_owned()],
            Some(35.0)
        )
    );
    let small = waits_for("rustc", 7.0);
    let seldom = [
        &small,
        &GuestCosts::default(),
        &GuestCosts::default(),
        &GuestCosts::default(),
    ];
    assert!(GuestCosts::mean(&seldom).costs.is_empty(), "1.75 %");
}

fn costs(make: impl Fn(u32, Thread) -> Thread) -> GuestCosts {
    let guest = Guest::new("g", 100)
        .mtree()
        .vcpus(1, |v, t| make(v, t.on(0)));
    guest_costs(&Fixture::new(Host::numa(1, 2, 1)).guest(guest).model()).remove(0)
}

/// All costs by their heads, small ones too.
fn heads(costs: &GuestCosts) -> Vec<String> {
    costs.costs.iter().map(|c| c.text(200)).collect()
}

#[test]
fn clocks_are_one_cost_and_an_access_takes_the_time_of_its_exit() {
    let all = costs(|_, t| {
        t.cpu(50.0, 0.0, 45.0, 0.0)
            .exits("IO_INSTRUCTION", 20_000.0, 20.0)
            .exits("EPT_MISCONFIG", 1_000.0, 100.0)
            .exits("EXTERNAL_INTERRUPT", 10_000.0, 5.0)
            .exits("HLT", 100.0, 4_000.0)
            .pio(0x608, Direction::Read, 10_000.0, 20.0)
            .pio(0x71, Direction::Read, 5_000.0, 20.0)
            .pio(0x3fd, Direction::Read, 3_000.0, 20.0)
            .mmio(0xfed0_00f0, Direction::Read, 1_000.0, 100.0)
    });
    let expected = [
        "emulated clocks 40 %: acpi-tmr 20, hpet 10, rtc 10",
        "serial console 6 %: serial 6",
        "host interrupts 5 %",
        "I/O ports 4 %",
    ];
    assert_eq!(heads(&all), expected);
    assert_eq!(
        all.lost.map(f64::round),
        Some(55.0),
        "all time in exits but the sleep"
    );
}

#[test]
fn a_cost_fits_its_width() {
    let part = |name: &str, figure: f64| Part {
        name: name.into(),
        figure: Some(figure),
    };
    let parts = vec![
        part("hpet", 22.4),
        part("rtc", 18.0),
        part("acpi-tmr", 12.0),
    ];
    let clocks = Cost::new(CostKind::Clocks, 52.4, Unit::OfCpu, parts);
    for (width, text) in [
        (60, "emulated clocks 52 %: hpet 22, rtc 18, acpi-tmr 12"),
        (49, "emulated clocks 52 %: hpet 22, rtc 18"),
        (29, "emulated clocks 52 %: hpet 22"),
        (28, "emulated clocks 52 %"),
        (12, "emulated clo"),
        (0, ""),
    ] {
        assert_eq!(clocks.text(width), text, "{width}");
        assert!(clocks.text(width).len() <= width, "{width}");
    }
    let foreign = Cost {
        name: "Ger\u{e4}t\n".into(),
        ..clocks
    };
    assert!(foreign.text(60).starts_with("Ger?t? 52 %"));
}

#[test]
fn a_wait_names_who_had_the_cpu() {
    let guest = |name: &str, pid| {
        Guest::new(name, pid).vcpus(2, |_, t| t.pinned(0).cpu(40.0, 0.0, 0.0, 40.0))
    };
    let mut model = Fixture::new(Host::numa(1, 2, 1).task("rustc", false, 0, 19.0))
        .guest(guest("a", 100))
        .guest(guest("b", 200))
        .model();
    let text = |model: &Model| guest_costs(model)[0].what_costs(80);
    assert_eq!(
        text(&model),
        "waits for a CPU 50 %, shared with other guests, own vCPUs, rustc",
        "nothing is traced"
    );
    let task = |tid, comm: &str, ms: u64| OtherTask {
        tid,
        comm: comm.into(),
        count: 1,
        ns: ms * 1_000_000,
    };
    let vcpu = &mut model.domains[0].threads[0];
    assert_eq!(vcpu.tid, 102);
    vcpu.preempted_by = vec![
        task(103, "CPU 1/KVM", 160),
        task(900, "rustc", 80),
        task(901, "rustc", 80),
        task(202, "CPU 0/KVM", 40),
        task(902, "kworker/0:1", 8),
        task(0, "", 8),
    ];
    let traced = "waits for a CPU 50 %: own vCPUs 20, rustc 20, b 5, idle CPU 1, kworker 1";
    assert_eq!(text(&model), traced);
    assert_eq!(
        guest_costs(&model)[0].lost.map(f64::round),
        Some(80.0),
        "both vCPUs"
    );
    let other = model.domains.remove(1);
    assert!(
        text(&model).contains("other guests 5"),
        "one that was filtered out"
    );
    model.domains.push(other);
    model.domains[0].threads[0].preempted_by[0].ns = 4_000_000_000;
    assert!(
        text(&model).starts_with("waits for a CPU 50 %: own vCPUs 47"),
        "parts never exceed the whole"
    );
}

#[test]
fn time_asleep_and_time_waited_within_exits_count_once() {
    let fixture =
        Fixture::new(Host::numa(1, 2, 1)).guest(Guest::new("g", 100).mtree().vcpus(1, |_, t| {
            t.on(0)
                .cpu(40.0, 0.0, 10.0, 5.0)
                .exits("IO_INSTRUCTION", 1_000.0, 400.0)
                .pio(0x71, Direction::Read, 500.0, 400.0)
        }));
    let mut now = fixture.sample(60.0);
    for exit in now.domains[0]
        .threads
        .iter_mut()
        .flat_map(|t| &mut t.events.exits)
    {
        (exit.preempted_ns, exit.halted_ns) = (Some(50_000_000), Some(150_000_000));
    }
    let all = &guest_costs(&Model::new(&now, Base::Previous(&fixture.sample(59.0))))[0];
    assert_eq!(
        heads(all),
        [
            "emulated clocks 10 %: rtc 10",
            "I/O ports 10 %",
            "waits for a CPU 9 %"
        ]
    );
    assert_eq!(all.lost.map(f64::round), Some(25.0));
}

#[test]
fn other_devices_and_causes_have_names() {
    let all = costs(|_, t| {
        t.cpu(50.0, 0.0, 45.0, 0.0)
            .exits("MSR_WRITE", 10_000.0, 15.0)
            .exits("EPT_VIOLATION", 10_000.0, 10.0)
            .exits("PAUSE_INSTRUCTION", 10_000.0, 9.0)
            .exits("CPUID", 10_000.0, 8.0)
            .exits("IO_INSTRUCTION", 10_000.0, 7.0)
            .exits("WBINVD", 100.0, 600.0)
            .msr(0x830, Direction::Write, 4_000.0, 15.0)
            .msr(0x6e0, Direction::Write, 4_000.0, 15.0)
            .msr(0x48, Direction::Write, 2_000.0, 15.0)
            .mmio(0xfee0_0300, Direction::Write, 5_000.0, 10.0)
            .pio(0xcfc, Direction::Read, 10_000.0, 7.0)
    });
    let expected = [
        "other exits 14 %: CPUID 8, WBINVD 6",
        "interrupt controller 11 %: X2APIC_ICR 6, apic-msi 5",
        "spinning on locks 9 %",
        "PCI config space 7 %",
        "guest timer 6 %: TSC_DEADLINE 6",
        "memory faults 5 %",
        "MSRs 3 %: SPEC_CTRL 3",
    ];
    assert_eq!(heads(&all), expected);
}

#[test]
fn exits_without_times_are_shown_by_rate_and_cost_nothing_that_is_known() {
    let guest = || Guest::new("g", 100).mtree();
    let model = |guest| Fixture::new(Host::numa(1, 2, 1)).guest(guest).model();
    let first = |model: &Model| {
        (
            guest_costs(model)[0].what_costs(60),
            guest_costs(model)[0].lost,
        )
    };
    let counted = |code, rate| {
        let (time, name) = (Timing::default(), None);
        let cell = ExitCell {
            isa: Isa::Vmx,
            code,
            name,
            time,
            userspace_ns: None,
            halted_ns: None,
            preempted_ns: None,
        };
        (cell, rate, None)
    };
    let thread = |t: Thread| Thread {
        exits: vec![counted(30, 9_000.0), counted(12, 20_000.0)],
        ..t
    };
    let read = |t: Thread| t.access(kvm::Space::Pio, 0x608, Direction::Read, 8_000.0, None);
    let both = guest().vcpus(1, |_, t| thread(read(t)));
    assert_eq!(
        first(&model(both)),
        ("emulated clocks 8000/s: acpi-tmr 8000".into(), Some(0.0))
    );
    let no_kvm_exit = guest().vcpus(1, |_, t| read(t));
    assert_eq!(
        first(&model(no_kvm_exit)).0,
        "emulated clocks 8000/s: acpi-tmr 8000"
    );
    let mut counters = guest().vcpus(1, |_, t| t);
    counters.counters = [("io_exits", 5e3), ("irq_exits", 7e3), ("halt_exits", 9e3)]
        .map(|(k, r)| (k.into(), r))
        .into();
    assert_eq!(
        guest_costs(&model(counters))[0]
            .costs
            .iter()
            .map(Cost::head)
            .collect::<Vec<_>>(),
        ["host interrupts 7000/s", "I/O ports 5000/s"]
    );
    assert_eq!(first(&model(guest().vcpus(1, |_, t| t))).0, "");
}

#[test]
fn polling_and_the_threads_of_the_vmm_are_costs_that_the_vcpus_do_not_lose() {
    let mut guest = Guest::new("g", 100)
        .vcpus(1, |_, t| t.cpu(10.0, 0.0, 1.0, 0.0))
        .emulator(|t| t.cpu(0.0, 6.0, 2.0, 0.0))
        .iothread(1, |t| t.cpu(0.0, 1.0, 3.0, 0.0));
    guest.counters = [("halt_poll_fail_ns", 3e8), ("halt_poll_success_ns", 1e8)]
        .map(|(k, r)| (k.into(), r))
        .into();
    let all = guest_costs(&Fixture::new(Host::numa(1, 2, 1)).guest(guest).model()).remove(0);
    assert_eq!(
        heads(&all),
        [
            "halt polling 40 %: in vain 30",
            "emulator work 12 %: main thread 8, iothread 1 4"
        ]
    );
    assert_eq!(all.lost, Some(0.0));
}

#[test]
fn guests_are_ordered_by_what_they_lose() {
    let model = Fixture::busy_host().model();
    let all = guest_costs(&model);
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| all[*b].lost.partial_cmp(&all[*a].lost).unwrap());
    let names: Vec<&str> = order.iter().map(|at| model.domains[*at].name()).collect();
    assert_eq!(names, ["db-prod", "win10-2", "build-3", "web-1", "idle-4"]);
    let texts: Vec<String> = all.iter().map(|costs| costs.what_costs(60)).collect();
    insta::assert_debug_snapshot!(texts);
}

/// 2,000 vCPUs that share two CPUs are charged each second: no wait may look at every other guest.
#[test]
fn a_wait_takes_as_many_steps_on_a_crowded_cpu() {
    let crowd = |guests: i32| {
        let host = Host::numa(1, 2, 1)
            .task("rustc", false, 0, 9.0)
            .task("ksmd", true, 1, 9.0);
        let guest = |n: i32| {
            Guest::new(&format!("g{n}"), 100 * n)
                .vcpus(8, |v, t| t.on(v % 2).cpu(0.02, 0.0, 0.0, 3.0))
        };
        (1..=guests)
            .fold(Fixture::new(host), |all, n| all.guest(guest(n)))
            .model()
    };
    let charged = |model: &Model| {
        let waits = Waits::new(model);
        let mut holders = 0;
        for (at, domain) in model.domains.iter().enumerate() {
            for vcpu in domain.vcpus() {
                let shares = waits.shares(at, vcpu).unwrap();
                assert!(
                    (shares.sum(|_| true) - 3.0).abs() < 1e-6,
                    "the whole wait: {shares:?}"
                );
                holders += shares.by.len();
            }
        }
        holders
    };
    let (few, many) = (crowd(60), crowd(240));
    assert_eq!(charged(&many), 4 * charged(&few));
    let text = guest_costs(&many)[0].what_costs(120);
    assert_eq!(
        text,
        "waits for a CPU 99 %, shared with other guests, rustc"
    );
}
