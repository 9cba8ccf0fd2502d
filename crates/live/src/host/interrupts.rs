//! /proc/interrupts, summed per CPU.

use crate::proc::file;
use crate::proc::stat::number;
use sample::CpuTimes;
use std::path::PathBuf;

/// A file up to this size is read in each tick; a longer one (many CPUs times many devices) is
/// expensive for the kernel to make.
const SMALL_FILE_BYTES: usize = 128 * 1024;
/// A long file is read in a few consecutive ticks, which give rates, out of this many.
const LARGE_FILE_PERIOD_TICKS: u32 = 10;
/// In so many ticks: each two readings give a rate, and three rates in a row show whether a pattern
/// persists.
const LARGE_FILE_READ_TICKS: u32 = 4;
/// At most this many bytes are read.
const MAX_BYTES: usize = 64 << 20;

/// Reads the file as often as its size allows.
#[derive(Debug)]
pub(crate) struct Interrupts {
    path: PathBuf,
    last_bytes: usize,
    tick: u32,
}

impl Interrupts {
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            last_bytes: 0,
            tick: 0,
        }
    }

    /// Fills in the counts; they stay `None` when the file is not read in this tick.
    pub fn read(&mut self, cpus: &mut [CpuTimes]) {
        let turn = self.tick % LARGE_FILE_PERIOD_TICKS;
        self.tick = self.tick.wrapping_add(1);
        if self.last_bytes > SMALL_FILE_BYTES && turn >= LARGE_FILE_READ_TICKS {
            return;
        }
        let Ok(text) = file::read_bytes(&self.path, MAX_BYTES) else {
            return;
        };
        self.last_bytes = text.len();
        count(&text, cpus);
    }
}

/// Sums the interrupts that each CPU has taken since boot: those of devices (the numbered lines)
/// and of its timer (`LOC`, on arm64 `arch_timer`). The first line names the CPUs, whose numbers
/// may have gaps.
fn count(text: &[u8], cpus: &mut [CpuTimes]) {
    let mut lines = text.split(|b| *b == b'\n');
    let words =
        |line| <[u8]>::split(line, u8::is_ascii_whitespace).filter(|w: &&[u8]| !w.is_empty());
    // Of each column its CPU, as an index in `cpus`.
    let mut columns = Vec::new();
    for word in words(lines.next().unwrap_or_default()) {
        let number_in_head = word.strip_prefix(b"CPU").and_then(number);
        columns.push(cpus.iter().position(|cpu| Some(cpu.cpu) == number_in_head));
    }
    for index in columns.iter().flatten() {
        cpus[*index].device_irqs = Some(0);
        cpus[*index].timer_irqs = Some(0);
    }
    for line in lines {
        let mut words = words(line);
        let Some(label) = words.next().and_then(|l| l.strip_suffix(b":")) else {
            continue;
        };
        let is_device = number::<u64>(label).is_some();
        if !is_device && label != b"LOC" {
            continue;
        }
        let is_timer = !is_device || line.ends_with(b"arch_timer");
        for (index, word) in columns.iter().zip(words) {
            // After the columns comes the chip's name.
            let Some(n) = number(word) else { break };
            let Some(cpu) = index.and_then(|index| cpus.get_mut(index)) else {
                continue;
            };
            let sum = if is_timer {
                &mut cpu.timer_irqs
            } else {
                &mut cpu.device_irqs
            };
            *sum = sum.map(|sum| sum.saturating_add(n));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "           CPU0       CPU2\n  0:         10          0   IO-APIC   \
        2-edge      timer\n 24:          5          7   PCI-MSI 0-edge virtio0\n NMI:          \
        1          1   Non-maskable interrupts\nLOC:        100        200   Local timer \
        interrupts\nERR:          3\n\x20 11:  1000 2000 GICv3 27 Level arch_timer\n";

    #[test]
    fn devices_and_timer_by_cpu() {
        let mut cpus = [0, 1, 2].map(|cpu| CpuTimes {
            cpu,
            ..CpuTimes::default()
        });
        count(TEXT.as_bytes(), &mut cpus);
        assert_eq!(
            cpus.map(|cpu| (cpu.device_irqs, cpu.timer_irqs)),
            [(Some(15), Some(1100)), (None, None), (Some(7), Some(2200))]
        );
    }

    #[test]
    fn a_long_file_is_read_on_four_ticks_of_ten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("interrupts");
        std::fs::write(&path, format!("{TEXT}{}", " x: 1 2 chip\n".repeat(20_000))).unwrap();
        let mut source = Interrupts::new(path);
        let read: Vec<bool> = (0..20)
            .map(|_| {
                let mut cpus = [CpuTimes {
                    cpu: 2,
                    ..CpuTimes::default()
                }];
                source.read(&mut cpus);
                cpus[0].timer_irqs == Some(2200)
            })
            .collect();
        let expected: Vec<bool> = (0..20).map(|i| i % 10 < 4).collect();
        assert_eq!(read, expected);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            count(&bytes, &mut [CpuTimes::default()]);
        }
    }
}
