//! The targets of `cargo fuzz`, which `cargo test --test fuzz` runs too. `CONTRIBUTING.md` says how to run them.

#[path = "../../tests/synthetic/inputs.rs"]
mod inputs;
#[path = "../../tests/synthetic/mod.rs"]
mod synthetic;
pub mod targets;

/// A fuzz target of this name.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        static TARGET: std::sync::LazyLock<&kvmtop_fuzz::targets::Target> =
            std::sync::LazyLock::new(|| kvmtop_fuzz::targets::Target::named($name).expect("a target of this name"));
        libfuzzer_sys::fuzz_target!(
            init: kvmtop_fuzz::write_seeds(&TARGET).expect("the seeds are written"),
            |input: &[u8]| {
                TARGET.check(input, kvmtop_fuzz::SLOWNESS);
            }
        );
    };
}

/// Writes the seeds of a target into the folder that `KVMTOP_FUZZ_SEEDS` names. The target does so itself: a program
/// with coverage but without libFuzzer cannot be linked.
///
/// # Errors
/// The folder cannot be written.
pub fn write_seeds(target: &targets::Target) -> std::io::Result<()> {
    let Some(folder) = std::env::var_os("KVMTOP_FUZZ_SEEDS").map(std::path::PathBuf::from) else { return Ok(()) };
    std::fs::create_dir_all(&folder)?;
    for (n, seed) in target.seeds().into_iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{n}")), seed)?;
    }
    Ok(())
}

/// An instrumented build is slower than a plain one.
pub const SLOWNESS: u32 = 4;
