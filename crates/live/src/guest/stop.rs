//! Whether a guest runs, and why not: what its vCPUs do, with what libvirt or its monitor says.

use super::description::GuestDescription;
use super::storage;
use crate::metadata::source::ReportedState;
use crate::proc::file;
use crate::proc::read_context::ReadContext;
use crate::proc::slow_files::Late;
use crate::timestamps::Timestamps;
use sample::{Stop, StopReason, StoredDisk};
use std::path::Path;

/// All vCPUs of a guest that does nothing use less CPU time together in an interval: a question of
/// a monitor may wake their threads.
const MAX_IDLE_NS: u64 = 1_000_000;
/// vCPUs that used no CPU time at all for so long may be kept out of KVM.
const STILL_NS: u64 = 3_000_000_000;

/// Watches what the vCPUs of a guest do.
#[derive(Default)]
pub(crate) struct StopWatch {
    /// CPU time of all vCPUs at the previous sample, nanoseconds.
    ran_ns: Option<u64>,
    /// Whether they did nothing between the last two samples.
    pub quiet: bool,
    /// Whether they began or ceased to do something then, until the sources of its state are asked
    /// again.
    pub turned: bool,
    /// When they were last seen to do something, or the guest was first seen.
    ran_until_ns: Option<u64>,
    /// The same for any CPU time at all.
    moved_ns: Option<u64>,
    /// Whether all of them wait in the VMM; read once for each time that they stand still.
    waits_in_vmm: Option<bool>,
    waiting: Late<bool>,
}

impl StopWatch {
    /// Takes in the CPU time of all vCPUs; `None` where none is known or readable.
    pub fn observe(&mut self, ran_ns: Option<u64>, now_ns: u64) {
        let grown_ns = ran_ns
            .zip(self.ran_ns)
            .map(|(now, before)| now.saturating_sub(before));
        self.ran_ns = ran_ns;
        let was_quiet =
            std::mem::replace(&mut self.quiet, grown_ns.is_some_and(|ns| ns < MAX_IDLE_NS));
        self.turned = grown_ns.is_some() && self.quiet != was_quiet;
        if !self.quiet {
            self.ran_until_ns = Some(now_ns);
        }
        if grown_ns != Some(0) {
            (self.moved_ns, self.waits_in_vmm) = (Some(now_ns), None);
        }
    }

    /// Why the guest does not run, if it does not. `is_stopped`: its process is.
    pub fn stop(
        &mut self,
        guest: &GuestDescription,
        disks: &[StoredDisk],
        is_stopped: bool,
        now: Timestamps,
    ) -> Option<Stop> {
        let mut stop = match &guest.state {
            Some(ReportedState::Stopped(stop)) => stop.clone(),
            _ if is_stopped => Stop {
                reason: StopReason::ProcessStopped,
                ..Stop::default()
            },
            None if self.waits_in_vmm == Some(true) => Stop::default(),
            _ => return None,
        };
        let seen_ns = now
            .mono_ns
            .saturating_sub(self.ran_until_ns.unwrap_or(now.mono_ns));
        let written_ms = guest
            .paused_ms()
            .map_or(0, |paused_ms| now.time_ms.saturating_sub(paused_ms));
        let noted_ns = u64::try_from(written_ms)
            .unwrap_or(0)
            .saturating_mul(1_000_000);
        stop.for_ns = seen_ns.max(noted_ns);
        if stop.reason == StopReason::IoError {
            storage::complete(&mut stop, disks, |name| guest.disk_file(name));
        }
        Some(stop)
    }

    /// Starts to find out what only takes time for a guest that does not run.
    pub fn watch_waits(&mut self, guest: &GuestDescription, vcpus: Vec<i32>, reader: &ReadContext) {
        let pid = guest.identity.pid;
        let uid = guest.identity.uid;
        self.waits_in_vmm = self.waiting.take().or(self.waits_in_vmm);
        let is_still = self
            .moved_ns
            .is_some_and(|moved| reader.now_ns.saturating_sub(moved) >= STILL_NS);
        let is_unknown =
            guest.state.is_none() && self.waits_in_vmm.is_none() && !self.waiting.is_awaited();
        // Not without KVM, where also a vCPU that has nothing to do waits in QEMU.
        let sleeps_in_kvm = !guest.identity.emulated && guest.facts.command.is_some();
        if is_still && is_unknown && sleeps_in_kvm {
            let task = reader.paths.process(pid, "task");
            let answer = reader.slow_files.run(uid, move || {
                !vcpus.is_empty()
                    && vcpus
                        .iter()
                        .all(|tid| waits_for_futex(&task.join(tid.to_string()).join("syscall")))
            });
            self.waiting = Late(answer);
        }
    }
}

/// Whether a thread sleeps in futex(2), by its `syscall` (fs/proc/base.c, `proc_pid_syscall`). QEMU
/// lets a vCPU that may not run wait so, and KVM one that has nothing to do in ioctl(2).
fn waits_for_futex(path: &Path) -> bool {
    let text = file::read_text(path, 4096).unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        == Some(libc::SYS_futex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpus_that_cease_to_run_are_noticed_once() {
        let mut watch = StopWatch::default();
        let mut seen = Vec::new();
        // Busy, stopped, woken by a question of the monitor, resumed.
        for (second, ran_ms) in [(0, 0), (1, 900), (2, 1300), (3, 1300), (4, 1300), (5, 2200)] {
            watch.observe(Some(ran_ms * 1_000_000), second * 1_000_000_000);
            seen.push((watch.quiet, watch.turned));
        }
        let busy = (false, false);
        assert_eq!(
            seen,
            [busy, busy, busy, (true, true), (true, false), (false, true)]
        );
        watch.observe(Some(2_200_040_000), 6_000_000_000);
        assert!(watch.quiet, "40 us are no work of a guest");
    }

    #[test]
    fn a_vcpu_that_its_vmm_keeps_waits_in_futex() {
        let folder = tempfile::tempdir().unwrap();
        let says = |text: &str| {
            let path = folder.path().join("syscall");
            std::fs::write(&path, text).unwrap();
            waits_for_futex(&path)
        };
        assert!(says(&format!("{} 0x7f 0x80 0x0\n", libc::SYS_futex)));
        assert!(
            !says(&format!("{} 0xf 0xae80 0x0\n", libc::SYS_ioctl)),
            "a vCPU that sleeps in KVM"
        );
        assert!(!says("running\n") && !says("-1 0x7f 0x80\n") && !says(""));
        assert!(!waits_for_futex(Path::new("/nonexistent")));
    }
}
