//! A guest, its threads and devices.

use super::super::coder::Coder;
use super::super::memory::{Kind, Names, mix};
use super::super::range::Way;
use super::super::row::{GRID_COLUMNS, MOST_COLUMNS};
use super::events::{Before, Grown};
use super::{RowCoder, events};
use crate::kvm::thread_name::Role;
use crate::sample::{
    DiskSample, DomainSample, DomainState, NicSample, Placement, ThreadSample, ThreadTimes, Throttling,
};
use crate::session::precision::GRID_NS;
use std::collections::BTreeMap;

pub(super) fn domains<W: Way>(c: &mut Coder<'_, W>, id: u64, domains: &mut Vec<DomainSample>) {
    c.list(
        Kind::Domain,
        id,
        domains,
        |d, _| [u64::from(d.facts.pid.is_some()), d.facts.pid.unwrap_or(0) as u64, d.facts.start_ticks],
        |_, _| DomainSample::default(),
        domain,
    );
}

fn domain<W: Way>(c: &mut Coder<'_, W>, id: u64, d: &mut DomainSample) {
    let DomainSample {
        facts: _,
        state,
        threads,
        unattributed,
        counters,
        kvm_events,
        disks,
        nics,
        devices_ns,
        throttling,
        node_memory,
        swap_bytes,
    } = d;
    c.fact(Kind::Domain, id);
    let mut row = c.row(Kind::Domain, id);
    row.choice(state, &[DomainState::Running, DomainState::Paused, DomainState::Ended]);
    row.gauge(devices_ns);
    row.maybe(swap_bytes, RowCoder::counter);
    c.list(
        Kind::Thread,
        id,
        threads,
        |t, _| [t.tid as u64, t.start_ticks],
        |k, _| ThreadSample { tid: k[0] as i32, start_ticks: k[1], ..ThreadSample::default() },
        thread,
    );
    events::events(c, mix(id, Kind::Events, &[0]), Before::default(), unattributed);
    map(c, Kind::DomainCounter, id, counters, Grown::default());
    map(c, Kind::KvmEvent, id, kvm_events, Grown::default());
    c.list(Kind::Disk, id, disks, |d, n| [n.number(&d.name)], blank_disk, disk);
    c.list(Kind::Nic, id, nics, |d, n| [n.number(&d.name)], blank_nic, nic);
    c.list(
        Kind::Throttling,
        id,
        throttling,
        |t, n| [n.number(&t.group)],
        |k, n| Throttling { group: n.text(k[0]), ..Throttling::default() },
        |c, id, t| {
            let Throttling { group: _, periods, throttled, throttled_ns } = t;
            let mut row = c.row(Kind::Throttling, id);
            row.counter(periods);
            row.counter(throttled);
            row.counter(throttled_ns);
        },
    );
    let mut nodes: Vec<(u32, u64)> = std::mem::take(node_memory).into_iter().collect();
    c.list(
        Kind::Node,
        id,
        &mut nodes,
        |n, _| [u64::from(n.0)],
        |k, _| (k[0] as u32, 0),
        |c, id, n| c.row(Kind::Node, id).counter(&mut n.1),
    );
    node_memory.extend(nodes);
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As the list wants it.
fn blank_disk(k: &[u64; 1], names: &Names) -> DiskSample {
    DiskSample { name: names.text(k[0]), ..DiskSample::default() }
}

fn disk<W: Way>(c: &mut Coder<'_, W>, id: u64, d: &mut DiskSample) {
    let DiskSample { name: _, read_ops, write_ops, read_bytes, write_bytes, read_ns, write_ns } = d;
    let mut row = c.row(Kind::Disk, id);
    for n in [read_ops, write_ops, read_bytes, write_bytes] {
        row.gauge(n);
    }
    row.maybe(read_ns, RowCoder::gauge);
    row.maybe(write_ns, RowCoder::gauge);
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As the list wants it.
fn blank_nic(k: &[u64; 1], names: &Names) -> NicSample {
    NicSample { name: names.text(k[0]), ..NicSample::default() }
}

fn nic<W: Way>(c: &mut Coder<'_, W>, id: u64, n: &mut NicSample) {
    let NicSample { name: _, rx_bytes, tx_bytes, rx_packets, tx_packets, drops } = n;
    let mut row = c.row(Kind::Nic, id);
    for n in [rx_bytes, tx_bytes, rx_packets, tx_packets, drops] {
        row.gauge(n);
    }
}

/// KVM's counters by name: a list of names that seldom changes, and a row of counts and one of times. `grown` are growths of
/// other counters, one of which a counter may well share.
fn map<W: Way>(c: &mut Coder<'_, W>, kind: Kind, id: u64, map: &mut BTreeMap<String, u64>, grown: Grown) {
    let mut items: Vec<(u64, u64)> = Vec::new();
    if W::WRITING {
        items.extend(map.iter().map(|(name, n)| (c.names().number(name), *n)));
    }
    c.list(kind, id, &mut items, |i, _| [i.0], |k, _| (k[0], 0), |_, _, _| {});
    if items.is_empty() {
        map.clear();
        return;
    }
    // Statistics are some dozens; were there more, they would share columns.
    if c.schema() == 1 {
        let mut row = c.row(kind, mix(id, kind, &[0]));
        for (at, (_, value)) in items.iter_mut().enumerate() {
            row.go(at % MOST_COLUMNS).counter(value);
        }
    } else {
        let times: Vec<bool> = items.iter().map(|(name, _)| c.names().has_suffix(*name, "_ns")).collect();
        let mut row = c.row(kind, mix(id, kind, &[0]));
        let mut grown = grown.to_vec();
        for (at, (_, value)) in items.iter_mut().enumerate().filter(|(at, _)| !times[*at]) {
            row.go(at % (MOST_COLUMNS / 2)).like(MOST_COLUMNS / 2, &mut grown, value);
        }
        let mut row = c.row(kind, mix(id, kind, &[1]));
        for (at, (_, value)) in items.iter_mut().enumerate().filter(|(at, _)| times[*at]) {
            row.go(at * GRID_COLUMNS % MOST_COLUMNS).on_grid(GRID_NS, value);
        }
    }
    if !W::WRITING {
        let names = c.names();
        if map.len() == items.len() && map.keys().zip(&items).all(|(k, i)| names.is(i.0, k)) {
            map.values_mut().zip(items).for_each(|(n, i)| *n = i.1);
        } else {
            *map = items.into_iter().map(|(name, n)| (names.text(name), n)).collect();
        }
    }
}

const ROLES: [Role; 6] = [Role::Vcpu, Role::Emulator, Role::Iothread, Role::Vhost, Role::Worker, Role::Other];

fn thread<W: Way>(c: &mut Coder<'_, W>, id: u64, t: &mut ThreadSample) {
    let ThreadSample { tid: _, start_ticks: _, comm, role, index, cpu, place, events, counters } = t;
    let mut row = c.row(Kind::Thread, id);
    row.string(comm);
    row.choice(role, &ROLES);
    row.maybe_u32(index);
    let before = row.last(PLACE).checked_sub(1).map(|cpu| cpu as u32);
    if row.schema < 4 {
        placement(&mut row, true, place);
    }
    let slept = times(row.go(TIMES), cpu);
    let (grown, moved) = events::events(c, id, Before { slept, cpu: before }, events);
    let mut row = c.row(Kind::Thread, id).at(PLACE);
    if row.schema > 3 {
        placement(&mut row, moved, place);
    }
    map(c, Kind::ThreadCounter, id, counters, grown);
}

/// Where a thread's place and times begin.
const PLACE: usize = 5;
const TIMES: usize = 13;
/// The CPU of a thread that did not move.
const STILL: usize = 60;

fn placement<W: Way>(row: &mut RowCoder<'_, W>, moved: bool, p: &mut Placement) {
    let Placement { cpu, affinity, policy, rt_priority } = p;
    if row.schema < 4 {
        row.maybe_u32(cpu);
    } else {
        let last = row.last(PLACE);
        let mut now = cpu.map_or(0, |cpu| u64::from(cpu) + 1);
        row.go(if moved { PLACE } else { STILL }).foreseen(last, &mut now);
        row.go(PLACE).set_last(PLACE, now);
        *cpu = now.checked_sub(1).map(|cpu| cpu as u32);
        row.go(PLACE + 2);
    }
    row.cpus(affinity);
    row.maybe_u32(policy);
    row.maybe_u32(rt_priority);
}

/// Goes over a thread's times; answers how often it went to sleep.
fn times<W: Way>(row: &mut RowCoder<'_, W>, times: &mut Option<ThreadTimes>) -> u64 {
    let mut some = times.is_some();
    row.flag(&mut some);
    if !some {
        *times = None;
        return 0;
    }
    let t = times.get_or_insert_default();
    let ThreadTimes { user_ns, system_ns, guest_ns, run_ns, wait_ns, voluntary, involuntary } = t;
    if row.schema == 1 {
        row.maybe(run_ns, RowCoder::counter);
        row.maybe(wait_ns, RowCoder::counter);
    } else {
        let grid = row.grain().cpu_ns;
        for time in [run_ns, wait_ns] {
            row.some(time);
            match time {
                Some(ns) => row.on_grid(grid, ns),
                None => row.skip_grid(),
            }
        }
    }
    let before = row.last(row.column + 1);
    row.maybe(voluntary, RowCoder::counter);
    let slept = voluntary.map_or(0, |n| n.wrapping_sub(before));
    row.maybe(involuntary, RowCoder::counter);
    row.ticks(system_ns);
    row.ticks_within(guest_ns, user_ns, &mut 0);
    slept
}
