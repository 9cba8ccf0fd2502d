use super::*;
use proptest::prelude::*;

const KVM_EXIT: &str = include_str!("../../../../tests/fixtures/kvm/kvm_exit.format");

/// The same event as arm64 kernels describe it.
const ARM64: &str = "name: kvm_exit\nID: 77\nformat:\n\tfield:int \
    ret;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:unsigned int \
    esr_ec;\toffset:12;\tsize:4;\tsigned:0;\n\tfield:unsigned long \
    vcpu_pc;\toffset:16;\tsize:8;\tsigned:0;\n\nprint fmt: \"%s: HSR_EC: 0x%04x (%s), PC: \
    0x%016lx\", __print_symbolic(((REC->ret) & ~(1U << 31)), { 0, \"IRQ\" }, { 2, \"TRAP\" }), \
    REC->esr_ec, __print_symbolic(REC->esr_ec, { 0x01, \"WFx\" }, { 0x24, \"DABT_LOW\" }), \
    REC->vcpu_pc\n";

#[test]
fn a_real_file_gives_fields_and_both_lists() {
    let format = parse(KVM_EXIT).unwrap();
    assert_eq!((format.name.as_str(), format.id), ("kvm_exit", 103));
    let field = format.field("vcpu_id").unwrap();
    assert_eq!(
        (field.offset, field.size, field.signed, field.ty.as_str()),
        (56, 4, false, "unsigned int")
    );
    assert_eq!(format.field("requests").unwrap().offset, 64);
    assert!(format.field("nothing").is_none());
    let names = format.reason_names();
    assert_eq!(names.get(&(Isa::Vmx, 12)).unwrap(), "HLT");
    assert_eq!(names.get(&(Isa::Vmx, 84)).unwrap(), "MSR_READ_IMM");
    assert_eq!(names.get(&(Isa::Svm, 0x4e)).unwrap(), "PF excp");
    assert_eq!(
        names.get(&(Isa::Svm, 0xffff_ffff)).unwrap(),
        "invalid_guest_state"
    );
    assert_eq!(
        names.get(&(Isa::Svm, 0x8000_0013)).unwrap(),
        "vmgexit_ap_creation"
    );
    let mut twice = format.clone();
    twice
        .symbols
        .iter_mut()
        .for_each(|list| list.names.push((12, "LATER".into())));
    assert_eq!(
        twice.reason_names()[&(Isa::Vmx, 12)],
        "HLT",
        "the first name of a code wins"
    );
}

#[test]
fn built_in_tables_agree_with_a_real_kernel() {
    let names = parse(KVM_EXIT).unwrap().reason_names();
    for (isa, at_least) in [(Isa::Vmx, 60), (Isa::Svm, 100)] {
        let codes = || {
            (0..0x500)
                .chain(0x8000_0000..0x8000_0020)
                .chain([0x8000_fffd, 0xffff_ffff])
        };
        assert!(
            codes()
                .filter(|code| names.contains_key(&(isa, *code)))
                .count()
                > at_least
        );
        for code in codes() {
            if let Some(kernel) = names.get(&(isa, code)) {
                assert_eq!(
                    crate::exit_reason::name(isa, code),
                    Some(kernel.as_str()),
                    "{isa} {code:#x}"
                );
            }
        }
    }
}

#[test]
fn arm64_has_two_lists_in_one_code_space() {
    let names = parse(ARM64).unwrap().reason_names();
    assert_eq!(names.get(&(Isa::Arm64, 0x24)).unwrap(), "DABT_LOW");
    assert_eq!(names.get(&(Isa::Arm64, 0x100)).unwrap(), "IRQ");
}

#[test]
fn text_fields_are_fixed_or_located() {
    let fixed =
        parse("name: a\nID: 1\n\tfield:char comm[16];\toffset:0;\tsize:16;\tsigned:0;\n").unwrap();
    let comm = fixed.field("comm").unwrap();
    assert_eq!(comm.ty, "char[16]");
    let located =
        parse("name: a\nID: 1\n\tfield:__data_loc char[] comm;\toffset:0;\tsize:4;\tsigned:0;\n")
            .unwrap();
    let comm = located.field("comm").unwrap();
    assert!(comm.is_data_loc);
    assert_eq!(comm.ty, "__data_loc char[]");
}

#[test]
fn what_is_no_format_file_says_so() {
    for (text, says) in [
        ("hello", "no 'name:' line"),
        ("name: x\n", "no 'ID:' line"),
        (
            "name: x\nID: 1\nfield:int x; offset:;",
            "cannot read the field line",
        ),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_survived(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn a_broken_file_is_survived(cut in 0usize..KVM_EXIT.len(), junk in any::<String>()) {
        if let Ok(format) = parse(&format!("{}{junk}{}", &KVM_EXIT[..cut], &KVM_EXIT[cut..])) {
            let _ = format.reason_names();
        }
    }
}
