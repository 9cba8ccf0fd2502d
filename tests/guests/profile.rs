//! `kvmtop profile` on real guests: what it says of their threads against what they do.

use crate::common;
use crate::common::guest::{Guest, Work};
use serde_json::Value;
use std::process::Output;

fn profile(target: &str, more: &[&str]) -> Output {
    let args = [&["profile", target, "--duration", "2s"], more].concat();
    common::kvmtop().args(args).output().expect("kvmtop runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A guest that leaves for its VMM at every access: the VMM's own function, the system call and KVM
/// are in its stacks, in that order, and the CPU time is the kernel's.
#[test]
fn a_vcpu_that_is_served_by_its_vmm() {
    const TEST: &str = "a_vcpu_that_is_served_by_its_vmm";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_run_guests().or_else(common::cannot_trace) {
        return common::skipped(TEST, &why);
    }
    let mut guest = Guest::start(&[Work::PortLoop(0x71), Work::Idle], true);
    guest.go();
    let pid = guest.pid().to_string();
    let out = profile(&pid, &["--json"]);
    let json: Value = serde_json::from_slice(&out.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&out.stderr)));
    let threads = json["threads"].as_array().expect("threads");
    let busy = threads.iter().find(|t| t["vcpu"] == 0).expect("vCPU 0");
    let (cpu, samples) = (
        busy["cpu_percent"].as_f64().expect("CPU"),
        busy["samples"].as_u64().expect("samples"),
    );
    assert!(cpu > 2.0, "{busy}");
    // What the kernel counted as its CPU time is what the samples add up to.
    let wanted = cpu / 100.0 * json["duration_s"].as_f64().expect("duration") * 199.0;
    let lost = json["lost_samples"].as_u64().expect("lost") as f64;
    assert!(
        (samples as f64 + lost - wanted).abs() <= wanted * 0.1 + 3.0,
        "{samples} samples and {lost} lost, not {wanted}"
    );
    let stacks = json["stacks"].as_array().expect("stacks");
    let name = |number: &Value| {
        let number = usize::try_from(number.as_u64().expect("a number")).expect("a position");
        json["functions"][number]["name"]
            .as_str()
            .expect("a name")
            .to_owned()
    };
    let names = |stack: &Value| -> Vec<String> {
        stack["functions"]
            .as_array()
            .expect("functions")
            .iter()
            .map(name)
            .collect()
    };
    // From the thread's first function down into KVM, as `gdb` would show it.
    let is_whole = |stack: &&Value| {
        let names = names(stack);
        let at = |part: &str| names.iter().position(|name| name.contains(part));
        let order = [
            at("start_thread"),
            at("ioctl"),
            at("kvm_vcpu_ioctl"),
            at("kvm_arch_vcpu_ioctl_run"),
        ];
        order.iter().all(Option::is_some) && order.is_sorted()
    };
    let vcpu = busy["tid"].clone();
    let whole = stacks.iter().filter(|s| s["tid"] == vcpu).filter(is_whole);
    let whole: u64 = whole
        .map(|stack| stack["samples"].as_u64().expect("samples"))
        .sum();
    assert!(
        whole * 10 > samples * 7,
        "{whole} of {samples} stacks are whole: {json:#}"
    );
    common::ran(TEST);
}

/// Checks the folded stacks of one thread: each line names that thread and has a count above zero.
#[test]
fn one_thread_as_folded_stacks() {
    const TEST: &str = "one_thread_as_folded_stacks";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_run_guests().or_else(common::cannot_trace) {
        return common::skipped(TEST, &why);
    }
    let mut guest = Guest::start(&[Work::PortLoop(0x71), Work::PortLoop(0x72)], true);
    guest.go();
    let all = profile(&guest.pid().to_string(), &["--json"]);
    let all: Value = serde_json::from_slice(&all.stdout).expect("JSON");
    let threads = all["threads"].as_array().expect("threads");
    let tid = threads.iter().find(|t| t["vcpu"] == 1).expect("vCPU 1")["tid"].to_string();
    let out = profile(&tid, &["--folded"]);
    let folded = text(&out.stdout);
    assert!(folded.lines().count() > 1, "{folded}{}", text(&out.stderr));
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').expect("a count");
        assert!(count.parse::<u64>().is_ok_and(|n| n > 0), "{line}");
        assert_eq!(
            stack.split(';').nth(1),
            Some(&*format!("vcpu 1 ({tid})")),
            "{line}"
        );
    }
    common::ran(TEST);
}

#[test]
fn what_is_not_there_is_said() {
    let _beside = common::beside_others();
    let out = profile("no-such-guest", &[]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(
        said.contains("no guest is running") || said.contains("no guest and no thread of one is"),
        "{said}"
    );
}
