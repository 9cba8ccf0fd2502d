//! Guests that do not run.

use crate::figures::{bytes, seconds};
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Prose, Severity, Verdicts,
};
use crate::lint::fixes;
use sample::{DomainState, JobKind, Stop, StopDisk, StopReason};

/// A pause on purpose is reported from here on, seconds.
const MIN_PAUSE_S: f64 = 600.0;
/// A stop without a known reason is reported from here on, seconds: managers stop guests for a
/// moment.
const MIN_UNKNOWN_S: f64 = 10.0;

pub(super) fn stopped(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if guest.domain.state != DomainState::Paused {
        return;
    }
    let Some(stop) = &guest.domain.stop else {
        if !ctx.is_file() {
            verdicts.cannot_tell("the guest is paused, and no source says why");
        }
        return;
    };
    if is_held(guest, stop) {
        return;
    }
    let (severity, confidence) = match stop.reason {
        StopReason::Unknown => (Severity::Warning, Confidence::Low),
        StopReason::User
        | StopReason::ProcessStopped
        | StopReason::Suspended
        | StopReason::Prelaunch => (Severity::Info, Confidence::High),
        _ => (Severity::Critical, Confidence::High),
    };
    let mut evidence: Vec<String> = stop.disks.iter().map(disk_line).collect();
    evidence.push(state_line(stop));
    evidence.extend(next_to_stop(&stop.disks));
    if matches!(stop.reason, StopReason::InternalError | StopReason::Unknown) {
        evidence.push("look at: journalctl -k".into());
    }
    let fix = ways_to_continue(guest, stop);
    let for_ms = (stop.for_ns / 1_000_000).cast_signed();
    let found = Finding::new(severity, confidence, evidence, fix);
    verdicts.find(Finding {
        since_ms: Some(ctx.model.time_ms.saturating_sub(for_ms)),
        comes_first: true,
        ..worded(stop, found)
    });
}

/// Whether the stop is a part of something that ends it, or too short to matter.
fn is_held(guest: &GuestContext<'_>, stop: &Stop) -> bool {
    let for_s = stop.for_ns as f64 / 1e9;
    let has_job = guest.domain.jobs.iter().any(|job| {
        matches!(job.kind, JobKind::Migration | JobKind::Save | JobKind::Dump) && !job.has_failed()
    });
    match stop.reason {
        StopReason::IoError
        | StopReason::InternalError
        | StopReason::GuestPanicked
        | StopReason::Watchdog
        | StopReason::Crashed => false,
        // A rule of jobs reports it.
        StopReason::PostcopyFailed => guest
            .domain
            .jobs
            .iter()
            .any(|job| job.status == "postcopy-paused"),
        StopReason::User | StopReason::ProcessStopped => has_job || for_s < MIN_PAUSE_S,
        StopReason::Unknown => has_job || for_s < MIN_UNKNOWN_S,
        StopReason::Suspended | StopReason::Prelaunch => has_job,
        StopReason::Migration
        | StopReason::Save
        | StopReason::Dump
        | StopReason::Snapshot
        | StopReason::FromSnapshot
        | StopReason::Starting
        | StopReason::Shutdown
        | StopReason::ApiError
        | StopReason::Debug => true,
    }
}

/// The finding in the words for its reason.
fn worded(stop: &Stop, found: Finding) -> Finding {
    let prose = match stop.reason {
        StopReason::IoError => return of_storage(&stop.disks, found),
        StopReason::InternalError => Prose {
            title: "The guest is stopped: KVM could not run it further",
            problem: "stopped: internal error",
            why: "KVM_RUN returned an error for which QEMU has no answer. The guest's memory and \
                registers stay until it is reset",
        },
        StopReason::GuestPanicked => Prose {
            title: "The guest is stopped: its kernel panicked",
            problem: "stopped: panicked",
            why: "The guest's kernel told the panic device that it gave up, and QEMU is set to \
                stop then (on_crash, -action panic=pause). Its memory stays until it is reset",
        },
        StopReason::Watchdog => Prose {
            title: "The guest is stopped: its watchdog fired",
            problem: "stopped: watchdog",
            why: "The guest did not reset its watchdog in time: it hung, or did not get CPU time. \
                The watchdog is set to stop it",
        },
        StopReason::PostcopyFailed => Prose {
            title: "The guest is stopped: its post-copy migration failed",
            problem: "stopped: post-copy failed",
            why: "A part of the guest's memory is on each host, and neither can continue until the \
                connection is back. Ending QEMU on either loses the guest",
        },
        StopReason::User => Prose {
            title: "The guest was paused long ago and not resumed",
            problem: "",
            why: "Nothing resumes a guest that somebody paused: its services are down and its \
                clock stands still",
        },
        StopReason::Suspended => Prose {
            title: "The guest suspended itself to memory",
            problem: "suspended itself",
            why: "Its system went to sleep (S3), as a desktop does without use. It runs again when \
                it is woken",
        },
        StopReason::Prelaunch => Prose {
            title: "QEMU waits to be told to run the guest",
            problem: "waits for its first start",
            why: "QEMU was started with -S, or with --paused by virsh, and nobody resumed it",
        },
        StopReason::ProcessStopped => Prose {
            title: "The guest's process is stopped by a signal",
            problem: "process is stopped",
            why: "SIGSTOP or a debugger stopped all threads of QEMU, the monitor too: nothing that \
                manages the guest works",
        },
        StopReason::Unknown => Prose {
            title: "The guest is stopped by its VMM, reason not known",
            problem: "stopped by its VMM",
            why: "Its vCPUs wait in the VMM and use no CPU time. Nobody says why: a pause, an \
                error of its storage or of KVM",
        },
        _ => Prose {
            title: "The guest is stopped: it crashed",
            problem: "stopped: crashed",
            why: "libvirt keeps a guest that crashed for a dump of its memory (on_crash preserve)",
        },
    };
    let mut found = found.saying(prose);
    if stop.reason == StopReason::User {
        found.problem = format!("paused for {}", duration_of(stop));
    }
    found
}

fn duration_of(stop: &Stop) -> String {
    seconds((stop.for_ns / 1_000_000_000) as f64)
}

fn disk_name(disk: &StopDisk) -> &str {
    if disk.name.is_empty() {
        "its disk"
    } else {
        &disk.name
    }
}

fn of_storage(disks: &[StopDisk], found: Finding) -> Finding {
    let name = disks.first().map_or("its disk", disk_name);
    let is_full = disks.first().is_some_and(|disk| disk.is_full);
    let title = if is_full {
        format!("The guest is stopped: {name} found no space for a write")
    } else {
        format!("The guest is stopped: a request to {name} failed")
    };
    let problem = match (is_full, name) {
        (true, "its disk") => "stopped: disk full".into(),
        (true, _) => format!("stopped: {name} full"),
        (false, "its disk") => "stopped: I/O error".into(),
        (false, _) => format!("stopped: {name} failed"),
    };
    Finding {
        title,
        problem,
        why: "QEMU stops a guest whose request its storage refuses (werror=enospc, \
            rerror=stop) instead of passing the error on. When it is resumed, QEMU repeats the \
            request, and the guest only notices the time"
            .into(),
        ..found
    }
}

fn state_line(stop: &Stop) -> String {
    let what = match stop.reason {
        StopReason::Unknown => "its vCPUs wait in the VMM".to_owned(),
        StopReason::User => "it is paused".to_owned(),
        StopReason::ProcessStopped => "its process is in state T".to_owned(),
        reason => format!("its state is {}", reason.as_str()),
    };
    format!("{what}, for {} at least", duration_of(stop))
}

fn disk_line(disk: &StopDisk) -> String {
    let name = disk_name(disk);
    let file = disk
        .file
        .as_ref()
        .map_or_else(String::new, |file| format!(" ({file})"));
    let what = if disk.is_full {
        "no space left for a write"
    } else {
        "a request failed"
    };
    let free = disk
        .free_bytes
        .map(|free| format!("; {} free on its file system", bytes(free)));
    format!("{name}{file}: {what}{}", free.unwrap_or_default())
}

/// Other guests that write to a file system without room.
fn next_to_stop(disks: &[StopDisk]) -> Option<String> {
    let full = disks.iter().filter(|disk| disk.is_full);
    let mut names: Vec<&str> = full
        .flat_map(|disk| disk.also.iter().map(String::as_str))
        .collect();
    if names.is_empty() {
        return None;
    }
    names.sort_unstable();
    names.dedup();
    Some(format!(
        "guests with a disk on the same file system, which stop next: {}",
        names.join(", ")
    ))
}

/// What makes the guest run again, in order.
fn ways_to_continue(guest: &GuestContext<'_>, stop: &Stop) -> Vec<Fix> {
    let (first, verbs, needs): (Vec<Fix>, &[&str], &str) = match stop.reason {
        StopReason::PostcopyFailed => return fixes::recover_postcopy(guest),
        StopReason::ProcessStopped => {
            let pid = guest.domain.facts.pid;
            let pid = pid.map_or("PID".to_owned(), |pid| pid.to_string());
            let wake = fixes::command(format!("kill -CONT {pid}"));
            return vec![wake.needing("see first who stopped it: a debugger, CRIU")];
        }
        StopReason::IoError => (
            make_room(&stop.disks),
            &["resume"],
            "once there is room; QEMU repeats the failed requests",
        ),
        StopReason::GuestPanicked
        | StopReason::Crashed
        | StopReason::Watchdog
        | StopReason::InternalError => (
            vec![fixes::advice(
                "First look at its console, QEMU's log and the kernel's, and \
                keep its memory (virsh dump, dump-guest-memory)",
            )],
            &["reset", "resume"],
            "ends all that runs in the guest",
        ),
        StopReason::Suspended => (Vec::new(), &["dompmwakeup"], "wakes it"),
        StopReason::Unknown => (
            vec![fixes::advice(
                "Ask its monitor first: query-status (QMP), info status, virsh \
                domstate --reason",
            )],
            &["resume"],
            "if nothing holds it",
        ),
        _ => (Vec::new(), &["resume"], "the guest continues where it was"),
    };
    let mut all = first;
    all.extend(manage(guest, verbs, needs));
    all
}

/// Room for the disks of a guest that have none.
fn make_room(disks: &[StopDisk]) -> Vec<Fix> {
    let mut all = Vec::new();
    for disk in disks {
        let file = disk.file.as_deref().unwrap_or("its image");
        let text = match disk.file.as_deref() {
            _ if !disk.is_full => {
                format!("Repair the storage of {file}: its cables, its network, its server")
            }
            Some(device) if device.starts_with("/dev/") => {
                format!("Extend the pool or volume below {device}")
            }
            _ => format!("Free or extend the file system of {file}"),
        };
        all.push(fixes::advice(text));
    }
    if all.is_empty() {
        all.push(fixes::advice(
            "Look at the storage of its disks: no room, or errors in the host's log",
        ));
    }
    all
}

/// Commands that qm and virsh have by the same names; in the monitor of a guest that neither runs
/// they are `cont`, `system_reset` and `system_wakeup`.
fn manage(guest: &GuestContext<'_>, verbs: &[&str], needs: &str) -> Vec<Fix> {
    if let Some(id) = guest.proxmox_id() {
        let commands: Vec<String> = verbs.iter().map(|verb| format!("qm {verb} {id}")).collect();
        return vec![fixes::command(commands.join(" && ")).needing(needs)];
    }
    let commands: Vec<String> = verbs
        .iter()
        .map(|verb| fixes::virsh(guest, verb, ""))
        .collect();
    let virsh = fixes::command(commands.join(" && ")).needing(needs);
    let by_hand = match verbs {
        ["resume"] => "In its monitor: cont (QMP and HMP)",
        ["dompmwakeup"] => "In its monitor: system_wakeup",
        _ => "In its monitor: system_reset, then cont",
    };
    fixes::either(guest, virsh, fixes::advice(by_hand).needing(needs))
}
