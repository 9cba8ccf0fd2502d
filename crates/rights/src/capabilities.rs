//! Gives capabilities up. The kernel keeps them per thread, and a new thread inherits them from the
//! thread that starts it (capabilities(7)).

use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, CapabilitySets};
use rustix::thread::{
    capabilities, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
};

/// Makes sure that this process and what it starts can only lose rights from here on. Call it
/// before the first thread starts.
///
/// A user who has capabilities from the file of the program keeps them for later, and opens files
/// without them until [`keep`]: what the user names on the command line is opened as that user.
///
/// # Errors
/// The kernel's, where a security module refuses it.
pub fn renounce() -> Result<(), Errno> {
    set_no_new_privs(true)?;
    // Fails before Linux 4.3, which lacks this set.
    let _ = clear_ambient_capability_set();
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        // Without CAP_SETPCAP the set stays: with no_new_privs nothing can be gained from it.
        if rustix::thread::remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    let permitted = capabilities(None)?.permitted;
    let effective = if geteuid().is_root() {
        permitted
    } else {
        CapabilitySet::empty()
    };
    set_capabilities(
        None,
        CapabilitySets {
            effective,
            permitted,
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// Keeps these capabilities of the calling thread, as far as it has them, and gives up all others.
///
/// # Errors
/// The kernel's, where a security module refuses it.
pub fn keep(wanted: CapabilitySet) -> Result<(), Errno> {
    let kept = capabilities(None)?.permitted & wanted;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// The effective capabilities of the calling thread; none where they cannot be read.
pub fn effective() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

/// Gives up all capabilities of the calling thread.
pub fn keep_none() {
    // Dropping a capability is always permitted.
    let _ = keep(CapabilitySet::empty());
}

/// Tries something as the calling thread would without capabilities.
pub(super) fn without<T>(attempt: impl FnOnce() -> T) -> T {
    let Ok(sets) = capabilities(None) else {
        return attempt();
    };
    let _ = set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            ..sets
        },
    );
    let result = attempt();
    let _ = set_capabilities(None, sets);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On separate threads: what they lose is lost.
    fn on_a_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_thread_keeps_what_it_has_of_what_it_asks_for_and_no_more() {
        on_a_thread(|| {
            let had = capabilities(None).unwrap().permitted;
            let wanted = CapabilitySet::SYS_PTRACE | CapabilitySet::SYSLOG;
            keep(wanted).unwrap();
            let now = capabilities(None).unwrap();
            assert_eq!((now.permitted, now.effective), (had & wanted, had & wanted));
            assert_eq!(now.inheritable, CapabilitySet::empty());
            keep(CapabilitySet::all()).unwrap();
            assert_eq!(
                capabilities(None).unwrap().permitted,
                had & wanted,
                "nothing comes back"
            );
            keep_none();
            assert_eq!(
                capabilities(None).unwrap().permitted,
                CapabilitySet::empty()
            );
        });
    }

    #[test]
    fn what_is_tried_without_rights_gives_them_back() {
        on_a_thread(|| {
            let before = capabilities(None).unwrap();
            assert_eq!(
                without(|| capabilities(None).unwrap().effective),
                CapabilitySet::empty()
            );
            assert_eq!(capabilities(None).unwrap(), before);
        });
    }
}
