//! A profile of stacks.

use kvm::thread_name::Role;
use sample::{CodeSpace, Function, ProfiledThread, StackCount, StackProfile};

/// An emulator thread that polls, and a vCPU that runs its guest.
pub fn profile() -> StackProfile {
    let user = |name: &str| Function {
        name: name.into(),
        module: "qemu-system-x86_64".into(),
        space: CodeSpace::User,
    };
    let kernel = |name: &str| Function {
        name: name.into(),
        module: "kernel".into(),
        space: CodeSpace::Kernel,
    };
    let guest = Function {
        name: "[guest]".into(),
        module: String::new(),
        space: CodeSpace::Guest,
    };
    let thread = |tid, comm: &str, role, index| ProfiledThread {
        tid,
        comm: comm.into(),
        role,
        index,
        cpu_ns: Some(if role == Role::Vcpu {
            500_000_000
        } else {
            1_500_000_000
        }),
    };
    let stack = |tid, functions: &[u32], samples| StackCount {
        tid,
        functions: functions.to_vec(),
        samples,
    };
    StackProfile {
        began_ms: 1_790_000_000_000,
        duration_ns: 2_000_000_000,
        frequency_hz: 199,
        lost: 0,
        cost_ns: 8_000_000,
        gaps: Vec::new(),
        threads: vec![
            thread(100, "qemu-system-x86", Role::Emulator, None),
            thread(101, "CPU 0/KVM", Role::Vcpu, Some(0)),
        ],
        functions: vec![
            user("main"),
            user("main_loop_wait"),
            kernel("ppoll"),
            user("rtc_update_timer"),
            user("vcpu_thread"),
            guest,
            user("walk"),
        ],
        stacks: vec![
            stack(100, &[0, 1, 2], 180),
            stack(100, &[0, 1, 3], 90),
            stack(101, &[4, 5], 80),
            stack(100, &[0, 1], 20),
            stack(100, &[0, 6, 6, 6], 10),
        ],
    }
}
