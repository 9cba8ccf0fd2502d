//! libvirt without linking to it: its functions are found in `libvirt.so.0` and `libvirt-qemu.so.0` when libvirt is
//! first needed. So one binary runs, and is built, on hosts with and without libvirt.
#![allow(unsafe_code, reason = "libvirt's functions are found at run time")]

use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

/// `virConnectPtr` and `virDomainPtr`: what they point to is libvirt's own.
pub type Handle = *mut c_void;
/// `virErrorFunc`.
type ErrorFunction = extern "C" fn(*mut c_void, *mut c_void);

/// `virTypedParameter`.
#[repr(C)]
pub struct TypedParameter {
    pub field: [c_char; 80],
    pub kind: c_int,
    pub value: ParameterValue,
}

/// `virDomainControlInfo`.
#[repr(C)]
#[derive(Default)]
pub struct ControlInfo {
    pub state: c_uint,
    details: c_uint,
    state_time: u64,
}

/// `virDomainBlockJobInfo`.
#[repr(C)]
#[derive(Default)]
pub struct BlockJobInfo {
    pub kind: c_int,
    pub bandwidth: c_ulong,
    pub cur: u64,
    pub end: u64,
}

/// `virDomainDiskError`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DiskError {
    pub disk: *mut c_char,
    pub error: c_int,
}

/// The member that `kind` names; libvirt's is as large.
#[repr(C)]
pub union ParameterValue {
    pub uint: c_uint,
    pub ullong: u64,
    pub string: *const c_char,
}

/// `virDomainStatsRecord`.
#[repr(C)]
pub struct StatsRecord {
    pub domain: Handle,
    pub parameters: *const TypedParameter,
    pub count: c_int,
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of libvirt that kvmtop calls, as libvirt's headers declare them.
        #[allow(non_snake_case, reason = "names of C functions")]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find(libraries: &[Library]) -> Result<Self, String> {
                Ok(Self { $($name: find(libraries, stringify!($name))?,)* })
            }
        }
    };
}

functions! {
    virSetErrorFunc(*mut c_void, ErrorFunction);
    virGetLastErrorCode() -> c_int;
    virGetLastErrorMessage() -> *const c_char;
    virConnectOpen(*const c_char) -> Handle;
    virConnectOpenReadOnly(*const c_char) -> Handle;
    virConnectClose(Handle) -> c_int;
    virConnectIsAlive(Handle) -> c_int;
    virConnectListAllDomains(Handle, *mut *mut Handle, c_uint) -> c_int;
    virDomainLookupByUUIDString(Handle, *const c_char) -> Handle;
    virDomainFree(Handle) -> c_int;
    virDomainGetName(Handle) -> *const c_char;
    virDomainGetUUIDString(Handle, *mut c_char) -> c_int;
    virDomainGetState(Handle, *mut c_int, *mut c_int, c_uint) -> c_int;
    virDomainGetXMLDesc(Handle, c_uint) -> *mut c_char;
    virDomainGetDiskErrors(Handle, *mut DiskError, c_uint, c_uint) -> c_int;
    virDomainIsPersistent(Handle) -> c_int;
    virDomainGetControlInfo(Handle, *mut ControlInfo, c_uint) -> c_int;
    virDomainGetJobStats(Handle, *mut c_int, *mut *mut TypedParameter, *mut c_int, c_uint) -> c_int;
    virTypedParamsFree(*mut TypedParameter, c_int);
    virDomainGetBlockJobInfo(Handle, *const c_char, *mut BlockJobInfo, c_uint) -> c_int;
    virDomainListGetStats(*mut Handle, c_uint, *mut *mut *mut StatsRecord, c_uint) -> c_int;
    virDomainStatsRecordListFree(*mut *mut StatsRecord);
    virDomainQemuMonitorCommand(Handle, *const c_char, *mut *mut c_char, c_uint) -> c_int;
}

/// Loads libvirt, once.
pub fn load() -> Result<&'static Functions, &'static String> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        // Monitor commands are in the second one.
        let libraries = [open("libvirt.so.0")?, open("libvirt-qemu.so.0")?];
        let functions = Functions::find(&libraries)?;
        // Their threads and callbacks must never lose their code.
        std::mem::forget(libraries);
        // By default libvirt prints its errors to stderr, onto the screen.
        // SAFETY: the function has the type that libvirt calls, and does nothing.
        unsafe { (functions.virSetErrorFunc)(std::ptr::null_mut(), ignore) };
        Ok(functions)
    });
    loaded.as_ref()
}

fn open(name: &str) -> Result<Library, String> {
    // SAFETY: libvirt's initialisers may run in any process that loads it (every `virsh` does).
    unsafe { Library::new(name) }.map_err(|e| format!("{name}: {e}"))
}

/// `F` is the function's type in libvirt's headers.
fn find<F: Copy>(libraries: &[Library], name: &str) -> Result<F, String> {
    // SAFETY: the type is as in libvirt's headers, and the libraries stay loaded.
    let symbol = libraries.iter().find_map(|library| unsafe { library.get::<F>(name.as_bytes()) }.ok());
    symbol.map(|symbol| *symbol).ok_or_else(|| format!("libvirt.so.0 has no function {name}"))
}

extern "C" fn ignore(_: *mut c_void, _: *mut c_void) {}
