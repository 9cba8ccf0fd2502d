//! How long tasks waited for CPUs, disks and memory (PSI, Documentation/accounting/psi.rst), and
//! how many they are.

use super::file::{read_as, read_text};
use procfs::{LoadAverage, parse_pressure_record};
use sample::Pressure;
use std::path::Path;

/// Reads the files of a folder: the host's (`/proc/pressure/io`), or with the ending `.pressure`
/// those of a cgroup. `None` if the kernel lacks the files, or refuses to open them because they
/// are switched off.
pub(crate) fn read(folder: &Path, ending: &str) -> Option<Pressure> {
    let cpu = read_text(&folder.join(format!("cpu{ending}")), 1024).ok()?;
    let io = read_text(&folder.join(format!("io{ending}")), 1024).ok()?;
    let memory = read_text(&folder.join(format!("memory{ending}")), 1024).ok()?;
    Some(Pressure {
        cpu: mean(&cpu, "some")?,
        io: mean(&io, "some")?,
        io_full: mean(&io, "full")?,
        memory: mean(&memory, "some")?,
        memory_full: mean(&memory, "full")?,
    })
}

/// The load of the last minute, in hundredths; `None` where it cannot be read.
pub(crate) fn load(proc: &Path) -> Option<u64> {
    let load: LoadAverage = read_as(&proc.join("loadavg"), 256)?;
    Some((f64::from(load.one) * 100.0).round() as u64)
}

/// The mean of 10 seconds in hundredths, from the line of a kind, `some` or `full`. The readers
/// that procfs has for whole files want the line `full` of CPUs too, which Linux before 5.13 lacks.
fn mean(text: &str, kind: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.split_once(' ').is_some_and(|(first, _)| first == kind))?;
    Some((parse_pressure_record(line).ok()?.avg10 * 100.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    #[test]
    fn means_of_ten_seconds_and_none_where_a_file_is_missing() {
        let fake = FakeProc::new();
        let folder = fake.paths().proc.join("pressure");
        let text = |some: &str| {
            format!(
                "some avg10={some} avg60=9.99 avg300=0.00 total=1\nfull avg10=0.50 avg60=9.99 \
                    avg300=0.00 total=1\n"
            )
        };
        fake.write("proc/pressure/cpu", &text("100.00"));
        fake.write("proc/pressure/io", &text("1.05"));
        assert_eq!(read(&folder, ""), None);
        fake.write("proc/pressure/memory", &text("20.00"));
        let expected = Pressure {
            cpu: 10_000,
            io: 105,
            io_full: 50,
            memory: 2_000,
            memory_full: 50,
        };
        assert_eq!(read(&folder, ""), Some(expected));
    }

    #[test]
    fn the_load_is_that_of_a_minute() {
        let fake = FakeProc::new();
        assert_eq!(load(&fake.paths().proc), None);
        fake.write("proc/loadavg", "41.07 3.25 0.10 7/1234 99\n");
        assert_eq!(load(&fake.paths().proc), Some(4107));
    }
}
