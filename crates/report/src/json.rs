//! Makes the [`JsonDocument`] of a [`View`].

use super::View;
use super::document::{
    JsonAccess, JsonCost, JsonCpu, JsonCpuTime, JsonDocument, JsonDomain, JsonDoorbell, JsonExit, JsonFunction,
    JsonHost, JsonHostDisk, JsonInterrupt, JsonKvmEvent, JsonMemory, JsonNodeMemory, JsonProfile, JsonProfiledThread,
    JsonSource, JsonStack, JsonThread, JsonUnjudgedLines, JsonUserspaceExit, SCHEMA,
};
use super::profile::ProfileView;
use judge::figures;
use judge::model::call_tree::{self, FunctionTime};
use judge::model::{
    AccessRow, Confidence, CpuModel, CpuShare, DomainModel, DoorbellModel, ExitRow, ExitTable, GuestConfig, GuestGuess,
    GuestKind, HostDiskModel, InjectionModel, Model, ThreadModel,
};
use kvm::thread_name::Role;
use kvm::userspace_exit;
use kvm::without_hidden;
use sample::{DomainFacts, Function, HostFacts, ProfiledThread, SourceStatus, StackCount, Timing};
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};
use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

/// Name and version of the program.
pub const TOOL: &str = concat!("kvmtop ", env!("CARGO_PKG_VERSION"));

/// The document of a view.
pub fn document(view: &View<'_>) -> JsonDocument {
    let m = view.model;
    JsonDocument {
        schema: SCHEMA,
        tool: TOOL,
        time: figures::utc(m.time_ms),
        interval_s: m.interval_s,
        source: view.source.to_string(),
        engine: m.engine.kind.as_str(),
        lost_events: m.lost,
        own: JsonCost { cpu_percent: m.own_cpu, rss_bytes: Some(m.own_rss).filter(|b| *b > 0) },
        sources: view.sources().into_iter().map(source).collect(),
        host: JsonHost { cpus: m.host.cpus.iter().map(|c| cpu(c, &m.host.facts)).collect() },
        domains: view.guests().map(|d| domain(d, m)).collect(),
        findings: view.selected_findings().cloned().collect(),
        cannot_tell: view.selected_cannot_tell().cloned().collect(),
        watching: view.selected_watching().cloned().collect(),
        unjudged_lines: view
            .unjudged_lines()
            .map(|(count, first)| JsonUnjudgedLines { count: count as u64, first: first.to_string() }),
    }
}

/// The document as one line.
///
/// # Errors
/// Never in practice: the document holds nothing that JSON cannot.
pub fn line(view: &View<'_>) -> serde_json::Result<String> {
    text(&document(view))
}

/// A value as JSON. Its strings keep line breaks and tabs; other controls and invisible characters, which a terminal
/// would act on once the JSON is decoded, are left out.
///
/// # Errors
/// If JSON cannot hold the value, such as a map whose keys are not strings.
pub fn text(value: &impl serde::Serialize) -> serde_json::Result<String> {
    let mut out = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, PlainStrings))?;
    String::from_utf8(out).map_err(serde::ser::Error::custom)
}

struct PlainStrings;

impl Formatter for PlainStrings {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        out.write_all(without_hidden(text).as_bytes())
    }

    fn write_char_escape<W: Write + ?Sized>(&mut self, out: &mut W, escape: CharEscape) -> io::Result<()> {
        match escape {
            CharEscape::AsciiControl(_) | CharEscape::Backspace | CharEscape::FormFeed | CharEscape::CarriageReturn => {
                Ok(())
            }
            shown => CompactFormatter.write_char_escape(out, shown),
        }
    }
}

/// The samples of a guest's stacks.
pub fn profile(view: ProfileView<'_>) -> JsonProfile {
    let ProfileView { guest, pid, profile } = view;
    let times = call_tree::functions(profile, None);
    let position: HashMap<&Function, usize> = times.iter().enumerate().map(|(i, time)| (time.function, i)).collect();
    let thread = |thread: &ProfiledThread| JsonProfiledThread {
        tid: thread.tid,
        comm: thread.comm.clone(),
        role: thread.role.as_str(),
        vcpu: thread.index.filter(|_| thread.role == Role::Vcpu),
        cpu_percent: profile.cpu_percent(thread),
        samples: profile.samples_of(Some(thread.tid)),
    };
    let function = |time: &FunctionTime<'_>| JsonFunction {
        name: time.function.name.clone(),
        module: time.function.module.clone(),
        space: time.function.space.as_str(),
        own_samples: time.own,
        total_samples: time.total,
    };
    let stack = |stack: &StackCount| JsonStack {
        tid: stack.tid,
        samples: stack.samples,
        functions: profile.named(stack).filter_map(|function| position.get(function).copied()).collect(),
    };
    JsonProfile {
        schema: SCHEMA,
        tool: TOOL,
        time: figures::utc(profile.began_ms),
        guest: guest.to_owned(),
        pid,
        duration_s: profile.duration_ns as f64 / 1e9,
        frequency_hz: profile.frequency_hz,
        samples: profile.samples_of(None),
        lost_samples: profile.lost,
        cost_s: profile.cost_ns as f64 / 1e9,
        gaps: profile.gaps.clone(),
        threads: profile.threads.iter().map(thread).collect(),
        functions: times.iter().map(function).collect(),
        stacks: profile.stacks.iter().map(stack).collect(),
    }
}

/// The JSON of a source's state.
pub fn source(s: SourceStatus) -> JsonSource {
    JsonSource { name: s.id.as_str(), state: s.state.as_str(), cause: s.cause, fix: s.fix }
}

fn cpu(c: &CpuModel, host: &HostFacts) -> JsonCpu {
    let time = c.time.as_ref();
    let place = host.topology.cpu(c.cpu);
    JsonCpu {
        cpu: c.cpu,
        usr: time.map(|t| t.usr),
        sys: time.map(|t| t.sys),
        guest: time.map(|t| t.guest),
        irq: time.map(|t| t.irq),
        softirq: time.map(|t| t.softirq),
        steal: time.map(|t| t.steal),
        iowait: time.map(|t| t.iowait),
        idle: time.map(|t| t.idle),
        unsampled: time.map(|t| t.unsampled),
        node: place.and_then(|p| p.node),
        core: place.and_then(|p| p.core),
        siblings: place.map(|p| p.siblings.iter().collect()).unwrap_or_default(),
        isolated: host.topology.isolated.as_ref().map(|set| set.contains(c.cpu)),
        frequency_khz: c.frequency_khz,
    }
}

fn domain(d: &DomainModel, m: &Model) -> JsonDomain {
    let facts = &d.facts;
    let rate = |count: u64| m.interval_s.map(|s| count as f64 / s);
    let userspace_exit = |&(vcpu, reason, count): &(Option<u32>, i32, u64)| JsonUserspaceExit {
        reason: userspace_reason(reason),
        vcpu,
        count,
        rate: rate(count),
    };
    let kvm_event = |(event, &count): (&String, &u64)| JsonKvmEvent { event: event.clone(), count, rate: rate(count) };
    let guess = GuestGuess::of(d, &GuestConfig::of(facts));
    let mut vcpu_accesses: Vec<_> = d.vcpu_accesses.iter().collect();
    vcpu_accesses.sort_by_key(|r| r.vcpu);
    JsonDomain {
        name: d.name().to_string(),
        uuid: facts.uuid.as_ref().map(|u| u.value.clone()),
        pid: facts.pid,
        vcpus: Some(d.vcpu_count()).filter(|n| *n > 0),
        machine: facts.machine.as_ref().map(|m| m.value.clone()),
        persistent: facts.persistent,
        guest_os: guest_os(facts).or_else(|| guessed(&guess)),
        guest_os_confidence: (guess.kind != GuestKind::Unknown).then_some(guess.sure.as_str()),
        guest_os_reasons: guess.reasons,
        vmm: facts.vmm.as_str().to_string(),
        state: d.state.as_str(),
        cpu: share(d.cpu),
        threads: d.threads.iter().map(thread).collect(),
        exits: with_vcpus(&d.exits.rows, d.vcpu_exits.iter().flat_map(|(_, table)| &table.rows), |r| &r.reason)
            .map(|row| exit(row, &d.exits))
            .collect(),
        accesses: with_vcpus(&d.accesses, vcpu_accesses, |r| (r.space, r.address, r.direction)).map(access).collect(),
        userspace_exits: d.userspace.iter().map(userspace_exit).collect(),
        kvm_events: d.kvm_events.iter().map(kvm_event).collect(),
        counters: d.counters.clone(),
        disks: d.disks.clone(),
        host_disks: d.host_disks.as_ref().map(|disks| disks.iter().map(host_disk).collect()),
        interrupts: d.interrupts.as_ref().map(|all| all.iter().map(interrupt).collect()),
        doorbells: d.doorbells.as_ref().map(|all| all.iter().map(doorbell).collect()),
        nics: d.nics.clone(),
        memory: JsonMemory {
            resident_bytes: d.memory.resident,
            hugetlb_bytes: d.memory.hugetlb,
            swap_bytes: d.swap.map(|(bytes, _)| bytes),
            balloon_bytes: d.memory.balloon,
            transparent_huge_bytes: d.memory.transparent,
            nodes: d.node_memory.iter().map(|(&node, &bytes)| JsonNodeMemory { node, bytes }).collect(),
            local_percent: d.local_memory_percent(&m.host.facts.topology),
        },
        profile: ProfileView::of(d).map(profile),
    }
}

fn doorbell(bell: &DoorbellModel) -> JsonDoorbell {
    JsonDoorbell {
        space: bell.space.as_str(),
        address: format!("{:#x}", bell.address),
        device: bell.device.clone(),
        to: bell.to.as_str(),
        thread: bell.comm.clone(),
        tid: bell.tid,
        count: bell.time.count,
        rate: bell.rate(),
        mean_us: bell.time.mean_us(),
        p99_us: bell.time.quantile_us(0.99),
    }
}

fn interrupt(i: &InjectionModel) -> JsonInterrupt {
    JsonInterrupt {
        source: i.source.as_str(),
        number: i.source.number(),
        line: i.source.line_name(),
        vcpu: i.vcpu,
        by: i.by.as_str(),
        thread: i.comm.clone(),
        tid: i.tid,
        count: i.count,
        rate: i.rate(),
        joined: i.joined,
        woken: i.wake.count,
        wake_mean_us: i.wake.mean_us(),
        wake_p99_us: i.wake.quantile_us(0.99),
        delay_mean_us: i.delay.mean_us(),
        delay_p99_us: i.delay.quantile_us(0.99),
        slept_mean_us: i.slept.mean_us(),
        slept_p99_us: i.slept.quantile_us(0.99),
        kicked: (i.kick.count + i.slept.count > 0).then_some(i.kick.count),
        kick_mean_us: i.kick.mean_us(),
        kick_p99_us: i.kick.quantile_us(0.99),
    }
}

fn host_disk(disk: &HostDiskModel) -> JsonHostDisk {
    let (major, minor) = disk.number;
    JsonHostDisk {
        device: disk.name.clone(),
        number: format!("{major}:{minor}"),
        alias: disk.alias.clone(),
        below: disk.below.clone(),
        read_ops: disk.rate_of(disk.reads.total.count),
        write_ops: disk.rate_of(disk.writes.total.count),
        flush_ops: disk.rate_of(disk.flushes.total.count),
        other_ops: disk.rate_of(disk.others.total.count),
        read_bytes: disk.reads.bytes,
        write_bytes: disk.writes.bytes,
        read_mean_us: disk.reads.total.mean_us(),
        read_p99_us: disk.reads.total.quantile_us(0.99),
        read_device_mean_us: disk.reads.device.mean_us(),
        write_mean_us: disk.writes.total.mean_us(),
        write_p99_us: disk.writes.total.quantile_us(0.99),
        write_device_mean_us: disk.writes.device.mean_us(),
        flush_mean_us: disk.flushes.total.mean_us(),
        submitted: disk.submitters.iter().map(|(who, count)| (who.as_str(), *count)).collect(),
    }
}

/// The guest's operating system in a word: as it is configured, else as its set-up suggests.
pub fn guest_os_of(d: &DomainModel) -> Option<String> {
    guest_os(&d.facts).or_else(|| guessed(&GuestGuess::of(d, &GuestConfig::of(&d.facts))))
}

fn guessed(guess: &GuestGuess) -> Option<String> {
    match guess.kind {
        _ if guess.sure < Confidence::Medium => None,
        GuestKind::Windows => Some("windows".into()),
        GuestKind::Linux => Some("linux".into()),
        GuestKind::Other | GuestKind::Unknown => None,
    }
}

/// The guest's operating system in a word. libosinfo ids end in `/os/version` (`http://microsoft.com/win/10`).
pub(crate) fn guest_os(facts: &DomainFacts) -> Option<String> {
    let configured = &facts.guest_os.as_ref()?.value;
    let id = configured.to_ascii_lowercase();
    let word = OS_WORDS.iter().find(|(_, signs)| signs.iter().any(|sign| id.contains(sign)));
    Some(word.map_or(configured.as_str(), |(word, _)| word).to_owned())
}

/// Systems, and what the ids of each contain.
const OS_WORDS: [(&str, &[&str]); 4] =
    [("windows", &["microsoft", "windows"]), ("bsd", &["bsd"]), ("macos", &["apple.com", "macos"]), ("linux", LINUXES)];
const LINUXES: &[&str] = &[
    "linux", "debian", "ubuntu", "fedora", "redhat", "centos", "rocky", "suse", "alpine", "gentoo", "oracle", "nixos",
];

fn share(c: Option<CpuShare>) -> JsonCpuTime {
    let kind = |kind: fn(&CpuShare) -> f64| c.and_then(|c| c.kind(kind));
    JsonCpuTime { usr: kind(|c| c.usr), sys: kind(|c| c.sys), guest: kind(|c| c.guest), wait: c.and_then(|c| c.wait) }
}

fn thread(t: &ThreadModel) -> JsonThread {
    let quantile = |times: &Option<Box<Timing>>, q: f64| times.as_ref().and_then(|times| times.quantile_us(q));
    JsonThread {
        tid: t.tid,
        comm: t.comm.clone(),
        role: t.role.as_str(),
        vcpu: t.index.filter(|_| t.role == Role::Vcpu),
        time: share(t.cpu),
        cpu: t.place.cpu,
        affinity: t.place.affinity.as_ref().map(ToString::to_string),
        migrations: t.migrations.total,
        migrations_cross_node: t.migrations.total.map(|_| t.migrations.cross_node),
        voluntary_switches: t.growth.and_then(|growth| growth.voluntary),
        involuntary_switches: t.growth.and_then(|growth| growth.involuntary),
        wakeup_p50_us: quantile(&t.wakeups, 0.5),
        wakeup_p99_us: quantile(&t.wakeups, 0.99),
        run_delay_p50_us: quantile(&t.run_delays, 0.5),
        run_delay_p99_us: quantile(&t.run_delays, 0.99),
    }
}

/// The guest's rows, each before the rows of its vCPUs that have the same key.
fn with_vcpus<'a, R, K: Eq + Hash>(
    sums: &'a [R],
    of_vcpus: impl IntoIterator<Item = &'a R>,
    key: impl Fn(&'a R) -> K,
) -> impl Iterator<Item = &'a R> {
    let mut parts: HashMap<K, Vec<&R>> = HashMap::new();
    of_vcpus.into_iter().for_each(|row| parts.entry(key(row)).or_default().push(row));
    sums.iter().flat_map(move |sum| [sum].into_iter().chain(parts.remove(&key(sum)).unwrap_or_default()))
}

/// A row. A vCPU's row has its shares of the guest's exits as well.
fn exit(r: &ExitRow, domain: &ExitTable) -> JsonExit {
    let percent = |part: u64, all: Option<u64>| Some(100.0 * part as f64 / all.filter(|a| *a > 0)? as f64);
    let micros = |ns: u64| ns as f64 / 1e3;
    let time = |all: Option<u64>| percent(r.span.total_ns?, all);
    JsonExit {
        reason: r.reason.clone(),
        isa: r.id.map(|(isa, _)| isa.as_str().into_owned()),
        code: r.id.map(|(_, code)| code),
        vcpu: r.vcpu,
        count: r.span.count,
        rate: r.rate,
        count_percent: percent(r.span.count, Some(domain.count)),
        time_percent: time(domain.total_ns),
        work_percent: time(domain.work_ns).filter(|_| !r.idle),
        min_us: r.span.min_ns.map(micros),
        max_us: r.span.max_ns.map(micros),
        mean_us: r.span.mean_us(),
        p99_us: r.span.quantile_us(0.99),
        stderr_percent: r.span.stderr_percent(),
        idle: r.idle,
    }
}

fn access(r: &AccessRow) -> JsonAccess {
    JsonAccess {
        space: r.space.as_str(),
        address: r.address_text(),
        access: r.direction.as_str(),
        device: r.device_name().map(ToString::to_string),
        device_source: r.device.as_ref().map(|d| d.from.as_str()),
        vcpu: r.vcpu,
        count: r.span.count,
        rate: r.rate,
        time_percent: r.time_percent,
        mean_us: r.span.mean_us(),
    }
}

/// Name of an exit to the VMM; a negative number is an errno.
pub(crate) fn userspace_reason(reason: i32) -> String {
    userspace_exit::display(reason.max(0).unsigned_abs(), reason.min(0)).into_owned()
}
