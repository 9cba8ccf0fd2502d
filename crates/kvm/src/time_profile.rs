//! Profiles that `perf top` and `perf report` print: the share of each function in the CPU time of a host, or of each
//! text of a tracepoint in its events.

use super::pattern::{Pattern, group, number};
use super::sanitize;
use std::collections::BTreeMap;

/// Lines of a text that are read.
const MAX_LINES: usize = 20_000;
/// Rows that are kept of a profile.
pub const MAX_ROWS: usize = 64;
/// Events by which a profile is one of CPU time; perf's default is the first that the CPU has.
const CPU_EVENTS: [&str; 5] = ["cycles", "cpu-cycles", "cpu-clock", "task-clock", "instructions"];
/// The events of a profile by exits, from the guest and from KVM to the VMM.
const EXIT_EVENT: &str = "kvm:kvm_exit";
const USERSPACE_EVENT: &str = "kvm:kvm_userspace_exit";

/// The text of an exit: `vcpu 1 reason EPT_VIOLATION rip 0x…`, `reason KVM_EXIT_IO (2)`.
static REASON: Pattern = Pattern::new("^ *(?:vcpu [0-9]+,? )?reason [A-Z][A-Z0-9_]+(?: |$)");

/// A caller in a call graph, alone or the one of most calls: `|--95.47%-- isolate_migratepages_range`.
static CALLER: Pattern = Pattern::new(r"^[ |]*(?:--[0-9.]+%--)? *(?P<name>[A-Za-z_][A-Za-z0-9_.]*) *$");

/// A profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimeProfile {
    /// The event that was sampled, where the text says it.
    pub event: Option<String>,
    /// How many samples it has, where the text says it.
    pub samples: Option<u64>,
    /// How many further profiles the text has.
    pub others: usize,
    /// Its rows, the largest first.
    pub rows: Vec<ProfileRow>,
}

/// A function, or the text of a tracepoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfileRow {
    /// Its own share of the profile, without the functions that it calls, percent.
    pub percent: f64,
    /// Its share with the functions that it calls, where there is such a column (`Children`), percent.
    pub with_calls: Option<f64>,
    /// The task, where there is a column of tasks.
    pub task: Option<String>,
    /// The file that the function is in: `[kernel]`, `[kvm]`, `qemu-system-x86_64`.
    pub object: Option<String>,
    /// The function, or the text.
    pub name: String,
    /// Of a function that waits for a lock, the function that called it most, where a call graph shows it.
    pub caller: Option<String>,
}

impl ProfileRow {
    /// The reason, in a profile by exits: `reason EPT_VIOLATION rip 0xfffff800f7081037 info d82 0`.
    pub fn exit_reason(&self) -> Option<&str> {
        self.name.split_once("reason ")?.1.split_whitespace().next()
    }

    /// The instruction at which the guest was left, and what the hardware says of the exit.
    pub fn exit_place(&self) -> Option<&str> {
        Some(self.name.split_once(" rip ")?.1)
    }

    /// Whether it ran inside a guest (`perf kvm --guest`).
    pub fn is_of_guest(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.starts_with("[guest"))
    }

    /// Whether a host ran it for its guests: KVM's functions, and a VMM's threads.
    fn is_of_host(&self) -> bool {
        let is_in = |text: &Option<String>, words: &[&str]| {
            text.as_ref().is_some_and(|text| words.iter().any(|word| text.contains(word)))
        };
        let functions = ["vmx_", "svm_", "kvm_vcpu_", "kvm_mmu_", "kvm_arch_vcpu_", "kvm_vm_ioctl"];
        is_in(&self.object, &["[kvm]", "[kvm_", "kvm.ko", "qemu"])
            || is_in(&self.task, &["qemu", "/KVM"])
            || functions.iter().any(|begin| self.name.starts_with(begin))
    }
}

impl TimeProfile {
    /// Whether it is a profile by exits.
    pub fn is_of_exits(&self) -> bool {
        self.event.as_deref() == Some(EXIT_EVENT)
    }

    /// Whether it counts the texts of a tracepoint of KVM.
    fn is_of_texts(&self) -> bool {
        self.event.as_ref().is_some_and(|event| event.starts_with("kvm:"))
    }

    /// Whether it shows where a host of guests spends CPU time; `perf top` inside a guest shows where the guest does.
    pub fn is_of_host_time(&self) -> bool {
        let is_time = |event: &String| {
            let words = event.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            CPU_EVENTS.contains(&words.split(':').next().unwrap_or_default())
        };
        self.event.as_ref().is_none_or(is_time) && self.rows.iter().any(ProfileRow::is_of_host)
    }
}

/// A function in a call graph of `perf report`'s screen, with its share: `- 22.06% kvm_vcpu_halt`, one without callees
/// `  3.91% fput`. The only callee of a function is `- schedule`: it has its caller's share.
static BRANCH: Pattern = Pattern::new(concat!(
    r"^(?P<before> *(?P<sign>[-+] +)?)(?:(?P<percent>[0-9]{1,3}\.[0-9]+)% +)?",
    r"(?P<name>[A-Za-z_][A-Za-z0-9_.]*|0x[0-9a-f]+|\[[a-z.]+\])[ ▒◆█▮]*$",
));
/// Functions below each other by which a call graph without any row is one.
const MIN_DEPTH: usize = 3;

/// A function of a call graph whose callees may follow.
struct OpenCall {
    name: String,
    /// Where its name begins: callees begin to the right.
    column: usize,
    /// Its share with its callees, percent, and the part of it in callees that are shown.
    share: f64,
    in_callees: f64,
    /// Whether the line shows that it has no callees, by the missing sign.
    is_leaf: bool,
}

/// A call graph from callers to callees.
#[derive(Default)]
struct CallGraph {
    /// The largest share that it can have.
    limit: f64,
    /// Whether a function has more than its caller: each share is then a part of the caller's share.
    is_relative: bool,
    /// The callers of the next line, the outermost first.
    open: Vec<OpenCall>,
    deepest: usize,
    /// Each function once, with its own share and that with callees.
    functions: BTreeMap<String, ProfileRow>,
}

impl CallGraph {
    /// Reads a line, if it is one of a call graph.
    fn line(&mut self, line: &str) -> bool {
        let Some(found) = BRANCH.captures(line) else { return false };
        let (Some(before), Some(name)) = (group(&found, "before"), group(&found, "name")) else { return false };
        let column = before.len();
        self.close(column);
        let caller = self.open.last().map(|caller| caller.share);
        let Some(share) = number(&found, "percent").or(caller) else { return false };
        self.is_relative |= share > caller.unwrap_or(self.limit);
        if let Some(caller) = self.open.last_mut() {
            caller.in_callees += share;
        }
        let (name, is_leaf) = (sanitize(name, 120), group(&found, "sign").is_none());
        self.open.push(OpenCall { name, column, share, in_callees: 0.0, is_leaf });
        self.deepest = self.deepest.max(self.open.len());
        true
    }

    /// Closes the functions that begin at this column or to the right.
    fn close(&mut self, column: usize) {
        while let Some(call) = self.open.pop_if(|call| call.column >= column) {
            let is_recursion = self.open.iter().any(|caller| caller.name == call.name);
            let row = self.functions.entry(call.name.clone()).or_default();
            row.name = call.name;
            // What a closed branch calls is not shown.
            if call.is_leaf || call.in_callees > 0.0 {
                row.percent += (call.share - call.in_callees).max(0.0);
            }
            let share = if is_recursion { 0.0 } else { call.share };
            row.with_calls = Some((row.with_calls.unwrap_or(0.0) + share).min(100.0));
        }
    }

    /// The functions as rows, the largest first.
    fn into_rows(mut self) -> Vec<ProfileRow> {
        self.close(0);
        let mut rows: Vec<_> = self.functions.into_values().filter(|_| !self.is_relative).collect();
        rows.sort_by(|a, b| b.with_calls.unwrap_or(0.0).total_cmp(&a.with_calls.unwrap_or(0.0)));
        rows
    }
}

/// Reads the profile of a text: `   9.14%  [kernel]  [k] vmx_vmexit`, under a heading with `Overhead` or `Children`
/// (tools/perf/ui/hist.c in the kernel's sources), also without it. Within a profile shares fall: a larger one begins
/// the next. Of several, one of a host's time comes first, then one of exits, then the one of most samples, then the
/// longest: an excerpt often comes before the whole.
pub fn parse(text: &str) -> Option<TimeProfile> {
    let (mut all, mut of_tasks, mut is_sure) = (vec![TimeProfile::default()], false, false);
    let (mut before, mut graph) = ("", CallGraph::default());
    // Functions of call graphs, with the place of their profile.
    let mut of_graphs: Vec<(usize, ProfileRow)> = Vec::new();
    for line in text.lines().take(MAX_LINES) {
        // Below a function with one share, a call graph goes from callees to callers.
        let of_texts = all.last().is_some_and(TimeProfile::is_of_texts);
        let goes_down = |row: &ProfileRow| row.with_calls.is_some() || row.exit_reason().is_some() || of_texts;
        let above = all.last().and_then(|profile| profile.rows.last());
        if graph.open.is_empty() {
            graph.limit = above.and_then(|row| row.with_calls).unwrap_or(100.0);
        }
        if above.is_none_or(goes_down) && !of_tasks && graph.line(line) {
            continue;
        }
        is_sure |= graph.deepest >= MIN_DEPTH;
        take(&mut all, std::mem::take(&mut graph), &mut of_graphs);
        let called = std::mem::replace(&mut before, line).trim_start_matches([' ', '\t', '|']);
        let lock = called.strip_prefix("---").map(str::trim).filter(|name| name.contains("_lock"));
        if let Some(row) = all.last_mut().and_then(|profile| profile.rows.last_mut())
            && lock == Some(&row.name)
        {
            let caller = CALLER.captures(line);
            row.caller = caller.and_then(|caller| Some(sanitize(group(&caller, "name")?, 80)));
            // An empty branch comes before the first caller.
            before = if row.caller.is_none() && line.trim().trim_matches('|').is_empty() { called } else { line };
        }
        let line = line.trim_start_matches(['#', '-', '+', ' ', '\t']);
        let event = line.split_once(" of event '");
        let event = event.and_then(|(count, rest)| Some((rest.split_once('\'')?.0, samples(count))));
        let heading = heading(line);
        let row = row(line, of_tasks, of_texts);
        let last = all.last().filter(|last| !last.rows.is_empty());
        let falls =
            |row: &ProfileRow| last.and_then(|last| last.rows.last()).is_none_or(|last| last.percent >= row.percent);
        let begins = row.as_ref().is_some_and(|(row, has_children)| !has_children && !falls(row));
        is_sure |= event.is_some() || heading.is_some() || row.as_ref().is_some_and(|row| row.1 || last.is_some());
        if last.is_some() && (event.is_some() || heading.is_some() || begins) && all.len() < MAX_ROWS {
            all.push(TimeProfile::default());
        }
        let Some(profile) = all.last_mut() else { continue };
        of_tasks = heading.unwrap_or(of_tasks);
        if let Some((event, samples)) = event {
            (profile.event, profile.samples) = (Some(sanitize(event, 60)), samples);
        } else if let Some((row, _)) = row.filter(|_| heading.is_none() && profile.rows.len() < MAX_ROWS) {
            let event = |reason: &str| if reason.starts_with("KVM_EXIT_") { USERSPACE_EVENT } else { EXIT_EVENT };
            profile.event = profile.event.take().or(row.exit_reason().map(|reason| event(reason).to_owned()));
            profile.rows.push(row);
        }
    }
    is_sure |= graph.deepest >= MIN_DEPTH;
    take(&mut all, graph, &mut of_graphs);
    for (at, row) in of_graphs {
        if let Some(profile) = all.get_mut(at)
            && profile.rows.len() < MAX_ROWS
            && !profile.rows.iter().any(|known| known.name == row.name)
        {
            profile.rows.push(row);
        }
    }
    let rank = |profile: &TimeProfile| {
        let of_exits = matches!(profile.event.as_deref(), Some(EXIT_EVENT | USERSPACE_EVENT));
        (profile.is_of_host_time(), of_exits, profile.samples, profile.rows.len(), profile.event.is_some())
    };
    all.retain(|profile| is_sure && !profile.rows.is_empty());
    let others = all.len().saturating_sub(1);
    let mut best = all.into_iter().rev().max_by_key(rank)?;
    best.others = others;
    best.rows.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    Some(best)
}

/// Keeps the functions of a call graph for their profile: those that have a row count by that. A profile of exits has
/// none.
fn take(all: &mut Vec<TimeProfile>, graph: CallGraph, of_graphs: &mut Vec<(usize, ProfileRow)>) {
    if graph.deepest == 0 || of_graphs.len() >= MAX_ROWS * MAX_ROWS {
        return;
    }
    let of_exits = |profile: &TimeProfile| profile.rows.iter().any(|row| row.exit_reason().is_some());
    if all.len() < MAX_ROWS && all.last().is_some_and(of_exits) {
        all.push(TimeProfile::default());
    }
    of_graphs.extend(graph.into_rows().into_iter().take(MAX_ROWS).map(|row| (all.len() - 1, row)));
}

/// The number of `# Samples: 55K`.
fn samples(text: &str) -> Option<u64> {
    let count = text.split_once("Samples:")?.1.trim();
    let digits = count.trim_end_matches(['K', 'M']);
    let factor = if count.ends_with('M') {
        1_000_000
    } else if count.ends_with('K') {
        1_000
    } else {
        1
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Whether a heading announces tasks alone, without functions; `None` for other lines.
fn heading(line: &str) -> Option<bool> {
    let has_functions = line.contains("Symbol") || line.contains("Trace output");
    let begins = line.starts_with("Overhead") || line.starts_with("Children");
    (begins && (has_functions || line.contains("Command"))).then_some(!has_functions)
}

/// A row, and whether it has two shares: with and without the functions that it calls. `of_texts`: whether the profile
/// counts the texts of a tracepoint.
fn row(line: &str, of_tasks: bool, of_texts: bool) -> Option<(ProfileRow, bool)> {
    let text = |text: &str| Some(sanitize(text.trim(), 80)).filter(|text| !text.is_empty());
    // Some languages write 14,40%.
    let number = |share: &str| share.trim().replace(',', ".").parse::<f64>().ok();
    let (share, rest) = line.split_once('%')?;
    let all = number(share)?;
    let second = rest.split_once('%').and_then(|(own, rest)| Some((number(own)?, rest)));
    let with_calls = second.map(|_| all).filter(|all| (0.0..=100.0).contains(all));
    let (percent, rest) = second.unwrap_or((all, rest));
    if !(0.0..=100.0).contains(&percent) || !rest.starts_with(char::is_whitespace) {
        return None;
    }
    let symbol = ["[k] ", "[.] ", "[g] ", "[u] ", "[H] "].iter().find_map(|mark| rest.split_once(mark));
    let (task, object, name) = match symbol {
        Some((before, symbol)) => {
            let (task, object) = before.trim().rsplit_once(char::is_whitespace).unwrap_or(("", before));
            let mut words = symbol.split_whitespace();
            let name = words.next()?;
            // `perf report --sort symbol,dso` has the file after the function.
            (text(task), text(object).or_else(|| text(words.next().filter(|word| word.starts_with('['))?)), name)
        }
        None if REASON.is_match(rest) => (None, None, rest.trim()),
        None if of_tasks => (text(rest), None, "-"),
        None if of_texts && share.contains('.') => (None, None, rest.trim()),
        None => return None,
    };
    Some((ProfileRow { percent, with_calls, task, object, name: sanitize(name, 120), caller: None }, second.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERF: &str = "Samples: 88K of event 'cycles', Event count (approx.): 32113472810\n\
        Overhead  Shared Object        Symbol\n   9.14%  [kernel]             [k] vmx_vmexit\n\
        \x20  6.91%  qemu-system-x86_64   [.] address_space_read\n";

    fn rows(text: &str) -> Vec<(f64, String)> {
        parse(text).unwrap().rows.into_iter().map(|row| (row.percent, row.name)).collect()
    }

    #[test]
    fn a_share_may_have_a_decimal_comma() {
        let text = "Overhead  Command  Shared Object  Symbol\n  14,40%  vhost-3904  [kernel]  [k] tun_do_read\n";
        assert_eq!(rows(text), [(14.4, "tun_do_read".to_owned())]);
    }

    #[test]
    fn functions_with_their_shares_and_objects() {
        let profile = parse(PERF).unwrap();
        assert_eq!(profile.event.as_deref(), Some("cycles"));
        assert!(profile.is_of_host_time() && !profile.is_of_exits());
        let second = ProfileRow {
            percent: 6.91,
            with_calls: None,
            task: None,
            object: Some("qemu-system-x86_64".into()),
            name: "address_space_read".into(),
            caller: None,
        };
        assert_eq!((profile.rows.len(), &profile.rows[1]), (2, &second));
    }

    #[test]
    fn of_two_shares_a_functions_own_one_counts() {
        let tree = "-   97.34%     0.50%  CPU 0/KVM        cloud-hypervisor    [.] start\n   - 97.32% __GI___ioctl\n\
            +   97.32%    60.00%  CPU 0/KVM  [kvm_intel]  [k] vmx_vcpu_run\n";
        let own: Vec<_> = [(60.0, "vmx_vcpu_run"), (0.5, "start"), (0.0, "__GI___ioctl")].into();
        assert_eq!(rows(tree), own.into_iter().map(|(own, name)| (own, name.to_owned())).collect::<Vec<_>>());
        let profile = parse(tree).unwrap();
        assert_eq!(profile.rows[0].task.as_deref(), Some("CPU 0/KVM"));
        assert_eq!(profile.rows[0].with_calls, Some(97.32));
    }

    #[test]
    fn functions_of_a_call_graph_have_shares_with_and_without_callees() {
        let graph = concat!(
            "  - 30.00% kvm_vcpu_ioctl\n",
            "     - kvm_arch_vcpu_ioctl_run\n",
            "        - 22.00% kvm_vcpu_halt\n",
            "           - 12.00% kvm_vcpu_check_block\n",
            "                7.00% ktime_get\n",
            "             3.00% ktime_get\n",
            "        + 4.00% vmx_vcpu_run   ▒\n",
        );
        let of = |text: &str| {
            let rows = parse(text).unwrap().rows;
            move |name: &str| rows.iter().find(|row| row.name == name).map(|row| (row.percent, row.with_calls.unwrap()))
        };
        let row = of(graph);
        assert_eq!(row("kvm_vcpu_halt"), Some((7.0, 22.0)));
        assert_eq!(row("ktime_get"), Some((10.0, 10.0)));
        assert_eq!(row("kvm_vcpu_check_block"), Some((5.0, 12.0)));
        assert_eq!(row("kvm_arch_vcpu_ioctl_run"), Some((4.0, 30.0)), "the only callee has its caller's share");
        assert_eq!(row("vmx_vcpu_run"), Some((0.0, 4.0)), "what it calls is not shown");
        // Beside exits it is another profile; below a row with one share it shows callers.
        let both = format!("  90.0%  reason EXTERNAL_INTERRUPT rip 0x9c info 0 0\n\n{graph}");
        assert_eq!((of(&both)("kvm_vcpu_halt"), parse(&both).unwrap().others), (Some((7.0, 22.0)), 1));
        let callers = format!("-  86.1%  [kernel]  [k] _raw_spin_lock\n{graph}   1.0%  [kvm]  [k] vmx_vmexit\n");
        assert_eq!(rows(&callers).len(), 2);
        assert_eq!(parse("- 50.00% of_all\n   - 20% idle\n- it_depends\n"), None, "a list");
    }

    #[test]
    fn the_caller_of_a_lock_is_read() {
        let graph = "    89.14%  qemu-kvm  [kernel.kallsyms]  [k] _raw_spin_lock_irqsave\n            |\n            \
            --- _raw_spin_lock_irqsave\n               |          \n               |--95.47%-- isolate_pages\n    \
            \x20          |          compact_zone\n     1.59%  ksmd  [kernel.kallsyms]  [k] memcmp\n        |\n    \
            \x20       --- memcmp\n                ksm_scan\n";
        let callers: Vec<_> = parse(graph).unwrap().rows.into_iter().map(|row| row.caller).collect();
        assert_eq!(callers, [Some("isolate_pages".to_owned()), None]);
    }

    #[test]
    fn of_several_profiles_one_of_the_hosts_time_is_read() {
        let lines = "  45.60%  qemu-kvm  [kernel.kallsyms]  [k] clear_page_c\n  11.26%  qemu-kvm  [kernel.kallsyms]  \
            [k] isolate_freepages_block\n";
        let twice =
            format!("{lines}\n# Samples: 2K of event 'cycles'\n# Overhead  Command  Shared Object  Symbol\n{lines}");
        assert_eq!(rows(&twice).len(), 2);
        let both = parse(&format!("# Samples: 1K of event 'cache-misses'\n{lines}{twice}")).unwrap();
        assert!(both.is_of_host_time());
        let few = format!("Samples: 51  of event 'cycles'\n{lines}  0.50%  qemu-kvm  [kernel]  [k] memset\n");
        let many = parse(&format!("Samples: 55K of event 'cycles'\n{lines}{few}")).unwrap();
        assert_eq!((many.samples, many.others, many.rows.len()), (Some(55_000), 1, 2));
        let other = format!("{lines}  50.00%  [kernel]  [k] memcpy\n   1.00%  [kernel]  [k] memset\n");
        assert_eq!(rows(&other).len(), 2);
    }

    #[test]
    fn exits_of_a_tracepoint_and_tables_of_tasks() {
        let exits = "  28.39%  reason EPT_VIOLATION rip 0xfffff800f7081037 info d82 0\n  26.83%  vcpu 0 reason HLT rip \
            0xfffff800f7080d7e info1 0x0\n";
        let profile = parse(exits).unwrap();
        assert!(profile.is_of_exits() && !profile.is_of_host_time());
        assert_eq!(profile.rows[1].exit_reason(), Some("HLT"));
        assert_eq!(profile.rows[0].exit_place(), Some("0xfffff800f7081037 info d82 0"));
        let returns = parse("    91.77%  reason KVM_EXIT_MMIO (6)\n     8.23%  reason KVM_EXIT_IO (2)\n").unwrap();
        assert!(!returns.is_of_exits());
        assert_eq!(returns.rows[0].exit_reason(), Some("KVM_EXIT_MMIO"));
        let tasks = "# Overhead  CPU  Pid:Command\n    45.60%  003   1234:CPU 0/KVM\n";
        assert_eq!(parse(tasks).unwrap().rows[0].task.as_deref(), Some("003   1234:CPU 0/KVM"));
    }

    #[test]
    fn texts_of_a_tracepoint_are_rows() {
        let text = "Samples: 266K of event 'kvm:kvm_set_irq', 1 Hz\nOverhead  Trace output\n  45.54%  gsi 11 level 1\n";
        assert_eq!(rows(text), [(45.54, "gsi 11 level 1".to_owned())]);
        assert_eq!(parse(&text.replace("kvm:kvm_set_irq", "cycles")), None);
        let tree = format!("{text}   - 45.54% ioctl\n      - 40.00% entry_SYSCALL_64\n  30.00%  gsi 4 level 1\n");
        let texts: Vec<_> = rows(&tree).into_iter().filter(|(_, name)| name.contains("gsi")).collect();
        assert_eq!(texts.len(), 2, "{tree}");
        let of_tasks = parse(&text.replace("Trace output", "Command")).unwrap();
        assert_eq!(of_tasks.rows[0].task.as_deref(), Some("gsi 11 level 1"));
    }

    #[test]
    fn a_profile_inside_a_guest_is_not_the_hosts() {
        let guest =
            "  40.1%  [kernel]  [k] native_queued_spin_lock_slowpath\n  9.1%  [kernel]  [k] kvm_clock_get_cycles\n";
        assert!(!parse(guest).unwrap().is_of_host_time());
    }

    #[test]
    fn other_texts_are_no_profiles() {
        for text in [
            "  HLT  43210  61.20%  98.90%\n",
            "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\nqemu 1 9 1 1 1 ? S 1 1 qemu-kvm\n",
            "it takes 40% of [k] a CPU\n",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn damaged_output_is_survived(cut in any::<proptest::sample::Index>(), noise in "[ -~\n%\\[\\]k.]{0,200}") {
            let _ = parse(&String::from_utf8_lossy(&PERF.as_bytes()[..cut.index(PERF.len())]));
            let _ = parse(&format!("{PERF}{noise}"));
            let _ = parse(&noise);
        }
    }
}
