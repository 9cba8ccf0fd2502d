//! Names of tasks that woke a vCPU or took its CPU: a thread of a guest is named with its guest.

use crate::ui::cells::thread_of_guest;
use crate::ui::state::AppState;
use crate::ui::text::clean;
use judge::model::{DomainModel, ThreadModel};
use sample::OtherTask;
use std::collections::HashMap;

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::{busy, model};

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
}
