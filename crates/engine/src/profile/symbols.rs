//! Names of functions. An address that no symbol covers keeps its offset in the file: never a wrong
//! name.

use super::modules::Module;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolizer};
use blazesym::{MaybeDefault, symbolize::Symbolized};
use kvm::sanitize;
use sample::{CodeSpace, Function};
use std::fs::File;
use std::io::Read;

/// The longest name shown.
const MAX_NAME: usize = 200;
/// The kernel's list of its functions.
const KALLSYMS: &str = "/proc/kallsyms";

pub(super) struct Symbols {
    symbolizer: Symbolizer,
    /// `None`: functions of the kernel have no names here.
    pub kernel: Option<Source<'static>>,
}

impl Symbols {
    /// Finds out whether the kernel shows its addresses, and reads nothing else yet.
    pub fn new() -> Self {
        let kernel = Kernel {
            kallsyms: MaybeDefault::Some(KALLSYMS.into()),
            // Kallsyms lists the functions of modules too.
            vmlinux: MaybeDefault::None,
            debug_syms: false,
            ..Kernel::default()
        };
        Self {
            symbolizer: Symbolizer::builder()
                .enable_code_info(false)
                .enable_inlined_fns(false)
                .build(),
            kernel: if has_addresses() {
                Some(Source::Kernel(kernel))
            } else {
                None
            },
        }
    }

    /// The function at an address of the kernel.
    pub fn kernel(&self, address: u64) -> Function {
        let found = self
            .kernel
            .as_ref()
            .and_then(|source| self.name(source, Input::AbsAddr(address)));
        let name = found.unwrap_or_else(|| "?".into());
        Function {
            name,
            module: "kernel".into(),
            space: CodeSpace::Kernel,
        }
    }

    /// The function at an address of the process.
    pub fn user(&self, modules: &[Module], address: u64) -> Function {
        let space = CodeSpace::User;
        let Some(module) = super::module_of(modules, address) else {
            return Function {
                name: format!("{address:#x}"),
                module: "?".into(),
                space,
            };
        };
        let in_file = address.wrapping_sub(module.bias);
        let named = module.file.as_ref().and_then(|file| {
            let mut elf = Elf::new(&file.symbols);
            elf.debug_syms = false;
            self.name(&Source::Elf(elf), Input::VirtOffset(in_file))
        });
        Function {
            name: named.unwrap_or_else(|| format!("+{in_file:#x}")),
            module: module.name.clone(),
            space,
        }
    }

    fn name(&self, source: &Source<'_>, input: Input<u64>) -> Option<String> {
        match self.symbolizer.symbolize_single(source, input).ok()? {
            Symbolized::Sym(symbol) => Some(sanitize(&symbol.name, MAX_NAME)),
            Symbolized::Unknown(_) => None,
        }
    }
}

/// Whether [`KALLSYMS`] shows the kernel's addresses, which begin with an `f`. A process without
/// the right to see them reads 0 for each (`kernel.kptr_restrict`).
fn has_addresses() -> bool {
    let mut start = String::new();
    // The start has to be long: variables for each CPU come first, with small numbers for
    // addresses.
    let read = File::open(KALLSYMS).and_then(|file| file.take(1 << 20).read_to_string(&mut start));
    read.is_ok() && start.lines().any(|line| line.starts_with('f'))
}
