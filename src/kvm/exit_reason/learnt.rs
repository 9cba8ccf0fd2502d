//! Names that the running kernel, or the kernel a file was made on, gives to its exit reasons.

use crate::kvm::isa::Isa;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Exit reason names learnt from the `__print_symbolic` lists of a `kvm_exit` `format` file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonNames {
    names: BTreeMap<Isa, BTreeMap<u32, String>>,
}

impl ReasonNames {
    /// No names; the built-in tables then serve.
    pub const fn new() -> Self {
        Self { names: BTreeMap::new() }
    }

    /// Remembers a name. The first name of a code wins, as in the kernel's own lookup.
    pub fn insert(&mut self, isa: Isa, code: u32, name: String) {
        self.names.entry(isa).or_default().entry(code).or_insert(name);
    }

    /// The name of a code.
    pub fn get(&self, isa: Isa, code: u32) -> Option<&str> {
        self.names.get(&isa)?.get(&code).map(String::as_str)
    }

    /// Takes over what another set knows and this one does not.
    pub fn merge(&mut self, other: &Self) {
        for (isa, names) in &other.names {
            for (code, name) in names {
                self.insert(*isa, *code, name.clone());
            }
        }
    }
}
