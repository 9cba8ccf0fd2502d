//! Firecracker (its `src/vmm/src/vmm_config` and docs/getting-started.md; docs/jailer.md).

use super::text::{option, values};
use super::{VmmConfig, number, written};
use crate::CpuSet;
use crate::thread_cpus::ThreadCpus;
use serde_json::Value;

const NAME: &str = "firecracker";

/// A command line names the guest; its configuration is in a file or comes by the API.
pub(super) fn command(args: &[String]) -> Option<VmmConfig> {
    let id = option(args, &["--id"]);
    let is_vmm = id.is_some() || option(args, &["--api-sock", "--config-file"]).is_some();
    let mut config = is_vmm.then(|| VmmConfig::of(NAME))?;
    config.command.name = id.map(|id| crate::sanitize(id, 80));
    // The jailer sets cgroup files: `--cgroup cpuset.cpus=2-3`.
    let cpuset = values(args, &["--cgroup"]).into_iter().find_map(|text| text.strip_prefix("cpuset.cpus="));
    if let Some(cpus) = cpuset.and_then(|list| CpuSet::parse(list).ok()).filter(|cpus| !cpus.is_empty()) {
        config.threads = ThreadCpus { emulator: Some(cpus), ..ThreadCpus::default() };
    }
    Some(config)
}

pub(super) fn json(config: &Value) -> Option<VmmConfig> {
    // The whole file, or the body of PUT /machine-config alone.
    let machine = config.get("machine-config").or_else(|| config.get("machine_config")).unwrap_or(config);
    machine.get("vcpu_count").filter(|_| machine.get("mem_size_mib").is_some())?;
    let mut found = VmmConfig::of(NAME);
    found.vcpus("vcpu_count", written(machine, "vcpu_count").as_deref());
    let smt = machine["smt"] == true || machine["ht_enabled"] == true;
    if smt {
        let cores = found.command.smp.cpus.map(|n| n.div_ceil(2));
        found.topology([Some(2), cores, None, Some(1)]);
    }
    found.command.memory = number(machine, "mem_size_mib").and_then(|mib| mib.checked_mul(1 << 20));
    found.command.hugepages = machine["huge_pages"].as_str().is_some_and(|pages| pages != "None");
    for (list, key, driver) in [("drives", "drive_id", "virtio-blk"), ("network-interfaces", "iface_id", "virtio-net")]
    {
        let all = config[list].as_array().into_iter().flatten().take(super::MAX_DEVICES);
        all.for_each(|one| found.device(driver, one[key].as_str().unwrap_or("")));
    }
    Some(found)
}
