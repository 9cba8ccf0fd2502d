//! kvmtop on arm64, in a host that QEMU emulates in software: a guest of known work, its exits and
//! accesses by each engine (bpf in a recording) and its interrupts, compared with what the guest
//! did and with what ftrace counted of the same events.

use crate::common;
use crate::common::nested::{self, Host, Machine};
use crate::interrupts::ways_by_ftrace;
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;

const TEST: &str = "arm64 host of bookworm";
const HOST: Host = Host {
    machine: Machine::Arm64,
    suite: "bookworm",
};
/// Reasons as `kvm_exit` numbers them: its `ret`, and for a trap (2) its `esr_ec`.
const REASONS: [(&str, (u64, u64)); 6] = [
    ("IRQ", (0, 0)),
    ("WFx", (2, 0x01)),
    ("HVC64", (2, 0x16)),
    ("SYS64", (2, 0x18)),
    ("IABT_LOW", (2, 0x20)),
    ("DABT_LOW", (2, 0x24)),
];
/// What the guest accesses, in the order in which it says how often: the address, how, and QEMU's
/// device there.
const ACCESSES: [(u64, &str, &str); 5] = [
    (0x0900_0018, "read", "pl011"),
    (0x0900_0000, "write", "pl011"),
    (0x0a00_0250, "write", "virtio-mmio"),
    (0x0901_0000, "read", "pl031"),
    (0x3f00_0000, "read", "pcie-mmcfg-mmio"),
];
/// The interrupts that find vCPU 0 asleep, half of them by `KVM_IRQ_LINE` and half by an irqfd.
const ASLEEP: u64 = 60;

pub fn an_arm64_host_is_watched() {
    let shared = match emulate() {
        Ok(shared) => shared,
        Err(why) => return common::skipped(TEST, &why),
    };
    let read = |name: &str| {
        std::fs::read_to_string(shared.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    let json = |name: &str| serde_json::from_str(&read(name)).expect("JSON");
    let recorded = [json("report.json")];
    for (engine, intervals) in [
        ("bpf", &recorded[..]),
        ("perf", &common::intervals(read("perf.json").as_bytes())),
    ] {
        let counted = counts_agree(engine, intervals, &read);
        common::ran(&format!(
            "{TEST}: Linux {}, engine {engine}: {counted}",
            HOST.kernel()
        ));
    }
    interrupts_are_timed(&recorded, &read("ways"));
    assert!(
        read("perf.err").contains("the perf engine does not trace interrupts"),
        "{}",
        read("perf.err")
    );
    common::ran(&format!("{TEST} (interrupts)"));
    a_console_is_found(&json("check.json"));
    the_screen_shows_it(&std::fs::read(shared.join("screen")).expect("the screen"));
    common::ran(&format!("{TEST} (check, screen)"));
}

/// Runs the job, and returns the folder with what it left.
fn emulate() -> Result<PathBuf, String> {
    if let Some(why) = nested::missing(HOST, &["aarch64-linux-gnu-gcc", "aarch64-linux-gnu-strip"])
    {
        return Err(why);
    }
    let run = |command: &mut Command| {
        let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
        let said = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        assert!(
            out.status.success(),
            "{command:?}: {said} {}",
            String::from_utf8_lossy(&out.stderr)
        );
        Ok::<_, String>(said)
    };
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = run(Command::new("sh")
        .arg(tree.join("assets/packaging/aarch64.sh"))
        .args(["dev", "--only-build"]))?;
    if let Some(why) = built.strip_prefix("SKIPPED aarch64: ") {
        return Err(why.to_owned());
    }
    let files = HOST.folder();
    std::fs::create_dir_all(&files).map_err(|e| e.to_string())?;
    run(Command::new("aarch64-linux-gnu-strip")
        .arg(built)
        .arg("-o")
        .arg(files.join("kvmtop")))?;
    let guest = nested::scripts().join("guest-arm64.c");
    let flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o"];
    run(Command::new("aarch64-linux-gnu-gcc")
        .args(flags)
        .arg(files.join("guest"))
        .arg(guest))?;
    let job = format!(
        "FILES=/machine{}\n{}",
        files.display(),
        nested::job("job-arm64.sh")
    );
    nested::run("watched", HOST, &job, 300)
}

/// The sums of `count` over the guest-wide rows of all intervals.
fn sums(intervals: &[Value], rows: &str, name: impl Fn(&Value) -> String) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let domains = intervals
        .iter()
        .flat_map(|i| i["domains"].as_array().expect("domains"));
    for row in domains
        .flat_map(|d| d[rows].as_array().expect("rows"))
        .filter(|row| row["vcpu"].is_null())
    {
        *sums.entry(name(row)).or_default() += row["count"].as_u64().expect("a count");
    }
    sums
}

/// A histogram of ftrace, by its two keys: `{ ret: 2, esr_ec: 36 } hitcount: 7866`.
fn histogram(text: &str, radix: u32) -> BTreeMap<(u64, u64), u64> {
    let rows = text.lines().filter(|line| line.starts_with('{'));
    rows.map(|row| {
        let mut words = row
            .split([' ', ','])
            .filter(|word| !word.is_empty() && !word.ends_with([':', '{', '}']));
        let mut number =
            |radix| u64::from_str_radix(words.next().expect("a number"), radix).expect(row);
        ((number(radix), number(10)), number(10))
    })
    .collect()
}

/// Returns the figures that agree, in words.
fn counts_agree(name: &str, intervals: &[Value], read: &impl Fn(&str) -> String) -> String {
    assert!(
        intervals.iter().all(|i| i["lost_events"] == 0),
        "{name}: {intervals:#?}"
    );
    let by_guest = read("done-by-guest");
    let last = by_guest.lines().last().expect("what the guest did");
    let did: Vec<u64> = last
        .split(' ')
        .map(|n| n.parse().expect("a count"))
        .collect();

    let (exits, traced) = (
        sums(intervals, "exits", |row| row["reason"].to_string()),
        histogram(&read("exits"), 10),
    );
    for (reason, key) in REASONS {
        let (ours, theirs) = (
            exits.get(&format!("{reason:?}")),
            traced.get(&key).copied().unwrap_or_default(),
        );
        // Each vCPU sleeps when the guest ends: that exit has no entry after it.
        let asleep = if reason == "WFx" { 2 } else { 0 };
        assert_eq!(
            ours.copied().unwrap_or_default(),
            theirs - asleep,
            "{name}: {reason}: {exits:?}, {traced:?}"
        );
        assert!(theirs > 0, "{reason}: {traced:?}");
    }
    assert_eq!(exits.len(), REASONS.len(), "{name}: {exits:?}");
    assert_eq!(
        (exits["\"HVC64\""], exits["\"SYS64\""]),
        (did[5], did[6]),
        "{name}"
    );

    let place = |row: &Value| format!("{} {} {}", row["address"], row["access"], row["device"]);
    let (seen, traced) = (
        sums(intervals, "accesses", place),
        histogram(&read("accesses"), 16),
    );
    for ((address, access, device), did) in ACCESSES.into_iter().zip(&did) {
        let place = format!("\"{address:#x}\" {access:?} {device:?}");
        assert_eq!(seen.get(&place), Some(did), "{name}: {place}: {seen:?}");
        // `KVM_TRACE_MMIO_READ`, `KVM_TRACE_MMIO_WRITE` (include/trace/events/kvm.h).
        assert_eq!(
            traced[&(address, if access == "read" { 1 } else { 2 })],
            *did,
            "{place}"
        );
    }
    // The interrupt controller, which the kernel serves.
    assert_eq!(
        seen.get("\"0x8000104\" \"write\" \"gicv3_dist\""),
        Some(&1),
        "{name}: {seen:?}"
    );
    let domains = || {
        intervals
            .iter()
            .flat_map(|i| i["domains"].as_array().expect("domains"))
    };
    let vcpus = domains()
        .flat_map(|d| d["threads"].as_array().expect("threads"))
        .filter(|t| t["role"] == "vcpu");
    assert!(
        vcpus.clone().any(|t| t["vcpu"] == 0) && vcpus.clone().any(|t| t["vcpu"] == 1),
        "{name}"
    );
    assert!(
        vcpus.clone().any(|t| t["wakeup_p50_us"].is_f64()),
        "{name}: wake-ups"
    );
    assert!(
        domains().any(|d| d["counters"]["exits"].is_f64()),
        "{name}: KVM's own counters"
    );
    format!(
        "{} exits, as ftrace's; the guest's {} accesses",
        exits.values().sum::<u64>(),
        did[..5].iter().sum::<u64>()
    )
}

/// The interrupts that woke vCPU 0, and how long each part of their way took by ftrace.
fn interrupts_are_timed(intervals: &[Value], ways: &str) {
    let rows = || {
        let domains = intervals
            .iter()
            .flat_map(|i| i["domains"].as_array().expect("domains"));
        domains
            .flat_map(|d| d["interrupts"].as_array().into_iter().flatten())
            .filter(|row| row["source"] == "spi")
    };
    let sum = |key: &str| rows().filter_map(|row| row[key].as_u64()).sum::<u64>();
    let all: Vec<_> = rows().collect();
    assert!(all.iter().all(|row| row["number"] == 3), "{all:#?}");
    let (of_vcpu, unknown): (Vec<&Value>, Vec<&Value>) =
        all.iter().partition(|row| row["vcpu"] == 0);
    assert!(
        of_vcpu.iter().all(|row| row["woken"].as_u64() > Some(0)),
        "{all:#?}"
    );
    assert!(
        unknown
            .iter()
            .all(|row| row["vcpu"].is_null() && row["woken"] == 0),
        "{all:#?}"
    );
    assert!(sum("woken") >= ASLEEP * 9 / 10, "{all:#?}");

    let injector = all[0]["tid"].as_i64().expect("the thread that injects") as i32;
    let (count, theirs) = ways_by_ftrace(ways, injector);
    assert!(count >= ASLEEP * 9 / 10, "{count}: {ways}");
    for (key, (shortest, longest)) in ["wake_mean_us", "delay_mean_us", "slept_mean_us"]
        .into_iter()
        .zip(theirs)
    {
        let total = rows()
            .filter_map(|row| Some(row[key].as_f64()? * row["woken"].as_f64()?))
            .sum::<f64>();
        let ours = total / sum("woken") as f64;
        println!(
            "{key}: {} of {ours:.1} us; ftrace: {count} of {shortest:.1} to {longest:.1} us",
            sum("woken")
        );
        // Each reads the clock for itself, and other programs of this machine come between.
        let close = 0.8 * shortest - 200.0..1.25 * longest + 200.0;
        assert!(
            close.contains(&ours),
            "{key}: {ours} us; by ftrace {shortest} to {longest} us: {all:#?}"
        );
    }
}

fn a_console_is_found(check: &Value) {
    let findings = check["findings"].as_array().expect("findings");
    let burst = findings.iter().find(|f| f["rule"] == "serial-burst");
    let evidence = &burst.unwrap_or_else(|| panic!("no serial-burst: {check:#}"))["evidence"];
    assert!(
        evidence.to_string().contains("accesses to pl011"),
        "{evidence}"
    );
}

fn the_screen_shows_it(bytes: &[u8]) {
    let n = |n| NonZero::new(n).expect("a size");
    let mut parser = vt100::Parser::new(n(100), n(140), 0);
    // Up to where it leaves the alternate screen.
    let end = bytes
        .windows(8)
        .rposition(|at| at == b"\x1b[?1049l")
        .expect("an end");
    parser.process(&bytes[..end]);
    let text = parser.screen().contents();
    for shown in ["DABT_LOW", "pl011", "spi 3"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}
