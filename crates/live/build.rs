//! Puts empty libraries where the linker finds them before libvirt's. `virt` asks the linker for
//! libvirt, and GNU ld then makes it a library that the program needs to start, for functions of
//! `virt` that nothing calls and that are left out in the end. What is called is defined in
//! `src/metadata/libvirt/library.rs`.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(folder) = env::var_os("OUT_DIR").map(PathBuf::from)
        && env::var_os("CARGO_FEATURE_LIBVIRT").is_some()
    {
        for name in ["libvirt.a", "libvirt-qemu.a"] {
            fs::write(folder.join(name), "!<arch>\n")?;
        }
        // The linker looks here before it looks where virt-sys found libvirt: cargo names a crate's
        // folder before those of its dependencies.
        println!("cargo:rustc-link-search=native={}", folder.display());
    }
    Ok(())
}
