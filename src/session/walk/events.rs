//! What the engine counted.

use super::super::coder::Coder;
use super::super::memory::{Kind, Names, mix};
use super::super::range::Way;
use super::growth::Growth;
use super::{RowCoder, timing, timing_1};
use crate::kvm::{Isa, Space};
use crate::sample::{
    AccessCell, Burst, Direction, ExitCell, Migrations, OtherTask, ThreadEvents, Timing, UserspaceCell,
};

/// Growths that KVM's own counters may share: of all exits, of wake-ups, of the first few reasons.
pub(super) type Grown = [u64; 8];

/// What is known of a thread before its events.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    /// How often it went to sleep since the sample before.
    pub slept: u64,
    /// The CPU it was on at the sample before.
    pub cpu: Option<u32>,
}

/// Goes over a thread's events; answers with what grew, and whether it moved.
pub(super) fn events<W: Way>(c: &mut Coder<'_, W>, id: u64, before: Before, e: &mut ThreadEvents) -> (Grown, bool) {
    let mut grown = Grown::default();
    let mut counts = vec![before.slept];
    let ThreadEvents { exits, accesses, userspace, migrations, wakeups, woken_by, preempted_by } = e;
    let mut row = c.row(Kind::Events, mix(id, Kind::Events, &[1]));
    // Most threads have none of the lists and never will.
    let mut any = !(exits.is_empty()
        && accesses.is_empty()
        && userspace.is_empty()
        && woken_by.is_empty()
        && preempted_by.is_empty());
    row.flag(&mut any);
    let moved = moves(&mut row, before.cpu, migrations);
    let mut some = wakeups.is_some();
    row.go(MOVES + 7).flag(&mut some);
    if some {
        let mut row = c.row(Kind::Wakeup, mix(id, Kind::Wakeup, &[]));
        grown[1] = durations(&mut row, wakeups.get_or_insert_default(), None, &mut counts).count;
    } else {
        *wakeups = None;
    }
    if !any {
        exits.clear();
        accesses.clear();
        userspace.clear();
        woken_by.clear();
        preempted_by.clear();
        return (grown, moved);
    }
    let mut sums = Sums::default();
    c.list(Kind::Access, id, accesses, access_key, blank_access, |c, id, a| {
        let growth = access(c, id, a, &mut counts);
        sums.add(a, &growth);
    });
    let mut next = 2;
    c.list(Kind::Exit, id, exits, exit_key, blank_exit, |c, id, e| {
        let count = exit(c, id, &sums, e, &mut counts);
        grown[0] = grown[0].wrapping_add(count);
        if let Some(g) = grown.get_mut(next) {
            *g = count;
        }
        next += 1;
    });
    c.list(
        Kind::Userspace,
        id,
        userspace,
        |u, _| [u.reason as u64],
        |k, _| UserspaceCell { reason: k[0] as i32, count: 0 },
        |c, id, u| c.row(Kind::Userspace, id).counter(&mut u.count),
    );
    others(c, Kind::Waker, id, woken_by);
    others(c, Kind::Preemptor, id, preempted_by);
    (grown, moved)
}

/// Columns of migrations: those of schema 3, then those of a thread that did not move, then what each crossing is like.
const MOVES: usize = 1;
const STILL: usize = 12;
const CROSSINGS: usize = 16;

/// Goes over the migrations; answers whether there were any.
fn moves<W: Way>(row: &mut RowCoder<'_, W>, cpu: Option<u32>, m: &mut Migrations) -> bool {
    let Migrations { total, cross_core, cross_llc, cross_node, from } = m;
    let before = row.go(MOVES).last(MOVES + 1);
    row.maybe(total, RowCoder::counter);
    if row.schema < 4 {
        row.counter(cross_core);
        row.counter(cross_llc);
        row.counter(cross_node);
        row.maybe_u32(from);
        return true;
    }
    let moved = total.map_or(0, |n| n.wrapping_sub(before));
    let mut moves = vec![moved];
    for (i, crossed) in [cross_core, cross_llc, cross_node].into_iter().enumerate() {
        row.go(MOVES + 2 + i).alike(CROSSINGS + 3 * i, &mut moves, crossed);
    }
    let at = MOVES + 5;
    let last = row.last(at);
    let mut now = from.map_or(0, |cpu| u64::from(cpu) + 1);
    match (moved, cpu) {
        (0, _) => row.go(STILL).foreseen(last, &mut now),
        (1, Some(cpu)) => row.go(STILL + 1).foreseen(u64::from(cpu) + 1, &mut now),
        _ => row.go(STILL + 2).foreseen(last, &mut now),
    }
    row.set_last(at, now);
    *from = now.checked_sub(1).map(|cpu| cpu as u32);
    moved > 0
}

fn exit_key(e: &ExitCell, names: &mut Names) -> [u64; 3] {
    let isa = match e.isa {
        Isa::Vmx => 1,
        Isa::Svm => 2,
        Isa::Arm64 => 3,
        Isa::Other(n) => 4 + u64::from(n),
    };
    [isa, u64::from(e.code), names.maybe(e.name.as_deref())]
}

fn blank_exit(k: &[u64; 3], names: &Names) -> ExitCell {
    let isa = match k[0] {
        1 => Isa::Vmx,
        2 => Isa::Svm,
        3 => Isa::Arm64,
        n => Isa::Other(n.saturating_sub(4) as u32),
    };
    ExitCell {
        isa,
        code: k[1] as u32,
        name: names.text_maybe(k[2]),
        time: Timing::default(),
        userspace_ns: None,
        halted_ns: None,
        preempted_ns: None,
    }
}

/// What the accesses of a thread did together within the interval, by what the exits that hold them may be: port and memory
/// accesses, MSRs read, written, both.
#[derive(Default)]
struct Sums([Growth; 5]);

impl Sums {
    fn add(&mut self, a: &AccessCell, growth: &Growth) {
        if growth.count == 0 {
            return;
        }
        let of: &[usize] = match (a.space, a.direction) {
            (Space::Pio, _) => &[0],
            (Space::Mmio, _) => &[1],
            (Space::Msr, Direction::Read) => &[2, 4],
            (Space::Msr, Direction::Write) => &[3, 4],
        };
        of.iter().for_each(|i| self.0[*i].add(growth));
    }

    /// The sum that comes nearest to a count; 0 for none, else its number from 1. The one chosen last is kept if it will do.
    fn nearest(&self, count: u64, last: u64) -> u64 {
        let off = |n: u64| n.checked_sub(1).and_then(|i| self.0.get(i as usize)).map(|g| g.count.abs_diff(count));
        let fair = |n: u64| off(n).is_some_and(|d| d <= 2 + count / 32);
        if last == 0 || fair(last) || count == 0 {
            let better = (1..=5).find(|n| last == 0 && count > 0 && off(*n) == Some(0));
            return better.unwrap_or(last);
        }
        (1..=5).filter(|n| fair(*n)).min_by_key(|n| off(*n)).unwrap_or(0)
    }
}

/// Columns that a timing takes, of either schema.
const TIMING: usize = if timing::COLUMNS > timing_1::COLUMNS { timing::COLUMNS } else { timing_1::COLUMNS };

fn durations<W: Way>(
    row: &mut RowCoder<'_, W>,
    t: &mut Timing,
    hint: Option<&Growth>,
    counts: &mut Vec<u64>,
) -> Growth {
    if row.schema == 1 { timing_1::timing(row, t, hint) } else { timing::timing(row, t, hint, counts) }
}

fn exit<W: Way>(c: &mut Coder<'_, W>, id: u64, sums: &Sums, e: &mut ExitCell, counts: &mut Vec<u64>) -> u64 {
    let ExitCell { isa: _, code: _, name: _, time, userspace_ns, halted_ns, preempted_ns } = e;
    let mut row = c.row(Kind::Exit, id);
    // Exits that hold accesses are the sum of these, but for what happened between two readings.
    let mut like = sums.nearest(time.count.wrapping_sub(row.last(0)), row.last(TIMING));
    row.go(TIMING).number(&mut like);
    let hint = like.checked_sub(1).and_then(|i| sums.0.get(i as usize));
    let growth = durations(&mut row, time, hint, counts);
    let total = growth.total;
    let mut row = c.row(Kind::Exit, mix(id, Kind::List, &[])).at(TIMING + 1);
    if row.schema == 1 {
        row.part_of(total, userspace_ns);
        row.part_of(total, halted_ns);
        row.maybe(preempted_ns, RowCoder::counter);
        return growth.count;
    }
    row.share_of(total, userspace_ns);
    row.share_of(total, halted_ns);
    row.some(preempted_ns);
    if let Some(ns) = preempted_ns {
        let grid = row.grain().preempted_ns;
        row.on_grid(grid, ns);
    }
    growth.count
}

const SPACES: [Space; 3] = [Space::Pio, Space::Mmio, Space::Msr];

fn access_key(a: &AccessCell, _: &mut Names) -> [u64; 2] {
    let kind = (a.space as u64) << 2 | (a.direction as u64) << 1 | u64::from(a.address.is_some());
    [kind, a.address.unwrap_or(0)]
}

fn blank_access(k: &[u64; 2], _: &Names) -> AccessCell {
    AccessCell {
        space: SPACES.get((k[0] >> 2) as usize).copied().unwrap_or_default(),
        direction: if k[0] & 2 != 0 { Direction::Write } else { Direction::Read },
        address: Some(k[1]).filter(|_| k[0] & 1 != 0),
        ..AccessCell::default()
    }
}

fn access<W: Way>(c: &mut Coder<'_, W>, id: u64, a: &mut AccessCell, counts: &mut Vec<u64>) -> Growth {
    let AccessCell { space: _, address: _, direction: _, time, faults, burst } = a;
    let mut row = c.row(Kind::Access, id);
    let growth = durations(&mut row, time, None, counts);
    row = row.at(TIMING + 1);
    row.counter(faults);
    row.some(burst);
    if let Some(Burst { count, ns }) = burst {
        row.gauge(count);
        if row.schema > 1 {
            let bits = row.grain().extreme_bits;
            row.rounded_gauge(bits, (0, u64::MAX), ns);
            return growth;
        }
        *ns = row.estimated(0, *count as f64, u128::from(*ns)) as u64;
    }
    growth
}

fn others<W: Way>(c: &mut Coder<'_, W>, kind: Kind, id: u64, tasks: &mut Vec<OtherTask>) {
    c.list(
        kind,
        id,
        tasks,
        |t, names| [t.tid as u64, names.number(&t.comm)],
        |k, names| OtherTask { tid: k[0] as i32, comm: names.text(k[1]), count: 0, ns: 0 },
        |c, id, t| {
            // One task may both wake a thread and take its CPU, and is a row of its own in each role.
            let id = if c.schema() < 3 { id } else { mix(id, kind, &[1]) };
            let mut row = c.row(kind, id);
            row.counter(&mut t.count);
            let grid = row.grain().cpu_ns;
            if row.schema == 1 { row.counter(&mut t.ns) } else { row.on_grid(grid, &mut t.ns) }
        },
    );
}
