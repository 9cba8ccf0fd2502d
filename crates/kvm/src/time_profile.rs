//! Profiles of `perf top` and `perf report`, which people paste beside the figures of exits and which hold none. Their
//! remark names the hottest functions.

use super::sanitize;

/// Lines of a text that are read.
const MAX_LINES: usize = 20_000;
/// Rows that a remark names.
const MAX_NAMED: usize = 6;

/// What such a text is and what it lacks, as the rest of a sentence that begins with its name:
/// `   9.14%  [kernel]  [k] vmx_vmexit`, under a heading with `Overhead` or `Children`
/// (tools/perf/ui/hist.c in the kernel's sources).
pub fn remark(text: &str) -> Option<String> {
    let (mut rows, mut sure) = (Vec::new(), text.contains(" of event '"));
    for line in text.lines().take(MAX_LINES) {
        let line = line.trim_start_matches(['#', '-', '+', ' ', '\t']);
        sure |= (line.starts_with("Overhead") || line.starts_with("Children")) && line.contains("Symbol");
        let Some((share, rest)) = line.split_once('%') else { continue };
        let symbol = ["[k] ", "[.] ", "[g] ", "[u] ", "[H] "].iter().find_map(|mark| rest.split_once(mark));
        let (Ok(share), Some((before, symbol))) = (share.trim().parse::<f64>(), symbol) else { continue };
        // A tree has two shares: with and without what the function calls.
        sure |= before.contains('%') || !rows.is_empty();
        rows.push((share, sanitize(symbol.split_whitespace().next().unwrap_or_default(), 60)));
    }
    if rows.is_empty() || !sure {
        return None;
    }
    let named: Vec<String> = rows.iter().take(MAX_NAMED).map(|(share, symbol)| format!("{symbol} {share} %")).collect();
    Some(format!(
        "a profile of perf top or perf report ({}): it tells in which functions CPUs spend their time, and not which \
         exits lead there; for those add perf kvm stat, or a recording of kvmtop",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERF: &str = "Samples: 88K of event 'cycles', Event count (approx.): 32113472810\n\
        Overhead  Shared Object        Symbol\n   9.14%  [kernel]             [k] vmx_vmexit\n\
        \x20  6.91%  qemu-system-x86_64   [.] address_space_read\n";

    #[test]
    fn a_profile_is_named_with_its_hottest_functions() {
        let found = |text: &str| remark(text).unwrap_or_default();
        assert!(found(PERF).contains("(vmx_vmexit 9.14 %, address_space_read 6.91 %)"), "{}", found(PERF));
        let tree = "-   97.34%     0.00%  vcpu0            cloud-hypervisor    [.] start\n   - 97.32% __GI___ioctl\n";
        assert!(found(tree).contains("a profile"), "{}", found(tree));
    }

    #[test]
    fn other_texts_are_no_profiles() {
        for text in [
            "  HLT  43210  61.20%  98.90%\n",
            "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\nqemu 1 9 1 1 1 ? S 1 1 qemu-kvm\n",
        ] {
            assert_eq!(remark(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn damaged_output_is_survived(cut in any::<proptest::sample::Index>(), noise in "[ -~\n%\\[\\]k.]{0,200}") {
            let _ = remark(&String::from_utf8_lossy(&PERF.as_bytes()[..cut.index(PERF.len())]));
            let _ = remark(&format!("{PERF}{noise}"));
            let _ = remark(&noise);
        }
    }
}
