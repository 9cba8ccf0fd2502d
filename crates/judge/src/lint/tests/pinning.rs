use super::*;

fn busy(percent: f64, wait: f64) -> impl Fn(Thread) -> Thread {
    move |t| t.cpu(percent, 0.1, 1.0, wait)
}

/// A guest with its vCPUs on these CPUs.
fn pinned(name: &str, pid: i32, cpus: &'static [u32], load: f64, wait: f64) -> Guest {
    Guest::new(name, pid)
        .linux("")
        .vcpus(cpus.len() as u32, move |v, t| {
            busy(load, wait)(t.pinned(cpus[v as usize]))
        })
}

/// A guest that only a file describes.
fn described(name: &str, xml: &str, vcpus: u32) -> Guest {
    let mut g = Guest::new(name, 5).linux(xml).facts(|f| {
        f.pid = None;
        f.vcpus = Some(Known::new(vcpus, Origin::File));
    });
    g.threads.clear();
    g
}

fn configured(host: Host, guests: Vec<Guest>) -> Report {
    let mut f = Fixture::new(host);
    f.guests = guests;
    from_file(&f, None)
}

#[test]
fn two_guests_on_one_cpu() {
    let at = |load, wait| {
        Fixture::new(host())
            .guest(pinned("a", 10, &[3], load, wait))
            .guest(pinned("b", 20, &[3], load, wait))
            .model()
    };
    let report = judge(&at(48.0, 50.0));
    fires(&report, RuleId::PinOverlap, Severity::Critical);
    let f = get(&report, RuleId::PinOverlap);
    assert!(
        f.title.contains("a and b") && f.covers(RuleId::VcpuWait),
        "{f:#?}"
    );
    assert!(
        f.concerns("a") && f.concerns("b") && !f.concerns("c"),
        "{f:#?}"
    );
    assert!(
        f.evidence.iter().any(|e| e.starts_with("b: vcpu 0 waits")),
        "whose wait it is: {f:#?}"
    );
    fires(
        &judge(&at(40.0, 1.0)),
        RuleId::PinOverlap,
        Severity::Warning,
    );
    fires(&judge(&at(1.0, 0.0)), RuleId::PinOverlap, Severity::Info);
    let apart = Fixture::new(host())
        .guest(pinned("a", 10, &[3], 90.0, 0.0))
        .guest(pinned("b", 20, &[4], 90.0, 0.0));
    silent(&judge(&apart.model()), RuleId::PinOverlap);
}

#[test]
fn a_pool_that_is_shared_on_purpose_is_no_overlap() {
    let pool = |name, pid| {
        Guest::new(name, pid)
            .linux("")
            .vcpus(2, |v, t| busy(60.0, 0.0)(t.may_run("2-5").on(2 + v)))
    };
    silent(
        &judge(
            &Fixture::new(host())
                .guest(pool("a", 10))
                .guest(pool("b", 20))
                .model(),
        ),
        RuleId::PinOverlap,
    );
}

/// Where one CPU is online, every thread may run on that one alone, and nobody has pinned it.
#[test]
fn the_only_cpu_of_a_host_is_no_pin() {
    let guest = |name, pid| {
        let guest = Guest::new(name, pid)
            .linux("")
            .vcpus(2, |_, t| busy(20.0, 40.0)(t.may_run("0").on(0)));
        guest.emulator(|t| busy(5.0, 5.0)(t.may_run("0").on(0)))
    };
    let fixture = Fixture::new(Host::numa(1, 1, 1))
        .guest(guest("a", 10))
        .guest(guest("b", 20));
    let report = judge(&fixture.model());
    for rule in [
        RuleId::PinOverlap,
        RuleId::EmulatorOnVcpu,
        RuleId::IsolatedPileUp,
        RuleId::AffinityDrift,
    ] {
        silent(&report, rule);
    }
}

#[test]
fn overlap_from_configuration_alone() {
    let pins = |a, b| {
        format!(
            "<cputune><vcpupin vcpu='0' cpuset='{a}'/><vcpupin vcpu='1' cpuset='{b}'/><emulatorpin \
            cpuset='0'/></cputune>"
        )
    };
    let report = configured(
        host(),
        vec![
            described("a", &pins(1, 2), 2),
            described("b", &pins(2, 3), 2),
        ],
    );
    fires(&report, RuleId::PinOverlap, Severity::Warning);
    assert!(
        get(&report, RuleId::PinOverlap)
            .fix
            .iter()
            .any(|x| x.text.contains("vcpupin") && !x.text.contains("cpuset='2'"))
    );
    let right = configured(
        host(),
        vec![
            described("a", &pins(1, 2), 2),
            described("b", &pins(3, 4), 2),
        ],
    );
    assert_eq!(
        rules(&right),
        Vec::<RuleId>::new(),
        "right pinning stays silent"
    );
    fires(
        &configured(host(), vec![described("a", &pins(1, 2), 4)]),
        RuleId::PinnedNotIsolated,
        Severity::Info,
    );
}

#[test]
fn emulator_on_a_vcpus_cpu() {
    let at = |cpus: &'static str, load| {
        Fixture::new(host())
            .guest(
                pinned("a", 10, &[3, 4], 80.0, 0.2)
                    .emulator(move |t| t.cpu(0.0, load, 1.0, 0.0).may_run(cpus).on(3)),
            )
            .model()
    };
    fires(
        &judge(&at("3", 0.5)),
        RuleId::EmulatorOnVcpu,
        Severity::Info,
    );
    fires(
        &judge(&at("3", 15.0)),
        RuleId::EmulatorOnVcpu,
        Severity::Warning,
    );
    fires(
        &judge(&at("0-7", 4.0)),
        RuleId::EmulatorOnVcpu,
        Severity::Info,
    );
    silent(&judge(&at("0-7", 0.1)), RuleId::EmulatorOnVcpu);
    silent(&judge(&at("0-2", 15.0)), RuleId::EmulatorOnVcpu);
}

#[test]
fn emulator_from_configuration_alone() {
    let with = |rest: &str| {
        described(
            "a",
            &format!(
                "<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' \
                cpuset='2'/>{rest}</cputune><iothreads>1</iothreads>"
            ),
            2,
        )
    };
    fires(
        &configured(
            host(),
            vec![with(
                "<emulatorpin cpuset='1'/><iothreadpin iothread='1' cpuset='0'/>",
            )],
        ),
        RuleId::EmulatorOnVcpu,
        Severity::Info,
    );
    fires(
        &configured(
            host(),
            vec![with(
                "<emulatorpin cpuset='0'/><iothreadpin iothread='1' cpuset='2'/>",
            )],
        ),
        RuleId::EmulatorOnVcpu,
        Severity::Info,
    );
    silent(&configured(host(), vec![with("")]), RuleId::EmulatorOnVcpu);
    let loose = configured(host(), vec![with("<emulatorpin cpuset='0'/>")]);
    fires(&loose, RuleId::EmulatorOnVcpu, Severity::Info);
    let f = get(&loose, RuleId::EmulatorOnVcpu);
    assert!(f.evidence[0].contains("IOThread 1 has no pin"), "{f:#?}");
    assert!(
        f.fix[0].text.contains("iothreadpin a 1") && !f.fix[0].text.contains("emulatorpin"),
        "{f:#?}"
    );
    silent(
        &configured(
            host(),
            vec![with(
                "<emulatorpin cpuset='0'/><iothreadpin iothread='1' cpuset='0'/>",
            )],
        ),
        RuleId::EmulatorOnVcpu,
    );
    silent(
        &configured(Host::default(), vec![with("")]),
        RuleId::EmulatorOnVcpu,
    );
}

#[test]
fn vcpus_that_are_off_need_no_pin() {
    let pins: String = [0, 1, 3]
        .map(|v| format!("<vcpupin vcpu='{v}' cpuset='{}'/>", v + 1))
        .concat();
    let xml = format!("<vcpu current='3'>4</vcpu><cputune>{pins}</cputune>");
    silent(
        &configured(Host::default(), vec![described("a", &xml, 3)]),
        RuleId::PinOverlap,
    );
}

#[test]
fn siblings() {
    let smt = || Host::numa(1, 8, 2);
    let pins = |cpus: [u32; 4], threads: u32| {
        let list: Vec<String> = cpus
            .iter()
            .enumerate()
            .map(|(v, c)| format!("<vcpupin vcpu='{v}' cpuset='{c}'/>"))
            .collect();
        let list = list.concat();
        let cores = 4 / threads;
        described(
            "a",
            &format!(
                "<cputune>{list}<emulatorpin cpuset='0,8'/></cputune><cpu><topology sockets='1' \
                cores='{cores}' threads='{threads}'/></cpu>"
            ),
            4,
        )
    };
    fires(
        &configured(smt(), vec![pins([1, 2, 3, 4], 2)]),
        RuleId::SmtMismatch,
        Severity::Warning,
    );
    fires(
        &configured(smt(), vec![pins([1, 9, 2, 10], 1)]),
        RuleId::SmtMismatch,
        Severity::Info,
    );
    silent(
        &configured(smt(), vec![pins([1, 9, 2, 10], 2)]),
        RuleId::SmtMismatch,
    );
    silent(
        &configured(smt(), vec![pins([1, 2, 3, 4], 1)]),
        RuleId::SmtMismatch,
    );
    silent(
        &configured(Host::default(), vec![pins([1, 2, 3, 4], 2)]),
        RuleId::SmtMismatch,
    );
}

#[test]
fn nodes() {
    let two = || Host::numa(2, 4, 1);
    let pins = |cpus: [u32; 2], more: &str| {
        described(
            "a",
            &format!(
                "<cputune><vcpupin vcpu='0' cpuset='{}'/><vcpupin vcpu='1' \
                cpuset='{}'/><emulatorpin cpuset='0,4'/></cputune>{more}",
                cpus[0], cpus[1]
            ),
            2,
        )
    };
    fires(
        &configured(two(), vec![pins([1, 5], "")]),
        RuleId::NumaSplit,
        Severity::Warning,
    );
    fires(
        &configured(
            two(),
            vec![pins(
                [5, 6],
                "<numatune><memory mode='strict' nodeset='0'/></numatune>",
            )],
        ),
        RuleId::NumaSplit,
        Severity::Warning,
    );
    silent(
        &configured(
            two(),
            vec![pins(
                [5, 6],
                "<numatune><memory mode='strict' nodeset='1'/></numatune>",
            )],
        ),
        RuleId::NumaSplit,
    );
    silent(
        &configured(host(), vec![pins([1, 5], "")]),
        RuleId::NumaSplit,
    );
    let cells = "<cpu><numa><cell id='0' cpus='0' memory='1' unit='GiB'/><cell id='1' cpus='1' \
        memory='1' unit='GiB'/></numa></cpu>";
    silent(
        &configured(two(), vec![pins([1, 5], cells)]),
        RuleId::NumaSplit,
    );
}

#[test]
fn memory_on_the_wrong_node() {
    let at = |here: u64, there: u64| {
        let mut g = pinned("a", 10, &[5, 6], 50.0, 0.0);
        g.rest.node_memory = [(0, there), (1, here)].into();
        judge(&Fixture::new(Host::numa(2, 4, 1)).guest(g).model())
    };
    fires(&at(1 << 30, 3 << 30), RuleId::NumaSplit, Severity::Critical);
    fires(&at(7 << 30, 3 << 30), RuleId::NumaSplit, Severity::Warning);
    silent(&at(9 << 30, 1 << 30), RuleId::NumaSplit);
}

#[test]
fn little_memory_and_that_of_a_guest_which_starts_is_not_judged() {
    let at = |mib: u64, age_s: i64| {
        let mut g = pinned("a", 10, &[5, 6], 50.0, 0.0);
        g.rest.node_memory = [(0, mib << 20)].into();
        let mut model = Fixture::new(Host::numa(2, 4, 1)).guest(g).model();
        for domain in &mut model.domains {
            Arc::make_mut(&mut domain.facts).started_ms = Some(model.time_ms - age_s * 1000);
        }
        after(&model, 1, &Options::default())
    };
    fires(&at(400, 1000), RuleId::NumaSplit, Severity::Critical);
    silent(&at(100, 1000), RuleId::NumaSplit);
    silent(&at(400, 20), RuleId::NumaSplit);
}

#[test]
fn pile_up_on_isolated_cpus() {
    let at = |spread: bool| {
        let g = Guest::new("a", 10).linux("").vcpus(2, move |v, t| {
            busy(49.0, 49.0)(t.may_run("4-7").on(if spread { 4 + v } else { 4 }))
        });
        Fixture::new(host().isolated("4-7")).guest(g).model()
    };
    fires(
        &judge(&at(false)),
        RuleId::IsolatedPileUp,
        Severity::Critical,
    );
    silent(&judge(&at(true)), RuleId::IsolatedPileUp);
    let one = |name, pid, cpu| {
        Guest::new(name, pid)
            .linux("")
            .vcpus(1, move |_, t| busy(49.0, 49.0)(t.may_run("4-7").on(cpu)))
    };
    let two = |cpu| {
        judge(
            &Fixture::new(host().isolated("4-7"))
                .guest(one("a", 10, 4))
                .guest(one("b", 20, cpu))
                .model(),
        )
    };
    fires(&two(4), RuleId::IsolatedPileUp, Severity::Critical);
    assert!(
        get(&two(4), RuleId::IsolatedPileUp).evidence[0]
            .contains("vCPU 0 of a, vCPU 0 of b are all on CPU 4")
    );
    silent(&two(5), RuleId::IsolatedPileUp);
    let set = "<cputune><vcpupin vcpu='0' cpuset='4-7'/><vcpupin vcpu='1' cpuset='4-7'/></cputune>";
    silent(
        &configured(host().isolated("4-7"), vec![described("a", set, 2)]),
        RuleId::IsolatedPileUp,
    );
}

#[test]
fn noise_on_isolated_cpus() {
    let at = |irqs: f64, task: f64| {
        let f = Fixture::new(host().isolated("4-7").task("kworker/4:1", true, 4, task))
            .guest(pinned("a", 10, &[4], 90.0, 0.0));
        let mut model = f.model();
        model.host.cpus[4].device_irq_rate = Some(irqs);
        judge(&model)
    };
    fires(&at(300.0, 0.1), RuleId::IsolatedNoise, Severity::Info);
    fires(&at(3000.0, 0.1), RuleId::IsolatedNoise, Severity::Warning);
    fires(&at(5.0, 8.0), RuleId::IsolatedNoise, Severity::Warning);
    silent(&at(5.0, 0.1), RuleId::IsolatedNoise);
    // Each fix is about what was seen, and says what it leaves.
    let fixes = |irqs, task| {
        let report = at(irqs, task);
        get(&report, RuleId::IsolatedNoise)
            .fix
            .iter()
            .map(|fix| fix.text.clone())
            .collect::<Vec<_>>()
    };
    let devices = fixes(3000.0, 0.1);
    assert_eq!(devices[0], "irqaffinity=0-3");
    assert!(
        devices.len() == 2 && devices[1].contains("smp_affinity_list"),
        "{devices:#?}"
    );
    let kernel = fixes(5.0, 8.0);
    assert!(
        kernel[0].ends_with("rcu_nocbs=4-7 nohz_full=4-7"),
        "{kernel:#?}"
    );
    assert!(
        kernel.contains(&"echo f > /sys/devices/virtual/workqueue/cpumask".to_owned()),
        "{kernel:#?}"
    );
    let quiet = Fixture::new(host().isolated("4-7")).guest(pinned("a", 10, &[4], 90.0, 0.0));
    cannot(&judge(&quiet.first()), RuleId::IsolatedNoise);
    silent(
        &judge(
            &Fixture::new(host())
                .guest(pinned("a", 10, &[4], 90.0, 0.0))
                .first(),
        ),
        RuleId::IsolatedNoise,
    );
}

#[test]
fn interrupts_of_a_large_host_are_counted_now_and_then() {
    let f = Fixture::new(host().isolated("4-7")).guest(pinned("a", 10, &[4], 90.0, 0.0));
    let mut memory = RuleMemory::default();
    let mut second = |second: i64, rate: Option<f64>| {
        let mut model = f.model();
        model.time_ms += 1000 * second;
        model.host.cpus[4].device_irq_rate = rate;
        rules(&run(&model, &mut memory, &Options::default())).contains(&RuleId::IsolatedNoise)
    };
    // Four readings, three rates, out of ten seconds.
    let mut play = |from: i64, rate: f64| -> Vec<bool> {
        (from..from + 10)
            .map(|s| second(s, ((s % 10) > 0 && (s % 10) < 4).then_some(rate)))
            .collect()
    };
    assert_eq!(
        play(0, 300.0),
        [
            false, false, false, true, true, true, true, true, true, true
        ]
    );
    assert_eq!(play(10, 300.0), [true; 10]);
    assert_eq!(
        play(20, 1.0),
        [true, true, true, true, true, true, true, true, false, false]
    );
    assert_eq!(play(30, 1.0), [false; 10]);
}

#[test]
fn realtime() {
    let at = |isolated: &str| {
        let mut model = Fixture::new(host().isolated(isolated))
            .guest(pinned("a", 10, &[4], 60.0, 0.0))
            .model();
        for t in model.domains[0]
            .threads
            .iter_mut()
            .filter(|t| t.index.is_some())
        {
            t.place.policy = Some(1);
        }
        judge(&model)
    };
    fires(&at(""), RuleId::RealtimeVcpu, Severity::Warning);
    silent(&at("4"), RuleId::RealtimeVcpu);
    silent(
        &judge(
            &Fixture::new(host())
                .guest(pinned("a", 10, &[4], 60.0, 0.0))
                .model(),
        ),
        RuleId::RealtimeVcpu,
    );
}

#[test]
fn realtime_that_the_kernel_stops() {
    let at = |limit: &str, load: f64| {
        let mut f = Fixture::new(host().isolated("4-7")).guest(pinned("a", 10, &[4], load, 0.0));
        f.host
            .facts
            .params
            .insert("kernel.sched_rt_runtime_us".into(), limit.into());
        let mut model = f.model();
        for t in model.domains[0]
            .threads
            .iter_mut()
            .filter(|t| t.index.is_some())
        {
            t.place.policy = Some(1);
        }
        judge(&model)
    };
    let report = at("950000", 97.0);
    fires(&report, RuleId::RealtimeVcpu, Severity::Warning);
    let fixes = &get(&report, RuleId::RealtimeVcpu).fix;
    assert_eq!(
        fixes[0].text, "sysctl kernel.sched_rt_runtime_us=-1",
        "its pin is right: {fixes:#?}"
    );
    silent(&at("-1", 97.0), RuleId::RealtimeVcpu);
    silent(&at("950000", 60.0), RuleId::RealtimeVcpu);
}

#[test]
fn drift() {
    let xml = "<cputune><vcpupin vcpu='0' cpuset='4'/></cputune>";
    let at = |cpu: u32| {
        let g = Guest::new("a", 10)
            .linux(xml)
            .vcpus(1, move |_, t| busy(10.0, 0.0)(t.pinned(cpu)));
        Fixture::new(host()).guest(g).model()
    };
    fires(&judge(&at(5)), RuleId::AffinityDrift, Severity::Warning);
    assert_eq!(
        get(&judge(&at(5)), RuleId::AffinityDrift).fix[0].text,
        "virsh vcpupin a 0 4 --live --config"
    );
    silent(&judge(&at(4)), RuleId::AffinityDrift);
    silent(
        &after(&at(5), 2, &Options::default()),
        RuleId::AffinityDrift,
    );
    let gone = Guest::new("a", 10)
        .linux("<cputune><vcpupin vcpu='0' cpuset='40'/></cputune>")
        .vcpus(1, |_, t| t.may_run("0-7"));
    fires(
        &judge(&Fixture::new(host()).guest(gone).model()),
        RuleId::AffinityDrift,
        Severity::Warning,
    );
    let mut unknown = at(5);
    for t in &mut unknown.domains[0].threads {
        t.place.affinity = None;
    }
    cannot(&judge(&unknown), RuleId::AffinityDrift);
    silent(
        &configured(host(), vec![described("a", xml, 1)]),
        RuleId::AffinityDrift,
    );
    let nowhere = "<cputune><vcpupin vcpu='0' cpuset='99'/></cputune>";
    fires(
        &configured(host(), vec![described("a", nowhere, 1)]),
        RuleId::AffinityDrift,
        Severity::Warning,
    );
}

#[test]
fn all_cpus_up_to_one_may_be_all_of_an_unknown_host() {
    let free = |list| {
        Guest::new("b", 20)
            .linux("")
            .vcpus(2, move |_, t| t.may_run(list))
    };
    let with = |list| {
        configured(
            Host::numa(1, 0, 1),
            vec![pinned("a", 10, &[3], 1.0, 0.0), free(list)],
        )
    };
    silent(&with("0-39"), RuleId::PinOverlap);
    fires(&with("2-5"), RuleId::PinOverlap, Severity::Warning);
}

#[test]
fn commands_about_a_guest_without_a_name_have_a_placeholder() {
    let unnamed = |from| {
        let g = Guest::new("guest", 10)
            .linux("")
            .vcpus(2, |_, t| t.pinned(4));
        let g = g.facts(|f| (f.name.from, f.uuid) = (from, None));
        let report = configured(host(), vec![g]);
        get(&report, RuleId::PinOverlap).fix[0].text.clone()
    };
    assert!(
        unnamed(Origin::BuiltIn).contains("virsh vcpupin GUEST "),
        "{}",
        unnamed(Origin::BuiltIn)
    );
    assert!(
        unnamed(Origin::File).contains("virsh vcpupin guest "),
        "{}",
        unnamed(Origin::File)
    );
}

#[test]
fn tasks_of_the_host_on_a_pinned_cpu() {
    let at = |task: f64, isolated: &str, wait: f64| {
        judge(
            &Fixture::new(host().isolated(isolated).task("backup", false, 3, task))
                .guest(pinned("a", 10, &[3], 60.0, wait))
                .model(),
        )
    };
    fires(&at(4.0, "", 0.1), RuleId::PinnedNotIsolated, Severity::Info);
    fires(
        &at(30.0, "", 0.1),
        RuleId::PinnedNotIsolated,
        Severity::Warning,
    );
    let waits = at(4.0, "", 20.0);
    assert!(get(&waits, RuleId::PinnedNotIsolated).covers(RuleId::VcpuWait));
    silent(&at(0.5, "", 0.1), RuleId::PinnedNotIsolated);
    silent(&at(30.0, "3", 0.1), RuleId::PinnedNotIsolated);
    let all = &[0, 1, 2, 3, 4, 5, 6, 7];
    let full =
        Fixture::new(host().task("backup", false, 3, 30.0)).guest(pinned("a", 10, all, 60.0, 0.1));
    let report = judge(&full.model());
    let fix = &get(&report, RuleId::PinnedNotIsolated).fix;
    assert!(
        fix.iter().all(|f| !f.text.contains("isolcpus")),
        "not all CPUs can be isolated: {fix:#?}"
    );
    // It waits for another guest: the few percent of the host's task are another matter.
    let roaming = Guest::new("b", 20)
        .linux("")
        .vcpus(1, |_, t| busy(40.0, 0.1)(t.may_run("0-7").on(3)));
    let f = Fixture::new(host().task("backup", false, 3, 4.0))
        .guest(pinned("a", 10, &[3], 55.0, 40.0))
        .guest(roaming);
    let report = judge(&f.model());
    fires(&report, RuleId::PinnedNotIsolated, Severity::Info);
    fires(&report, RuleId::VcpuWait, Severity::Critical);
}

#[test]
fn no_cpu_left_for_the_host() {
    let all = judge(
        &Fixture::new(Host::numa(1, 4, 1))
            .guest(pinned("a", 10, &[0, 1, 2, 3], 20.0, 0.0))
            .model(),
    );
    fires(&all, RuleId::HostCpusStarved, Severity::Warning);
    let some = judge(
        &Fixture::new(Host::numa(1, 4, 1))
            .guest(pinned("a", 10, &[1, 2, 3], 20.0, 0.0))
            .model(),
    );
    silent(&some, RuleId::HostCpusStarved);
    let pins = "<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>";
    cannot(
        &configured(Host::default(), vec![described("a", pins, 1)]),
        RuleId::HostCpusStarved,
    );
}

/// libvirt keeps no configuration of a transient guest: `--config` is an error there, and XML goes
/// to whoever creates it.
#[test]
fn a_transient_guest_is_changed_live_alone() {
    let at = |persistent: Option<bool>| {
        let guest =
            |name, pid| pinned(name, pid, &[3], 48.0, 50.0).facts(|f| f.persistent = persistent);
        judge(
            &Fixture::new(host())
                .guest(guest("a", 10))
                .guest(guest("b", 20))
                .model(),
        )
    };
    let lines = |report: &Report, kind: FixKind| {
        let fixes = report
            .findings
            .iter()
            .flat_map(|f| &f.fix)
            .filter(|fix| fix.kind == kind);
        fixes
            .map(|fix| (fix.text.clone(), fix.needs.clone().unwrap_or_default()))
            .collect::<Vec<_>>()
    };
    let transient = at(Some(false));
    let (commands, xml) = (
        lines(&transient, FixKind::Command),
        lines(&transient, FixKind::LibvirtXml),
    );
    assert!(!commands.is_empty() && !xml.is_empty(), "{transient:#?}");
    for (text, needs) in &commands {
        assert!(
            text.contains("--live") && !text.contains("--config"),
            "{text}"
        );
        assert!(needs.contains("whoever creates it"), "{needs}");
    }
    assert!(
        xml.iter()
            .all(|(_, needs)| needs.contains("the XML that it is created from")),
        "{xml:#?}"
    );
    for known in [None, Some(true)] {
        let commands = lines(&at(known), FixKind::Command);
        assert!(
            commands
                .iter()
                .all(|(text, _)| text.contains("--live --config")),
            "{commands:#?}"
        );
    }
}

/// The kernel refuses pins that the group of a guest lacks: the group comes first, and evidence
/// names it. CPUs 2 and 6 are threads of one core of a host with four cores.
#[test]
fn two_guests_on_one_core_beside_idle_ones() {
    let host = || Host::numa(1, 4, 2);
    let at = |host: Host, load: f64| {
        let fixture = Fixture::new(host).guest(pinned("a", 10, &[2], load, 0.0));
        judge(&fixture.guest(pinned("b", 20, &[6], 80.0, 0.0)).model())
    };
    let report = at(host(), 90.0);
    fires(&report, RuleId::SiblingContention, Severity::Warning);
    let found = get(&report, RuleId::SiblingContention);
    assert!(found.concerns("a") && found.concerns("b"), "{found:#?}");
    assert!(
        found.evidence[0].contains("at least 72.2 % of the time"),
        "{found:#?}"
    );
    assert!(
        found.fix[0].text.starts_with("Pin one of the two vCPUs"),
        "{found:#?}"
    );
    silent(&at(host(), 20.0), RuleId::SiblingContention);
    // They may run in turn.
    let half = Fixture::new(host())
        .guest(pinned("a", 10, &[2], 52.0, 0.0))
        .guest(pinned("b", 20, &[6], 52.0, 0.0));
    silent(&judge(&half.model()), RuleId::SiblingContention);
    // No core is idle, or the only idle one is the host's.
    let full = host()
        .load(0, 90.0, 0.0, 0.0)
        .load(5, 90.0, 0.0, 0.0)
        .load(3, 90.0, 0.0, 0.0);
    silent(&at(full, 90.0), RuleId::SiblingContention);
    silent(
        &at(host().load(1, 90.0, 0.0, 0.0).load(3, 90.0, 0.0, 0.0), 90.0),
        RuleId::SiblingContention,
    );
    // The scheduler moves what may move.
    let free = Fixture::new(host()).guest(pinned("a", 10, &[2], 90.0, 0.0));
    let free = free.guest(
        Guest::new("b", 20)
            .linux("")
            .vcpus(1, |_, t| busy(80.0, 0.0)(t.may_run("0-7").on(6))),
    );
    silent(&judge(&free.model()), RuleId::SiblingContention);
}
