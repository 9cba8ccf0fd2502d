//! Reads the records that the kernel writes for stack samples.
//!
//! The crate of the records, perf-event-data, reads registers that are not there for a kernel
//! thread (`abi` 0).

use perf_event_open_sys::bindings::{
    PERF_CONTEXT_MAX, PERF_RECORD_MISC_CPUMODE_MASK, PERF_RECORD_MISC_GUEST_KERNEL,
    PERF_RECORD_MISC_GUEST_USER,
};

/// The registers that unwinding needs, by number. A record has their values in this order, too.
pub(super) const REGISTERS: [u32; 3 + cfg!(target_arch = "aarch64") as usize] = {
    // arch/x86/include/uapi/asm/perf_regs.h: BP, SP, IP.
    #[cfg(target_arch = "x86_64")]
    {
        [6, 7, 8]
    }
    // arch/arm64/include/uapi/asm/perf_regs.h: X29 (the frame pointer), LR, SP, PC.
    #[cfg(target_arch = "aarch64")]
    {
        [29, 30, 31, 32]
    }
};

/// Where a thread was when it was sampled.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SampledStack<'a> {
    /// Whether the guest was running.
    pub in_guest: bool,
    /// Addresses in the kernel, the innermost first.
    pub kernel: Vec<u64>,
    /// Values of [`REGISTERS`] in user space; none for a kernel thread.
    pub registers: Option<[u64; REGISTERS.len()]>,
    /// The top of the user stack.
    pub stack: &'a [u8],
}

/// Reads the body of a sample of IP, CALLCHAIN, `REGS_USER` and `STACK_USER`
/// (`PERF_RECORD_SAMPLE`).
pub(super) fn sample(misc: u16, body: &[u8]) -> Option<SampledStack<'_>> {
    let mut words = RecordWords(body);
    let ip = words.next()?;
    let mode = u32::from(misc) & PERF_RECORD_MISC_CPUMODE_MASK;
    let in_guest = matches!(
        mode,
        PERF_RECORD_MISC_GUEST_KERNEL | PERF_RECORD_MISC_GUEST_USER
    );
    // The call chain: its length, then its addresses.
    let depth = usize::try_from(words.next()?)
        .ok()
        .filter(|depth| *depth <= body.len() / 8)?;
    let mut kernel = Vec::new();
    for _ in 0..depth {
        let address = words.next()?;
        // A number from PERF_CONTEXT_MAX on is no address, but says whose addresses follow.
        if address < PERF_CONTEXT_MAX && is_kernel(address) && !in_guest {
            kernel.push(address);
        }
    }
    if kernel.is_empty() && is_kernel(ip) && !in_guest {
        kernel.push(ip);
    }
    let mut sampled = SampledStack {
        in_guest,
        kernel,
        ..SampledStack::default()
    };
    // The user registers: their `abi`, then their values. A kernel thread has none: `abi` is 0.
    if words.next()? != 0 {
        let mut registers = [0; REGISTERS.len()];
        for value in &mut registers {
            *value = words.next()?;
        }
        sampled.registers = Some(registers);
    }
    // The copy of the user stack: its size, then its bytes.
    let size = usize::try_from(words.next()?).ok()?;
    if size > 0 {
        let (stack, after) = words.0.split_at_checked(size)?;
        // Behind the bytes the record says how many of them are filled.
        let filled = usize::try_from(RecordWords(after).next()?).ok()?;
        sampled.stack = stack.get(..filled)?;
    }
    Some(sampled)
}

/// Whether an address is the kernel's: the upper half on all supported architectures.
fn is_kernel(address: u64) -> bool {
    address >> 63 == 1
}

/// The count of a record of loss: `u64 id, lost`.
pub(super) fn lost(body: &[u8]) -> Option<u64> {
    let mut words = RecordWords(body);
    words.next()?;
    words.next()
}

/// The words of a record that were not read yet.
struct RecordWords<'a>(&'a [u8]);

impl RecordWords<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    const CONTEXT_KERNEL: u64 = (-128_i64).cast_unsigned();
    const USER_MODE: u16 = 2;

    #[test]
    fn a_thread_in_the_kernel() {
        let registers: Vec<u64> = (1..=REGISTERS.len() as u64).collect();
        let head = [KERNEL + 8, 3, CONTEXT_KERNEL, KERNEL + 8, KERNEL + 4, 2];
        let body = bytes(&[&head[..], &registers, &[16, 7, 9, 8]].concat());
        let sampled = sample(1, &body).unwrap();
        assert_eq!(sampled.kernel, [KERNEL + 8, KERNEL + 4]);
        assert_eq!(sampled.registers.unwrap().to_vec(), registers);
        // Of 16 bytes 8 are filled.
        assert_eq!(sampled.stack, bytes(&[7]));
        assert!(!sampled.in_guest);
    }

    #[test]
    fn a_kernel_thread_has_no_registers_and_no_stack() {
        let body = bytes(&[KERNEL, 0, 0, 0]);
        let sampled = sample(1, &body).unwrap();
        assert_eq!(
            (sampled.kernel, sampled.registers, sampled.stack),
            (vec![KERNEL], None, &[][..])
        );
    }

    #[test]
    fn addresses_of_the_guest_are_not_the_hosts() {
        let body = bytes(&[KERNEL, 0, 0, 0]);
        let sampled = sample(PERF_RECORD_MISC_GUEST_KERNEL as u16, &body).unwrap();
        assert!(sampled.in_guest && sampled.kernel.is_empty());
    }

    #[test]
    fn a_record_that_is_cut_is_none() {
        let body = bytes(&[0x40_0000, 1, KERNEL, 0, 8, 1, 8]);
        assert!(sample(USER_MODE, &body).is_some());
        for length in 0..body.len() {
            assert_eq!(sample(USER_MODE, &body[..length]), None, "{length} bytes");
        }
        // Neither a depth nor a stack that is longer than the record.
        assert_eq!(sample(USER_MODE, &bytes(&[0, u64::MAX])), None);
        assert_eq!(sample(USER_MODE, &bytes(&[0, 0, 0, u64::MAX, 0])), None);
        assert_eq!(sample(USER_MODE, &bytes(&[0, 0, 0, 8, 1, 9])), None);
    }
}
