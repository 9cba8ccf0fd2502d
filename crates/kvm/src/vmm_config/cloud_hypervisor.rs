//! cloud-hypervisor (its docs/cpu.md, docs/memory.md and `vmm/src/vm_config.rs`).

use super::text::{inside, option, parts, size, value, values};
use super::{VmmConfig, number, vcpu_number, written};
use crate::CpuSet;
use crate::cpu_set::MAX_CPUS;
use crate::limits;
use serde_json::Value;

const NAME: &str = "cloud-hypervisor";

pub(super) fn command(args: &[String]) -> Option<VmmConfig> {
    let mut config = VmmConfig::of(NAME);
    let cpus = option(args, &["--cpus"]);
    let memory = option(args, &["--memory"]);
    if cpus.is_none() && memory.is_none() {
        return None;
    }
    if let Some(cpus) = cpus {
        config.vcpus("boot", value(cpus, "boot"));
        if let Some(topology) = value(cpus, "topology") {
            let mut numbers = topology.split(':');
            let parts = std::array::from_fn(|_| config.count("topology", numbers.next()));
            config.topology(parts);
        }
        // `affinity=[0@[2,3],1@[4-5]]`
        for one in value(cpus, "affinity").map(|list| parts(inside(list))).unwrap_or_default() {
            let Some((vcpu, list)) = one.split_once('@') else { continue };
            pin(&mut config, vcpu.parse().ok(), CpuSet::parse(inside(list)).ok());
        }
    }
    if let Some(memory) = memory {
        config.command.memory = value(memory, "size").and_then(|text| size(text, 1));
        config.command.hugepages = value(memory, "hugepages") == Some("on");
    }
    for (option, driver) in [("--disk", "virtio-blk"), ("--net", "virtio-net"), ("--device", "vfio-pci")] {
        values(args, &[option]).iter().for_each(|text| config.device(driver, value(text, "id").unwrap_or("")));
    }
    config.command.serial = option(args, &["--serial"]).is_some_and(|mode| !matches!(mode, "off" | "null"));
    config.command.vhost = values(args, &["--net"]).iter().any(|text| value(text, "vhost_user").is_some());
    config.command.name = crate::guest_name::of_socket(option(args, &["--api-socket"]).unwrap_or_default());
    Some(config)
}

pub(super) fn json(config: &Value) -> Option<VmmConfig> {
    let cpus = config.get("cpus").filter(|cpus| cpus.get("boot_vcpus").is_some())?;
    let mut found = VmmConfig::of(NAME);
    found.vcpus("boot_vcpus", written(cpus, "boot_vcpus").as_deref());
    if let Some(topology) = cpus.get("topology").filter(|topology| topology.is_object()) {
        let keys = ["threads_per_core", "cores_per_die", "dies_per_package", "packages"];
        let parts = keys.map(|key| found.count(key, written(topology, key).as_deref()));
        found.topology(parts);
    }
    for one in cpus["affinity"].as_array().into_iter().flatten().take(MAX_CPUS as usize) {
        let cpus = one["host_cpus"].as_array().into_iter().flatten().take(MAX_CPUS as usize);
        let cpus = cpus.filter_map(|cpu| u32::try_from(cpu.as_u64()?).ok()).collect();
        pin(&mut found, vcpu_number(one, "vcpu"), Some(cpus));
    }
    if let Some(memory) = config.get("memory") {
        let zones = memory["zones"].as_array().into_iter().flatten().take(64);
        let zoned = zones.filter_map(|zone| number(zone, "size")).fold(0u64, u64::saturating_add);
        found.command.memory = number(memory, "size").map(|size| size.saturating_add(zoned)).filter(|size| *size > 0);
        found.command.hugepages = memory["hugepages"] == true;
    }
    for (list, driver) in [("disks", "virtio-blk"), ("net", "virtio-net"), ("devices", "vfio-pci")] {
        let all = config[list].as_array().into_iter().flatten().take(super::MAX_DEVICES);
        all.for_each(|one| found.device(driver, one["id"].as_str().unwrap_or("")));
    }
    found.command.serial = config["serial"]["mode"].as_str().is_some_and(|mode| !matches!(mode, "Off" | "Null"));
    Some(found)
}

fn pin(config: &mut VmmConfig, vcpu: Option<u32>, cpus: Option<CpuSet>) {
    if let (Some(vcpu), Some(cpus)) = (vcpu.filter(|vcpu| *vcpu < limits::VCPUS), cpus.filter(|cpus| !cpus.is_empty()))
    {
        config.threads.vcpus.insert(vcpu, cpus);
    }
}
