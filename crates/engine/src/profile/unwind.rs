//! Finds the callers in a user stack, by the unwind tables of the files: QEMU's packages keep no
//! frame pointers.

use super::modules::Module;
use super::record::REGISTERS;
use framehop::{CacheNative, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder as _};
use framehop::{FrameAddress, UnwinderNative};

/// The most callers of one stack.
const MAX_CALLERS: usize = 128;

/// Unwinds the stacks of one process.
pub(super) struct StackUnwinder {
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

/// The callers in user space.
#[derive(Debug, Default)]
pub(super) struct UserStack {
    /// Addresses within each function, the innermost first.
    pub addresses: Vec<u64>,
    /// Whether callers are missing: the copy of the stack is too short, or a function lacks an
    /// unwind table.
    pub is_cut: bool,
}

impl StackUnwinder {
    /// For a process with these modules; takes their tables.
    pub fn new(modules: &mut [Module]) -> Self {
        let mut unwinder = UnwinderNative::new();
        for module in modules {
            let Some(file) = &mut module.file else {
                continue;
            };
            let sections = std::mem::take(&mut file.sections);
            let addresses = module.addresses.clone();
            unwinder.add_module(framehop::Module::new(
                module.name.clone(),
                addresses,
                module.bias,
                sections,
            ));
        }
        Self {
            unwinder,
            cache: CacheNative::new(),
        }
    }

    /// The callers, from registers and the top of the stack.
    pub fn unwind(
        &mut self,
        registers: [u64; REGISTERS.len()],
        stack: &[u8],
        modules: &[Module],
    ) -> UserStack {
        let (start, sp, registers) = native(registers);
        let mut read = |address: u64| {
            let at = usize::try_from(address.wrapping_sub(sp)).map_err(drop)?;
            let word = stack
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let mut frames = self
            .unwinder
            .iter_frames(start, registers, &mut self.cache, &mut read);
        let mut found = UserStack::default();
        found.is_cut = loop {
            let address = match frames.next() {
                Ok(Some(FrameAddress::InstructionPointer(address))) => address,
                // The call precedes the return address, which may belong to the next function.
                Ok(Some(FrameAddress::ReturnAddress(address))) => address.get() - 1,
                Ok(None) => break false,
                Err(_) => break true,
            };
            // An address outside code is not a caller.
            let is_code = super::module_of(modules, address).is_some();
            if !is_code && !found.addresses.is_empty() || found.addresses.len() == MAX_CALLERS {
                break true;
            }
            found.addresses.push(address);
        };
        found
    }
}

/// The instruction pointer, the stack pointer and what the unwinder takes.
#[cfg(target_arch = "x86_64")]
fn native([bp, sp, ip]: [u64; REGISTERS.len()]) -> (u64, u64, UnwindRegsNative) {
    (ip, sp, UnwindRegsNative::new(ip, sp, bp))
}

/// See above. User addresses have 48 bits unless a program asks for more; the bits above hold
/// pointer signatures.
#[cfg(target_arch = "aarch64")]
fn native([fp, lr, sp, pc]: [u64; REGISTERS.len()]) -> (u64, u64, UnwindRegsNative) {
    let mask = framehop::aarch64::PtrAuthMask(0x0000_ffff_ffff_ffff);
    (
        pc,
        sp,
        UnwindRegsNative::new_with_ptr_auth_mask(mask, lr, sp, fp),
    )
}
