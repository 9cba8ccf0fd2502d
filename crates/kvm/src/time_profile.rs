//! Texts that people paste beside the figures of exits, and that hold none: profiles of `perf top` and `perf report`,
//! `top` and `top -H`, `virsh domblkinfo`. Each is named, with what it says of guests.

use super::sanitize;

/// Lines of a text that are read.
const MAX_LINES: usize = 20_000;
/// Rows that a remark names.
const MAX_NAMED: usize = 6;

/// What such a text is and what it lacks, as the rest of a sentence that begins with its name.
pub fn remark(text: &str) -> Option<String> {
    profile(text).or_else(|| top(text)).or_else(|| disk_sizes(text))
}

/// `   9.14%  [kernel]  [k] vmx_vmexit`, under a heading with `Overhead` or `Children`
/// (tools/perf/ui/hist.c in the kernel's sources).
fn profile(text: &str) -> Option<String> {
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

/// Where the columns of `top` are.
struct TopColumns {
    busy: usize,
    comm: usize,
}

impl TopColumns {
    fn of(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = |name: &str| words.iter().position(|word| *word == name);
        at("PID").and(at("NI"))?;
        Some(Self { busy: at("%CPU")?, comm: at("COMMAND").filter(|at| at + 1 == words.len())? })
    }

    /// Percent of a CPU and the name of the thread or process.
    fn row<'a>(&self, line: &'a str) -> Option<(f64, &'a str)> {
        let mut rest = line.trim_start();
        let mut busy = None;
        for column in 0..self.comm {
            let (word, after) = rest.split_once(char::is_whitespace)?;
            if column == self.busy {
                busy = word.replace(',', ".").parse().ok();
            }
            rest = after.trim_start();
        }
        Some((busy?, rest.trim_end()))
    }
}

/// The threads and processes of VMMs in the output of `top` (procps).
fn top(text: &str) -> Option<String> {
    let mut columns = None;
    let mut rows: Vec<(f64, &str)> = Vec::new();
    for line in text.lines().take(MAX_LINES) {
        if let Some(heading) = TopColumns::of(line) {
            columns = Some(heading);
        } else if let Some(row) = columns.as_ref().and_then(|columns| columns.row(line)) {
            rows.push(row);
        }
    }
    let is_vcpu = |comm: &str| comm.starts_with("CPU ") && super::thread_name::vcpu_index(comm).is_some();
    let is_vmm = |comm: &str| {
        let names = ["qemu", "cloud-hyperviso", "firecracker", "fc_vcpu", "crosvm", "vhost-", "IO iothread"];
        is_vcpu(comm) || comm == "kvm" || names.iter().any(|name| comm.starts_with(name))
    };
    rows.retain(|(_, comm)| is_vmm(comm));
    if rows.is_empty() {
        return None;
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named = rows.iter().take(MAX_NAMED).map(|(busy, comm)| format!("{} {busy} %", sanitize(comm, 20)));
    let named = named.collect::<Vec<_>>().join(", ");
    // vCPU threads are called CPU n/KVM where KVM runs them (accel/tcg and accel/kvm in QEMU's sources).
    let emulated = if rows.iter().any(|(_, comm)| is_vcpu(comm) && comm.ends_with("/TCG")) {
        "; its vCPU threads are called CPU n/TCG: QEMU emulates this guest in software, without KVM, which is many \
         times slower (look at /dev/kvm, and at -accel kvm or <domain type='kvm'>)"
    } else {
        ""
    };
    Some(format!(
        "the output of top, in percent of one CPU ({named}){emulated}; it tells how busy the threads are, and not with \
         what: add perf kvm stat or a recording of kvmtop"
    ))
}

/// `Capacity:`, `Allocation:` and `Physical:` of a disk.
fn disk_sizes(text: &str) -> Option<String> {
    let has = |name: &str| {
        let value = |line: &str| line.trim_start().strip_prefix(name).map(|value| value.trim_start().to_owned());
        text.lines()
            .take(MAX_LINES)
            .any(|line| value(line).is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit())))
    };
    ["Capacity:", "Allocation:", "Physical:"].iter().all(|name| has(name)).then(|| {
        "the output of virsh domblkinfo, which has the sizes of a disk and nothing about its load: add virsh \
         domblkstat or domstats, twice, some seconds apart"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOP: &str = "top - 18:21:03 up 26 days\n%Cpu(s): 13.9 us\n\n    PID USER      PR  NI    VIRT    RES    SHR \
        S  %CPU  %MEM     TIME+ COMMAND\n3792669 u    20   0 9918.0m   7.5g  21104 S  22,7  32.0  17:37.77 qemu-kvm\n\
        3792679 u    20   0 9918.0m   7.5g  21104 R  92.0  32.0  65:09.86 CPU 0/KVM   \n\
        1 root 20 0 1 1 1 S 0.1 0.1 0:01.0 systemd\n";
    const PERF: &str = "Samples: 88K of event 'cycles', Event count (approx.): 32113472810\n\
        Overhead  Shared Object        Symbol\n   9.14%  [kernel]             [k] vmx_vmexit\n\
        \x20  6.91%  qemu-system-x86_64   [.] address_space_read\n";

    #[test]
    fn each_is_recognised() {
        let found = |text: &str| remark(text).unwrap_or_default();
        assert!(found(TOP).contains("(CPU 0/KVM 92 %, qemu-kvm 22.7 %)"), "{}", found(TOP));
        assert!(!found(TOP).contains("TCG") && found(&TOP.replace("/KVM", "/TCG")).contains("without KVM"));
        assert!(found(PERF).contains("(vmx_vmexit 9.14 %, address_space_read 6.91 %)"), "{}", found(PERF));
        let tree = "-   97.34%     0.00%  vcpu0            cloud-hypervisor    [.] start\n   - 97.32% __GI___ioctl\n";
        assert!(found(tree).contains("a profile"), "{}", found(tree));
        assert!(found("Capacity:       21474836480\nAllocation:     1\nPhysical:       2\n").contains("domblkinfo"));
    }

    #[test]
    fn other_texts_are_none_of_them() {
        for text in [
            "  HLT  43210  61.20%  98.90%\n",
            "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\nqemu 1 9 1 1 1 ? S 1 1 qemu-kvm\n",
            &TOP.replace("qemu-kvm", "java").replace("CPU 0/KVM", "java"),
            "Capacity: a\nAllocation: b\nPhysical: c\n",
        ] {
            assert_eq!(remark(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn damaged_output_is_survived(cut in any::<proptest::sample::Index>(), noise in "[ -~\n%\\[\\]k.]{0,200}") {
            for text in [TOP, PERF] {
                let _ = remark(&String::from_utf8_lossy(&text.as_bytes()[..cut.index(text.len())]));
                let _ = remark(&format!("{text}{noise}"));
            }
            let _ = remark(&noise);
        }
    }
}
