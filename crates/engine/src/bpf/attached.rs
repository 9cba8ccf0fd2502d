//! Programs that hang on tracepoints.

use super::object::Object;
use super::refusal::{Refusal, Stage};
use super::sys;
use std::os::fd::{AsFd, OwnedFd};

/// Attached programs. Dropping this removes them from the kernel.
#[derive(Debug, Default)]
pub(super) struct Attached {
    programs: Vec<AttachedProgram>,
}

#[derive(Debug)]
struct AttachedProgram {
    event: &'static str,
    program: OwnedFd,
    /// Closing it removes the program.
    _link: OwnedFd,
}

impl Attached {
    /// Attaches to a raw tracepoint the first of these programs that the kernel takes. The kernel
    /// refuses a program that reads more arguments than the tracepoint has.
    pub fn attach_raw(
        &mut self,
        object: &Object,
        event: &'static str,
        programs: &[&str],
    ) -> Result<(), Refusal> {
        let mut refused = Err(Refusal::broken(&"no program"));
        for name in programs {
            let program = object.load(name)?;
            match sys::attach_raw(program.as_fd(), event) {
                Ok(link) => {
                    self.programs.push(AttachedProgram {
                        event,
                        program,
                        _link: link,
                    });
                    return Ok(());
                }
                Err(e) => {
                    let has_fewer_arguments = e.raw_os_error() == Some(libc::EINVAL);
                    refused = Err(Refusal::new(Stage::Attach, event, e));
                    if !has_fewer_arguments {
                        break;
                    }
                }
            }
        }
        refused
    }

    /// Attaches a program to a classic tracepoint, by its number.
    pub fn attach_classic(
        &mut self,
        event: &'static str,
        program: OwnedFd,
        id: u64,
    ) -> Result<(), Refusal> {
        let link = sys::attach_tracepoint(program.as_fd(), id)
            .map_err(|e| Refusal::new(Stage::Attach, event, e))?;
        self.programs.push(AttachedProgram {
            event,
            program,
            _link: link,
        });
        Ok(())
    }

    /// Whether a program is attached to this tracepoint.
    pub fn has(&self, event: &str) -> bool {
        self.programs.iter().any(|attached| attached.event == event)
    }

    /// The events of this group (`kvm_`, `block_`) for which a program did not run. Scheduler
    /// events can nest, and most that are missed concern threads that run no guest.
    pub fn missed(&self, group: &str) -> u64 {
        self.programs
            .iter()
            .filter(|attached| attached.event.starts_with(group))
            .filter_map(|attached| sys::missed(attached.program.as_fd()))
            .sum()
    }
}
