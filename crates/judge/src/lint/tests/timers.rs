use super::*;

fn reader(port: u16, rate: f64) -> impl Fn(u32, Thread) -> Thread {
    move |v, t| {
        let t = t
            .cpu(60.0, 0.5, 10.0, 0.1)
            .on(v)
            .exits("EXTERNAL_INTERRUPT", 100.0, 2.0)
            .exits("IO_INSTRUCTION", rate, 6.0);
        t.pio(port, Direction::Read, rate, 6.0)
    }
}

#[test]
fn acpi_pm_timer_on_linux() {
    let at = |rate| {
        on(Guest::new("l", 5)
            .linux("")
            .mtree()
            .vcpus(2, reader(0x608, rate)))
    };
    let report = judge(&at(2000.0).model());
    fires(&report, RuleId::AcpiPmTimer, Severity::Warning);
    let f = get(&report, RuleId::AcpiPmTimer);
    assert!(
        f.fix.iter().any(|x| x.text.contains("kvm-clock"))
            && !f.fix.iter().any(|x| x.text.contains("hypervclock"))
    );
    fires(
        &judge(&at(150.0).model()),
        RuleId::AcpiPmTimer,
        Severity::Info,
    );
    fires(
        &judge(&at(20_000.0).model()),
        RuleId::AcpiPmTimer,
        Severity::Critical,
    );
    silent(&judge(&at(50.0).model()), RuleId::AcpiPmTimer);
    cannot(&from_file(&at(2.0), None), RuleId::AcpiPmTimer);
    fires(
        &from_file(&at(2000.0), Some(10.0)),
        RuleId::AcpiPmTimer,
        Severity::Warning,
    );
}

#[test]
fn a_windows_guest_without_clock_and_timers_gets_one_finding() {
    let report = judge(
        &on(Fixture::windows_on_pm_timer()
            .windows("<clock offset='localtime'><timer name='hpet' present='no'/></clock>"))
        .model(),
    );
    let timers: Vec<_> = report
        .findings
        .iter()
        .filter(|f| f.covers(RuleId::AcpiPmTimer) || f.covers(RuleId::RtcTick))
        .collect();
    assert_eq!(timers.len(), 1, "{:?}", rules(&report));
    assert_eq!(
        (timers[0].rule, timers[0].folded.as_slice()),
        (
            RuleId::AcpiPmTimer,
            &[RuleId::RtcTick, RuleId::WindowsEnlightenments][..]
        )
    );
    assert!(
        timers[0].fix[0].text.contains("stimer") && timers[0].fix[0].text.contains("hypervclock")
    );
    assert!(
        !timers[0]
            .fix
            .iter()
            .any(|f| f.text.contains("<timer name='hpet'")),
        "HPET is no fix where stimer is available"
    );
    assert!(timers[0].since_ms.is_some());
}

#[test]
fn fixes_add_only_what_is_missing() {
    let xml = "<features><hyperv><vpindex state='on'/><synic state='on'/></hyperv></features>
        <clock offset='localtime'><timer name='hypervclock' present='yes'/></clock>";
    let report = judge(&on(Guest::new("w", 5).windows(xml).vcpus(1, |_, t| t)).first());
    let f = get(&report, RuleId::WindowsEnlightenments);
    assert!(
        f.fix[0].text.contains("<stimer state='on'/>"),
        "{:?}",
        f.fix
    );
    for there in ["vpindex", "synic", "hypervclock"] {
        assert!(
            !f.fix[0].text.contains(there),
            "{there} is there already: {:?}",
            f.fix
        );
    }
}

#[test]
fn an_enlightened_or_old_windows_is_left_alone() {
    silent(
        &judge(&on(Guest::new("w", 5).windows(ENLIGHTENED)).first()),
        RuleId::WindowsEnlightenments,
    );
    silent(
        &judge(&on(Guest::new("w2k", 5).xml("")).first()),
        RuleId::WindowsEnlightenments,
    );
    silent(
        &judge(&on(Guest::new("w", 5).os("http://microsoft.com/win/xp").xml("")).first()),
        RuleId::WindowsEnlightenments,
    );
    silent(
        &judge(&on(Guest::new("l", 5).linux("<clock offset='localtime'/>")).first()),
        RuleId::WindowsEnlightenments,
    );
    fires(
        &judge(
            &on(Guest::new("w", 5)
                .os("http://microsoft.com/win/2k8r2")
                .xml(""))
            .first(),
        ),
        RuleId::WindowsEnlightenments,
        Severity::Info,
    );
}

#[test]
fn rtc() {
    let tick = |rate: f64| {
        on(Guest::new("l", 5).linux("").mtree().vcpus(1, move |v, t| {
            let t = t
                .on(v)
                .cpu(5.0, 0.1, 1.0, 0.0)
                .exits("IO_INSTRUCTION", 2.0 * rate, 5.0);
            t.pio(0x70, Direction::Write, rate, 5.0)
                .pio(0x71, Direction::Read, rate, 5.0)
        }))
    };
    fires(
        &judge(&tick(1000.0).model()),
        RuleId::RtcTick,
        Severity::Warning,
    );
    fires(
        &judge(&tick(200.0).model()),
        RuleId::RtcTick,
        Severity::Info,
    );
    silent(&judge(&tick(64.0).model()), RuleId::RtcTick);
    cannot(&from_file(&tick(2.0), None), RuleId::RtcTick);
}

#[test]
fn a_guest_that_sets_its_clock_does_not_tick_by_it() {
    let writes = on(Guest::new("l", 5).linux("").mtree().vcpus(1, |v, t| {
        t.on(v)
            .pio(0x70, Direction::Write, 900.0, 5.0)
            .pio(0x71, Direction::Write, 900.0, 5.0)
    }));
    silent(&judge(&writes.model()), RuleId::RtcTick);
}

#[test]
fn hpet() {
    let counter = |rate| {
        on(Guest::new("l", 5).linux("").mtree().vcpus(1, move |v, t| {
            t.on(v)
                .cpu(50.0, 0.1, 2.0, 0.0)
                .mmio(0xfed0_00f0, Direction::Read, rate, 8.0)
        }))
    };
    fires(
        &judge(&counter(2300.0).model()),
        RuleId::HpetClock,
        Severity::Warning,
    );
    fires(
        &judge(&counter(200.0).model()),
        RuleId::HpetClock,
        Severity::Info,
    );
    silent(&judge(&counter(10.0).model()), RuleId::HpetClock);
    cannot(&from_file(&counter(2300.0), None), RuleId::HpetClock);
}

#[test]
fn hpet_without_addresses_needs_the_configuration() {
    let at = |xml: &str| {
        on(Guest::new("l", 5).linux(xml).vcpus(1, |_, t| {
            t.exits("EPT_MISCONFIG", 2300.0, 8.0)
                .exits("HLT", 100.0, 5000.0)
        }))
    };
    let there = from_file(
        &at("<clock offset='utc'><timer name='hpet' present='yes'/></clock>"),
        Some(10.0),
    );
    fires(&there, RuleId::HpetClock, Severity::Warning);
    assert_eq!(
        get(&there, RuleId::HpetClock).confidence,
        Confidence::Medium
    );
    silent(
        &from_file(
            &at("<clock offset='utc'><timer name='hpet' present='no'/></clock>"),
            Some(10.0),
        ),
        RuleId::HpetClock,
    );
    let mut unknown = at("");
    unknown.guests[0].facts.xml = None;
    cannot(&from_file(&unknown, Some(10.0)), RuleId::HpetClock);
}

#[test]
fn tsc_page() {
    let reads = |rate| {
        on(Guest::new("w", 5)
            .windows(ENLIGHTENED)
            .vcpus(1, move |v, t| {
                t.on(v).msr(0x4000_0020, Direction::Read, rate, 0.7)
            }))
    };
    fires(
        &judge(&reads(36_000.0).model()),
        RuleId::HypervTscPage,
        Severity::Critical,
    );
    fires(
        &judge(&reads(150.0).model()),
        RuleId::HypervTscPage,
        Severity::Info,
    );
    silent(&judge(&reads(5.0).model()), RuleId::HypervTscPage);
    cannot(&from_file(&reads(36_000.0), None), RuleId::HypervTscPage);
}

#[test]
fn idle_wakeups_need_an_idle_guest_that_sleeps_briefly() {
    let sleeper = |busy: f64, rate: f64, us: f64| {
        on(Guest::new("w", 5)
            .windows(ENLIGHTENED)
            .vcpus(2, move |v, t| {
                t.on(v).cpu(busy, 0.1, 9.0, 0.0).exits("HLT", rate, us)
            }))
    };
    fires(
        &judge(&sleeper(4.0, 1466.0, 340.0).model()),
        RuleId::IdleWakeups,
        Severity::Info,
    );
    silent(
        &judge(&sleeper(60.0, 1466.0, 340.0).model()),
        RuleId::IdleWakeups,
    );
    silent(
        &judge(&sleeper(1.0, 87.0, 10_431.0).model()),
        RuleId::IdleWakeups,
    );
    silent(
        &from_file(&sleeper(4.0, 1466.0, 340.0), None),
        RuleId::IdleWakeups,
    );
}

#[test]
fn pit() {
    let at = |rate| {
        on(Guest::new("o", 5)
            .mtree()
            .vcpus(1, move |v, t| t.on(v).pio(0x40, Direction::Read, rate, 2.0)))
    };
    fires(&judge(&at(300.0).model()), RuleId::PitTimer, Severity::Info);
    silent(&judge(&at(20.0).model()), RuleId::PitTimer);
    cannot(&from_file(&at(300.0), None), RuleId::PitTimer);
}

#[test]
fn an_unused_hpet() {
    let main = |percent: f64, hpet: &str| {
        let xml = format!("<clock offset='utc'><timer name='hpet' present='{hpet}'/></clock>");
        let guest = Guest::new("l", 5)
            .linux(&xml)
            .vcpus(2, |v, t| t.on(v).cpu(1.0, 0.0, 0.2, 0.0));
        on(guest.emulator(move |t| t.cpu(0.0, percent, 0.0, 0.0)))
    };
    fires(
        &judge(&main(8.0, "yes").model()),
        RuleId::HpetIdleCost,
        Severity::Info,
    );
    assert_eq!(
        get(&judge(&main(8.0, "yes").model()), RuleId::HpetIdleCost).confidence,
        Confidence::Low
    );
    silent(&judge(&main(0.6, "yes").model()), RuleId::HpetIdleCost);
    silent(&judge(&main(8.0, "no").model()), RuleId::HpetIdleCost);
    silent(
        &from_file(&main(8.0, "yes"), Some(10.0)),
        RuleId::HpetIdleCost,
    );
}

#[test]
fn tick_storm() {
    let at = |rate: f64, busy: f64, last: f64| {
        on(Guest::new("l", 5).linux("").vcpus(4, move |v, t| {
            t.on(v).cpu(busy, 0.1, 1.0, 0.0).msr(
                0x6e0,
                Direction::Write,
                if v == 3 { last } else { rate },
                1.5,
            )
        }))
    };
    fires(
        &judge(&at(250.0, 2.0, 250.0).model()),
        RuleId::GuestTickStorm,
        Severity::Info,
    );
    silent(
        &judge(&at(250.0, 60.0, 250.0).model()),
        RuleId::GuestTickStorm,
    );
    silent(
        &judge(&at(250.0, 2.0, 12.0).model()),
        RuleId::GuestTickStorm,
    );
    silent(&judge(&at(12.0, 2.0, 12.0).model()), RuleId::GuestTickStorm);
    silent(
        &from_file(&at(250.0, 2.0, 250.0), None),
        RuleId::GuestTickStorm,
    );
    let many = on(Guest::new("l", 5).linux("").vcpus(24, |v, t| {
        t.on(v % 8)
            .cpu(1.0, 0.0, 0.5, 0.0)
            .msr(0x6e0, Direction::Write, 250.0, 1.5)
    }));
    fires(
        &judge(&many.model()),
        RuleId::GuestTickStorm,
        Severity::Warning,
    );
}

#[test]
fn every_windows_guest_gets_one_finding_about_its_timers() {
    // The first guest has no timer in use; its findings must not split those about the second
    // guest.
    let plain = Guest::new("a-quiet", 4)
        .windows("<clock offset='localtime'/>")
        .vcpus(1, |_, t| t.cpu(1.0, 0.0, 0.0, 0.0));
    let busy = Fixture::windows_on_pm_timer().windows("<clock offset='localtime'/>");
    let report = judge(&Fixture::new(host()).guest(plain).guest(busy).model());
    let timers = get(&report, RuleId::AcpiPmTimer);
    assert!(
        timers.covers(RuleId::RtcTick) && timers.covers(RuleId::WindowsEnlightenments),
        "{:?}",
        timers.folded
    );
    assert_eq!(
        get(&report, RuleId::WindowsEnlightenments)
            .domain
            .as_deref(),
        Some("a-quiet")
    );
}

/// What is found of a guest of which a file holds the command line.
fn of_command(text: &str) -> Report {
    let command = Arc::new(kvm::cmdline::parse_text(text).unwrap());
    let name = command.name.clone().unwrap_or_else(|| "vm1".into());
    judge(
        &on(Guest::new(&name, 5)
            .facts(|f| f.command = Some(command))
            .vcpus(1, |_, t| t))
        .first(),
    )
}

#[test]
fn a_command_line_gets_its_whole_cpu_argument() {
    let report = of_command(
        "/usr/bin/kvm -name win10 -rtc base=localtime,driftfix=slew -cpu \
         host,hv_relaxed,hv_time,+kvm_pv_eoi,hv_vendor_id=proxmox",
    );
    let f = get(&report, RuleId::WindowsEnlightenments);
    assert_eq!(
        f.fix[0].text,
        "-cpu \
            'host,hv_relaxed,hv_time,+kvm_pv_eoi,hv_vendor_id=proxmox',hv-vpindex=on,hv-synic=on,hv-stimer=on"
    );
    let all = format!("{} {} {:?}", f.title, f.why, f.fix);
    assert!(
        f.title.contains("synthetic timers") && !all.contains("ACPI PM timer"),
        "the clock is there: {all}"
    );
}

#[test]
fn the_last_cpu_decides_and_is_named() {
    let xml = format!(
        "{ENLIGHTENED}<qemu:commandline \
         xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><qemu:arg value='-cpu'/><qemu:arg \
         value='host,hv_time,kvm=off'/></qemu:commandline>"
    );
    let report = judge(&on(Guest::new("w", 5).windows(&xml).vcpus(1, |_, t| t)).first());
    let f = get(&report, RuleId::WindowsEnlightenments);
    assert!(
        f.evidence
            .iter()
            .any(|e| e.contains("<qemu:commandline> decides")),
        "{f:#?}"
    );
    assert!(
        f.fix[0]
            .text
            .contains("value='host,hv_time,kvm=off,hv-vpindex=on,hv-synic=on,hv-stimer=on'"),
        "{f:#?}"
    );
}

#[test]
fn only_what_the_host_offers_is_proposed() {
    let mut guest = on(Guest::new("w", 5)
        .windows("<clock offset='localtime'/>")
        .vcpus(1, |_, t| t));
    let offered = |f: &mut Fixture, names: &str| {
        f.host
            .facts
            .params
            .insert(sample::ENLIGHTENMENTS_OFFERED.into(), names.into());
    };
    offered(&mut guest, "hypervclock vpindex relaxed");
    let report = judge(&guest.first());
    let f = get(&report, RuleId::WindowsEnlightenments);
    assert!(
        f.fix[0].text.contains("hypervclock") && !f.fix[0].text.contains("<stimer"),
        "{:?}",
        f.fix
    );
    assert!(
        f.fix[1]
            .text
            .starts_with("synic, stimer: this host does not offer it"),
        "{:?}",
        f.fix
    );
    offered(&mut guest, "spinlocks vendor_id");
    let report = judge(&guest.first());
    let f = get(&report, RuleId::WindowsEnlightenments);
    assert!(
        f.fix.len() == 1 && f.fix[0].kind == FixKind::Advice,
        "{:?}",
        f.fix
    );
    assert!(
        f.fix[0].text.contains("this host does not offer it"),
        "{:?}",
        f.fix
    );
}

#[test]
fn invtsc_is_proposed_only_where_the_host_has_it() {
    let mut guest = on(Guest::new("w", 5).windows(ENLIGHTENED).vcpus(1, |v, t| {
        t.on(v)
            .cpu(50.0, 0.0, 5.0, 0.0)
            .msr(0x4000_0020, Direction::Read, 20_000.0, 2.0)
    }));
    let fixes = |guest: &Fixture| {
        format!(
            "{:?}",
            get(&judge(&guest.model()), RuleId::HypervTscPage).fix
        )
    };
    assert!(fixes(&guest).contains("name='invtsc'"));
    guest
        .host
        .facts
        .params
        .insert(sample::INVTSC_OFFERED.into(), "N".into());
    assert!(
        !fixes(&guest).contains("name='invtsc'")
            && fixes(&guest).contains("invtsc is not proposed")
    );
}

#[test]
fn several_weak_hints_make_a_windows_guest_and_one_does_not() {
    let windows = |line: &str| {
        of_command(line)
            .findings
            .iter()
            .any(|f| f.rule == RuleId::WindowsEnlightenments)
    };
    for line in [
        "kvm -name win7vnc -rtc base=localtime -drive file=/d/win7.img",
        "kvm -name vm1 -drive file=/iso/virtio-win-0.1.240.iso -drive file=/iso/Win11_23H2.iso",
    ] {
        assert!(windows(line), "{line}");
    }
    for line in [
        "kvm -name vm1 -rtc base=localtime",
        "kvm -name ubuntu -rtc base=localtime -cpu host,kvm=off",
        "kvm -name vm1 -rtc base=utc,driftfix=slew",
        "kvm -name darwin10 -rtc base=localtime",
    ] {
        assert!(!windows(line), "{line}");
    }
}

#[test]
fn a_windows_that_cannot_see_the_hypervisor_uses_no_enlightenment() {
    let hidden =
        |xml: &str| format!("{xml}<cpu><feature policy='disable' name='hypervisor'/></cpu>");
    let report = judge(&on(Guest::new("w", 5).windows(&hidden(ENLIGHTENED))).first());
    fires(&report, RuleId::WindowsEnlightenments, Severity::Info);
    let f = get(&report, RuleId::WindowsEnlightenments);
    assert!(f.title.contains("cannot see the hypervisor"), "{}", f.title);
    assert_eq!(
        f.fix[0].text,
        "<cpu>\n  <feature policy='require' name='hypervisor'/>\n</cpu>"
    );
    assert!(
        !f.evidence.iter().any(|e| e.contains("missing")),
        "{:?}",
        f.evidence
    );
    let report =
        judge(&on(Guest::new("w", 5).windows(&hidden("<clock offset='localtime'/>"))).first());
    let f = get(&report, RuleId::WindowsEnlightenments);
    assert!(
        f.fix[0].text.contains("name='hypervisor'") && f.fix[0].text.contains("<stimer"),
        "{:?}",
        f.fix
    );
}

#[test]
fn a_name_makes_a_guest_windows_with_low_confidence() {
    let of = |name: &str, options: &str| {
        let command =
            kvm::cmdline::parse_text(&format!("kvm -m 4G -cpu host -nic none {options}")).unwrap();
        of_file(&on(Guest::new(name, 5).facts(|f| f.command = Some(Arc::new(command)))).first())
    };
    let found = of("Windows-10-Pro", "");
    assert_eq!(
        get(&found, RuleId::WindowsEnlightenments).confidence,
        Confidence::Low
    );
    fires(
        &of(
            "g",
            "-drive file=Win10.qcow2,if=virtio -cdrom virtio-win.iso",
        ),
        RuleId::WindowsEnlightenments,
        Severity::Info,
    );
    for (name, options) in [
        ("windows-vista", ""),
        ("g", "-hda windows-vista.img"),
        ("web", ""),
    ] {
        silent(&of(name, options), RuleId::WindowsEnlightenments);
    }
    // The name of another system does not outweigh evidence.
    let found = of(
        "esxi-mgmt-win2019",
        "-cpu host,hv-relaxed -rtc base=localtime",
    );
    assert_eq!(
        get(&found, RuleId::WindowsEnlightenments).confidence,
        Confidence::Medium
    );
    // Proxmox adds them for its name of the system. A guest's type is not changed by names.
    let proxmox = |options: &str| {
        let options =
            format!("-qmp unix:/var/run/qemu-server/100.qmp,server=on -hda win10.raw {options}");
        get(&of("win10", &options), RuleId::WindowsEnlightenments).fix[0].clone()
    };
    let fix = proxmox("-rtc base=localtime");
    assert_eq!(fix.text, "qm set 100 --ostype win10");
    assert!(fix.needs.unwrap().contains("if it is Windows"));
}
