//! Names of tasks that woke a vCPU or took its CPU: a thread of a guest is named with its guest.

use super::threads::thread_of_guest;
use crate::ui::state::AppState;
use crate::ui::table::step;
use crate::ui::text::clean;
use judge::figures::share;
use judge::model::{DomainModel, ThreadModel};
use sample::OtherTask;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Maximum of named tasks that delay a thread.
const MAX_DELAYS: usize = 4;
/// A task with a smaller part of the wait is not named, percent.
const MIN_DELAY: f64 = 0.5;

/// The threads of all guests by their id.
pub struct TaskNames<'a> {
    threads: HashMap<i32, (&'a DomainModel, &'a ThreadModel)>,
}

impl<'a> TaskNames<'a> {
    /// Those of the interval on the screen.
    pub fn of(state: &'a AppState) -> Self {
        let guests = state.model.iter().flat_map(|m| &m.domains);
        let threads = guests.flat_map(|d| d.threads.iter().map(move |t| (t.tid, (d, t))));
        Self { threads: threads.filter(|(tid, _)| *tid > 0).collect() }
    }

    /// The name of a task. Each guest has a `CPU 0/KVM`.
    pub fn name(&self, task: &OtherTask) -> String {
        match self.threads.get(&task.tid) {
            _ if task.tid == 0 => "interrupt".into(),
            Some((domain, thread)) => thread_of_guest(domain, thread),
            None => clean(&task.comm),
        }
    }

    /// The tasks that had the CPU of a thread while it was runnable, with their parts of its WAIT%. Tasks with about
    /// the same part keep their order.
    pub fn delays(&self, thread: &ThreadModel, interval_s: Option<f64>) -> String {
        let Some(interval_s) = interval_s else { return String::new() };
        let mut delays: Vec<_> = thread.delays(interval_s).filter(|(_, percent)| *percent >= MIN_DELAY).collect();
        delays.truncate(MAX_DELAYS);
        delays.sort_by_key(|(task, percent)| (Reverse(step(*percent)), task.tid));
        let named = delays.into_iter().map(|(task, percent)| match task.tid {
            // A quota stopped the thread, or it moved to another CPU.
            0 => format!("idle CPU {}", share(percent)),
            _ => format!("{} {}", self.name(task), share(percent)),
        });
        named.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::{busy, model};
    use judge::model::CpuShare;

    #[test]
    fn a_thread_of_a_guest_is_named_with_it() {
        let state = busy(80, 24);
        let guest = &model(&state).domains[0];
        let vcpu = guest.vcpus().next().unwrap();
        let task = |tid| OtherTask { tid, comm: "CPU 0/KVM".into(), count: 1, ns: 0 };
        let names = TaskNames::of(&state);
        assert_eq!(names.name(&task(vcpu.tid)), format!("{}/{}", guest.name(), vcpu.index.unwrap()));
        assert_eq!(names.name(&task(0)), "interrupt");
        assert_eq!(names.name(&task(2_000_000_000)), "CPU 0/KVM");
    }

    #[test]
    fn delays_have_their_parts_of_the_wait_and_a_steady_order() {
        let state = busy(80, 24);
        let names = TaskNames::of(&state);
        let task = |tid, comm: &str, ms: u64| OtherTask { tid, comm: comm.into(), count: 1, ns: ms * 1_000_000 };
        let delays = |preempted_by| {
            let cpu = Some(CpuShare { ran: Some(60.0), wait: Some(40.0), ..CpuShare::default() });
            names.delays(&ThreadModel { cpu, preempted_by, ..ThreadModel::default() }, Some(1.0))
        };
        let (ksmd, idle) = (task(8, "ksmd", 101), task(0, "swapper", 300));
        let before = delays(vec![idle.clone(), task(9, "rustc", 102), ksmd.clone(), task(7, "sshd", 1)]);
        assert_eq!(before, "idle CPU 24, ksmd 8, rustc 8");
        let names_of = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        assert_eq!(names_of(&delays(vec![idle, ksmd, task(9, "rustc", 100)])), names_of(&before));
        assert_eq!(delays(Vec::new()), "");
    }
}
