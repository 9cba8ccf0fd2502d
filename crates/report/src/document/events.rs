//! What a guest made KVM and its VMM do: exits, accesses, events, interrupts.
//! `objects!` ([`super`]) makes a struct, and a `new` that fills each field by its expression.

use judge::model::{
    AccessRow, DomainModel, ExitRow, ExitTable, InjectionModel, Model, UserspaceExits, share,
};
use kvm::userspace_exit;
use std::collections::HashMap;
use std::hash::Hash;

objects! {
    /// Exits of one reason. Shares are shares of the guest's exits, in a vCPU's row as well.
    pub struct JsonExit(r: &ExitRow, all: &ExitTable) {
        /// Name of the reason, as the kernel prints it; its number if the kernel has no name for
        /// it.
        reason: String = r.reason.clone(),
        /// Instruction set of the code: `vmx`, `svm`, `arm64`, or `isaN`. `null`: a file that does
        /// not say.
        isa: Option<String> = r.id.map(|(isa, _)| isa.to_string()),
        /// Number of the reason, without flag bits. `null`: a file that does not say.
        code: Option<u32> = r.id.map(|(_, code)| code),
        /// vCPU number. `null`: the sum over the guest.
        vcpu: Option<u32> = r.vcpu,
        /// Exits within the interval.
        count: u64 = r.span.count,
        /// Per second. `null`: no `interval_s`.
        rate: Option<f64> = r.rate,
        /// Percent of the guest's exits. `null`: unknown.
        count_percent: Option<f64> = share(r.span.count, all.count),
        /// Percent of the time in all of the guest's exits, as perf prints it. `null`: no times.
        time_percent: Option<f64> = share(r.span.total_ns, all.total_ns),
        /// Percent of that time without idle reasons. `null`: no times, or an idle reason.
        work_percent: Option<f64> = share(r.span.total_ns, all.work_ns).filter(|_| !r.idle),
        /// The vCPUs' own time in these exits, percent of one host CPU: without the time that
        /// another task had the CPU. `null`: no times, or an idle reason.
        cpu_percent: Option<f64> = r.cpu_percent,
        /// Shortest time from exit to the next entry. `null`: no times.
        min_us: Option<f64> = r.span.min_ns.map(|ns| ns as f64 / 1e3),
        /// Longest time. `null`: no times.
        max_us: Option<f64> = r.span.max_ns.map(|ns| ns as f64 / 1e3),
        /// Mean time. `null`: no times.
        mean_us: Option<f64> = r.span.mean_us(),
        /// 99th percentile. `null`: no histogram.
        p99_us: Option<f64> = r.span.quantile_us(0.99),
        /// Relative standard error of the mean, percent, as `perf kvm stat` prints it after `+-`.
        /// `null`: no times.
        stderr_percent: Option<f64> = r.span.stderr_percent(),
        /// Whether the guest sleeps in this exit (HLT, `WFx`, MWAIT).
        idle: bool = r.idle,
    }

    /// Accesses to one port, address or MSR in one direction. The whole time from the exit to the
    /// next entry counts as the access's.
    pub struct JsonAccess(r: &AccessRow) {
        /// Port, memory or model-specific register.
        #[schemars(extend("enum" = ["pio", "mmio", "msr"]))]
        space: &'static str = r.space.as_str(),
        /// Hexadecimal: `0x608`; the MSR's number; `other`: all that did not fit into kvmtop's
        /// tables.
        #[schemars(extend("pattern" = "^(0x[0-9a-f]+|other)$"))]
        address: String = r.address_text(),
        /// Direction.
        #[schemars(extend("enum" = ["read", "write"]))]
        access: &'static str = r.direction.as_str(),
        /// The device that owns the address, or the MSR's name. `null`: unknown.
        device: Option<String> = r.device_name().map(ToOwned::to_owned),
        /// Where the device's name comes from: `mtree` (QEMU's memory map), `libvirt`,
        /// `status-xml`, `cmdline`, `proc`, `file`, `built-in` (a table of usual addresses).
        /// `null`: no device.
        device_source: Option<&'static str> = r.device.as_ref().map(|d| d.from.as_str()),
        /// vCPU number. `null`: the sum over the guest.
        vcpu: Option<u32> = r.vcpu,
        /// Accesses within the interval.
        count: u64 = r.span.count,
        /// Per second. `null`: no `interval_s`.
        rate: Option<f64> = r.rate,
        /// Percent of the time in all of the guest's exits; in tables and traces from files, of its
        /// accesses in the same space, as perf prints it. `null`: no times.
        time_percent: Option<f64> = r.time_percent,
        /// The vCPUs' own time in the exits that served them, percent of one host CPU: without the
        /// time that another task had the CPU. For ports in tables of perf it is longer than
        /// `count` times `mean_us`: perf measures a part of each exit. `null`: no times.
        cpu_percent: Option<f64> = r.cpu_percent,
        /// Mean time. `null`: no times.
        mean_us: Option<f64> = r.span.mean_us(),
    }

    /// Exits that the VMM served.
    pub struct JsonUserspaceExit(row: &UserspaceExits, m: &Model) {
        /// `KVM_EXIT_*` of linux/kvm.h; `restart` for an exit because of a signal; `error N` for
        /// another errno.
        reason: String = userspace_exit::display(row.reason),
        /// vCPU number. `null`: the sum over the guest.
        vcpu: Option<u32> = row.vcpu,
        /// Exits within the interval.
        count: u64 = row.count,
        /// Per second. `null`: no `interval_s`.
        rate: Option<f64> = m.interval_s.map(|s| row.count as f64 / s),
    }

    /// A tracepoint of KVM.
    pub struct JsonKvmEvent(name: &str, n: u64, m: &Model) {
        /// Its name, without `kvm:`.
        event: String = name.to_owned(),
        /// Events within the interval.
        count: u64 = n,
        /// Per second. `null`: no `interval_s`.
        rate: Option<f64> = m.interval_s.map(|s| n as f64 / s),
    }

    /// Interrupts of one kind to one vCPU, by one injector, in the interval.
    pub struct JsonInterrupt(i: &InjectionModel) {
        /// What it is: `gsi` (a line of the interrupt controller), `msi` (a message), `ipi` (from
        /// another vCPU), `local` (announced by nothing: the vCPU's timer, mostly), `spi` (a line
        /// on arm64, where `msi` and `ipi` are not seen).
        source: &'static str = i.source.as_str(),
        /// Number of the line (`gsi`, `spi`), else the vector.
        number: u32 = i.source.number(),
        /// KVM's number of the vCPU. `null`: not known, as of an `spi` that wakes none.
        vcpu: Option<u32> = i.vcpu,
        /// Who injected it: `main`, `iothread`, `vhost`, `vcpu`, `kworker` (irqfd's slow path),
        /// `interrupt` (of the host: an assigned device without posted interrupts), `other`.
        by: &'static str = i.by.as_str(),
        /// Thread id of the injector. `null`: a vCPU, or no thread of the guest.
        #[schemars(range(min = 0))]
        tid: Option<i32> = i.tid,
        /// Their number.
        #[schemars(range(min = 1))]
        count: u64 = i.count,
        /// Interrupts per second. `null`: no `interval_s`.
        rate: Option<f64> = i.rate(),
        /// Those to a vCPU that slept.
        woken: u64 = i.wake.count,
        /// Mean time from the injection until KVM woke the thread of a vCPU that slept. `null`:
        /// none slept.
        wake_mean_us: Option<f64> = i.wake.mean_us(),
        /// Mean time from there until the thread had a CPU. `null`: none slept.
        delay_mean_us: Option<f64> = i.delay.mean_us(),
        /// Mean time from the injection until a vCPU that slept ran the guest; what it is longer
        /// than the two above passes between the CPU and the guest. `null`: none slept, or the
        /// kernel fires no `kvm_entry`.
        slept_mean_us: Option<f64> = i.slept.mean_us(),
    }
}

pub(super) fn exits(d: &DomainModel) -> Vec<JsonExit> {
    let of_vcpus = d.vcpu_exits.iter().flat_map(|(_, table)| &table.rows);
    with_vcpus(&d.exits.rows, of_vcpus, |r| &r.reason)
        .map(|row| JsonExit::new(row, &d.exits))
        .collect()
}

pub(super) fn accesses(d: &DomainModel) -> Vec<JsonAccess> {
    let mut of_vcpus: Vec<_> = d.vcpu_accesses.iter().collect();
    of_vcpus.sort_by_key(|r| r.vcpu);
    with_vcpus(&d.accesses, of_vcpus, |r| (r.space, r.address, r.direction))
        .map(JsonAccess::new)
        .collect()
}

/// The guest's rows, each before the rows of its vCPUs that have the same key.
fn with_vcpus<'a, R, K: Eq + Hash>(
    sums: &'a [R],
    of_vcpus: impl IntoIterator<Item = &'a R>,
    key: impl Fn(&'a R) -> K,
) -> impl Iterator<Item = &'a R> {
    let mut parts: HashMap<K, Vec<&R>> = HashMap::new();
    of_vcpus
        .into_iter()
        .for_each(|row| parts.entry(key(row)).or_default().push(row));
    sums.iter().flat_map(move |sum| {
        [sum]
            .into_iter()
            .chain(parts.remove(&key(sum)).unwrap_or_default())
    })
}
