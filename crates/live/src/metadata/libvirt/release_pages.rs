//! Releases the memory of code that is rarely used.
//!
//! libvirt's client library loads some sixty others. Their initialisers and relocations run once, and the calls take a
//! few milliseconds every few seconds; in between, their pages would stay mapped and be twice kvmtop's own memory. The
//! pages are unchanged file pages: the kernel maps them again from its cache when they are used.
#![allow(unsafe_code, reason = "dl_iterate_phdr(3) and madvise(2) work on addresses of loaded libraries")]

use std::ffi::{CStr, c_int, c_void};

/// Unmaps the pages of each read-only segment of the libraries. Pages in use come back by themselves, for a page fault
/// per 64 KiB (`fault_around_bytes`, mm/memory.c).
pub(super) fn give_back_libraries() {
    // SAFETY: the callback has the required type and keeps no pointer that it receives. While it runs, the dynamic
    // linker holds its lock, so that no library is loaded or unloaded.
    unsafe { libc::dl_iterate_phdr(Some(give_back), std::ptr::null_mut()) };
}

unsafe extern "C" fn give_back(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid object with `dlpi_phnum` headers.
    let (object, headers) = unsafe {
        let object = &*object;
        (object, std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()))
    };
    // The program itself has no name here; its code runs in each tick. SAFETY: a name that is not null is a string as
    // long as the object lives.
    if object.dlpi_name.is_null() || unsafe { CStr::from_ptr(object.dlpi_name) }.is_empty() {
        return 0;
    }
    let page = rustix::param::page_size();
    // Relocated code has private pages, which would be lost; libraries of distributions have none, and `relocates_code`
    // makes sure.
    if relocates_code(object, headers) {
        return 0;
    }
    for segment in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W == 0) {
        let start = (object.dlpi_addr + segment.p_vaddr) as usize;
        let (from, to) = (start.next_multiple_of(page), (start + segment.p_memsz as usize) / page * page);
        if from < to {
            // SAFETY: the segment is a private file mapping that was never written: dropping its pages loses nothing. A
            // refusal (the kernel's own vDSO) changes nothing.
            unsafe { libc::madvise(from as *mut c_void, to - from, libc::MADV_DONTNEED) };
        }
    }
    0
}

/// Whether an object's dynamic section has `DT_TEXTREL`, or `DF_TEXTREL` among its `DT_FLAGS` (elf.h).
fn relocates_code(object: &libc::dl_phdr_info, headers: &[libc::Elf64_Phdr]) -> bool {
    const DT_TEXTREL: u64 = 22;
    const DT_FLAGS: u64 = 30;
    const DF_TEXTREL: u64 = 4;
    let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else { return false };
    let entries = (object.dlpi_addr + dynamic.p_vaddr) as *const [u64; 2];
    // SAFETY: the section is mapped with that length.
    let entries = unsafe { std::slice::from_raw_parts(entries, dynamic.p_memsz as usize / size_of::<[u64; 2]>()) };
    entries
        .iter()
        .take_while(|[tag, _]| *tag != 0)
        .any(|[tag, value]| *tag == DT_TEXTREL || *tag == DT_FLAGS && value & DF_TEXTREL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resident file pages of this process, from `/proc/self/statm`.
    fn shared_pages() -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split_whitespace().nth(2).unwrap().parse().unwrap()
    }

    #[test]
    fn code_goes_and_comes_back() {
        let before = shared_pages();
        give_back_libraries();
        let after = shared_pages();
        assert!(after < before, "{after} pages of {before}");
        // Written data stays, and code goes on.
        assert_eq!(format!("{:?}", std::thread::spawn(|| vec![1.5f64; 3]).join().unwrap()), "[1.5, 1.5, 1.5]");
    }
}
