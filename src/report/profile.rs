//! `kvmtop profile`: what the threads of a guest's process do, as text, JSON and folded stacks.

use super::document::SCHEMA;
use super::json::{TOOL, time};
use super::table::{Table, cut, more};
use super::text::count;
use crate::figures::{percent, seconds};
use crate::kvm::thread_name::{Role, label};
use crate::model::call_tree::{CallNode, call_tree, functions};
use crate::sample::{CodeSpace, Function, ProfiledThread, StackCount, StackProfile};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;

/// Functions that the text lists.
const TOP: usize = 15;
/// Threads that the text lists.
const TOP_THREADS: usize = 12;
/// Calls below this share of the samples are left out of the tree.
const SMALLEST: f64 = 1.0;
/// Lines of a tree.
const MOST_LINES: usize = 120;
/// The widest line.
const WIDTH: usize = 110;

/// A profile with the guest that it is of.
#[derive(Debug, Clone, Copy)]
pub struct ProfileView<'a> {
    /// The guest's name.
    pub guest: &'a str,
    /// Its process.
    pub pid: i32,
    /// What was sampled.
    pub profile: &'a StackProfile,
}

#[derive(Debug, Serialize)]
struct JsonProfile<'a> {
    schema: u32,
    tool: &'a str,
    /// Its begin.
    time: Option<String>,
    guest: &'a str,
    pid: i32,
    duration_s: f64,
    frequency_hz: u32,
    samples: u64,
    lost_samples: u64,
    gaps: &'a [String],
    threads: Vec<JsonProfiledThread<'a>>,
    functions: Vec<JsonFunction<'a>>,
    stacks: Vec<JsonStack>,
}

#[derive(Debug, Serialize)]
struct JsonProfiledThread<'a> {
    tid: i32,
    comm: &'a str,
    role: &'a str,
    vcpu: Option<u32>,
    cpu_percent: Option<f64>,
    samples: u64,
}

#[derive(Debug, Serialize)]
struct JsonFunction<'a> {
    name: &'a str,
    module: &'a str,
    space: &'a str,
    own_samples: u64,
    total_samples: u64,
}

#[derive(Debug, Serialize)]
struct JsonStack {
    tid: i32,
    samples: u64,
    /// Positions in `functions`, the outermost caller first.
    functions: Vec<usize>,
}

/// CPU time of a thread, percent of one host CPU.
fn cpu_percent(thread: &ProfiledThread, profile: &StackProfile) -> Option<f64> {
    let cpu_ns = thread.cpu_ns.filter(|_| profile.duration_ns > 0)?;
    Some(cpu_ns as f64 / profile.duration_ns as f64 * 100.0)
}

/// Those that used CPU time, the busiest first, and how many did not.
fn busy_threads(profile: &StackProfile) -> (Vec<(&ProfiledThread, u64)>, usize) {
    let with_samples = profile.threads.iter().map(|t| (t, profile.samples_of(Some(t.tid))));
    let mut busy: Vec<_> = with_samples.filter(|(t, n)| *n > 0 || t.cpu_ns.is_none_or(|ns| ns > 0)).collect();
    busy.sort_by_key(|(t, n)| (std::cmp::Reverse((t.cpu_ns, *n)), t.tid));
    let idle = profile.threads.len() - busy.len();
    (busy, idle)
}

/// One JSON object, as a line.
///
/// # Errors
/// Never in practice: it holds nothing that JSON cannot.
pub fn json(view: ProfileView<'_>) -> serde_json::Result<String> {
    let profile = view.profile;
    let times = functions(profile, None);
    let position: HashMap<&Function, usize> = times.iter().enumerate().map(|(i, time)| (time.function, i)).collect();
    let stack = |stack: &StackCount| JsonStack {
        tid: stack.tid,
        samples: stack.samples,
        functions: named(stack, profile).filter_map(|function| position.get(function).copied()).collect(),
    };
    let document = JsonProfile {
        schema: SCHEMA,
        tool: TOOL,
        time: time(profile.began_ms),
        guest: view.guest,
        pid: view.pid,
        duration_s: profile.duration_ns as f64 / 1e9,
        frequency_hz: profile.frequency_hz,
        samples: profile.samples_of(None),
        lost_samples: profile.lost,
        gaps: &profile.gaps,
        threads: profile.threads.iter().map(|t| thread(t, profile)).collect(),
        functions: times
            .iter()
            .map(|time| JsonFunction {
                name: &time.function.name,
                module: &time.function.module,
                space: time.function.space.as_str(),
                own_samples: time.own,
                total_samples: time.total,
            })
            .collect(),
        stacks: profile.stacks.iter().map(stack).collect(),
    };
    super::json::text(&document)
}

fn thread<'a>(thread: &'a ProfiledThread, profile: &StackProfile) -> JsonProfiledThread<'a> {
    JsonProfiledThread {
        tid: thread.tid,
        comm: &thread.comm,
        role: thread.role.as_str(),
        vcpu: thread.index.filter(|_| thread.role == Role::Vcpu),
        cpu_percent: cpu_percent(thread, profile),
        samples: profile.samples_of(Some(thread.tid)),
    }
}

/// The functions of a stack, the outermost caller first.
fn named<'a>(stack: &'a StackCount, profile: &'a StackProfile) -> impl Iterator<Item = &'a Function> {
    stack.functions.iter().filter_map(|number| profile.functions.get(*number as usize))
}

/// Folded stacks, a line each: guest, thread and functions divided by `;`, then the number of samples. Programs that
/// draw flame graphs read them.
pub fn folded(view: ProfileView<'_>) -> String {
    let threads: HashMap<i32, String> = view.profile.threads.iter().map(|t| (t.tid, name_of(t))).collect();
    let line = |stack: &StackCount| {
        let thread = threads.get(&stack.tid).map_or("?", String::as_str);
        let functions = named(stack, view.profile).map(|function| match function.space {
            // The mark by which such programs colour the kernel.
            CodeSpace::Kernel => format!("{}_[k]", function.name),
            _ => full_name(function),
        });
        let parts = [view.guest.to_owned(), thread.to_owned()].into_iter().chain(functions);
        // The format knows no quoting.
        let parts: Vec<_> = parts.map(|part| part.replace([';', '\n'], ":")).collect();
        format!("{} {}\n", parts.join(";"), stack.samples)
    };
    let mut lines: Vec<_> = view.profile.stacks.iter().map(line).collect();
    lines.sort_unstable();
    lines.concat()
}

/// A thread with its number, since several may have a name.
fn name_of(thread: &ProfiledThread) -> String {
    let label = label(thread.role, thread.index, thread.tid, &thread.comm);
    let number = thread.tid.to_string();
    if label.ends_with(&number) { label } else { format!("{label} ({number})") }
}

/// A function without a symbol is named by its file.
fn full_name(function: &Function) -> String {
    if function.name.starts_with('+') { format!("{}{}", function.module, function.name) } else { function.name.clone() }
}

/// What a person reads: threads, functions by their own time, and the tree of calls.
pub fn text(view: ProfileView<'_>) -> String {
    let ProfileView { guest, pid, profile } = view;
    let samples = profile.samples_of(None);
    let mut out = format!(
        "{}  pid {pid}  {}  {} at {} a second of CPU time",
        cut(guest, 64),
        seconds(profile.duration_ns as f64 / 1e9),
        count(usize::try_from(samples).unwrap_or(usize::MAX), "sample"),
        profile.frequency_hz
    );
    if profile.lost > 0 {
        let _ = write!(out, ", {} lost", profile.lost);
    }
    out.push('\n');
    for gap in &profile.gaps {
        let _ = writeln!(out, "{gap}");
    }
    let (busy, idle) = busy_threads(profile);
    let mut table = Table::new(&["<THREAD", "CPU %", "SAMPLES"]);
    for (thread, samples) in busy.iter().take(TOP_THREADS) {
        table.row([
            name_of(thread),
            cpu_percent(thread, profile).map_or_else(|| "-".into(), percent),
            samples.to_string(),
        ]);
    }
    if !table.is_empty() {
        out.push('\n');
        out.push_str(&table.render(2));
        out.push_str(&more(busy.len(), TOP_THREADS));
    }
    if idle > 0 {
        let _ = writeln!(out, "  {} did not run", count(idle, "thread"));
    }
    if samples == 0 {
        out.push_str("\nno samples: the threads used too little CPU time\n");
        return out;
    }
    let of = |part: u64| percent(part as f64 / samples as f64 * 100.0);
    let times = functions(profile, None);
    let mut table = Table::new(&["SELF %", "TOTAL %", "<FUNCTION", "<IN"]);
    for time in times.iter().filter(|time| time.own > 0).take(TOP) {
        table.row([of(time.own), of(time.total), full_name(time.function), time.function.module.clone()]);
    }
    out.push_str("\nFunctions, % of all samples: self is its own code, total with all that it called\n");
    out.push_str(&table.render(2));
    out.push_str("\nCalls, % of all samples: who called whom\n");
    out.push_str(&tree(&call_tree(profile, None), samples));
    out
}

/// The tree: a call is indented only where several follow one another's caller.
fn tree(roots: &[CallNode<'_>], samples: u64) -> String {
    let mut lines = Vec::new();
    for root in roots {
        branch(root, samples, 0, &mut lines);
    }
    let left_out = more(lines.len(), MOST_LINES);
    lines.truncate(MOST_LINES);
    lines.join("\n") + "\n" + &left_out
}

fn branch(node: &CallNode<'_>, samples: u64, depth: usize, lines: &mut Vec<String>) {
    let share = |n: &CallNode<'_>| n.total as f64 / samples as f64 * 100.0;
    if share(node) < SMALLEST {
        return;
    }
    let mut node = node;
    let mut figure = percent(share(node));
    loop {
        let name = full_name(node.function);
        let space = if node.function.space == CodeSpace::Kernel { "  [kernel]" } else { "" };
        lines.push(cut(&format!("{figure:>7}  {}{name}{space}", "  ".repeat(depth.min(MOST_DEPTH))), WIDTH));
        figure = String::new();
        match &node.calls[..] {
            // All of it went on into one function.
            [only] if only.total == node.total => node = only,
            calls => {
                calls.iter().for_each(|call| branch(call, samples, depth + 1, lines));
                return;
            }
        }
    }
}

/// Indentations, so that deep calls stay on the line.
const MOST_DEPTH: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::call_tree::tests::profile;
    use crate::report::tests::assert_same;

    fn view(profile: &StackProfile) -> ProfileView<'_> {
        ProfileView { guest: "win10-2", pid: 100, profile }
    }

    #[test]
    fn as_text() {
        let mut profile = profile();
        profile.lost = 3;
        profile.gaps.push("functions of the kernel have no names: CAP_SYSLOG is missing (kernel.kptr_restrict)".into());
        profile.threads.push(ProfiledThread { tid: 102, comm: "worker".into(), cpu_ns: Some(0), ..Default::default() });
        assert_same("profile", &text(view(&profile)));
    }

    #[test]
    fn nothing_ran() {
        let profile = StackProfile { duration_ns: 1_000_000_000, frequency_hz: 199, ..StackProfile::default() };
        assert!(text(view(&profile)).ends_with("no samples: the threads used too little CPU time\n"));
    }

    #[test]
    fn as_folded_stacks() {
        let mut profile = profile();
        profile.functions[6].name = "a;b".into();
        assert_same("profile_folded", &folded(view(&profile)));
    }

    #[test]
    fn numbers_of_functions_lead_to_them() {
        let profile = profile();
        let document: serde_json::Value = serde_json::from_str(&json(view(&profile)).unwrap()).unwrap();
        let first = &document["stacks"][0];
        let names: Vec<_> = first["functions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| document["functions"][n.as_u64().unwrap() as usize]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["main", "main_loop_wait", "ppoll"]);
        assert_eq!(document["samples"], 380);
        assert_eq!(document["threads"][0]["cpu_percent"], 75.0);
    }

    #[test]
    fn deep_stacks_stay_on_the_line() {
        let mut profile = profile();
        profile.stacks.clear();
        for depth in 0..60 {
            let functions = (0..depth).map(|n| n % 6).collect();
            profile.stacks.push(StackCount { tid: 100, functions, samples: 1 });
        }
        let text = text(view(&profile));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }
}
