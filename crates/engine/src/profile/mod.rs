//! Samples the stacks of a guest's host threads: what the VMM and the kernel do while they use CPU
//! time.
//!
//! A software clock (`PERF_COUNT_SW_CPU_CLOCK`) interrupts each thread at regular amounts of its
//! CPU time. The kernel then records its callers in the kernel, the registers and the top of the
//! user stack. A thread that does not run is not interrupted.

mod modules;
mod record;
mod symbols;
mod threads;
mod unwind;

use crate::clock_ns;
use crate::events::EngineError;
use modules::Module;
use record::SampledStack;
use rustix::time::ClockId;
use sample::{CodeSpace, Function, ProfiledThread, StackCount, StackProfile};
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use symbols::Symbols;
use threads::SampledThread;
use unwind::StackUnwinder;

/// Samples a second of CPU time: not a divisor of the frequencies at which timers tick, which would
/// be seen too often or never.
pub const FREQUENCY_HZ: u32 = 199;
/// How often the rings are emptied.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);
/// The most different stacks that are kept; more are counted as lost.
const MAX_STACKS: usize = 50_000;
/// The most threads that are sampled: each takes a ring of 128 KiB and a file.
const MAX_THREADS: usize = 512;

/// One entry of a sampled stack: the address of a function, or what stands for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum StackEntry {
    User(u64),
    Kernel(u64),
    Guest,
    /// Callers that could not be found.
    Cut,
}

/// Samples threads of a process for a while, or until `stop` says so.
///
/// # Errors
/// When none of the threads may be sampled: why, and what to do.
pub fn sample(
    pid: i32,
    wanted: &[ProfiledThread],
    duration: Duration,
    stop: impl Fn() -> bool,
) -> Result<StackProfile, EngineError> {
    let cost_before = clock_ns(ClockId::ThreadCPUTime);
    let mut gaps = Vec::new();
    let (mut modules, unreadable) = match modules::of_process(pid) {
        Ok(modules) => (modules, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let mut unwinder = StackUnwinder::new(&mut modules);
    let sampled = &wanted[..wanted.len().min(MAX_THREADS)];
    let mut threads = threads::open(sampled, &mut gaps)?;
    gaps.extend(unreadable);
    if wanted.len() > MAX_THREADS {
        gaps.push(format!(
            "{MAX_THREADS} of {} threads were sampled",
            wanted.len()
        ));
    }
    let began_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64);
    let mut counted = CountedStacks::default();
    let took = counted.sample(&mut threads, duration, stop, &mut unwinder, &modules);
    let symbols = Symbols::new();
    if symbols.kernel.is_none() {
        gaps.push(
            "functions of the kernel have no names: CAP_SYSLOG is missing (kernel.kptr_restrict)"
                .into(),
        );
    }
    let lost = counted.lost + threads.iter().map(|sampled| sampled.lost).sum::<u64>();
    let named = counted.named(&symbols, &modules);
    let mut threads: Vec<_> = threads.into_iter().map(|sampled| sampled.thread).collect();
    threads.sort_unstable_by_key(|thread| thread.tid);
    let cost_ns = clock_ns(ClockId::ThreadCPUTime).saturating_sub(cost_before);
    Ok(StackProfile {
        began_ms,
        duration_ns: took.as_nanos() as u64,
        frequency_hz: FREQUENCY_HZ,
        lost,
        cost_ns,
        gaps,
        threads,
        ..named
    })
}

/// The module that an address of code is in. `modules` are in order of address.
fn module_of(modules: &[Module], address: u64) -> Option<&Module> {
    let starting_before = modules.partition_point(|module| module.addresses.start <= address);
    modules[..starting_before]
        .last()
        .filter(|module| module.addresses.contains(&address))
}

/// How often each stack was seen.
#[derive(Default)]
struct CountedStacks {
    /// By thread id and stack.
    stacks: HashMap<(i32, Vec<StackEntry>), u64>,
    /// Samples whose stack found no room.
    lost: u64,
}

impl CountedStacks {
    /// Counts the samples of a while; returns how long it was.
    fn sample(
        &mut self,
        threads: &mut [SampledThread],
        duration: Duration,
        stop: impl Fn() -> bool,
        unwinder: &mut StackUnwinder,
        modules: &[Module],
    ) -> Duration {
        let began = Instant::now();
        threads.iter_mut().for_each(SampledThread::enable);
        while began.elapsed() < duration && !stop() {
            std::thread::sleep(DRAIN_INTERVAL.min(duration.saturating_sub(began.elapsed())));
            self.drain(threads, unwinder, modules);
        }
        threads.iter_mut().for_each(SampledThread::disable);
        let took = began.elapsed();
        self.drain(threads, unwinder, modules);
        took
    }

    /// Takes all samples out of the rings.
    fn drain(
        &mut self,
        threads: &mut [SampledThread],
        unwinder: &mut StackUnwinder,
        modules: &[Module],
    ) {
        for sampled in threads {
            let tid = sampled.thread.tid;
            sampled.drain(|stack| self.add(tid, entries(stack, unwinder, modules)));
        }
    }

    fn add(&mut self, tid: i32, entries: Vec<StackEntry>) {
        let stack = (tid, entries);
        if let Some(count) = self.stacks.get_mut(&stack) {
            *count += 1;
        } else if self.stacks.len() < MAX_STACKS {
            self.stacks.insert(stack, 1);
        } else {
            self.lost += 1;
        }
    }

    /// The same stacks with functions in place of addresses. Stacks that only differ in the
    /// addresses within functions are then equal, and count as one. Of the profile nothing else is
    /// filled in.
    fn named(self, symbols: &Symbols, modules: &[Module]) -> StackProfile {
        let mut numbers = FunctionNumbers {
            symbols,
            modules,
            by_entry: HashMap::new(),
            by_function: HashMap::new(),
        };
        let mut merged: HashMap<(i32, Vec<u32>), u64> = HashMap::new();
        for ((tid, entries), count) in self.stacks {
            let functions = entries
                .into_iter()
                .map(|entry| numbers.number(entry))
                .collect();
            *merged.entry((tid, functions)).or_default() += count;
        }
        let mut stacks = Vec::with_capacity(merged.len());
        for ((tid, functions), samples) in merged {
            stacks.push(StackCount {
                tid,
                functions,
                samples,
            });
        }
        stacks.sort_unstable_by(|a, b| {
            b.samples
                .cmp(&a.samples)
                .then_with(|| (a.tid, &a.functions).cmp(&(b.tid, &b.functions)))
        });
        let mut functions: Vec<_> = numbers.by_function.into_iter().collect();
        functions.sort_unstable_by_key(|(_, number)| *number);
        StackProfile {
            functions: functions
                .into_iter()
                .map(|(function, _)| function)
                .collect(),
            stacks,
            ..StackProfile::default()
        }
    }
}

/// Numbers functions in the order in which they are found.
struct FunctionNumbers<'a> {
    symbols: &'a Symbols,
    modules: &'a [Module],
    by_entry: HashMap<StackEntry, u32>,
    by_function: HashMap<Function, u32>,
}

impl FunctionNumbers<'_> {
    fn number(&mut self, entry: StackEntry) -> u32 {
        if let Some(number) = self.by_entry.get(&entry) {
            return *number;
        }
        let function = match entry {
            StackEntry::User(address) => self.symbols.user(self.modules, address),
            StackEntry::Kernel(address) => self.symbols.kernel(address),
            StackEntry::Guest => placeholder("[guest]", CodeSpace::Guest),
            StackEntry::Cut => placeholder("[unknown callers]", CodeSpace::Unknown),
        };
        let next = self.by_function.len() as u32;
        let number = *self.by_function.entry(function).or_insert(next);
        self.by_entry.insert(entry, number);
        number
    }
}

fn placeholder(name: &str, space: CodeSpace) -> Function {
    Function {
        name: name.into(),
        module: String::new(),
        space,
    }
}

/// The whole stack of a sample, the outermost caller first.
fn entries(
    sampled: &SampledStack<'_>,
    unwinder: &mut StackUnwinder,
    modules: &[Module],
) -> Vec<StackEntry> {
    let mut entries = Vec::new();
    if sampled.in_guest {
        entries.push(StackEntry::Guest);
    }
    entries.extend(sampled.kernel.iter().copied().map(StackEntry::Kernel));
    // Like the kernel, the unwinder lists the innermost function first.
    if let Some(registers) = sampled.registers {
        let user = unwinder.unwind(registers, sampled.stack, modules);
        entries.extend(user.addresses.into_iter().map(StackEntry::User));
        if user.is_cut {
            entries.push(StackEntry::Cut);
        }
    }
    entries.reverse();
    entries
}
