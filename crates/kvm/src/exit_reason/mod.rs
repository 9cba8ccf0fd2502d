//! The reasons of exits from guest mode: names, meanings and the idle reasons of each instruction
//! set.
//!
//! The `kvm_exit` tracepoint gives the codes: VMX basic exit reason (`uapi/asm/vmx.h`, 16 bits,
//! flags above), SVM exit code (`uapi/asm/svm.h`), and for arm64 one number made of two fields by
//! [`arm64_code`].

mod arm64;
mod svm;
mod vmx;

use super::isa::Isa;
use std::collections::BTreeMap;

/// Exit reason names from the `__print_symbolic` lists of a `kvm_exit` `format` file.
pub type ReasonNames = BTreeMap<(Isa, u32), String>;

/// One row of a table: code, the kernel's name, plain meaning (empty if there is nothing to add).
type ReasonRow = (u32, &'static str, &'static str);

/// Added to arm64's `ret` when it is not TRAP, so that it differs from every exception class.
pub const ARM64_RET: u32 = 0x100;

/// arm64: the code for a `kvm_exit` with these two fields. `ret` TRAP (2) stands for its exception
/// class `esr_ec` (0 to 0x3f); any other `ret` becomes [`ARM64_RET`] + `ret`: 0x100 IRQ, 0x101
/// SERROR, 0x103 IL.
pub const fn arm64_code(ret: u32, esr_ec: u32) -> u32 {
    // Bit 31 of the hypervisor's return code means that an SError was pending as well.
    match ret & 0x7fff_ffff {
        2 => esr_ec & 0x3f,
        other => ARM64_RET.wrapping_add(other),
    }
}

/// The code without the flags that VMX keeps in its upper bits.
///
/// Bits 16 to 24 are zero in every hardware reason. A KVM flavour that sets them uses its own
/// numbers. These bits stay, so that such a code does not get the name of an unrelated reason.
pub const fn basic(isa: Isa, code: u32) -> u32 {
    match isa {
        Isa::Vmx => code & 0x01ff_ffff,
        _ => code,
    }
}

const fn table(isa: Isa) -> &'static [ReasonRow] {
    match isa {
        Isa::Vmx => vmx::TABLE,
        Isa::Svm => svm::TABLE,
        Isa::Arm64 => arm64::TABLE,
        Isa::Other(_) => &[],
    }
}

fn find_row(isa: Isa, code: u32) -> Option<&'static ReasonRow> {
    let code = basic(isa, code);
    table(isa).iter().find(|(known, ..)| *known == code)
}

/// The built-in name of a reason, spelt as the kernel does.
pub fn name(isa: Isa, code: u32) -> Option<&'static str> {
    find_row(isa, code).map(|(_, name, _)| *name)
}

/// What the reason means to an admin, in a sentence.
pub fn meaning(isa: Isa, code: u32) -> Option<&'static str> {
    find_row(isa, code)
        .map(|(.., meaning)| *meaning)
        .filter(|text| !text.is_empty())
}

/// The code of a name in the built-in table.
fn find_code(isa: Isa, name: &str) -> Option<u32> {
    table(isa)
        .iter()
        .find(|(_, known, _)| known.eq_ignore_ascii_case(name))
        .map(|(code, ..)| *code)
}

/// The code of a name as any version of the kernel and of perf prints it. Also reads `0x4f`, `vmx
/// 0x4f`, and a VMX name followed by flags (`INVALID_STATE FAILED_VMENTRY`), whose bits are then
/// set.
///
/// On arm64 `SERROR` means the host's pending error (`ret` 1), not the exception class of that
/// name.
pub fn code(isa: Isa, name: &str) -> Option<u32> {
    let name = name.trim();
    if isa == Isa::Arm64 && name == "SERROR" {
        return Some(arm64_code(1, 0));
    }
    if let Some(code) = find_code(isa, name).or_else(|| alias(isa, name)) {
        return Some(code);
    }
    let hex = name
        .strip_prefix(&isa.to_string())
        .map_or(name, str::trim_start);
    if hex.starts_with("0x") {
        return super::untrusted_text::number(hex).and_then(|code| u32::try_from(code).ok());
    }
    if isa == Isa::Vmx {
        let mut words = name.split_whitespace();
        let basic = words
            .next()
            .and_then(|word| find_code(isa, word).or_else(|| alias(isa, word)))?;
        let mut code = basic;
        for word in words {
            let (flag, _) = VMX_FLAGS.iter().find(|(_, name)| *name == word)?;
            code |= flag;
        }
        return Some(code);
    }
    None
}

/// Older names and other spellings.
fn alias(isa: Isa, name: &str) -> Option<u32> {
    Some(match isa {
        Isa::Vmx => match name {
            "PENDING_INTERRUPT" => 7,
            "PENDING_NMI" | "NMI_WINDOW_EXITING" => 8,
            "VMXOFF" => 26,
            "VMXON" => 27,
            "IO" => 30,
            "INVALID_GUEST_STATE" => 33,
            "MWAIT" => 36,
            "MONITOR" => 39,
            "PAUSE" => 40,
            "MACHINE_CHECK" => 41,
            "ACCESS_GDTR_OR_IDTR" => 46,
            "ACCESS_LDTR_OR_TR" => 47,
            _ => return code(isa, name.strip_prefix("EXIT_REASON_")?),
        },
        Isa::Svm => match name {
            "nested_page_fault" => 0x400,
            "vmmcall" => 0x81,
            "invalid" => u32::MAX,
            _ => return svm_plugin(name.strip_prefix("EXIT_")?),
        },
        Isa::Arm64 if matches!(name, "WFX" | "WFI" | "WFE") => 1,
        _ => return None,
    })
}

/// SVM names as trace-cmd's kvm plugin prints them, without their `EXIT_` (libtraceevent,
/// `plugins/plugin_kvm.c`, which takes them from the processor's manual).
fn svm_plugin(name: &str) -> Option<u32> {
    let plain = match name {
        "INTR" => "interrupt",
        "IOIO" => "io",
        "VMMCALL" => "hypercall",
        "ERR" => "invalid_guest_state",
        other => other,
    };
    if let Some(code) = find_code(Isa::Svm, plain) {
        return Some(code);
    }
    let name = match plain.split_once('_')? {
        ("EXCP", vector) => format!("{vector} excp"),
        // READ_IDTR is IDTR_READ there; the task register is "rt" in the kernel's table.
        ("TR", access) => format!("{access}_rt"),
        (register, access) => format!("{access}_{register}"),
    };
    find_code(Isa::Svm, &name)
}

/// The name to show: from a `format` file, else built in, else `vmx 0x4f`. VMX flags follow it, as
/// in the kernel's text.
pub fn display(isa: Isa, code: u32, names: &ReasonNames) -> String {
    let plain = basic(isa, code);
    let mut text = match names
        .get(&(isa, plain))
        .map(String::as_str)
        .or_else(|| name(isa, plain))
    {
        Some(name) => name.to_owned(),
        None if isa == Isa::Arm64 && plain >= ARM64_RET => {
            format!("{isa} ret {:#x}", plain - ARM64_RET)
        }
        None => format!("{isa} {plain:#x}"),
    };
    for (flag, name) in VMX_FLAGS {
        if isa == Isa::Vmx && code & flag != 0 {
            text.push(' ');
            text.push_str(name);
        }
    }
    text
}

/// Whether the guest sleeps in exits of this reason: HLT, `hlt`, `idle-halt`, `WFx`. Their time is
/// not work.
pub const fn is_idle(isa: Isa, code: u32) -> bool {
    match isa {
        Isa::Vmx => basic(isa, code) == 12,
        Isa::Svm => code == 0x78 || code == 0xa6,
        Isa::Arm64 => code == 1,
        Isa::Other(_) => false,
    }
}

/// As [`is_idle`], by name.
pub fn is_idle_name(name: &str) -> bool {
    matches!(name.trim(), "HLT" | "hlt" | "idle-halt" | "WFx" | "WFX")
}

/// The flags above the basic VMX reason.
const VMX_FLAGS: &[(u32, &str)] = &[
    (1 << 31, "FAILED_VMENTRY"),
    (1 << 29, "SMI_FROM_ROOT"),
    (1 << 28, "SMI_PENDING_MTF"),
    (1 << 27, "ENCLAVE_MODE"),
    (1 << 26, "BUS_LOCK_DETECTED"),
];

/// Guesses the instruction set of a table of names: the one with most of the names (spelling
/// counts: `HLT` is VMX, `hlt` is SVM). `Other(0)` if none has any of them or two have equally
/// many.
pub fn guess_isa<'a>(names: impl IntoIterator<Item = &'a str>) -> Isa {
    let mut hits = [(Isa::Vmx, 0u32), (Isa::Svm, 0), (Isa::Arm64, 0)];
    for name in names {
        let name = name.trim();
        // perf prints this for any code that it does not know, on every machine.
        if name == "UNKNOWN" {
            continue;
        }
        for (isa, count) in &mut hits {
            let is_built_in = table(*isa).iter().any(|(_, known, _)| *known == name);
            *count += u32::from(is_built_in || alias(*isa, name).is_some());
        }
    }
    hits.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    match hits {
        [(isa, best), (_, second), _] if best > second => isa,
        _ => Isa::Other(0),
    }
}

#[cfg(test)]
mod tests;
