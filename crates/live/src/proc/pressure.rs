//! How long tasks waited for CPUs, disks and memory (PSI, Documentation/accounting/psi.rst).

use super::file::read_text;
use sample::Pressure;
use std::path::Path;

/// Time between two readings: the kernel renews its means that often (kernel/sched/psi.c, `PSI_FREQ`).
pub(crate) const PERIOD_NS: u64 = 2_000_000_000;

/// Reads the host's files (`/proc/pressure/io`), or with the ending `.pressure` a cgroup's. `None`: a kernel
/// without them, or one that has them switched off and so refuses to open them.
pub(crate) fn read(folder: &Path, ending: &str) -> Option<Pressure> {
    let text = |resource| read_text(&folder.join(format!("{resource}{ending}")), 1024).ok();
    let [cpu, io, memory] = [text("cpu")?, text("io")?, text("memory")?];
    Some(Pressure {
        cpu: mean(&cpu, "some")?,
        io: mean(&io, "some")?,
        io_full: mean(&io, "full")?,
        memory: mean(&memory, "some")?,
        memory_full: mean(&memory, "full")?,
    })
}

/// `avg10` of a line `some avg10=0.00 avg60=0.00 avg300=0.00 total=12`, in hundredths: it has two decimals.
fn mean(text: &str, kind: &str) -> Option<u64> {
    let words = text.lines().find_map(|line| line.strip_prefix(kind))?;
    let mean = words.split(' ').find_map(|word| word.strip_prefix("avg10="))?;
    mean.replace('.', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    #[test]
    fn means_of_ten_seconds_and_none_where_a_file_is_missing() {
        let fake = FakeProc::new();
        let folder = fake.paths().proc.join("pressure");
        let text = |some: &str| format!("some avg10={some} avg60=9.99 total=1\nfull avg10=0.50 avg60=9.99 total=1\n");
        fake.write("proc/pressure/cpu", &text("100.00"));
        fake.write("proc/pressure/io", &text("1.05"));
        assert_eq!(read(&folder, ""), None);
        fake.write("proc/pressure/memory", &text("20.00"));
        let expected = Pressure { cpu: 10_000, io: 105, io_full: 50, memory: 2_000, memory_full: 50 };
        assert_eq!(read(&folder, ""), Some(expected));
    }
}
