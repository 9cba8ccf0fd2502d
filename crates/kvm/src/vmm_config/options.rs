//! The options with which Proxmox starts QEMU (its PVE/QemuServer.pm, PVE/QemuServer/Memory.pm and CPUConfig.pm).

use super::is_number;
use crate::cmdline::shell_words;
use std::collections::BTreeMap;

/// QEMU's command line for a configuration; the options of `args` come last, as Proxmox appends them.
///
/// `counts` are the sockets, the cores of a socket and the vCPUs that the configuration sets; `counted` is false if one
/// of them is implausible.
pub(super) fn argv(keys: &BTreeMap<&str, &str>, counts: [Option<u32>; 3], counted: bool) -> Vec<String> {
    let get = |key: &str| keys.get(key).copied();
    let mut argv = vec!["/usr/bin/kvm".to_owned()];
    let mut add = |option: &str, value: String| argv.extend([option.to_owned(), value]);
    if let Some(name) = get("name") {
        add("-name", format!("{},debug-threads=on", name.replace(',', ",,")));
    }
    if let Some(uuid) = get("smbios1").and_then(|text| text.split(',').find_map(|part| part.strip_prefix("uuid="))) {
        add("-uuid", uuid.to_owned());
    }
    let [sockets, cores, vcpus] = counts;
    if counted {
        let (sockets, cores) = (sockets.unwrap_or(1), cores.unwrap_or(1));
        let most = sockets.saturating_mul(cores);
        let vcpus = vcpus.unwrap_or(most);
        add("-smp", format!("{vcpus},sockets={sockets},cores={cores},maxcpus={most}"));
    }
    if let Some(memory) = get("memory").map(|text| text.trim_start_matches("current=")) {
        add("-m", memory.split(',').next().unwrap_or_default().to_owned());
    }
    // Since version 8 the default machine of Windows is pinned, of others it is the newest.
    let machine =
        get("machine").map_or("pc", |text| text.split(',').next().unwrap_or(text).trim_start_matches("type="));
    let windows = windows_version(get("ostype").unwrap_or_default());
    // Proxmox switches the HPET off for Windows since Vista.
    let hpet = if windows.is_some_and(|version| version >= 6) { ",hpet=off" } else { "" };
    add("-machine", format!("{machine},accel=kvm{hpet}"));
    add("-cpu", cpu(keys, windows));
    let local = get("localtime").map_or(windows.is_some(), |on| on == "1");
    let drift = if windows.is_some() { ",driftfix=slew" } else { "" };
    add("-rtc", format!("base={}{drift}", if local { "localtime" } else { "utc" }));
    if windows.is_some() {
        add("-global", "kvm-pit.lost_tick_policy=discard".to_owned());
    }
    if get("bios") == Some("ovmf") {
        add("-bios", "OVMF".to_owned());
    }
    if get("hugepages").is_some() {
        add("-mem-path", "/run/hugepages/kvm".to_owned());
    }
    if keys.keys().any(|key| key.strip_prefix("serial").is_some_and(is_number)) {
        add("-serial", "pty".to_owned());
    }
    let io = keys.values().filter(|value| value.split(',').any(|part| part == "iothread=1"));
    for (id, _) in io.enumerate().take(64) {
        add("-object", format!("iothread,id=iothread-{id}"));
    }
    // Without `numa: 1` Proxmox ignores the cells.
    let cells = keys.iter().filter(|_| get("numa") == Some("1")).filter_map(|(key, value)| {
        let id = key.strip_prefix("numa").filter(|id| is_number(id))?;
        Some((id, value))
    });
    for (id, value) in cells {
        argv.extend(cell(id, value));
    }
    argv.extend(shell_words(get("args").unwrap_or_default()));
    argv
}

/// The options of a NUMA cell: `cpus=0-3;8,hostnodes=0-1,memory=4096,policy=bind`.
fn cell(id: &str, value: &str) -> Vec<String> {
    let part = |name: &str| value.split(',').find_map(|part| part.split_once('=').filter(|(key, _)| *key == name));
    let list = |name: &str, option: &str| -> String {
        let parts = part(name).into_iter().flat_map(|(_, list)| list.split(';'));
        parts.flat_map(|part| [",", option, "=", part]).collect()
    };
    let policy = part("policy").map_or("preferred", |(_, policy)| policy);
    let size = part("memory").map_or("0", |(_, size)| size);
    let nodes = list("hostnodes", "host-nodes");
    let policy = if nodes.is_empty() { String::new() } else { format!(",policy={policy}") };
    vec![
        "-object".into(),
        format!("memory-backend-ram,id=ram-node{id},size={size}M{nodes}{policy}"),
        "-numa".into(),
        format!("node,nodeid={id}{},memdev=ram-node{id}", list("cpus", "cpus")),
    ]
}

/// Proxmox's version number of a Windows (`windows_version` in PVE/QemuServer/Helpers.pm).
fn windows_version(ostype: &str) -> Option<u32> {
    match ostype {
        "wxp" | "w2k" | "w2k3" => Some(5),
        "wvista" | "w2k8" => Some(6),
        "win7" => Some(7),
        "win8" => Some(8),
        "win10" => Some(10),
        "win11" => Some(11),
        _ => None,
    }
}

/// The CPU with its flags and the enlightenments that Proxmox adds for Windows (`get_hyperv_enlightenments`).
fn cpu(keys: &BTreeMap<&str, &str>, windows: Option<u32>) -> String {
    let text = keys.get("cpu").copied().unwrap_or("x86-64-v2-AES");
    let model = text.split(',').next().unwrap_or_default();
    let mut cpu = model.trim_start_matches("cputype=").to_owned();
    let early_uefi = keys.get("bios") == Some(&"ovmf") && windows.is_some_and(|version| version < 8);
    if windows.is_some_and(|version| version >= 6) && !early_uefi {
        cpu.push_str(",hv_spinlocks=0x1fff,hv_vapic,hv_time,hv_reset,hv_vpindex,hv_runtime");
        if windows >= Some(7) {
            cpu.push_str(",hv_relaxed,hv_synic,hv_stimer,hv_ipi");
        }
    }
    for part in text.split(',').skip(1) {
        match part.split_once('=') {
            // `flags=+pcid;-spec-ctrl`
            Some(("flags", flags)) => flags.split(';').for_each(|flag| {
                let enlightenment = flag.trim_start_matches(['+', '-']).strip_prefix("hv-");
                match enlightenment {
                    Some(name) => {
                        let on = if flag.starts_with('-') { "off" } else { "on" };
                        cpu.push_str(&format!(",hv-{name}={on}"));
                    }
                    None => cpu.push_str(&format!(",{flag}")),
                }
            }),
            Some(("hidden", "1")) => cpu.push_str(",kvm=off"),
            Some(("hv-vendor-id", id)) => cpu.push_str(&format!(",hv_vendor_id={id}")),
            _ => {}
        }
    }
    cpu
}
