//! The host's counters.

use super::super::coder::Coder;
use super::super::memory::{Kind, Names, mix};
use super::super::range::Way;
use super::TICK_NS;
use crate::kvm::kernel_log::{LogKind, LogLine};
use crate::sample::{CpuTimes, HostMemory, HostSample, HostTask};

pub(super) fn host<W: Way>(c: &mut Coder<'_, W>, id: u64, passed: u64, h: &mut HostSample) {
    let HostSample { facts: _, cpus, tasks, memory, kernel_log } = h;
    c.fact(Kind::Sample, id);
    c.list(
        Kind::Cpu,
        id,
        cpus,
        |cpu, _| [u64::from(cpu.cpu)],
        |k, _| CpuTimes { cpu: k[0] as u32, ..CpuTimes::default() },
        |c, id, cpu| cpu_times(c, id, passed, cpu),
    );
    c.list(
        Kind::Task,
        id,
        tasks,
        |t, names| [t.tid as u64, t.pid as u64, names.number(&t.comm), u64::from(t.kernel)],
        |k, names| HostTask {
            tid: k[0] as i32,
            pid: k[1] as i32,
            comm: names.text(k[2]),
            kernel: k[3] != 0,
            ..HostTask::default()
        },
        |c, id, t| {
            let HostTask { tid: _, pid: _, comm: _, kernel: _, used_ns, over_ns, last_cpu } = t;
            let mut row = c.row(Kind::Task, id);
            row.gauge(used_ns);
            row.gauge(over_ns);
            row.u32(last_cpu);
        },
    );
    host_memory(c, id, memory);
    c.list(Kind::Log, id, kernel_log, log_key, log_line, |_, _, _| {});
}

fn cpu_times<W: Way>(c: &mut Coder<'_, W>, id: u64, passed: u64, t: &mut CpuTimes) {
    let CpuTimes {
        cpu: _,
        user_ns,
        nice_ns,
        system_ns,
        idle_ns,
        iowait_ns,
        irq_ns,
        softirq_ns,
        steal_ns,
        guest_ns,
        guest_nice_ns,
        device_irqs,
        timer_irqs,
    } = t;
    let mut row = c.row(Kind::Cpu, id);
    let mut spent = 0u64;
    row.ticks_within(guest_ns, user_ns, &mut spent);
    row.ticks_within(guest_nice_ns, nice_ns, &mut spent);
    for time in [system_ns, iowait_ns, irq_ns, softirq_ns, steal_ns] {
        let before = row.upcoming();
        row.ticks(time);
        spent = spent.wrapping_add(time.wrapping_sub(before));
    }
    // What is left of the interval.
    let idle = (passed.wrapping_add(TICK_NS / 2) / TICK_NS * TICK_NS).saturating_sub(spent);
    let before = row.upcoming();
    row.ticks_foreseen(before.wrapping_add(idle), idle_ns);
    row.maybe(device_irqs, super::RowCoder::counter);
    row.maybe(timer_irqs, super::RowCoder::counter);
}

fn host_memory<W: Way>(c: &mut Coder<'_, W>, id: u64, memory: &mut Option<HostMemory>) {
    let mut row = c.row(Kind::Sample, mix(id, Kind::Sample, &[2])).at(40);
    let mut some = memory.is_some();
    row.flag(&mut some);
    if !some {
        *memory = None;
        return;
    }
    let m = memory.get_or_insert_default();
    let HostMemory { total, available, swap_used, swapped_out_pages, ksm_running } = m;
    row.number(total);
    row.counter(available);
    row.counter(swap_used);
    row.counter(swapped_out_pages);
    row.flag(ksm_running);
}

const LOG_KINDS: [LogKind; 8] = [
    LogKind::UnhandledMsr,
    LogKind::IgnoredMsr,
    LogKind::HypervMsr,
    LogKind::PerfCounter,
    LogKind::SplitLock,
    LogKind::BusLock,
    LogKind::EmulationFailure,
    LogKind::Other,
];

fn log_key(l: &LogLine, names: &mut Names) -> [u64; 12] {
    let LogLine { pid, vcpu, msr, write, data, kind, time_s, text } = l;
    let some = |v: Option<u64>| u64::from(v.is_some());
    let (time, data) = (time_s.map(f64::to_bits), *data);
    [
        u64::from(pid.is_some()),
        pid.unwrap_or(0) as u64,
        u64::from(vcpu.is_some()),
        u64::from(vcpu.unwrap_or(0)),
        u64::from(msr.is_some()),
        u64::from(msr.unwrap_or(0)),
        u64::from(*write) + 2 * *kind as u64,
        some(data),
        data.unwrap_or(0),
        some(time),
        time.unwrap_or(0),
        names.number(text),
    ]
}

fn log_line(k: &[u64; 12], names: &Names) -> LogLine {
    let some = |i: usize| Some(k[i + 1]).filter(|_| k[i] != 0);
    LogLine {
        pid: some(0).map(|v| v as i32),
        vcpu: some(2).map(|v| v as u32),
        msr: some(4).map(|v| v as u32),
        write: k[6] & 1 != 0,
        kind: LOG_KINDS.get((k[6] / 2) as usize).copied().unwrap_or(LogKind::Other),
        data: some(7),
        time_s: some(9).map(f64::from_bits),
        text: names.text(k[11]),
    }
}
