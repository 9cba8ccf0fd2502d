//! Reads a log line by line.

use super::block::{LogBlock, LogBlockKind, oom_scope};
use super::forms::{self, Event, begins_with_vmm};
use super::message::{Message, message};
use super::{INCOMING_MIGRATION, LogKind, LogLine, MAX_LINE, no_kvm};
use crate::guest_name::of_log_line;
use crate::pattern::{Captures, Pattern, group, number};
use crate::sanitize;
use std::collections::VecDeque;

/// Characters of a line that are kept.
const KEPT: usize = 400;
/// Complaints of a QEMU that are kept: the first of a row names the cause.
const MAX_COMPLAINTS: usize = 4;

/// Seconds between lines with a date up to which the earlier one may explain the later one.
const MAX_GAP_S: u32 = 60;

/// Reads a log line by line: a report of several lines becomes one [`LogLine`].
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct LogReader {
    block: Option<LogBlock>,
    /// The guest whose QEMU wrote the lines, from libvirt's log of it.
    guest: Option<String>,
    /// Whether the kernel of a guest wrote the log.
    pub(super) of_guest_kernel: bool,
    /// The VMM that the OOM killer killed last. The kernel reports one kill several times.
    killed: Option<i32>,
    /// The VMM that the kernel killed last for broken memory.
    broken: Option<i32>,
    /// Whether QEMU has said why it does not start (a failed incoming migration, no KVM), before libvirt reports the
    /// failed start.
    said_why: bool,
    /// The guest that `virsh` said it could not start; its next line says why.
    not_started: Option<String>,
    /// XFS's last complaint that it gets no memory. Threads that wait for the same file hang then.
    starved: Option<String>,
    /// Whether the module that was loaded is for CPUs of another vendor.
    wrong_module: bool,
    /// QEMU's last complaints: what libvirt reports as crashed mostly said why.
    complaints: VecDeque<String>,
    /// Whether QEMU has said why it does not start, before Proxmox reports the failed start.
    start_said: bool,
    /// When something that stops a guest was reported within the last minute: other errors follow from it. Seconds of
    /// the kernel's clock, infinite for a line without them.
    explained: Option<f64>,
    /// The day and its second when the last line with a date was written.
    written: Option<(String, u32)>,
}

impl LogReader {
    /// Reads a line and adds the reports that it completes.
    pub fn line(&mut self, raw: &str, found: &mut Vec<LogLine>) {
        let start = failed_start(raw.trim());
        // Words of the options would be mistaken for the cause.
        let short = start.as_ref().map(|start| {
            let reason = group(start, "reason").unwrap_or("(the line breaks off)");
            format!("{}QEMU failed: {reason}", &start["before"])
        });
        let clean = sanitize(short.as_deref().unwrap_or(raw.trim()), MAX_LINE);
        let clean = clean.strip_prefix("# ").filter(|said| SAID_IN_COMMENT.is_match(said)).unwrap_or(&clean);
        self.forget_old(clean);
        let message = message(clean);
        let lower = message.text.to_ascii_lowercase();
        if !lower.contains("start failed: ") && self.is_of_command_line(message.text, &lower) {
            return;
        }
        let text = sanitize(if message.text.len() + 512 < clean.len() { message.text } else { clean }, KEPT);
        if let Some(start) = NOT_STARTED.captures(message.text) {
            self.not_started = group(&start, "name").map(|name| sanitize(name, 128));
            return;
        }
        let option = start.and_then(|start| NAME_OPTION.captures(group(&start, "command")?));
        let named = option.and_then(|option| Some(sanitize(group(&option, "name")?, 128)));
        let guest = named.or_else(|| self.not_started.take_if(|_| !lower.is_empty()));
        let of_qemu = self.guest.is_some() || message.program == Some("QEMU");
        let mut line = LogLine { pid: message.writer, time_s: message.time_s, text, guest, ..LogLine::default() };
        if let Some((_, reason)) = lower.split_once("shutting down") {
            self.end_of_qemu(reason, line, found);
            return;
        }
        if (of_qemu || begins_with_vmm(&lower) || lower.starts_with("kvm"))
            && TROUBLE.is_match(&lower)
            && !PROSE.is_match(&lower)
        {
            self.complaints.push_back(line.text.clone());
            self.complaints.drain(..self.complaints.len().saturating_sub(MAX_COMPLAINTS));
        }
        if let Some(header) = HEADER.captures(&lower) {
            (line.pid, line.vcpu) = (number(&header, "pid"), number(&header, "vcpu"));
        }
        if lower.contains("possible memory allocation deadlock") {
            self.starved = Some(sanitize(message.text, 120));
        }
        self.wrong_module |= lower.contains("has_svm: not amd");
        let mut event = forms::recognise(&lower, of_qemu, self.of_guest_kernel, &mut line);
        if event.is_none() && line.guest.is_some() && lower.starts_with("error: ") && !lower.contains("is already ") {
            line.kind = LogKind::StartFailed;
            event = Some(Event { block: None, of_guest: true });
        }
        if line.data == Some(no_kvm::NO_EXTENSION) && line.kind == LogKind::NoKvm && self.wrong_module {
            self.wrong_module = false;
            return;
        }
        // An access to a register or a lock on the bus.
        let is_single_line = line.msr.is_some() || matches!(line.kind, LogKind::SplitLock | LogKind::BusLock);
        let is_prose = PROSE.is_match(&lower) || SENTENCE.is_match(message.text);
        if !is_single_line && !message.stamped && is_prose {
            return;
        }
        self.explained.take_if(|at| message.time_s.is_some_and(|now| now - *at > f64::from(MAX_GAP_S)));
        match event {
            Some(_) if is_single_line => found.push(line),
            Some(event) => {
                if event.of_guest && line.kind.stops_guests() {
                    self.explained = Some(message.time_s.unwrap_or(f64::INFINITY));
                }
                self.event(&event, &lower, line, found);
            }
            None => self.other(&message, &lower, line, found),
        }
    }

    /// Forgets what was said long before this line: it has nothing to do with what comes now.
    fn forget_old(&mut self, line: &str) {
        let Some(date) = DATE.captures(line) else { return };
        let [hour, minute, second] = ["h", "m", "s"].map(|part| number::<u32>(&date, part).unwrap_or_default());
        let now = (date["day"].to_owned(), (hour * 60 + minute) * 60 + second);
        let is_near = |(day, at): &(String, u32)| *day == now.0 && now.1.abs_diff(*at) <= MAX_GAP_S;
        if !self.written.as_ref().is_none_or(is_near) {
            (self.complaints, self.said_why) = (VecDeque::new(), false);
            (self.start_said, self.explained, self.broken) = (false, None, None);
        }
        self.written = Some(now);
    }

    /// Whether a line is a part of QEMU's command line as libvirt logs it. Takes the guest's name from it.
    fn is_of_command_line(&mut self, text: &str, lower: &str) -> bool {
        if lower.contains("starting up libvirt version") || lower == "starting up" {
            (self.guest, self.complaints) = (None, VecDeque::new());
            return true;
        }
        if let Some(of) = LOG_FILE.captures(text) {
            self.guest = group(&of, "name").map(|name| sanitize(name, 128));
            return true;
        }
        if let Some(option) = NAME_OPTION.captures(text) {
            self.guest = group(&option, "name").map(|name| sanitize(name, 128)).filter(|name| !name.is_empty());
            return true;
        }
        COMMAND_LINE.is_match(text)
    }

    fn event(&mut self, event: &Event, lower: &str, mut line: LogLine, found: &mut Vec<LogLine>) {
        self.said_why |= match line.kind {
            LogKind::StartFailed => line.data == Some(INCOMING_MIGRATION),
            // libvirt takes a guest that stopped by itself for crashed.
            kind => matches!(kind, LogKind::NoKvm | LogKind::GuestBug),
        };
        if self.is_repeated(event, lower, &mut line) {
            return;
        }
        // Proxmox says so of a QEMU that was killed while it started, or has said why it does not.
        let of_proxmox = lower.contains("start failed: qemu ");
        if of_proxmox && (self.killed.is_some() || std::mem::take(&mut self.start_said)) {
            return;
        }
        self.start_said |= line.kind == LogKind::StartFailed && !of_proxmox;
        let of_kernel =
            matches!(line.kind, LogKind::KilledForMemory | LogKind::Lockup | LogKind::HungTask | LogKind::KernelBug);
        let named = line.guest.take().or_else(|| of_log_line(&line.text));
        line.guest = named.or_else(|| self.guest.clone().filter(|_| !of_kernel));
        // The OOM killer's table has the victim's scope.
        let killed = event.of_guest && line.kind == LogKind::KilledForMemory;
        let table = self.block.take_if(|b| b.kind == LogBlockKind::OutOfMemory && killed);
        if let Some(block) = self.block.as_mut().filter(|_| line.kind == LogKind::KilledForMemory) {
            block.victim = true;
            block.line.data = block.line.data.or(line.data).or_else(|| oom_scope(lower));
            block.line.text.extend([" … ", &line.text]);
        }
        if let Some(table) = table {
            line.guest = line.guest.or(table.line.guest);
            line.data = line.data.or(table.line.data);
            line.text.extend(table.limit.iter().flat_map(|limit| [" … ", limit]));
        }
        if let Some(starved) = self.starved.as_ref().filter(|_| line.kind == LogKind::HungTask) {
            line.text.extend([" … ", starved]);
        }
        // What QEMU said before it gave up is the cause.
        let gave_up = line.kind == LogKind::Killed && event.block.is_some() && !lower.contains("terminating on signal");
        if gave_up {
            let mut said = std::mem::take(&mut self.complaints);
            said.retain(|complaint| *complaint != line.text);
            said.push_back(line.text);
            line.text = sanitize(&Vec::from(said).join(" … "), KEPT);
        }
        self.finish(found);
        match event.block {
            Some(kind) => self.block = Some(LogBlock::new(kind, line, event.of_guest)),
            None if event.of_guest => found.push(line),
            None => {}
        }
    }

    /// Whether the line repeats the current report or the last kill.
    fn is_repeated(&mut self, event: &Event, lower: &str, line: &mut LogLine) -> bool {
        match line.kind {
            LogKind::MemoryFailure if event.of_guest => self.broken = line.pid,
            // How the process ended that the kernel killed.
            LogKind::Killed if line.pid.is_some() && self.broken.take_if(|pid| line.pid == Some(*pid)).is_some() => {
                return true;
            }
            _ => {}
        }
        if line.kind == LogKind::KilledForMemory && event.of_guest {
            line.data = line.data.or_else(|| oom_scope(lower));
            if lower.contains("oom-kill:") && self.block.as_mut().is_some_and(|b| b.takes(lower)) {
                return true;
            }
            let unit = line.pid.is_none() && !lower.starts_with("killed /");
            if self.killed.is_some() && (unit || self.killed == line.pid) {
                if let (Some(block), Some((_, size))) = (&mut self.block, lower.split_once("anon-rss:")) {
                    let size = sanitize(size.split(',').next().unwrap_or_default(), 20);
                    block.line.text.extend([" … it had ", &size, " of memory"]);
                }
                return true;
            }
            self.killed = line.pid.or(Some(0));
        }
        let Some(block) = &mut self.block else { return false };
        match (block.kind, line.kind) {
            (LogBlockKind::Dump | LogBlockKind::Registers, LogKind::EntryFailed) => {
                event.block == Some(LogBlockKind::Dump) && block.line.kind != LogKind::RunFailed
            }
            (LogBlockKind::Registers, LogKind::EmulationFailure) | (LogBlockKind::Dump, LogKind::EptMisconfig) => true,
            (LogBlockKind::Stack, LogKind::KernelBug | LogKind::GuestBug) => {
                // "Oops: 0000 [#1]" and "Kernel panic" end the report of what caused them.
                lower.starts_with("oops: ") || lower.starts_with("kernel panic") && block.of_guest
            }
            (LogBlockKind::EndOfQemu, LogKind::Killed) => {
                if lower.contains("assertion") {
                    block.line.text = sanitize(&[&*block.line.text, &line.text].join(" … "), KEPT);
                }
                true
            }
            (LogBlockKind::EndOfQemu, LogKind::StartFailed) => block.takes_failed_start(line),
            _ => false,
        }
    }

    /// Reads libvirt's "shutting down, reason=…", which ends the log of one run.
    fn end_of_qemu(&mut self, reason: &str, line: LogLine, found: &mut Vec<LogLine>) {
        let reason = reason.split_once("reason=").map_or("shutdown", |(_, r)| r.trim());
        let end = self.block.take_if(|b| b.kind == LogBlockKind::EndOfQemu).map(|block| block.line);
        self.finish(found);
        let is_said = std::mem::take(&mut self.said_why);
        let (guest, complaints) = (self.guest.take(), std::mem::take(&mut self.complaints));
        let before = end.as_ref().map(|end| end.kind);
        let is_by_unknown = end.as_ref().is_some_and(|end| end.text.contains("(<unknown process>)"));
        // After a guest has shut down, libvirt ends its QEMU by a signal; "destroyed" is `virsh destroy`, whoever QEMU
        // took the signal's sender for (`qemuProcessStop` in libvirt's src/qemu/qemu_process.c). libvirt also ends a
        // QEMU that it could not set up by a signal.
        let kind = match (reason, before) {
            ("failed" | "crashed", None) if is_said => return,
            ("crashed", _) => LogKind::Killed,
            // Who sent it may have been out of QEMU's sight, as libvirtd is under SELinux.
            ("shutdown", Some(LogKind::Killed)) if is_by_unknown => LogKind::Terminated,
            ("destroyed", Some(_)) if end.as_ref().is_some_and(|end| end.data.is_some()) => LogKind::Terminated,
            ("failed", None | Some(LogKind::Terminated)) => LogKind::StartFailed,
            (_, Some(kind)) if kind != LogKind::Terminated || reason == "destroyed" => kind,
            _ => return,
        };
        found.push(match end {
            Some(end) if before != Some(kind) || matches!(reason, "destroyed" | "crashed") => {
                LogLine { kind, text: sanitize(&format!("{} … reason={reason}", end.text), KEPT), ..end }
            }
            Some(end) => end,
            None => {
                let said = complaints.into_iter().filter(|_| kind == LogKind::Killed).chain([line.text]);
                let text = sanitize(&said.collect::<Vec<_>>().join(" … "), KEPT);
                LogLine { kind, text, guest, ..line }
            }
        });
    }

    fn other(&mut self, message: &Message<'_>, lower: &str, mut line: LogLine, found: &mut Vec<LogLine>) {
        if let Some(block) = &mut self.block {
            // QEMU prints its advice and all registers.
            let same_qemu = block.kind == LogBlockKind::Registers && line.pid.is_some() && line.pid == block.line.pid;
            let takes = block.takes(lower);
            if !block.continues() || lower.contains("---[ end trace") {
                self.finish(found);
            }
            if takes || same_qemu {
                return;
            }
        }
        let program = message.program.unwrap_or_default().to_ascii_lowercase();
        let is_log = message.stamped || UNSTAMPED.is_match(lower) || self.guest.is_some();
        let is_about = begins_with_vmm(&program) || ABOUT_GUESTS.is_match(lower);
        let of_manager = MANAGER.is_match(&program) || TOOL.is_match(lower);
        let of_subsystem = matches!(&*program, "" | "kernel") && SUBSYSTEM.is_match(lower);
        let speaks_plainly = TROUBLE.is_match(lower) && (is_about || of_manager || of_subsystem);
        if !(is_log && is_about || speaks_plainly && (is_log || of_manager)) || HARMLESS.is_match(lower) {
            return;
        }
        if speaks_plainly && self.explained.is_none() {
            line.kind = LogKind::Unexplained;
        }
        line.guest.clone_from(&self.guest);
        found.push(line);
    }

    /// Adds an unfinished report of several lines, at the end of a log or when it pauses.
    pub fn finish(&mut self, found: &mut Vec<LogLine>) {
        let Some(mut line) = self.block.take().and_then(LogBlock::into_line) else { return };
        // libvirt ends every QEMU by a signal: without its reason, the guest may as well have shut down.
        if line.kind == LogKind::Terminated && LIBVIRT.is_match(&line.text) {
            line.kind = LogKind::Other;
        }
        found.push(line);
    }
}

/// The time that syslog, libvirt and QEMU put before a line.
static DATE: Pattern =
    Pattern::new(r"^(?P<day>[A-Za-z0-9 -]{5,20}?)[T ](?P<h>[0-9]{2}):(?P<m>[0-9]{2}):(?P<s>[0-9]{2})(?-u:\b)");
/// The process by which libvirt ends a QEMU: `terminating on signal 15 from pid 1234 (/usr/sbin/libvirtd)`.
static LIBVIRT: Pattern = Pattern::new("signal 15 from .*(?:libvirtd|virtqemud)");
/// What `virsh` says before the reason: `error: Failed to start domain 'web'`.
static NOT_STARTED: Pattern = Pattern::new("^error: Failed to start domain '?(?P<name>[^']+)'?$");
/// Sentences of the text around a log.
pub(super) static PROSE: Pattern =
    Pattern::new("^(?:title|subject): | would | might | i | we | you | my |could be |^`[^`]*` *[a-z]");
/// The same: words alone, without a name, a figure or a code, which messages have.
static SENTENCE: Pattern = Pattern::new(r"^[A-Z][a-z]+,?(?: [a-z]+,?){3}[^:0-9=(\[]*$");
/// A command that shows libvirt's log of a guest.
static LOG_FILE: Pattern =
    Pattern::new(r"(?:tail|cat|less|more|head|vim?|nano) .*/log/libvirt/qemu/(?P<name>[^/ ]+)\.log *$");
/// What a command printed, where notes have it as a comment after the command.
static SAID_IN_COMMENT: Pattern =
    Pattern::new("^(?:KVM virtualisation configured, but|TASK ERROR: |error: (?:Failed to|internal error:) )");
/// The guest's name in QEMU's command line.
static NAME_OPTION: Pattern = Pattern::new(r#"(?:^| )-name ['"]*(?:guest=)?(?P<name>[^, \\'"]*)"#);
/// A line with an option only, a comment of a script, and a line that a backslash continues.
static COMMAND_LINE: Pattern = Pattern::new(r"^#|^-[A-Za-z]|\\ *$");
/// Lines of KVM and QEMU that are known without a stamp.
/// Not a heading ("QEMU:"), what `whereis` prints, a row of `lsmod` or of /etc/group.
static UNSTAMPED: Pattern = Pattern::new(r"^(?:kvm \[|(?:kvm|kvm_intel|kvm_amd|qemu|qemu-[^ ]*): +[^ /])");
static ABOUT_GUESTS: Pattern = Pattern::new("kvm|qemu|vfio|cloud-hypervisor|firecracker|crosvm");

/// Words of errors.
static TROUBLE: Pattern = Pattern::new(concat!(
    r"(?-u:\b)(?:errors?|fail(?:ed|ure|s|ing)?|cannot|can't|could(?: not|n't)|unable to|refus(?:ed|ing)|denied|",
    r"not (?:supported|permitted|allowed|responding|ready|found|available|enough)|unsupported|timed[ -]?out|",
    r"bug|oops|panic|killed|corrupt(?:ed|ion)?|invalid|abort(?:ed|ing)?|fatal|no such|no space|lost|stuck|hung|",
    r"blocked|mismatch|ineligible|exhausted|read-only|died|crashed)(?-u:\b)",
));
/// The beginnings of the kernel's lines about memory, IOMMUs, storage and the network of guests, and of its reports.
static SUBSYSTEM: Pattern = Pattern::new(concat!(
    r"^(?:(?:kvm|svm|vmx|vfio|iommu|dmar|amd-vi|ata[0-9]+|sd|scsi|scsi host[0-9]+|nvme|i/o error|buffer i/o|",
    r"ext[234]-fs|xfs|btrfs|zfs|nfs|nfs4|rpc|md|raid[0-9]+|device-mapper|dm-[0-9]+|libceph|ceph|rbd|iscsi|drbd|",
    r"bcache|zram|swap|vhost|virtio[_a-z0-9-]*|tun|hugetlb|bug|oops|mm|memory cgroup)[ :(\[/]|",
    r"[^ :]*blk_|print_req_error|(?:nvme|mpt[23]sas|megaraid_sas|hpsa|aacraid)[^ ]* |.*page allocation failure|",
    r".*(?-u:\b)(?:guest|vgpu)(?-u:\b))",
));
/// Programs that manage guests.
static MANAGER: Pattern = Pattern::new(
    "^(?:libvirtd|virt[a-z]+d|qm|qmeventd|pve(?:daemon|statd|scheduler|-[a-z-]+)|pacemaker[a-z-]*|\
        vdsm|nova-compute|virt-[a-z]+)$",
);
/// What they print on a terminal, and what the system says when they end.
static TOOL: Pattern = Pattern::new(concat!(
    r"^(?:task error: |vm [0-9]+ qmp |(?:init: )?(?:libvirtd|libvirt-bin|virtqemud)",
    r"(?:\.service: failed| main process) |libvirt: .*error :|libvirt(?:\.libvirt)?error: |",
    "(?:error [a-z ]{1,40}: )?internal error: [a-z]|",
    "error: (?:internal error|operation failed|unsupported configuration|timed out during operation|",
    "requested operation|(?:failed to|cannot|unable to) .*(?:domain|hypervisor|monitor|network|pool|volume|",
    "snapshot|guest)))",
));

/// `kvm [PID]: vcpu1, guest rIP: 0x…` or `kvm: PID: cpu0 …`.
static HEADER: Pattern = Pattern::new(r"kvm[ :\[]*(?P<pid>[0-9]{1,10})[\]:][\]: ]*(?:v?cpu(?P<vcpu>[0-9]{1,6}))?");
/// Lines about KVM and QEMU that healthy hosts and guests log.
pub(super) static HARMLESS: Pattern = Pattern::new(
    r#"(?x)
    # A setting of Proxmox.
    ^kvm:\ [01]$|
    # What KVM finds when it is loaded.
    nested\ (?:virtualization|paging)\ enabled|kvm:\ nested|virtual\ vmload\ vmsave\ supported
    |(?:virtual\ gif|lbr\ virtualization|tsc\ scaling|sev|avic)\ supported|(?:sev|sev-es|avic|virtual\ nmi)\ enabled
    |pmu\ virtualization|sev-es\ supported|sev-snp|using\ hv_apicv|kvm:\ vmx:\ ept|mmio\ caching\ |xsave\ feature
    |(?:exiting\ hardware|enabling|disabling)\ virtualization|kvm-pvm:\ loaded|kvm:\ loading\ out-of-tree
    |already\ loaded\ the\ other\ module|machine\ id\ from\ kvm|memfd_create\(\)\ called\ without
    |smt\ vulnerable|cpu\ bug\ present\ and\ smt\ on
    # What KVM does now and then.
    |(?:kvm:|for)\ mmio\ generation\ wraparound|emulating\ exchange\ as\ write
    # What a guest finds itself running on.
    |kvm-clock|kvm-guest|kvm\ setup|kvm:\ async|hypervisor\ detected:\ kvm|paravirtualized\ kernel\ on\ kvm
    |detected\ virtualization\ (?:kvm|qemu)|smpboot:\ cpu0:\ |hardware\ name:\ |dmi:\ |modules\ linked\ in
    |qemu\ (?:harddisk|dvd|cd|usb|qemu|virtual)|(?:product|manufacturer|input):\ qemu|fw_cfg|guest\ agent|qemu-ga
    |command\ line:\ |unknown\ kernel\ command\ line\ parameters
    # What systemd, the audit and libvirt say of a guest's start and end.
    |machine\ qemu|started\ virtual\ machine|deactivated\ successfully|consumed\ 
    |apparmor="|virt_(?:control|resource|machine_id)|qemu:///
    |char\ device\ redirected\ to|main_channel_link
    # Passed-through devices.
    |hiding\ ecap|vfio\ -\ user\ level|vfio_pci:\ add\ |vgaarb:\ |:\ enabling\ device|:\ resetting
    # The XML beside the log.
    |^</?[a-z]
    # Words of errors that mean none, and other parts of a system that are known to be loud.
    |firmware\ bug|acpi|errors=|(?:no|0|without)\ errors?|error\ (?:record|reporting|handling|recovery)
    |correct(?:ed|able)|(?:test\ wp|cache\ data|mode\ sense|read\ capacity[^\ ]*)\ failed|can't\ find\ ext
    |(?:failed\ to|can't)\ (?:assign|claim|reserve)|link\ down|no\ caching\ mode|subnqn|rom\ (?:header|image|contents)
    |dev\ (?:fd|sr|loop)[0-9]|panic_|kernel\ command\ line|read-only\ memory
    |authentication\ failure|iommu\ perf\ counter
    |write\ protect|identify\ device\ data|failed\ to\ resume\ link|softreset\ failed
    |killed\ by\ term|accessibility\ bus|audio|alsa|slirp|spice|red_channel
    |end\ of\ file\ (?:while|from)|is\ tainted|pasid|ats\ not\ supported|ioctl\ not\ supported
    |:\ warning\ :|unsupported\ (?:option|protocol)\ |guest\ agent|unstable\ clock"#,
);

/// A start that failed, with QEMU's whole command line, as Proxmox logs it.
static FAILED_START: Pattern =
    Pattern::new("^(?P<before>.{0,200}start failed: )command '(?P<command>.*?)(?:' failed: (?P<reason>.*))?$");

fn failed_start(line: &str) -> Option<Captures<'_>> {
    line.contains("start failed: command '").then(|| FAILED_START.captures(line)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        for pattern in [&DATE, &PROSE, &SENTENCE, &TROUBLE, &SUBSYSTEM, &MANAGER, &TOOL, &HEADER, &HARMLESS] {
            assert!(pattern.regex().is_some(), "{}", pattern.source);
        }
    }
}
