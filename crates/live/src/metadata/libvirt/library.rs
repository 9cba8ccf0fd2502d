//! Calls libvirt without being linked to it, so that one binary runs on hosts with and without
//! libvirt. The crate `virt` calls libvirt's functions by their names. This module defines the
//! functions that `virt` calls for kvmtop: each passes the call on to the library that [`load`] has
//! loaded. A call of a function that is missing here is an error of the linker.
#![allow(unsafe_code, reason = "libvirt's functions are found at run time")]
#![allow(non_snake_case, reason = "names of C functions")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use virt::sys;

/// What `dlopen` returned; null before.
static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Loads libvirt. It stays loaded: its threads and callbacks must never lose their code.
pub fn load() -> Result<(), String> {
    // This library has the monitor commands and is linked to libvirt.so.0: `dlsym` searches both.
    // SAFETY: the name is a text of C, and libvirt's initialisers may run in any process (they do
    // in every `virsh`).
    let library = unsafe { libc::dlopen(c"libvirt-qemu.so.0".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        // SAFETY: after a failure this is a text of C, which is this thread's until its next
        // `dlopen`.
        return Err(unsafe { CStr::from_ptr(libc::dlerror()) }
            .to_string_lossy()
            .into_owned());
    }
    LIBRARY.store(library, Ordering::Release);
    // By default libvirt prints its errors to stderr, onto the screen.
    virt::error::clear_error_callback();
    Ok(())
}

/// A function of libvirt; `None` if it is not loaded.
fn find(name: &CStr) -> Option<*mut c_void> {
    let library = LIBRARY.load(Ordering::Acquire);
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is loaded, and the name is a text of C.
    let function = unsafe { libc::dlsym(library, name.as_ptr()) };
    if function.is_null() {
        None
    } else {
        Some(function)
    }
}

/// Defines functions of libvirt. Each returns what follows `else` if libvirt is not loaded:
/// libvirt's own sign of an error.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $error:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            const _: Function = sys::$name;
            const TEXT: &str = concat!(stringify!($name), "\0");
            const NAME: &CStr = match CStr::from_bytes_with_nul(TEXT.as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            match find(NAME) {
                // SAFETY: it has the type of the binding's declaration, and the caller keeps to
                // libvirt's rules.
                Some(function) => unsafe {
                    transmute::<*mut c_void, Function>(function)($($argument),*)
                },
                None => $error,
            }
        }
    )*};
}

functions! {
    fn virSetErrorFunc(data: *mut c_void, handler: sys::virErrorFunc) -> (), else ();
    fn virGetLastError() -> sys::virErrorPtr, else null_mut();
    fn virConnectOpen(uri: *const c_char) -> sys::virConnectPtr, else null_mut();
    fn virConnectOpenReadOnly(uri: *const c_char) -> sys::virConnectPtr, else null_mut();
    fn virConnectClose(connect: sys::virConnectPtr) -> c_int, else -1;
    fn virConnectIsAlive(connect: sys::virConnectPtr) -> c_int, else -1;
    fn virConnectListAllDomains(
        connect: sys::virConnectPtr, domains: *mut *mut sys::virDomainPtr, flags: c_uint
    ) -> c_int, else -1;
    fn virDomainLookupByUUIDString(
        connect: sys::virConnectPtr, uuid: *const c_char
    ) -> sys::virDomainPtr, else null_mut();
    fn virDomainFree(domain: sys::virDomainPtr) -> c_int, else -1;
    fn virDomainGetUUIDString(domain: sys::virDomainPtr, uuid: *mut c_char) -> c_int, else -1;
    fn virDomainGetState(
        domain: sys::virDomainPtr, state: *mut c_int, reason: *mut c_int, flags: c_uint
    ) -> c_int, else -1;
    fn virDomainGetXMLDesc(
        domain: sys::virDomainPtr, flags: c_uint
    ) -> *mut c_char, else null_mut();
    fn virDomainIsPersistent(domain: sys::virDomainPtr) -> c_int, else -1;
    fn virDomainQemuMonitorCommand(
        domain: sys::virDomainPtr, command: *const c_char, answer: *mut *mut c_char, flags: c_uint
    ) -> c_int, else -1;
    fn virDomainGetBlockJobInfo(
        domain: sys::virDomainPtr, disk: *const c_char, info: sys::virDomainBlockJobInfoPtr,
        flags: c_uint
    ) -> c_int, else -1;
    fn virDomainGetDiskErrors(
        domain: sys::virDomainPtr, errors: sys::virDomainDiskErrorPtr, room: c_uint, flags: c_uint
    ) -> c_int, else -1;
    fn virDomainGetJobStats(
        domain: sys::virDomainPtr, kind: *mut c_int, list: *mut sys::virTypedParameterPtr,
        count: *mut c_int, flags: c_uint
    ) -> c_int, else -1;
    fn virTypedParamsFree(list: sys::virTypedParameterPtr, count: c_int) -> (), else ();
    fn virDomainListGetStats(
        domains: *mut sys::virDomainPtr, stats: c_uint,
        records: *mut *mut sys::virDomainStatsRecordPtr, flags: c_uint
    ) -> c_int, else -1;
    fn virDomainStatsRecordListFree(records: *mut sys::virDomainStatsRecordPtr) -> (), else ();
}
