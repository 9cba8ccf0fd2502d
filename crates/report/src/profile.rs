//! `kvmtop profile`: what the threads of a guest's process do, as text, JSON and folded stacks.

use super::table::{Column, cut, more, table};
use judge::figures::{count, or_unknown, percent, seconds};
use judge::model::call_tree::{CallNode, call_tree, functions};
use kvm::thread_name::label;
use sample::{CodeSpace, Function, ProfiledThread, StackProfile};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Functions that the text lists.
const TOP: usize = 15;
/// Threads that the text lists.
const TOP_THREADS: usize = 12;
/// Calls below this share of the samples are left out of the tree.
const SMALLEST: f64 = 1.0;
/// Lines of a tree.
const MAX_LINES: usize = 120;
/// The widest line.
const WIDTH: usize = 110;

/// A profile with the guest that it is of.
#[derive(Debug, Clone, Copy)]
pub struct ProfileView<'a> {
    /// The guest's name.
    pub guest: &'a str,
    /// Its process.
    pub pid: Option<i32>,
    /// What was sampled.
    pub profile: &'a StackProfile,
}

/// Folded stacks, a line each: guest, thread and functions divided by `;`, then the number of
/// samples. Programs that draw flame graphs read them.
pub fn folded(view: ProfileView<'_>) -> String {
    let threads: HashMap<i32, String> = view
        .profile
        .threads
        .iter()
        .map(|t| (t.tid, name_of(t)))
        .collect();
    let mut lines = Vec::new();
    for stack in &view.profile.stacks {
        let thread = threads.get(&stack.tid).map_or("?", String::as_str);
        let functions = view
            .profile
            .named(stack)
            .map(|function| match function.space {
                // Programs that draw flame graphs colour the kernel's functions by this mark.
                CodeSpace::Kernel => format!("{}_[k]", function.name),
                _ => function.full_name(),
            });
        let parts = [view.guest.to_owned(), thread.to_owned()]
            .into_iter()
            .chain(functions);
        // The format has no quoting: its separators in names are replaced.
        let parts: Vec<_> = parts.map(|part| part.replace([';', '\n'], ":")).collect();
        lines.push(format!("{} {}\n", parts.join(";"), stack.samples));
    }
    lines.sort_unstable();
    lines.concat()
}

/// A thread with its number, since several may have a name.
fn name_of(thread: &ProfiledThread) -> String {
    let label = label(thread.role, thread.index, thread.tid, &thread.comm);
    let number = thread.tid.to_string();
    if label.ends_with(&number) {
        label
    } else {
        format!("{label} ({number})")
    }
}

/// What a person reads: threads, functions by their own time, and the tree of calls.
pub fn text(view: ProfileView<'_>) -> String {
    let ProfileView {
        guest,
        pid,
        profile,
    } = view;
    let pid = pid.map(|pid| format!("  pid {pid}")).unwrap_or_default();
    let mut out = format!("{}{pid}  {}\n", cut(guest, 64), sampling_summary(profile));
    for gap in &profile.gaps {
        let _ = writeln!(out, "{gap}");
    }
    out.push('\n');
    out.push_str(&tables(profile));
    out
}

/// How long, how often and at what cost stacks were sampled.
fn sampling_summary(profile: &StackProfile) -> String {
    let samples = usize::try_from(profile.samples_of(None)).unwrap_or(usize::MAX);
    let length = profile.duration_ns as f64 / 1e9;
    let rate = profile.frequency_hz;
    let mut out = format!(
        "{}  {} at {rate} a second of CPU time",
        seconds(length),
        count(samples, "sample")
    );
    if profile.lost > 0 {
        let _ = write!(out, ", {} lost", profile.lost);
    }
    if profile.duration_ns > 0 {
        let cost = profile.cost_ns as f64 / profile.duration_ns as f64 * 100.0;
        let _ = write!(out, "; taking them cost {} % of a CPU", percent(cost));
    }
    out
}

/// A row of the table of threads.
struct ThreadRow<'a> {
    thread: &'a ProfiledThread,
    cpu_percent: Option<f64>,
    samples: u64,
}

/// Threads, functions and calls.
fn tables(profile: &StackProfile) -> String {
    let samples = profile.samples_of(None);
    let mut busy = Vec::new();
    for thread in &profile.threads {
        let samples = profile.samples_of(Some(thread.tid));
        if samples > 0 || thread.cpu_ns.is_none_or(|ns| ns > 0) {
            busy.push(ThreadRow {
                thread,
                cpu_percent: profile.cpu_percent(thread),
                samples,
            });
        }
    }
    busy.sort_by_key(|row| {
        let size = (row.thread.cpu_ns, row.samples);
        (std::cmp::Reverse(size), row.thread.tid)
    });
    let columns: &[Column<ThreadRow<'_>>] = &[
        ("<THREAD", |row| name_of(row.thread)),
        ("CPU %", |row| or_unknown(row.cpu_percent, percent)),
        ("SAMPLES", |row| row.samples.to_string()),
    ];
    let mut out = table(2, &busy, TOP_THREADS, columns);
    if samples == 0 {
        out.push_str("\nno samples: the threads used too little CPU time\n");
        return out;
    }
    let functions = functions(profile);
    let busiest = functions.iter().filter(|(_, own)| *own > 0).take(TOP);
    let times: Vec<_> = busiest
        .map(|(function, own)| (*own as f64 / samples as f64 * 100.0, *function))
        .collect();
    out.push_str("\nFunctions, % of all samples in their own code\n");
    let columns: &[Column<(f64, &Function)>] = &[
        ("SELF %", |(own, _)| percent(*own)),
        ("<FUNCTION", |(_, function)| function.full_name()),
        ("<IN", |(_, function)| function.module.clone()),
    ];
    out.push_str(&table(2, &times, TOP, columns));
    out.push_str("\nCalls, % of all samples: who called whom\n");
    out.push_str(&tree_text(&call_tree(profile), samples));
    out
}

/// The tree of calls. A call is indented only below a function with several; one that takes all of
/// its caller's samples stands right below it.
fn tree_text(roots: &[CallNode<'_>], samples: u64) -> String {
    let mut lines = Vec::new();
    for root in roots {
        add_branch(root, samples, 0, &mut lines);
    }
    let left_out = more(lines.len(), MAX_LINES);
    lines.truncate(MAX_LINES);
    lines.join("\n") + "\n" + &left_out
}

fn add_branch(node: &CallNode<'_>, samples: u64, depth: usize, lines: &mut Vec<String>) {
    let share = node.total as f64 / samples as f64 * 100.0;
    if share < SMALLEST {
        return;
    }
    let mut node = node;
    let mut figure = percent(share);
    loop {
        let name = node.function.full_name();
        let space = if node.function.space == CodeSpace::Kernel {
            "  [kernel]"
        } else {
            ""
        };
        lines.push(cut(
            &format!(
                "{figure:>7}  {}{name}{space}",
                "  ".repeat(depth.min(MAX_DEPTH))
            ),
            WIDTH,
        ));
        figure = String::new();
        match &node.calls[..] {
            // All samples of the caller are in this one callee.
            [only] if only.total == node.total => node = only,
            calls => {
                for call in calls {
                    add_branch(call, samples, depth + 1, lines);
                }
                return;
            }
        }
    }
}

/// The most indentations: deeper calls would not fit on the line.
const MAX_DEPTH: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::assert_same;
    use sample::StackCount;
    use testkit::profile;

    fn view(profile: &StackProfile) -> ProfileView<'_> {
        ProfileView {
            guest: "win10-2",
            pid: Some(100),
            profile,
        }
    }

    #[test]
    fn as_text() {
        let mut profile = profile();
        profile.lost = 3;
        profile.gaps.push(
            "functions of the kernel have no names: CAP_SYSLOG is missing (kernel.kptr_restrict)"
                .into(),
        );
        profile.threads.push(ProfiledThread {
            tid: 102,
            comm: "worker".into(),
            cpu_ns: Some(0),
            ..Default::default()
        });
        assert_same("profile", &text(view(&profile)));
    }

    #[test]
    fn nothing_ran() {
        let profile = StackProfile {
            duration_ns: 1_000_000_000,
            frequency_hz: 199,
            ..StackProfile::default()
        };
        assert!(
            text(view(&profile)).ends_with("no samples: the threads used too little CPU time\n")
        );
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
        let document: serde_json::Value =
            serde_json::to_value(crate::json::profile(view(&profile))).unwrap();
        let first = &document["stacks"][0];
        let names: Vec<_> = first["functions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| {
                document["functions"][n.as_u64().unwrap() as usize]["name"]
                    .as_str()
                    .unwrap()
            })
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
            profile.stacks.push(StackCount {
                tid: 100,
                functions,
                samples: 1,
            });
        }
        let text = text(view(&profile));
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }
}
