use super::*;
use proptest::prelude::*;

#[test]
fn tables_are_sorted_and_names_unique() {
    for isa in [Isa::Vmx, Isa::Svm, Isa::Arm64] {
        let table = table(isa);
        assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0), "{isa}");
        for row in table {
            let back = code(isa, row.1).unwrap();
            assert!(back == row.0 || row.1 == "SERROR", "{isa} {}", row.1);
        }
    }
}

#[test]
fn vmx_reasons_are_masked_and_flags_kept() {
    assert_eq!(name(Isa::Vmx, 0x8000_0021), Some("INVALID_STATE"));
    assert_eq!(
        display(Isa::Vmx, 0x8000_0021, &ReasonNames::new()),
        "INVALID_STATE FAILED_VMENTRY"
    );
    assert_eq!(
        code(Isa::Vmx, "INVALID_STATE FAILED_VMENTRY"),
        Some(0x8000_0021)
    );
    assert_eq!(basic(Isa::Vmx, 0x0400_001e), 30);
    assert_eq!(basic(Isa::Svm, 0x8000_0001), 0x8000_0001);
}

#[test]
fn numbers_of_a_foreign_flavour_are_not_given_an_unrelated_name() {
    assert_eq!(
        display(Isa::Vmx, 0x2_0000, &ReasonNames::new()),
        "vmx 0x20000"
    );
    assert!(!is_idle(Isa::Vmx, 0x1_000c));
}

#[test]
fn names_of_other_ages_are_understood() {
    assert_eq!(code(Isa::Vmx, "PENDING_INTERRUPT"), Some(7));
    assert_eq!(code(Isa::Svm, "npf"), Some(0x400));
    assert_eq!(code(Isa::Svm, "PF excp"), Some(0x4e));
    assert_eq!(code(Isa::Svm, "idle-halt"), Some(0xa6));
    assert_eq!(code(Isa::Arm64, "DABT_LOW"), Some(0x24));
    assert_eq!(code(Isa::Arm64, "IRQ"), Some(0x100));
    assert_eq!(code(Isa::Vmx, "no such thing"), None);
    assert_eq!(code(Isa::Vmx, ""), None);
}

#[test]
fn unknown_codes_show_their_number_and_read_back() {
    let none = ReasonNames::new();
    assert_eq!(display(Isa::Vmx, 0x5a, &none), "vmx 0x5a");
    assert_eq!(display(Isa::Other(3), 1, &none), "isa3 0x1");
    assert_eq!(code(Isa::Vmx, "vmx 0x5a"), Some(0x5a));
    assert_eq!(code(Isa::Svm, "0x9f"), Some(0x9f));
    assert_eq!(
        display(Isa::Arm64, arm64_code(7, 0), &none),
        "arm64 ret 0x7"
    );
}

#[test]
fn a_name_of_the_running_kernel_wins() {
    let mut names = ReasonNames::new();
    names.insert((Isa::Vmx, 90), "NEW_THING".into());
    assert_eq!(display(Isa::Vmx, 90, &names), "NEW_THING");
    assert_eq!(display(Isa::Vmx, 12, &names), "HLT");
}

#[test]
fn only_sleep_is_idle() {
    assert!(
        is_idle(Isa::Vmx, 12)
            && is_idle(Isa::Svm, 0x78)
            && is_idle(Isa::Svm, 0xa6)
            && is_idle(Isa::Arm64, 1)
    );
    assert!(!is_idle(Isa::Vmx, 36) && !is_idle(Isa::Svm, 12) && !is_idle(Isa::Other(0), 12));
    assert!(
        is_idle_name("HLT")
            && is_idle_name("hlt")
            && is_idle_name("WFx")
            && !is_idle_name("MWAIT_INSTRUCTION")
    );
}

#[test]
fn arm64_puts_two_fields_into_one_code() {
    assert_eq!(name(Isa::Arm64, arm64_code(2, 0x24)), Some("DABT_LOW"));
    assert_eq!(name(Isa::Arm64, arm64_code(0, 0)), Some("IRQ"));
    assert_eq!(
        name(Isa::Arm64, arm64_code(0xbad_ca11, 0)),
        Some("HYP_GONE")
    );
    assert_eq!(
        name(Isa::Arm64, arm64_code(0x8000_0002, 0x16)),
        Some("HVC64")
    );
}

#[test]
fn spelling_tells_the_instruction_set() {
    assert_eq!(guess_isa(["EPT_VIOLATION", "HLT", "MSR_READ"]), Isa::Vmx);
    assert_eq!(guess_isa(["npf", "hlt", "msr"]), Isa::Svm);
    assert_eq!(guess_isa(["DABT_LOW", "IRQ", "WFx"]), Isa::Arm64);
    assert_eq!(guess_isa(["what", "UNKNOWN"]), Isa::Other(0));
    assert_eq!(guess_isa(std::iter::empty()), Isa::Other(0));
}

#[test]
fn names_of_other_tools_are_known() {
    for (name, kernel) in [
        ("EXIT_IOIO", "io"),
        ("EXIT_INTR", "interrupt"),
        ("EXIT_VMMCALL", "hypercall"),
        ("EXIT_CR0_SEL_WRITE", "cr0_sel_write"),
        ("EXIT_EXCP_GP", "GP excp"),
        ("EXIT_IDTR_READ", "read_idtr"),
        ("EXIT_NPF", "npf"),
    ] {
        assert_eq!(code(Isa::Svm, name), code(Isa::Svm, kernel), "{name}");
        assert_eq!(guess_isa([name]), Isa::Svm, "{name}");
    }
    assert_eq!(code(Isa::Vmx, "EXIT_REASON_HLT"), Some(12));
    assert_eq!(
        (code(Isa::Svm, "EXIT_"), code(Isa::Svm, "EXIT_NOTHING")),
        (None, None)
    );
}

#[test]
fn every_reason_that_storms_has_a_meaning() {
    for reason in [1, 7, 12, 30, 31, 32, 40, 44, 45, 48, 49, 52, 56, 74] {
        assert!(meaning(Isa::Vmx, reason).is_some());
    }
    assert!(meaning(Isa::Vmx, 11).is_none());
}

proptest! {
    #[test]
    fn any_name_and_code_is_answered(text in ".{0,30}", number in any::<u32>()) {
        for isa in [Isa::Vmx, Isa::Svm, Isa::Arm64, Isa::Other(number)] {
            let _ = code(isa, &text);
            prop_assert!(!display(isa, number, &ReasonNames::new()).is_empty());
            let _ = meaning(isa, number);
        }
    }
}
