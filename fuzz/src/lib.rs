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
        libfuzzer_sys::fuzz_target!(|input: &[u8]| {
            static TARGET: std::sync::LazyLock<&kvmtop_fuzz::targets::Target> =
                std::sync::LazyLock::new(|| kvmtop_fuzz::targets::Target::named($name).expect("a target of this name"));
            TARGET.check(input, kvmtop_fuzz::SLOWNESS);
        });
    };
}

/// An instrumented build is slower than a plain one.
pub const SLOWNESS: u32 = 4;
