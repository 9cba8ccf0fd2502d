//! Reads a log line by line.

use super::block::{LogBlock, LogBlockKind};
use super::event::{self, Event};
use super::message::{Message, message};
use super::names::{begins_with_vmm, guest_of_scope};
use super::{INCOMING_MIGRATION, LogKind, LogLine, MAX_LINE, msr_line};
use crate::sanitize;

/// Characters of a line that are kept.
const KEPT: usize = 400;

/// Reads a log line by line: a report of several lines becomes one [`LogLine`].
#[derive(Debug, Default)]
pub struct LogReader {
    block: Option<LogBlock>,
    /// The guest whose QEMU wrote the lines, from libvirt's log of it.
    guest: Option<String>,
    /// Whether the log is that of a guest's own kernel.
    pub(super) of_guest_kernel: bool,
    /// The VMM that the OOM killer killed last: it says so several times.
    killed: Option<i32>,
    /// Whether QEMU has said that it could not take the guest over, before libvirt says that it failed.
    not_taken_over: bool,
}

impl LogReader {
    /// A reader of the log that libvirt keeps of a guest's QEMU.
    pub fn of_qemu(guest: &str) -> Self {
        Self { guest: Some(sanitize(guest, 128)).filter(|name| !name.is_empty()), ..Self::default() }
    }

    /// Reads a line and adds what it completes.
    pub fn line(&mut self, raw: &str, found: &mut Vec<LogLine>) {
        // A journal in JSON is long, and is taken apart before it is cut.
        let limit = if raw.trim_start().starts_with('{') { 64 * 1024 } else { MAX_LINE };
        let clean = sanitize(raw.trim(), limit);
        let message = message(&clean);
        let lower = message.text.to_ascii_lowercase();
        if !lower.contains("start failed: ") && self.is_of_command_line(&message.text, &lower) {
            return;
        }
        let mut line = LogLine {
            pid: message.writer,
            vcpu: None,
            msr: None,
            write: false,
            data: None,
            kind: LogKind::Other,
            time_s: message.time_s,
            text: excerpt(if message.text.len() + 512 < clean.len() { &message.text } else { &clean }),
            guest: None,
        };
        if let Some((_, reason)) = lower.split_once("shutting down") {
            self.end_of_qemu(reason, line, found);
            return;
        }
        if is_register(&lower, &mut line) {
            found.push(line);
            return;
        }
        // A sentence of the mail or the issue around a log.
        if !message.stamped && is_prose(&lower) {
            return;
        }
        let event = event::recognise(&lower, self.guest.is_some() || message.program == Some("QEMU"));
        let event = if self.of_guest_kernel { event::in_guest(&lower, event) } else { event };
        match event {
            Some(event) => self.event(&event, &lower, line, found),
            None => self.other(&message, &lower, line, found),
        }
    }

    /// Adds a report of several lines that is still being read: the log ends here, or pauses.
    pub fn finish(&mut self, found: &mut Vec<LogLine>) {
        self.close(found);
    }

    /// Whether a line is of QEMU's command line, as libvirt logs it. Takes the guest's name from it.
    fn is_of_command_line(&mut self, text: &str, lower: &str) -> bool {
        if lower.contains("starting up libvirt version") || lower == "starting up" {
            self.guest = None;
            return true;
        }
        let option = text.strip_prefix("-name ").or_else(|| text.split_once(" -name ").map(|(_, rest)| rest));
        if let Some(value) = option {
            let value = value.trim_start_matches(['\'', '"']);
            let value = value.strip_prefix("guest=").unwrap_or(value);
            let end = value.find([',', ' ', '\\', '\'', '"']).unwrap_or(value.len());
            self.guest = value.get(..end).map(|name| sanitize(name, 128)).filter(|name| !name.is_empty());
        }
        // An option on a line of its own; a comment of the script around it.
        let of_script = text.starts_with('#')
            || text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
        option.is_some() || of_script || text.trim_end().ends_with('\\')
    }

    fn event(&mut self, event: &Event, lower: &str, mut line: LogLine, found: &mut Vec<LogLine>) {
        msr_line::header(lower, &mut line);
        event.fill(&mut line);
        self.not_taken_over |= line.kind == LogKind::StartFailed && line.data == Some(INCOMING_MIGRATION);
        if self.is_repeated(event, lower, &mut line) {
            return;
        }
        line.guest = guest_of_scope(&line.text).or_else(|| self.guest.clone().filter(|_| event_is_of_qemu(line.kind)));
        // The table before the victim's line has its scope.
        let killed = event.of_guest && line.kind == LogKind::KilledForMemory;
        let table = self.block.take_if(|b| b.kind == LogBlockKind::OutOfMemory && killed);
        if let Some(block) = self.block.as_mut().filter(|_| line.kind == LogKind::KilledForMemory) {
            block.victim = true;
        }
        line.guest = line.guest.or_else(|| table.and_then(|table| table.line.guest));
        self.close(found);
        match event.block {
            Some(kind) => self.block = Some(LogBlock::new(kind, line, event.of_guest)),
            None if event.of_guest => found.push(line),
            None => {}
        }
    }

    /// Whether the line says again what the current report or the last kill said.
    fn is_repeated(&mut self, event: &Event, lower: &str, line: &mut LogLine) -> bool {
        if line.kind == LogKind::KilledForMemory && event.of_guest {
            if lower.contains("oom-kill:") && self.block.as_mut().is_some_and(|b| b.takes(lower)) {
                return true;
            }
            let unit = line.pid.is_none() && !lower.starts_with("killed /");
            if self.killed.is_some() && (unit || self.killed == line.pid) {
                return true;
            }
            self.killed = line.pid.or(Some(0));
        }
        let Some(block) = &mut self.block else { return false };
        match (block.kind, line.kind) {
            (LogBlockKind::Dump, LogKind::EntryFailed) => event.block == Some(LogBlockKind::Dump),
            (LogBlockKind::Registers, LogKind::EntryFailed) => {
                event.block == Some(LogBlockKind::Dump) && block.line.kind != LogKind::RunFailed
            }
            (LogBlockKind::Registers, LogKind::EmulationFailure) => true,
            (LogBlockKind::Stack, LogKind::KernelBug) => {
                // "Oops: 0000 [#1]" and "Kernel panic" end the report of what caused them.
                lower.starts_with("oops: ") || lower.starts_with("kernel panic") && block.of_guest
            }
            (LogBlockKind::EndOfQemu, LogKind::Killed) => true,
            (LogBlockKind::EndOfQemu, LogKind::StartFailed) => block.takes_failed_start(line),
            _ => false,
        }
    }

    /// libvirt's "shutting down, reason=…", which ends the log of one run.
    fn end_of_qemu(&mut self, reason: &str, mut line: LogLine, found: &mut Vec<LogLine>) {
        let reason = reason.split_once("reason=").map_or("shutdown", |(_, r)| r.trim());
        let end = self.block.take_if(|b| b.kind == LogBlockKind::EndOfQemu);
        self.close(found);
        let end = end.map(|b| b.line);
        let is_said = std::mem::take(&mut self.not_taken_over);
        match (reason, end) {
            ("failed", None) if is_said => {}
            // After a guest has shut down, libvirt ends its QEMU by a signal; "destroyed" is `virsh destroy`, whoever
            // QEMU took the signal's sender for (`qemuProcessStop` in libvirt's src/qemu/qemu_process.c).
            ("destroyed" | "crashed", Some(end)) => {
                let kind = match (reason, end.data) {
                    ("crashed", _) => LogKind::Killed,
                    (_, Some(_)) => LogKind::Terminated,
                    _ => end.kind,
                };
                let text = sanitize(&format!("{} … reason={reason}", end.text), KEPT);
                found.push(LogLine { kind, text, ..end });
            }
            // libvirt ends a QEMU that it could not set up by a signal.
            ("failed", Some(end)) if end.kind == LogKind::Terminated => {
                let text = sanitize(&format!("{} … reason={reason}", end.text), KEPT);
                found.push(LogLine { kind: LogKind::StartFailed, text, ..end });
            }
            (_, Some(end)) if end.kind != LogKind::Terminated => found.push(end),
            ("crashed", None) => {
                line.kind = LogKind::Killed;
                line.guest.clone_from(&self.guest);
                found.push(line);
            }
            ("failed", None) => {
                line.kind = LogKind::StartFailed;
                line.guest.clone_from(&self.guest);
                found.push(line);
            }
            _ => {}
        }
        self.guest = None;
    }

    fn other(&mut self, message: &Message<'_>, lower: &str, mut line: LogLine, found: &mut Vec<LogLine>) {
        if let Some(block) = &mut self.block {
            let takes = block.takes(lower);
            if !block.goes_on() || lower.contains("---[ end trace") {
                self.close(found);
            }
            if takes {
                return;
            }
        }
        let begins = |words: &[&str]| words.iter().any(|word| lower.starts_with(word));
        let of_qemu = lower.split_whitespace().next().is_some_and(|first| first.ends_with(':'));
        let plain = begins(&["kvm:", "kvm [", "kvm_intel", "kvm_amd", "qemu:"]) || of_qemu && begins(&["qemu-"]);
        if !(message.stamped || plain || self.guest.is_some()) || !is_about_guests(message, lower) || is_harmless(lower)
        {
            return;
        }
        msr_line::header(lower, &mut line);
        line.guest.clone_from(&self.guest);
        found.push(line);
    }

    fn close(&mut self, found: &mut Vec<LogLine>) {
        found.extend(self.block.take().and_then(LogBlock::into_line));
    }
}

/// What is kept of a line: its beginning, or if it is too long the part that says what happened.
fn excerpt(text: &str) -> String {
    const TELLING: [&str; 6] = [
        "unexpectedly closed the monitor",
        "process exited while connecting",
        "assertion",
        "terminating on signal",
        "kvm internal error",
        "failed",
    ];
    if text.chars().nth(KEPT).is_none() {
        return sanitize(text, KEPT);
    }
    let lower = text.to_ascii_lowercase();
    let at = TELLING.iter().find_map(|words| lower.find(words)).unwrap_or(0);
    // A few words before it, from the beginning of one.
    let begin = text.get(..at).and_then(|before| before.char_indices().rev().nth(40)).map_or(0, |(begin, _)| begin);
    let begin = text.get(begin..at).and_then(|part| part.find(' ')).map_or(begin, |space| begin + space + 1);
    if begin == 0 {
        return sanitize(text, KEPT);
    }
    format!("… {}", sanitize(text.get(begin..).unwrap_or(text), KEPT))
}

/// Whether a kind of event is written by QEMU itself, so that it belongs to the guest of the log.
fn event_is_of_qemu(kind: LogKind) -> bool {
    !matches!(kind, LogKind::KilledForMemory | LogKind::Lockup | LogKind::HungTask | LogKind::KernelBug)
}

fn is_register(lower: &str, line: &mut LogLine) -> bool {
    if lower.contains("split lock") || lower.contains("split_lock") || lower.contains("bus_lock") {
        return msr_line::lock_trap(lower, line);
    }
    if !lower.contains("kvm") && !lower.contains("hyper-v") {
        return false;
    }
    let mut found = line.clone();
    if !msr_line::register(lower, &mut found) {
        return false;
    }
    msr_line::header(lower, &mut found);
    *line = found;
    true
}

/// Whether a line without a stamp is somebody's sentence about what a log says.
fn is_prose(lower: &str) -> bool {
    [" would ", " might ", " i ", " we ", " you ", " my ", "could be "].iter().any(|word| lower.contains(word))
}

fn is_about_guests(message: &Message<'_>, lower: &str) -> bool {
    let program = message.program.is_some_and(|p| begins_with_vmm(&p.to_ascii_lowercase()));
    program || ["kvm", "qemu", "vfio", "cloud-hypervisor", "firecracker", "crosvm"].iter().any(|w| lower.contains(w))
}

/// Whether a line is one of those that every healthy host or guest logs.
fn is_harmless(lower: &str) -> bool {
    HARMLESS.iter().any(|words| lower.contains(words))
}

/// Words of lines about KVM and QEMU that tell of no trouble: what KVM finds at its start, what a guest finds itself
/// running on, what systemd says of a guest's start and end, and commands that were run.
const HARMLESS: [&str; 75] = [
    "nested virtualization enabled",
    "nested paging enabled",
    "kvm: nested",
    "virtual vmload vmsave supported",
    "virtual gif supported",
    "lbr virtualization supported",
    "tsc scaling supported",
    "pmu virtualization",
    "virtual nmi enabled",
    "sev supported",
    "sev enabled",
    "sev-es supported",
    "sev-es enabled",
    "sev-snp",
    "avic enabled",
    "avic supported",
    "using hv_apicv",
    "kvm: vmx: ept",
    "exiting hardware virtualization",
    "enabling virtualization",
    "disabling virtualization",
    "mmio caching ",
    "kvm-pvm: loaded",
    "xsave feature",
    "kvm: mmio generation wraparound",
    "for mmio generation wraparound",
    "emulating exchange as write",
    "smt vulnerable",
    "cpu bug present and smt on",
    "kvm: loading out-of-tree",
    "kvm-clock",
    "kvm-guest",
    "kvm setup",
    "kvm: async",
    "hypervisor detected: kvm",
    "paravirtualized kernel on kvm",
    "detected virtualization kvm",
    "detected virtualization qemu",
    "smpboot: cpu0: ",
    "hardware name: ",
    "dmi: ",
    "qemu harddisk",
    "qemu dvd",
    "qemu cd",
    "qemu usb",
    "qemu qemu",
    "qemu virtual",
    "product: qemu",
    "manufacturer: qemu",
    "input: qemu",
    "fw_cfg",
    "guest agent",
    "qemu-ga",
    "command line: ",
    "unknown kernel command line parameters",
    "new machine qemu",
    "started virtual machine",
    "machine qemu",
    "deactivated successfully",
    "consumed ",
    "apparmor=\"status\"",
    "apparmor=\"allowed\"",
    "virt_control",
    "virt_resource",
    "virt_machine_id",
    "qemu:///",
    "char device redirected to",
    "main_channel_link",
    "modules linked in",
    "vfio - user level",
    "vfio_pci: add ",
    "vgaarb: ",
    "vfio-pci: enabling device",
    ": enabling device (",
    ": resetting",
];
