use super::*;

const SYNIC: &str = "<features><hyperv><vpindex state='on'/><synic state='on'/><stimer state='on'/></hyperv></features>
    <clock offset='localtime'><timer name='hypervclock' present='yes'/></clock>";

fn game(xml: &str, exit: &'static str, rate: f64) -> Fixture {
    on(Guest::new("w", 5).windows(xml).vcpus(8, move |v, t| {
        t.on(v)
            .cpu(80.0, 0.1, 4.0, 0.1)
            .exits("EPT_VIOLATION", 1160.0, 3.98)
            .exits("EXTERNAL_INTERRUPT", 695.0, 4.4)
            .exits(exit, rate, 2.1)
    }))
}

#[test]
fn synic_without_avic_inhibits() {
    let report = judge(&game(SYNIC, "TPR_BELOW_THRESHOLD", 90.0).model());
    fires(&report, RuleId::ApicvInhibited, Severity::Warning);
    let f = get(&report, RuleId::ApicvInhibited);
    assert_eq!(
        f.folded,
        [RuleId::Stage2Faults],
        "the faults are the APIC's page"
    );
    assert!(f.fix[0].text.contains("<avic state='on'/>"));
}

#[test]
fn active_or_configured_acceleration_is_no_finding() {
    silent(
        &judge(&game(SYNIC, "APIC_WRITE", 90.0).model()),
        RuleId::ApicvInhibited,
    );
    silent(
        &judge(&game(ENLIGHTENED, "TPR_BELOW_THRESHOLD", 90.0).model()),
        RuleId::ApicvInhibited,
    );
    silent(
        &judge(&game("", "TPR_BELOW_THRESHOLD", 90.0).model()),
        RuleId::ApicvInhibited,
    );
    let mut off = game(SYNIC, "TPR_BELOW_THRESHOLD", 90.0);
    off.host
        .facts
        .params
        .insert("kvm_intel.enable_apicv".into(), "N".into());
    silent(&judge(&off.model()), RuleId::ApicvInhibited);
    cannot(
        &from_file(&game(SYNIC, "TPR_BELOW_THRESHOLD", 90.0), None),
        RuleId::ApicvInhibited,
    );
}

#[test]
fn on_amd_the_host_has_to_offer_it() {
    let mut f = game(SYNIC, "vintr", 90.0);
    for e in f.guests[0].threads.iter_mut().flat_map(|t| &mut t.exits) {
        let code = match e.0.name.as_deref() {
            Some("EPT_VIOLATION") => 0x400,
            Some("EXTERNAL_INTERRUPT") => 0x60,
            _ => 0x64,
        };
        (e.0.isa, e.0.code) = (kvm::Isa::Svm, code);
    }
    cannot(&judge(&f.model()), RuleId::ApicvInhibited);
    f.host
        .facts
        .params
        .insert("kvm_amd.avic".into(), "1".into());
    assert_eq!(
        get(&judge(&f.model()), RuleId::ApicvInhibited).confidence,
        Confidence::High
    );
}

#[test]
fn without_its_own_exits_it_has_low_confidence() {
    cannot(
        &judge(&game(SYNIC, "VMCALL", 9000.0).model()),
        RuleId::ApicvInhibited,
    );
    let report = judge(&game(SYNIC, "VMCALL", 90.0).model());
    assert_eq!(
        get(&report, RuleId::ApicvInhibited).confidence,
        Confidence::Low
    );
}

#[test]
fn lapic_by_memory() {
    let at = |rate| {
        on(Guest::new("l", 5).linux("").vcpus(2, move |v, t| {
            t.on(v)
                .cpu(70.0, 0.0, 5.0, 0.0)
                .exits("APIC_ACCESS", rate, 4.0)
        }))
    };
    fires(
        &judge(&at(5000.0).model()),
        RuleId::LapicMmio,
        Severity::Warning,
    );
    silent(&judge(&at(500.0).model()), RuleId::LapicMmio);
    cannot(&from_file(&at(300.0), None), RuleId::LapicMmio);
}

#[test]
fn pit_reinjection_on_amd() {
    let amd = |policy: &str, exit: &'static str| {
        let xml = format!("<clock offset='utc'><timer name='pit' tickpolicy='{policy}'/></clock>");
        let mut f = on(Guest::new("l", 5).linux(&xml).vcpus(1, move |v, t| {
            t.on(v).cpu(50.0, 0.0, 2.0, 0.0).exits(exit, 300.0, 1.0)
        }));
        f.host
            .facts
            .params
            .insert("kvm_amd.avic".into(), "Y".into());
        let code = if exit == "vintr" { 0x64 } else { 0x402 };
        for e in f.guests[0].threads.iter_mut().flat_map(|t| &mut t.exits) {
            (e.0.isa, e.0.code) = (kvm::Isa::Svm, code);
        }
        f
    };
    fires(
        &judge(&amd("delay", "vintr").model()),
        RuleId::AvicInhibitedByPit,
        Severity::Info,
    );
    silent(
        &judge(&amd("discard", "vintr").model()),
        RuleId::AvicInhibitedByPit,
    );
    silent(
        &judge(&amd("delay", "avic_unaccelerated_access").model()),
        RuleId::AvicInhibitedByPit,
    );
    let mut unknown = amd("delay", "vintr");
    unknown.host.facts.params.clear();
    silent(&judge(&unknown.model()), RuleId::AvicInhibitedByPit);
}

#[test]
fn ipis() {
    let at = |rate| {
        on(Guest::new("l", 5).linux("").vcpus(2, move |v, t| {
            t.on(v)
                .cpu(70.0, 0.0, 5.0, 0.0)
                .msr(0x830, Direction::Write, rate, 1.3)
        }))
    };
    fires(
        &judge(&at(25_000.0).model()),
        RuleId::IpiStorm,
        Severity::Warning,
    );
    fires(
        &judge(&at(6000.0).model()),
        RuleId::IpiStorm,
        Severity::Info,
    );
    silent(&judge(&at(500.0).model()), RuleId::IpiStorm);
    cannot(&from_file(&at(25_000.0), None), RuleId::IpiStorm);
    // Many MSR exits whose numbers are not known may be interrupt commands.
    let unnamed = |rate| {
        on(Guest::new("l", 5)
            .linux("")
            .vcpus(2, move |v, t| t.on(v).exits("MSR_WRITE", rate, 1.0)))
    };
    cannot(&judge(&unnamed(25_000.0).model()), RuleId::IpiStorm);
    silent(&judge(&unnamed(500.0).model()), RuleId::IpiStorm);
}
