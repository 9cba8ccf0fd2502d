//! What an input may cost: memory and CPU time, by its length.

use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What an input of n bytes may cost.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Bytes of memory for any input.
    base: usize,
    /// Bytes of memory for each byte.
    per_byte: usize,
    /// Nanoseconds for each of n log2(n), in an optimised build.
    time: u64,
}

/// CPU time that any input may take: what is done once, and the first use of pages.
const ANY_TIME: Duration = Duration::from_millis(100);

impl Cost {
    /// A text that is read whole.
    pub const TEXT: Self = Self { base: 4 << 20, per_byte: 64, time: 200 };
    /// A text whose every byte may be an option or a table of its own.
    pub const OPTIONS: Self = Self { per_byte: 128, ..Self::TEXT };
    /// The decoders' own memory (a zstd window of 128 MiB, a dictionary of xz of 256 MiB), and texts that unpack to a
    /// thousand times their bytes.
    pub const UNPACKING: Self = Self { base: 400 << 20, per_byte: 64 << 10, time: 20_000 };
    /// Decompressed records and the pairing's tables.
    pub const PERF_DATA: Self = Self { base: 64 << 20, per_byte: 4 << 10, time: 2000 };
    /// A text, all that is computed of it, and what is written.
    pub const WHOLE: Self = Self { base: 16 << 20, per_byte: 256, time: 1000 };
    /// Frames decompress to a thousand times their bytes, up to the reader's own limits: 256 MiB a sample and 512 MiB
    /// of facts a segment (`docs/session-format.md`).
    pub const SESSION: Self = Self { base: 800 << 20, per_byte: 4 << 10, time: 20_000 };
    /// Samples that are not compressed, all that is computed of them, and what is shown. A set of CPUs of seven bytes
    /// takes a kilobyte.
    pub const SAMPLES: Self = Self { base: 16 << 20, per_byte: 1 << 10, time: 4000 };

    /// The most bytes of memory for an input of `n` bytes.
    pub fn memory(&self, n: usize) -> usize {
        self.base + self.per_byte * n
    }

    /// The bound on memory as `docs/security.md` has it.
    pub fn words(&self) -> String {
        let part = |bytes: usize| if bytes < 1024 { bytes.to_string() } else { format!("{} Ki", bytes >> 10) };
        format!("{} MiB + {} n", self.base >> 20, part(self.per_byte))
    }

    fn time(&self, n: usize, slowness: u32) -> Duration {
        let steps = n as u64 * u64::from((n + 2).ilog2());
        (ANY_TIME + Duration::from_nanos(self.time * steps)) * slowness
    }

    /// Runs `read` and fails if it cost more; returns the most bytes of memory that it took.
    pub(super) fn check(&self, name: &str, input: &[u8], slowness: u32, read: impl FnOnce()) -> usize {
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let begin = cpu_time();
        read();
        let took = cpu_time().saturating_sub(begin);
        let memory = MEMORY.peak_usage().saturating_sub(before);
        let n = input.len();
        let (most_memory, most_time) = (self.memory(n), self.time(n, slowness));
        assert!(memory <= most_memory, "{name}: {n} bytes took {memory} bytes of memory; {most_memory} are allowed");
        assert!(took <= most_time, "{name}: {n} bytes took {took:?}; {most_time:?} are allowed");
        memory
    }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
