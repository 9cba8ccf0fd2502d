//! Exits on a real `kvm_amd`, in a host that QEMU emulates in software: kvmtop, with each tracing
//! engine, against `perf kvm stat` over the same life of the same guest, while a second kvmtop
//! records it. `tests/nested/` boots that host. There kvmtop has only the rights of its service, or
//! the rights that `docs/security.md` gives to a binary for its users.
//!
//! What can be equal: `kvmtop report` reads perf's own recording, so its figures are perf's to the
//! last printed digit. The live engines see the same exits, so their counts are perf's. Each
//! watcher reads the clock for itself, some microseconds before or after perf does, and in real
//! time this machine can run something else between the two; where the clock counts instructions it
//! cannot, and their times agree to those microseconds.

use crate::common;
use crate::common::guest::Work;
use crate::common::nested::{self, Host, Machine};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How often a host is tried whose guest went astray.
const TRIES: usize = 3;
const READS: u32 = 2_003;
const WRITES: u32 = 1_501;
const MMIO: u32 = 1_201;
const MSRS: u32 = 1_301;
/// So few that one long exit shows in the mean and in the maximum.
const RARE: u32 = 5;
/// The work of each vCPU. The vCPU that only halts continues as long as the others work.
const WORK: [Work; 6] = [
    Work::PortReads(0x608, READS),
    Work::PortWrites(0x70, WRITES),
    Work::MmioReads(0xfed0_00f0, MMIO),
    Work::MsrReads(0x1b, MSRS),
    Work::CpuidAndCr4(RARE),
    Work::Idle,
];

/// An AMD host, and what is special about it.
#[derive(Debug, Clone, Copy)]
pub struct SvmHost {
    pub host: Host,
    /// One of the vCPUs only halts.
    pub halts: bool,
    /// KVM's types are known: `kvm_exit` is had as a raw tracepoint.
    pub has_types: bool,
    /// From 7.0 on a BPF program may be preempted (tracepoints are guarded by `tracepoint_srcu`, no
    /// longer by disabled preemption, include/linux/tracepoint.h): an event of another vCPU on that
    /// CPU is then lost, and counted as lost.
    pub preempts_programs: bool,
}

impl SvmHost {
    /// Then times are compared, and no second kvmtop may add to them.
    fn clock_counts_instructions(self) -> bool {
        self.host.machine == Machine::AmdOfInstructions
    }

    /// The lines that `job.sh` needs before it.
    fn settings(self) -> String {
        let guest = std::env::current_exe().expect("own path");
        let work: Vec<String> = WORK
            .iter()
            .filter(|work| self.halts || !matches!(work, Work::Idle))
            .map(|work| work.word())
            .collect();
        let after = |text: &'static str, before: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(before))
                .expect("rights")
        };
        let user = after(include_str!("../../docs/security.md"), "setcap ")
            .split(' ')
            .next()
            .expect("rights");
        let service = after(
            include_str!("../../assets/packaging/kvmtop-record.service"),
            "CapabilityBoundingSet=",
        );
        let service = service
            .to_lowercase()
            .replace("cap_", "+")
            .replace(' ', ",");
        format!(
            "KVMTOP={}\nGUEST={}\nWORK={}\nUSER={user}\nSERVICE=-all,{service}\nTYPES={}\nSECOND={}\n",
            env!("CARGO_BIN_EXE_kvmtop"),
            guest.display(),
            work.join(","),
            if self.has_types { "seen" } else { "hidden" },
            if self.clock_counts_instructions() {
                "none"
            } else {
                "beside"
            },
        )
    }
}

pub fn exits_agree_with_perf_kvm_stat(on: SvmHost) {
    let clock = if on.clock_counts_instructions() {
        ", clock of instructions"
    } else {
        ""
    };
    let name = format!("AMD host of {}{clock}", on.host.suite);
    if let Some(why) = nested::missing(on.host, &["perf", "setcap", "setpriv"]) {
        return common::skipped(&name, &why);
    }
    let folder = if on.clock_counts_instructions() {
        "exits-of-instructions"
    } else {
        "exits"
    };
    let mut ended = Err(String::new());
    for _ in 0..TRIES {
        ended = nested::run(
            folder,
            on.host,
            &(on.settings() + &nested::job("job.sh")),
            480,
        );
        if !ended.as_ref().is_ok_and(|shared| did_other_work(shared)) {
            break;
        }
        ended = Err("emulated, a vCPU did another vCPU's work in each try".to_owned());
    }
    let shared = match ended {
        Ok(shared) => shared,
        Err(why) => return common::skipped(&name, &why),
    };
    for engine in ["perf", "bpf"] {
        let counted = compare(engine, on, &shared);
        common::ran(&format!(
            "{name}: Linux {}, engine {engine}: {counted}",
            on.host.kernel()
        ));
    }
    if on.host.kernel().starts_with("5.") {
        locked_memory_is_raised_and_given_back(&shared);
    }
}

/// Whether perf, too, counts more reads of the port than the guest was told to make: seen once on
/// 5.10, when the vCPU that reads an MSR went on with the work of the first.
fn did_other_work(shared: &Path) -> bool {
    ["perf", "bpf"].iter().any(|engine| {
        let ports = perf_table(&read(shared.join(format!("{engine}.ioport"))));
        ports
            .get("0x608:PIN")
            .is_some_and(|row| row.count > u64::from(READS))
    })
}

/// The kernel's own limit is 64 KiB; BPF needs a hundred times as much.
fn locked_memory_is_raised_and_given_back(shared: &Path) {
    let limits = read(shared.join("bpf.limits"));
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))
        .expect("the limit");
    assert_eq!(limit.split_whitespace().next(), Some("65536"), "{limits}");
    // Where the text wraps is not what is tested.
    let limited = read(shared.join("limited"));
    let limited = limited.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        limited.contains("the limit of locked memory (RLIMIT_MEMLOCK)"),
        "{limited}"
    );
    assert!(
        limited.contains("setcap cap_bpf") && limited.contains("cap_sys_resource"),
        "{limited}"
    );
}

#[allow(clippy::needless_pass_by_value)] // called with a fresh path each time
fn read(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Count, and times in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Row {
    count: u64,
    min: f64,
    max: f64,
    mean: f64,
}

/// Rows by name.
type Table = BTreeMap<String, Row>;

/// `perf kvm stat report`: a name that may hold spaces, samples, two shares, shortest, longest, and
/// the mean with its error in brackets.
fn perf_table(text: &str) -> Table {
    let mut table = Table::new();
    for line in text.lines().filter(|line| line.contains("( +-")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let percent = words
            .iter()
            .position(|word| word.ends_with('%'))
            .expect("a share");
        let us = |i: usize| {
            words[percent + i]
                .trim_end_matches("us")
                .parse()
                .expect("microseconds")
        };
        let count = words[percent - 1].parse().expect("samples");
        table.insert(
            words[..percent - 1].join(" "),
            Row {
                count,
                min: us(2),
                max: us(3),
                mean: us(4),
            },
        );
    }
    table
}

/// Sums the guest-wide rows, whose `vcpu` is null, of all intervals.
fn kvmtop_table(intervals: &[Value], rows: &str, name: impl Fn(&Value) -> String) -> Table {
    let mut table = Table::new();
    let domains = intervals
        .iter()
        .flat_map(|i| i["domains"].as_array().expect("domains"));
    for row in domains
        .flat_map(|d| d[rows].as_array().expect("rows"))
        .filter(|row| row["vcpu"].is_null())
    {
        let count = row["count"].as_u64().expect("count");
        if count == 0 {
            continue;
        }
        let us = |key: &str| row[key].as_f64();
        let entry = table.entry(name(row)).or_insert(Row {
            min: f64::MAX,
            ..Row::default()
        });
        entry.count += count;
        // Summed here, divided below.
        entry.mean += us("mean_us").unwrap_or(0.0) * count as f64;
        if let (Some(min), Some(mean), Some(max)) = (us("min_us"), us("mean_us"), us("max_us")) {
            assert!(
                min <= mean && mean <= max,
                "an interval holds its own extremes: {row}"
            );
            (entry.min, entry.max) = (entry.min.min(min), entry.max.max(max));
        }
    }
    table
        .values_mut()
        .for_each(|row| row.mean /= row.count as f64);
    table
}

fn exits(intervals: &[Value]) -> Table {
    kvmtop_table(intervals, "exits", |row| {
        row["reason"].as_str().expect("reason").to_owned()
    })
}

/// Counts that must agree within 2 %; rows too rare for a percentage may differ by one.
fn counts_agree(engine: &str, what: &str, ours: &Table, perfs: &Table) {
    let names: std::collections::BTreeSet<&String> = ours.keys().chain(perfs.keys()).collect();
    for name in names {
        let (a, b) = (
            ours.get(name).copied().unwrap_or_default(),
            perfs.get(name).copied().unwrap_or_default(),
        );
        assert!(
            a.count.abs_diff(b.count) <= 1.max(b.count / 50),
            "{engine}: {what} {name}: kvmtop counts {}, perf {}\nkvmtop {ours:?}\nperf {perfs:?}",
            a.count,
            b.count
        );
    }
}

/// The same recording: each figure is perf's to the digit that perf prints.
fn equal_to_the_digit(recorded: &Table, perfs: &Table) {
    assert_eq!(
        recorded.keys().collect::<Vec<_>>(),
        perfs.keys().collect::<Vec<_>>()
    );
    for (name, perf) in perfs {
        let ours = recorded[name];
        let rounds_to = |ours: f64, printed: f64| (ours - printed).abs() < 0.005_001;
        assert!(
            ours.count == perf.count
                && rounds_to(ours.min, perf.min)
                && rounds_to(ours.max, perf.max)
                && rounds_to(ours.mean, perf.mean),
            "{name}: report reads {ours:?}, perf prints {perf:?}"
        );
    }
}

/// Live, the same exits, each timed by another reading of the clock: some five microseconds of
/// instructions apart. What interrupts the host between the two readings shows once: whole in the
/// longest, and its part in the mean.
fn live_times_are_close(engine: &str, live: &Table, perfs: &Table) {
    for (name, perf) in perfs {
        let ours = live[name];
        let close = |ours: f64, perf: f64, apart: f64| (ours - perf).abs() <= apart;
        let interrupted = 100.0 + 0.1 * perf.max;
        assert!(
            close(ours.min, perf.min, 10.0)
                && close(ours.mean, perf.mean, 20.0 + interrupted / perf.count as f64)
                && close(ours.max, perf.max, interrupted),
            "{engine}: {name}: kvmtop {ours:?}, perf {perf:?}"
        );
    }
}

/// Asserts that KVM's own count, from debugfs, matches the number of `kvm_exit` events. The two are
/// read some ten milliseconds apart here, which is many exits while the guest works and few once it
/// only halts, so the check uses the median of the intervals' ratios.
fn kvm_counts_as_many(engine: &str, intervals: &[Value]) {
    let mut ratios: Vec<f64> = intervals
        .iter()
        .flat_map(|i| i["domains"].as_array().expect("domains"))
        .filter_map(|d| {
            let traced = d["exits"]
                .as_array()?
                .iter()
                .filter(|e| e["vcpu"].is_null());
            Some(
                d["counters"]["exits"].as_f64()?
                    / traced.filter_map(|e| e["rate"].as_f64()).sum::<f64>(),
            )
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.get(ratios.len() / 2).copied();
    assert!(
        middle.is_some_and(|ratio| (ratio - 1.0).abs() <= 0.1),
        "{engine}: KVM's own count of exits by those traced: {ratios:?}"
    );
}

/// Returns the figures that agree, in words.
fn compare(engine: &str, on: SvmHost, shared: &Path) -> String {
    let text = read(shared.join(format!("{engine}.json")));
    let err = read(shared.join(format!("{engine}.err")));
    let intervals = common::intervals(text.as_bytes());
    assert!(
        !intervals.is_empty(),
        "kvmtop said nothing; on stderr: {err}"
    );
    assert!(
        intervals.iter().all(|i| i["engine"] == engine),
        "asked for {engine}; stderr: {err}"
    );
    let lost = lost_events(&intervals);
    assert!(
        lost == 0 || (on.preempts_programs && engine == "bpf"),
        "{engine}: {lost} events lost"
    );
    // `bpf_raw_tp_link_show_fdinfo` in kernel/bpf/syscall.c; a classic tracepoint is a perf event.
    let raw = read(shared.join(format!("{engine}.files"))).contains("tp_name:\tkvm_exit\n");
    assert_eq!(
        raw,
        engine == "bpf" && on.has_types,
        "{engine}: a raw kvm_exit"
    );

    let (live, perfs) = (
        exits(&intervals),
        perf_table(&read(shared.join(format!("{engine}.vmexit")))),
    );
    counts_agree_but_for(lost, &format!("{engine}: exits"), &live, &perfs);
    if on.clock_counts_instructions() {
        live_times_are_close(engine, &live, &perfs);
    }
    for rare in ["cpuid", "read_cr4", "write_cr4"] {
        assert_eq!(perfs[rare].count, u64::from(RARE), "{engine}: {rare}");
    }
    let report: Value =
        serde_json::from_str(&read(shared.join(format!("{engine}.report")))).expect("JSON");
    equal_to_the_digit(&exits(&[report]), &perfs);

    if !on.clock_counts_instructions() {
        let second = read(shared.join(format!("{engine}.second")));
        let second =
            [serde_json::from_str(&second).expect("the report of the second kvmtop's recording")];
        let lost = lost_events(&second);
        assert!(
            lost == 0 || on.preempts_programs,
            "{engine}: the second kvmtop lost {lost} events"
        );
        counts_agree_but_for(
            lost,
            &format!("{engine}: exits recorded beside it"),
            &exits(&second),
            &perfs,
        );
    }
    // On one CPU the guest may run for long between the two readings that this compares; only halts
    // come slowly enough.
    if on.halts && !on.clock_counts_instructions() {
        kvm_counts_as_many(engine, &intervals);
    }
    accesses_agree(engine, &intervals, lost, shared);
    let all = |table: &Table| table.values().map(|row| row.count).sum::<u64>();
    let guests = READS + WRITES + MMIO + MSRS;
    format!(
        "{} exits, perf {}, lost {lost}; the guest's {guests} accesses",
        all(&live),
        all(&perfs)
    )
}

fn lost_events(intervals: &[Value]) -> u64 {
    intervals
        .iter()
        .map(|i| i["lost_events"].as_u64().expect("lost_events"))
        .sum()
}

/// Counts that are the same, but for events that are said to be lost.
fn counts_agree_but_for(lost: u64, what: &str, ours: &Table, theirs: &Table) {
    let strangers: Vec<&String> = ours
        .keys()
        .filter(|name| !theirs.contains_key(*name))
        .collect();
    assert!(strangers.is_empty(), "{what}: {strangers:?}");
    for (name, expected) in theirs {
        let count = ours.get(name).map_or(0, |row| row.count);
        is_count_but_for(lost, &format!("{what}: {name}"), count, expected.count);
    }
}

/// One event in twenty may be lost.
fn is_count_but_for(lost: u64, what: &str, count: u64, expected: u64) {
    assert!(
        count <= expected && count + lost.min(expected / 20) >= expected,
        "{what}: {count} of {expected}, {lost} lost"
    );
}

/// Accesses are those that the guest made, and perf's.
fn accesses_agree(engine: &str, intervals: &[Value], lost: u64, shared: &Path) {
    let perf = |event: &str| perf_table(&read(shared.join(format!("{engine}.{event}"))));
    let accesses = kvmtop_table(intervals, "accesses", |row| {
        let word = |key: &str| row[key].as_str().expect("text").to_owned();
        format!("{} {} {}", word("space"), word("address"), word("access"))
    });
    for (name, count) in [
        ("pio 0x608 read", READS),
        ("pio 0x70 write", WRITES),
        ("mmio 0xfed000f0 read", MMIO),
        ("msr 0x1b read", MSRS),
    ] {
        let row = accesses.get(name).copied().unwrap_or_default();
        is_count_but_for(
            lost,
            &format!("{engine}: {name} in {accesses:?}"),
            row.count,
            u64::from(count),
        );
        assert!(row.mean > 0.0, "{engine}: {name} has no time");
    }
    // Times of accesses are not perf's: kvmtop charges the whole exit, perf a part of it.
    let named = |space: &str, read: &str, write: &str| -> Table {
        let rows = accesses.iter().filter(|(name, _)| name.starts_with(space));
        rows.map(|(name, figures)| {
            let name = name.trim_start_matches(space).trim();
            (
                name.replace(" read", read).replace(" write", write),
                *figures,
            )
        })
        .collect()
    };
    counts_agree(
        engine,
        "ports",
        &named("pio", ":PIN", ":POUT"),
        &perf("ioport"),
    );
    counts_agree(
        engine,
        "addresses",
        &named("mmio", ":R", ":W"),
        &perf("mmio"),
    );
    counts_agree(engine, "MSRs", &named("msr", ":R", ":W"), &perf("msr"));
}
