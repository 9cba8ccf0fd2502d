//! The target of `cargo fuzz`: the reader that `KVMTOP_READER` names. `sh fuzz/run.sh` starts it.
#![no_main]
#![allow(missing_docs)]

mod readers;
mod seeds;

use readers::{READERS, Reader};
use std::path::PathBuf;
use std::sync::LazyLock;

static READER: LazyLock<&Reader> = LazyLock::new(|| {
    let name = std::env::var("KVMTOP_READER").expect("KVMTOP_READER names a reader");
    READERS.iter().find(|reader| reader.name == name).expect("a reader of this name")
});

/// Writes the reader's seeds into the folder `KVMTOP_FUZZ_SEEDS`, where libFuzzer then looks for
/// them.
fn write_seeds() {
    let Some(folder) = std::env::var_os("KVMTOP_FUZZ_SEEDS").map(PathBuf::from) else { return };
    std::fs::create_dir_all(&folder).expect("a folder");
    for (n, seed) in READER.seeds().into_iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{n}")), seed).expect("a file");
    }
}

libfuzzer_sys::fuzz_target!(init: write_seeds(), |input: &[u8]| (READER.read)(input));
