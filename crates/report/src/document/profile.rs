//! What the host threads of a guest did.
//! `objects!` ([`super`]) makes a struct, and a `new` that fills each field by its expression.

use super::SCHEMA;
use crate::json::TOOL;
use crate::profile::ProfileView;
use judge::figures;
use kvm::thread_name::Role;
use sample::{Function, ProfiledThread, StackCount, StackProfile};
use std::collections::HashMap;

objects! {
    /// What the host threads of a guest did (`profile --json`), from samples of their stacks.
    #[schemars(rename = "profile")]
    pub struct JsonProfile(view: ProfileView<'_>, times: &[(&Function, u64)]) {
        /// Version of this format.
        #[schemars(extend("const" = 1))]
        schema: u32 = SCHEMA,
        /// `kvmtop` and its version.
        tool: &'static str = TOOL,
        /// Begin of the sampling: RFC 3339, UTC, with milliseconds. `null`: the clock gave no such
        /// time.
        #[schemars(extend("format" = "date-time"))]
        time: Option<String> = figures::utc(view.profile.began_ms),
        /// Name of the guest.
        guest: String = view.guest.to_owned(),
        /// Its process. `null`: not known.
        pid: Option<i32> = view.pid,
        /// How long was sampled; 0 where that was refused, as `gaps` says.
        duration_s: f64 = view.profile.duration_ns as f64 / 1e9,
        /// Samples for each second of CPU time that a thread uses.
        frequency_hz: u32 = view.profile.frequency_hz,
        /// Samples in `stacks`.
        samples: u64 = view.profile.samples_of(None),
        /// Samples that were taken and are in no stack.
        lost_samples: u64 = view.profile.lost,
        /// CPU time that kvmtop used for it.
        cost_s: f64 = view.profile.cost_ns as f64 / 1e9,
        /// What is not shown and why, such as the names of the kernel's functions.
        gaps: Vec<String> = view.profile.gaps.clone(),
        /// The sampled threads, in order of `tid`.
        threads: Vec<JsonProfiledThread> =
            view.profile.threads.iter().map(|t| JsonProfiledThread::new(t, view.profile)).collect(),
        /// The functions, sorted by `own_samples`, largest first.
        functions: Vec<JsonFunction> =
            times.iter().map(|(function, own)| JsonFunction::new(function, *own)).collect(),
        /// The different stacks, most frequent first.
        stacks: Vec<JsonStack> = stacks(view.profile, times),
    }

    /// A sampled thread.
    pub struct JsonProfiledThread(thread: &ProfiledThread, profile: &StackProfile) {
        /// Thread id.
        tid: i32 = thread.tid,
        /// Name of the thread.
        comm: String = thread.comm.clone(),
        /// As in `thread`.
        role: &'static str = thread.role.as_str(),
        /// Number of the vCPU. `null`: another thread.
        vcpu: Option<u32> = thread.index.filter(|_| thread.role == Role::Vcpu),
        /// CPU time meanwhile, percent of one host CPU, time in the guest included. `null`: could
        /// not be read.
        cpu_percent: Option<f64> = profile.cpu_percent(thread),
        /// Its samples; 0 for a thread that did not run.
        samples: u64 = profile.samples_of(Some(thread.tid)),
    }

    /// A function, or what stands for one.
    pub struct JsonFunction(function: &Function, own: u64) {
        /// Its name; `+0x1234`, the offset in its file, where no symbol covers it; `[guest]` for
        /// all code of the guest.
        name: String = function.name.clone(),
        /// The file that it is in, without the path; `kernel` for the kernel and its modules.
        module: String = function.module.clone(),
        /// Whose code it is: the VMM's, the host kernel's, the guest's; `unknown` stands for
        /// callers that could not be found.
        #[schemars(extend("enum" = ["user", "kernel", "guest", "unknown"]))]
        space: &'static str = function.space.as_str(),
        /// Samples in which it ran itself.
        own_samples: u64 = own,
    }

    /// A stack and how often it was seen.
    pub struct JsonStack(stack: &StackCount, numbers: Vec<usize>) {
        /// The thread.
        tid: i32 = stack.tid,
        /// How often.
        samples: u64 = stack.samples,
        /// Positions in `functions`, counted from 0, the outermost caller first.
        functions: Vec<usize> = numbers,
    }
}

fn stacks(profile: &StackProfile, times: &[(&Function, u64)]) -> Vec<JsonStack> {
    let numbers: HashMap<&Function, usize> = times
        .iter()
        .enumerate()
        .map(|(i, (function, _))| (*function, i))
        .collect();
    let mut stacks = Vec::new();
    for stack in &profile.stacks {
        let functions = profile.named(stack);
        let numbered = functions.filter_map(|f| numbers.get(f).copied()).collect();
        stacks.push(JsonStack::new(stack, numbered));
    }
    stacks
}
