//! Gives back the memory of code that is used now and then only.
//!
//! libvirt's client library pulls in some sixty others. Loading them runs through initialisers and relocations once, and asking
//! takes some milliseconds of every few seconds; in between, their pages would stay mapped and be twice what kvmtop has of its own.
//! They are the files' own, unchanged: the kernel maps them again out of its cache where they are used again.

use std::ffi::{CStr, c_int, c_void};

/// Unmaps the pages of every read-only segment of the libraries; what is in use comes back by itself, at the price of a page
/// fault for each 64 KiB (`fault_around_bytes`, mm/memory.c).
pub(super) fn give_back_libraries() {
    // SAFETY: the callback has the type that is asked for, and keeps nothing of what it is given. While it runs, the dynamic
    // linker holds its lock, so that no library comes or goes.
    unsafe { libc::dl_iterate_phdr(Some(give_back), std::ptr::null_mut()) };
}

unsafe extern "C" fn give_back(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker hands over a valid object with `dlpi_phnum` headers.
    let (object, headers) = unsafe {
        let object = &*object;
        (object, std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()))
    };
    // The program itself bears no name here; its code is used in each tick.
    // SAFETY: a name that is there is a string as long as the object is.
    if object.dlpi_name.is_null() || unsafe { CStr::from_ptr(object.dlpi_name) }.is_empty() {
        return 0;
    }
    let page = rustix::param::page_size();
    // Relocations of code would make pages of the process's own out of it; no library of a distribution has such any more, and
    // `relocates_code` is asked to be sure.
    if relocates_code(object, headers) {
        return 0;
    }
    for segment in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W == 0) {
        let start = (object.dlpi_addr + segment.p_vaddr) as usize;
        let (from, to) = (start.next_multiple_of(page), (start + segment.p_memsz as usize) / page * page);
        if from < to {
            // SAFETY: the segment is mapped from a file, privately and never written: dropping its pages loses nothing.
            // A refusal (the kernel's own vDSO) leaves everything as it is.
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
    // SAFETY: the section is mapped, and so long.
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
        // What was written stays, and what runs goes on.
        assert_eq!(format!("{:?}", std::thread::spawn(|| vec![1.5f64; 3]).join().unwrap()), "[1.5, 1.5, 1.5]");
    }
}
