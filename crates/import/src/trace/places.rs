//! Counts exits by the place in an x86 guest that they come from: memory faults after which the
//! vCPU entered the guest again although nothing was emulated.

use super::decode::hex_after;
use super::line::TraceLine;
use engine::pairing::{EventKind, TracedEvent};
use kvm::Space;
use kvm::exit_reason::{self, ReasonNames};
use kvm::isa::Isa;
use sample::ExitPlace;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Limit of different places, and of threads, in one file.
const MAX_PLACES: usize = 4096;
/// Exits whose cause is outside the guest: they come at any instruction.
const INTERRUPTS: [&str; 5] = [
    "EXTERNAL_INTERRUPT",
    "PREEMPTION_TIMER",
    "EXCEPTION_NMI",
    "interrupt",
    "nmi",
];
/// AMD's error code of an access to an address that KVM has marked as a device's (`PFERR_RSVD_MASK`
/// in `arch/x86/include/asm/kvm_host.h`): KVM emulates it.
const RESERVED: u64 = 1 << 3;
/// The page of the local APIC, whose accesses KVM emulates.
const APIC_PAGE: u64 = 0xfee0_0000;

/// An exit at one instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    tid: i32,
    isa: Isa,
    code: u32,
    rip: u64,
    address: Option<u64>,
    error_code: Option<u64>,
}

/// Follows the exits of each thread.
#[derive(Debug, Default)]
pub(super) struct PlaceReader {
    /// The last exit of each thread, until the vCPU enters the guest again, or until an access
    /// shows that the exit was emulated.
    open: HashMap<i32, Place>,
    counts: HashMap<Place, u64>,
    /// How many exits of each thread come from an instruction.
    exits: HashMap<i32, u64>,
}

impl PlaceReader {
    /// Takes an event and the text that it was read from.
    pub fn add_event(&mut self, event: &TracedEvent, text: &str) {
        let tid = event.tid;
        match event.kind {
            EventKind::Exit { isa, code, .. } => {
                // Without entries in the trace, the next exit shows that the vCPU entered the
                // guest.
                self.close_exit(tid);
                let name = exit_reason::name(isa, code).unwrap_or_default();
                let has_room = self.exits.len() < MAX_PLACES || self.exits.contains_key(&tid);
                if has_room
                    && !INTERRUPTS.contains(&name)
                    && let Some(rip) = hex_after(text, " rip ")
                {
                    *self.exits.entry(tid).or_default() += 1;
                    self.open.insert(
                        tid,
                        Place {
                            tid,
                            isa,
                            code,
                            rip,
                            address: None,
                            error_code: None,
                        },
                    );
                }
            }
            EventKind::Entry { .. } => self.close_exit(tid),
            // Something was emulated: the exit is of no interest.
            EventKind::Userspace { .. } => _ = self.open.remove(&tid),
            EventKind::Access(access) if access.space == Space::Mmio => {
                self.open.remove(&tid);
            }
            _ => {}
        }
    }

    /// Takes the address of a fault: `address fd000 error_code 14`.
    pub fn add_fault(&mut self, line: &TraceLine<'_>) {
        if line.event == "kvm_page_fault"
            && let Some(open) = self.open.get_mut(&line.tid)
        {
            open.address = hex_after(line.text, "address ");
            open.error_code = hex_after(line.text, "error_code ");
        }
    }

    /// Counts the open exit of a thread, if it was a fault that nothing emulated.
    fn close_exit(&mut self, tid: i32) {
        let Some(place) = self.open.remove(&tid) else {
            return;
        };
        let is_reserved =
            place.isa == Isa::Svm && place.error_code.is_some_and(|code| code & RESERVED != 0);
        let is_emulated = is_reserved
            || place
                .address
                .is_none_or(|address| address & !0xfff == APIC_PAGE);
        if !is_emulated && (self.counts.len() < MAX_PLACES || self.counts.contains_key(&place)) {
            *self.counts.entry(place).or_default() += 1;
        }
    }

    /// The places, the most frequent first.
    pub fn finish(self) -> Vec<ExitPlace> {
        let names = ReasonNames::new();
        let mut places = Vec::new();
        for (place, count) in self.counts {
            places.push(ExitPlace {
                tid: place.tid,
                reason: exit_reason::display(place.isa, place.code, &names),
                rip: place.rip,
                address: place.address,
                error_code: place.error_code,
                count,
                of: self.exits.get(&place.tid).copied().unwrap_or(0),
            });
        }
        places.sort_by_key(|p| (Reverse(p.count), p.tid, p.rip, p.address, p.error_code));
        places
    }
}
