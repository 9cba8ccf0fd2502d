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
#[derive(Debug)]
pub(super) struct UserStack {
    /// Addresses within each function, the innermost first.
    pub addresses: Vec<u64>,
    /// Whether callers are missing: the copy of the stack is too short, or a function lacks an
    /// unwind table.
    pub is_cut: bool,
}

impl StackUnwinder {
    /// For a process with these modules, whose unwind tables it takes.
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
        let NativeRegisters { ip, sp, all } = NativeRegisters::new(registers);
        // The copy of the stack begins at the stack pointer. The unwinder wants `()` for memory
        // that it cannot have.
        let word_at = |address: u64| {
            let offset = usize::try_from(address.wrapping_sub(sp)).ok()?;
            let word = stack.get(offset..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*word))
        };
        let mut read = |address| word_at(address).ok_or(());
        let mut frames = self
            .unwinder
            .iter_frames(ip, all, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        let is_cut = loop {
            let address = match frames.next() {
                Ok(Some(FrameAddress::InstructionPointer(address))) => address,
                // The call precedes the return address, which may belong to the next function.
                Ok(Some(FrameAddress::ReturnAddress(address))) => address.get() - 1,
                Ok(None) => break false,
                Err(_) => break true,
            };
            // The first address is where the thread was, wherever that is. A further address is
            // that of a caller, so it is in code: any other one comes of a wrong frame, which ends
            // the stack.
            let is_first = addresses.is_empty();
            let is_code = super::module_of(modules, address).is_some();
            if (!is_first && !is_code) || addresses.len() == MAX_CALLERS {
                break true;
            }
            addresses.push(address);
        };
        UserStack { addresses, is_cut }
    }
}

/// The registers that unwinding starts with.
struct NativeRegisters {
    ip: u64,
    sp: u64,
    all: UnwindRegsNative,
}

impl NativeRegisters {
    /// The values are in the order of [`REGISTERS`].
    #[cfg(target_arch = "x86_64")]
    fn new([bp, sp, ip]: [u64; REGISTERS.len()]) -> Self {
        let all = UnwindRegsNative::new(ip, sp, bp);
        Self { ip, sp, all }
    }

    /// The values are in the order of [`REGISTERS`]. User addresses have 48 bits unless a program
    /// asks for more; the bits above hold pointer signatures.
    #[cfg(target_arch = "aarch64")]
    fn new([fp, lr, sp, pc]: [u64; REGISTERS.len()]) -> Self {
        let mask = framehop::aarch64::PtrAuthMask(0x0000_ffff_ffff_ffff);
        let all = UnwindRegsNative::new_with_ptr_auth_mask(mask, lr, sp, fp);
        Self { ip: pc, sp, all }
    }
}
