//! crosvm (its src/crosvm/cmdline.rs and the chapters "Options and Configuration Files" and "Block" of its book).

use super::text::{inside, option, parts, value, values};
use super::{VmmConfig, number, written};
use crate::CpuSet;
use crate::limits;
use crate::thread_cpus::ThreadCpus;
use serde_json::Value;

const NAME: &str = "crosvm";

pub(super) fn command(args: &[String]) -> Option<VmmConfig> {
    let run = args.iter().position(|arg| arg == "run" || arg == "run-mp")?;
    let args = args.get(run + 1..)?;
    let mut config = VmmConfig::of(NAME);
    let cpus = option(args, &["--cpus", "-c"]).unwrap_or("1");
    config.vcpus("cpus", value(cpus, "num-cores").or_else(|| parts(cpus).first().copied()));
    if let Some(memory) = option(args, &["--mem", "-m"]) {
        let mib = value(memory, "size").or_else(|| parts(memory).first().copied()).and_then(|n| n.parse::<u64>().ok());
        config.command.memory = mib.and_then(|mib| mib.checked_mul(1 << 20));
    }
    config.command.name = option(args, &["--name"]).map(|name| crate::sanitize(name, 80));
    config.command.hugepages = args.iter().any(|arg| arg == "--hugepages");
    if let Some(affinity) = option(args, &["--cpu-affinity"]) {
        pins(&mut config, affinity);
    }
    let disks = ["--block", "-b", "--disk", "-d", "--rwdisk", "--root", "-r", "--rwroot"];
    values(args, &disks).iter().for_each(|_| config.device("virtio-blk", ""));
    values(args, &["--net", "--tap-name"]).iter().for_each(|text| config.device("virtio-net", net_name(text)));
    values(args, &["--vfio"]).iter().for_each(|_| config.device("vfio-pci", ""));
    Some(config)
}

fn net_name(text: &str) -> &str {
    value(text, "tap-name").unwrap_or("")
}

/// `0=0:1=1:2=2,3` for single vCPUs, `0-3` for all.
fn pins(config: &mut VmmConfig, text: &str) {
    if !text.contains('=') {
        if let Some(cpus) = CpuSet::parse(text).ok().filter(|cpus| !cpus.is_empty()) {
            let vcpus = (0..config.command.smp.cpus.unwrap_or(1)).map(|vcpu| (vcpu, cpus.clone()));
            config.threads = ThreadCpus { vcpus: vcpus.collect(), ..ThreadCpus::default() };
        }
        return;
    }
    for (vcpu, cpus) in text.split(':').filter_map(|one| one.split_once('=')) {
        let cpus = CpuSet::parse(inside(cpus)).ok().filter(|cpus| !cpus.is_empty());
        if let (Some(vcpu), Some(cpus)) = (vcpu.parse().ok().filter(|vcpu| *vcpu < limits::VCPUS), cpus) {
            config.threads.vcpus.insert(vcpu, cpus);
        }
    }
}

/// The file of `crosvm run --cfg`: the options' names as keys.
pub(super) fn json(config: &Value) -> Option<VmmConfig> {
    let cpus = config.get("cpus")?;
    let count = written(cpus, "num-cores").or_else(|| written(config, "cpus"));
    let memory = config.get("mem");
    if count.is_none() && memory.is_none() {
        return None;
    }
    let mut found = VmmConfig::of(NAME);
    found.vcpus("cpus", count.as_deref());
    let mib = memory.and_then(|memory| number(memory, "size").or_else(|| memory.as_u64()));
    found.command.memory = mib.and_then(|mib| mib.checked_mul(1 << 20));
    found.command.name = config["name"].as_str().map(|name| crate::sanitize(name, 80));
    found.command.hugepages = config["hugepages"] == true;
    if let Some(affinity) = config["cpu-affinity"].as_str() {
        pins(&mut found, affinity);
    }
    for (list, driver) in [("block", "virtio-blk"), ("net", "virtio-net"), ("vfio", "vfio-pci")] {
        let all = config[list].as_array().into_iter().flatten().take(super::MAX_DEVICES);
        all.for_each(|one| found.device(driver, one["tap-name"].as_str().unwrap_or("")));
    }
    Some(found)
}
