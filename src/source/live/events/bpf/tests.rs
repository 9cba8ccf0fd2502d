//! Against the running kernel, where it lets us.

use super::object::{self, Choices, Object};
use super::running::kvm_exit_format;
use super::*;
use crate::kvm::format::EventFormat;

#[test]
fn the_verifier_takes_every_program() {
    let events: Vec<EventFormat> = kvm_exit_format().into_iter().collect();
    let object = Object::prepare(object::main_object().unwrap(), &events, &Choices::default()).unwrap();
    let mut programs: Vec<&str> = parts::PARTS.iter().map(|p| p.program).collect();
    programs.extend(["sched_switch_old"]);
    for name in programs {
        let t = std::time::Instant::now();
        match object.load(name) {
            Ok(fd) => {
                use std::os::fd::AsRawFd;
                let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
                let v = info.lines().find(|l| l.starts_with("verified_insns")).unwrap_or_default().to_string();
                eprintln!("{name} {:?} {v}", t.elapsed());
            }
            Err(refusal) => {
                let lines: Vec<&str> = refusal.log.lines().collect();
                panic!("{name}: {}\n{}", refusal.error, lines[lines.len().saturating_sub(60)..].join("\n"));
            }
        }
    }
}

#[test]
fn loads_here() {
    let engine = BpfEngine::new(HostTopology::default(), 1);
    eprintln!("{:?}", engine.as_ref().map(|e| e.gaps()));
    assert!(engine.is_ok());
}
