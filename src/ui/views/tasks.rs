//! Tasks of the host outside guests, by name.

use super::Section;
use crate::ui::{AppState, Column, RowKey, RowStyle, Table, TableId, left, right, step};
use judge::figures::percent;
use judge::model::Model;
use kvm::CpuSet;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Tasks with one name.
#[derive(Default)]
pub struct TaskRow<'a> {
    name: &'a str,
    cpu: f64,
    count: u64,
    cpus: CpuSet,
}

type Col<'a> = Column<TaskRow<'a>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    vec![
        Col::text("comm", "TASK", left(16).grow(16), |r| r.name.to_owned())
            .help("Name of tasks outside guests.")
            .brief("", 16),
        Col::figure("cpu", "CPU%", right(6), |r| Some(r.cpu), percent)
            .help("CPU time of all tasks of this name; 100 is one host CPU.")
            .brief("CPU%", 6),
        Col::figure(
            "count",
            "TASKS",
            right(5).drop_order(1),
            |r| Some(r.count as f64),
            |n| n.to_string(),
        )
        .help("How many they are.")
        .brief("TASKS", 5),
        Col::text(
            "last_cpus",
            "LAST CPUS",
            left(9).grow(60).drop_order(2),
            |r| r.cpus.to_string(),
        )
        .help("The CPUs that they ran on last.")
        .brief("LAST CPUS", 9),
    ]
}

/// The section.
pub fn section<'a>(state: &'a AppState, model: &'a Model) -> Section<'a> {
    let host = &model.host;
    let mut by_name: BTreeMap<&str, TaskRow<'_>> = BTreeMap::new();
    for group in host.task_groups.iter().flatten() {
        let row = TaskRow {
            name: &group.comm,
            cpu: group.cpu_percent,
            count: group.count,
            cpus: CpuSet::new(),
        };
        by_name.insert(row.name, row);
    }
    for task in &host.tasks {
        let mut name = task.comm.as_str();
        // Kernel threads of a kind are named by CPU: `ksoftirqd/3`.
        if task.kernel
            && let Some((kind, _)) = name.split_once('/')
        {
            name = kind;
        }
        if host.task_groups.is_none() {
            let row = by_name.entry(name).or_default();
            row.name = name;
            row.cpu += task.cpu_percent;
            row.count += 1;
        }
        if let Some(row) = by_name.get_mut(name) {
            row.cpus.insert(task.last_cpu);
        }
    }
    let mut rows: Vec<_> = by_name.into_values().collect();
    rows.sort_by_cached_key(|r| Reverse(step(r.cpu)));
    let table = Table {
        id: TableId::Tasks,
        columns: columns(),
        rows,
        key: |r| RowKey::of(r.name),
        style: |_| RowStyle::Plain,
    };
    let mut section = Section::table(table, state, "none of them used a CPU");
    if let Some(usage) = host.usage() {
        section.right = format!("{} % of the host", percent(usage.other));
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::{busy, model};
    use judge::model::{HostTaskModel, TaskGroup};
    use sample::HostTask;

    #[test]
    fn tasks_of_one_name_share_a_row() {
        let state = busy(120, 40);
        let mut model = model(&state).clone();
        let task = |tid, comm: &str, kernel, cpu_percent, last_cpu| HostTaskModel {
            task: HostTask {
                tid,
                pid: tid,
                comm: comm.into(),
                kernel,
                last_cpu,
                ..HostTask::default()
            },
            cpu_percent,
        };
        model.host.task_groups = None;
        model.host.tasks = vec![
            task(1, "kworker/1:0", true, 5.0, 1),
            task(2, "kworker/2:0", true, 7.0, 2),
            task(3, "a/b", false, 100.0, 9),
        ];
        let section = section(&state, &model);
        let crate::ui::views::section::Body::Table(table) = &section.body else {
            panic!("no table")
        };
        let values = |row| {
            (0..4)
                .map(|c| format!("{:?}", table.value(row, crate::ui::table::ColumnId(c))))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            values(0),
            [
                "Text(\"a/b\")",
                "Figure(100.0)",
                "Figure(1.0)",
                "Text(\"9\")"
            ]
        );
        assert_eq!(
            values(1),
            [
                "Text(\"kworker\")",
                "Figure(12.0)",
                "Figure(2.0)",
                "Text(\"1-2\")"
            ]
        );
        assert_eq!(table.len(), 2);
        drop(section);
        let group = |comm: &str, cpu_percent, count| TaskGroup {
            comm: comm.into(),
            cpu_percent,
            count,
        };
        model.host.task_groups = Some(vec![group("rustc", 350.0, 40), group("kworker", 12.5, 7)]);
        let section = super::section(&state, &model);
        let crate::ui::views::section::Body::Table(table) = &section.body else {
            panic!("no table")
        };
        let text =
            |row, column| format!("{:?}", table.value(row, crate::ui::table::ColumnId(column)));
        assert_eq!(
            [text(0, 0), text(0, 2), text(0, 3)],
            ["Text(\"rustc\")", "Figure(40.0)", "Unknown"]
        );
        assert_eq!([text(1, 1), text(1, 3)], ["Figure(12.5)", "Text(\"1-2\")"]);
        assert_eq!(table.len(), 2, "what is in no group is not named");
    }
}
