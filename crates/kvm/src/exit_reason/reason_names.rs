//! The exit reasons' names on the running kernel, or on the kernel that a file was recorded on.

use crate::isa::Isa;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Exit reason names from the `__print_symbolic` lists of a `kvm_exit` `format` file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReasonNames {
    names: BTreeMap<Isa, BTreeMap<u32, String>>,
}

impl ReasonNames {
    /// Without names, so that only the built-in tables are used.
    pub const fn new() -> Self {
        Self { names: BTreeMap::new() }
    }

    /// Adds a name. The first name of a code wins, as in the kernel's own lookup.
    pub fn insert(&mut self, isa: Isa, code: u32, name: String) {
        self.names.entry(isa).or_default().entry(code).or_insert(name);
    }

    /// The name of a code.
    pub fn get(&self, isa: Isa, code: u32) -> Option<&str> {
        self.names.get(&isa)?.get(&code).map(String::as_str)
    }

    /// Adds the names of another set for codes without a name in this one.
    pub fn merge(&mut self, other: &Self) {
        for (isa, names) in &other.names {
            for (code, name) in names {
                self.insert(*isa, *code, name.clone());
            }
        }
    }
}
