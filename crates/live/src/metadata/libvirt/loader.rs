//! libvirt without linking to it.
//!
//! The `virt` crate calls libvirt's C functions by name. Here each name is a jump through a table, filled from
//! `libvirt.so.0` and `libvirt-qemu.so.0` when libvirt is first needed. So one binary runs on hosts with and without
//! libvirt, and `readelf -d` shows no libvirt. The names are hidden from other libraries in the process.
#![allow(unsafe_code, reason = "libvirt's functions are found at run time")]

use libloading::os::unix::{Library, Symbol};
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

macro_rules! functions {
    ($($name:ident)*) => {
        /// The functions that kvmtop calls through `virt`, in the order of the table.
        const NAMES: &[&CStr] = &[$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        ),*];

        #[cfg(target_arch = "x86_64")]
        std::arch::global_asm!(concat!(
            ".pushsection .data.kvmtop_libvirt,\"aw\",@progbits\n.balign 8\n",
            ".globl kvmtop_libvirt_table\n.hidden kvmtop_libvirt_table\nkvmtop_libvirt_table:\n",
            $("kvmtop_libvirt_", stringify!($name), ": .quad 0\n",)*
            ".popsection\n.pushsection .text.kvmtop_libvirt,\"ax\",@progbits\n",
            $(".globl ", stringify!($name), "\n.hidden ", stringify!($name), "\n",
              ".type ", stringify!($name), ", @function\n", stringify!($name), ":\n",
              "jmp qword ptr [rip + kvmtop_libvirt_", stringify!($name), "]\n",)*
            ".popsection\n",
        ));

        #[cfg(target_arch = "aarch64")]
        std::arch::global_asm!(concat!(
            ".pushsection .data.kvmtop_libvirt,\"aw\",@progbits\n.balign 8\n",
            ".globl kvmtop_libvirt_table\n.hidden kvmtop_libvirt_table\nkvmtop_libvirt_table:\n",
            $("kvmtop_libvirt_", stringify!($name), ": .quad 0\n",)*
            ".popsection\n.pushsection .text.kvmtop_libvirt,\"ax\",@progbits\n",
            $(".globl ", stringify!($name), "\n.hidden ", stringify!($name), "\n",
              ".type ", stringify!($name), ", @function\n", stringify!($name), ":\n",
              "adrp x16, kvmtop_libvirt_", stringify!($name), "\n",
              "ldr x16, [x16, :lo12:kvmtop_libvirt_", stringify!($name), "]\nbr x16\n",)*
            ".popsection\n",
        ));
    };
}

functions! {
    virSetErrorFunc virGetLastError virResetLastError
    virConnectOpen virConnectOpenReadOnly virConnectClose virConnectRef virConnectIsAlive virConnectSetKeepAlive
    virConnectGetLibVersion virConnectListAllDomains virDomainListGetStats
    virDomainStatsRecordListFree virDomainRef virDomainFree virDomainGetName virDomainGetUUIDString virDomainGetID
    virDomainGetXMLDesc virDomainGetState virDomainIsPersistent virDomainLookupByUUIDString virEventRegisterDefaultImpl
    virDomainQemuMonitorCommand
}

unsafe extern "C" {
    /// One pointer for each of `NAMES`; defined in the assembly above.
    static kvmtop_libvirt_table: [AtomicPtr<c_void>; NAMES.len()];
}

/// Loads libvirt, once. Call nothing of `virt` or `virt_sys` where that failed.
pub fn load() -> &'static Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    LOADED.get_or_init(|| {
        // Monitor commands are in the second one.
        let libraries = [open("libvirt.so.0")?, open("libvirt-qemu.so.0")?];
        // SAFETY: the table is defined above with this length; its entries are only ever written here, before any use.
        let table = unsafe { &kvmtop_libvirt_table };
        for (name, entry) in NAMES.iter().zip(table) {
            // SAFETY: the symbol is only kept as an address; `virt_sys` declares its type as libvirt's headers do.
            let find = |l: &&Library| unsafe { l.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok();
            let address = libraries.iter().find_map(find).map(Symbol::into_raw).filter(|a| !a.is_null());
            let address = address.ok_or_else(|| format!("libvirt.so.0 has no function {}", name.to_string_lossy()))?;
            entry.store(address, Ordering::Release);
        }
        Ok(())
    })
}

/// Opens a library for the life of the process: its threads and callbacks must never lose their code.
fn open(name: &str) -> Result<&'static Library, String> {
    // SAFETY: libvirt's initialisers may run in any process that loads it (every `virsh` does).
    match unsafe { Library::new(name) } {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(e) => Err(format!("{name}: {e}")),
    }
}
