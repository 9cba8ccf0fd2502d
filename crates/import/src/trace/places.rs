//! Counts exits by the place in an x86 guest that they come from: memory faults after which the vCPU entered the guest
//! again although nothing was emulated, and exits after which `KVM_RUN` failed. Without entries in the trace, the next
//! exit shows that the vCPU entered the guest.

use super::decode::hex;
use super::line::TraceLine;
use engine::pairing::{EventKind, TracedEvent};
use kvm::exit_reason::{self, ReasonNames};
use kvm::isa::Isa;
use kvm::{Space, userspace_exit};
use sample::ExitPlace;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Limit of different places, and of threads, in one file.
const MAX_PLACES: usize = 4096;
/// Exits that come at any instruction.
const INTERRUPTS: [&str; 5] = ["EXTERNAL_INTERRUPT", "PREEMPTION_TIMER", "EXCEPTION_NMI", "interrupt", "nmi"];
/// AMD's error code of an access to an address that KVM has marked as a device's (`PFERR_RSVD_MASK` in
/// `arch/x86/include/asm/kvm_host.h`): KVM emulates it.
const RESERVED: u64 = 1 << 3;
/// The page of the local APIC, whose accesses KVM emulates.
const APIC_PAGE: u64 = 0xfee0_0000;

/// A thread, instruction, address, error code, and whether `KVM_RUN` failed.
type Place = (i32, u64, Option<u64>, Option<u64>, bool);

/// An exit that has not been followed by an entry yet.
#[derive(Debug, Clone, Copy)]
struct OpenExit {
    isa: Isa,
    code: u32,
    rip: u64,
    address: Option<u64>,
    error_code: Option<u64>,
}

/// Follows the exits of each thread.
#[derive(Debug, Default)]
pub(super) struct PlaceReader {
    open: HashMap<i32, OpenExit>,
    counts: HashMap<Place, (Isa, u32, u64)>,
    exits: HashMap<i32, u64>,
}

impl PlaceReader {
    /// Takes an event and the text that it was read from.
    pub fn event(&mut self, event: &TracedEvent, text: &str) {
        let tid = event.tid;
        match event.kind {
            EventKind::Exit { isa, code, .. } => {
                self.close(tid, false);
                let name = exit_reason::name(isa, code).unwrap_or_default();
                let has_room = self.exits.len() < MAX_PLACES || self.exits.contains_key(&tid);
                let Some(rip) = hex(text, " rip ").filter(|_| has_room && !INTERRUPTS.contains(&name)) else { return };
                *self.exits.entry(tid).or_default() += 1;
                let (mut address, mut error_code) = (None, None);
                if isa == Isa::Svm && name == "npf" {
                    // The second word is the address (`svm_get_exit_info`, arch/x86/kvm/svm/svm.c).
                    let words = text.split_once(" info ").and_then(|(_, rest)| rest.split_once(' '));
                    error_code = hex(text, " info1 ").or_else(|| hex(words?.0, ""));
                    address = hex(text, " info2 ").or_else(|| hex(words?.1, ""));
                }
                self.open.insert(tid, OpenExit { isa, code, rip, address, error_code });
            }
            EventKind::Entry { .. } => self.close(tid, false),
            EventKind::Access(access) if access.space == Space::Mmio => drop(self.open.remove(&tid)),
            EventKind::Userspace { reason } => match reason {
                userspace_exit::INTERNAL_ERROR | userspace_exit::FAIL_ENTRY | userspace_exit::MEMORY_FAULT => {
                    self.close(tid, true);
                }
                reason if userspace_exit::is_ordinary_errno(reason) => {}
                reason if reason < 0 => self.close(tid, true),
                _ => drop(self.open.remove(&tid)),
            },
            _ => {}
        }
    }

    /// Takes the address of a fault, and devices that KVM serves by itself.
    pub fn line(&mut self, line: &TraceLine<'_>) {
        let Some(open) = self.open.get_mut(&line.tid) else { return };
        match line.event {
            // `address fd000 error_code 14`
            "kvm_page_fault" => {
                open.address = hex(line.text, "address ").or(open.address);
                open.error_code = hex(line.text, "error_code ").or(open.error_code);
            }
            "kvm_fast_mmio" => drop(self.open.remove(&line.tid)),
            _ => {}
        }
    }

    /// Counts the open exit of a thread, if it was a fault that nothing emulated or the vCPU could not continue.
    fn close(&mut self, tid: i32, failed: bool) {
        let Some(open) = self.open.remove(&tid) else { return };
        let is_device = open.address.is_none_or(|address| address & !0xfff == APIC_PAGE)
            || open.isa == Isa::Svm && open.error_code.is_some_and(|code| code & RESERVED != 0);
        let place = (tid, open.rip, open.address, open.error_code, failed);
        if (failed || !is_device) && (self.counts.len() < MAX_PLACES || self.counts.contains_key(&place)) {
            self.counts.entry(place).or_insert((open.isa, open.code, 0)).2 += 1;
        }
    }

    /// The places, those of failures first, then the most frequent.
    pub fn finish(self) -> Vec<ExitPlace> {
        let names = ReasonNames::new();
        let place = |((tid, rip, address, error_code, failed), (isa, code, count))| {
            let (reason, of) = (exit_reason::display(isa, code, &names), self.exits.get(&tid).copied().unwrap_or(0));
            ExitPlace { tid, reason, rip, address, error_code, failed, count, of }
        };
        let mut places: Vec<ExitPlace> = self.counts.into_iter().map(place).collect();
        places.sort_by_key(|p| (!p.failed, Reverse(p.count), p.tid, p.rip, p.address, p.error_code));
        places
    }
}
