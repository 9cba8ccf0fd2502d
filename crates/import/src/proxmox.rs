//! The configuration of a QEMU guest under Proxmox VE: `/etc/pve/qemu-server/100.conf`, as `qm config 100` prints it
//! too (qm.conf(5)). It is read as the command line with which Proxmox starts QEMU (its PVE/QemuServer.pm,
//! PVE/QemuServer/Memory.pm and CPUConfig.pm).

use super::files::{Description, Files};
use super::text::TextFile;
use super::unread::UnreadLines;
use kvm::cmdline::{QemuCommand, UNKNOWN_PROXMOX_ID, parse_argv, shell_words};
use kvm::pattern::{Pattern, group};
use kvm::{CpuSet, limits, sanitize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Lines of a text that are read.
const MAX_LINES: usize = 10_000;
/// The most keys: a guest has some hundred devices at most.
const MAX_KEYS: usize = 1024;
/// Proxmox numbers guests from 100 to this many digits.
const MAX_ID_DIGITS: usize = 9;

/// The keys of a guest's configuration.
static KEY: Pattern = Pattern::new(
    r"(?x)^(?:ostype|scsihw|vmgenid|smbios1|bootdisk|cores|sockets|numa|onboot|balloon|affinity
    |(?:virtio|scsi|sata|ide|hostpci|net|numa|usb|unused|serial)[0-9]+
    |acpi|agent|arch|args|audio0|autostart|bios|boot|cpu|cpulimit|cpuunits|description|digest|efidisk0|freeze
    |hookscript|hotplug|hugepages|ivshmem|keephugepages|keyboard|kvm|localtime|lock|machine|memory|meta|name|parent
    |protection|rng0|shares|startup|tablet|tags|template|tpmstate0|vcpus|vga|vmstatestorage|watchdog)$",
);
/// Keys of a container's configuration (pct.conf(5)), whose other keys a guest has as well.
const OF_CONTAINERS: [&str; 4] = ["hostname", "rootfs", "swap", "unprivileged"];
/// The CPU of a guest without `cpu` (`get_default_cpu_type`). Proxmox's screens write another default down.
const DEFAULT_CPU: &str = "kvm64";
/// The SCSI controller of a guest without `scsihw`.
const DEFAULT_SCSIHW: &str = "lsi";
/// A disk of a guest.
static DISK: Pattern = Pattern::new("^(?:virtio|scsi|sata|ide)[0-9]{1,2}$");
/// The guest's number in the name of one of its volumes: `local-lvm:vm-100-disk-0`.
static VOLUME: Pattern = Pattern::new("[:/](?:vm|base)-(?P<id>[0-9]{1,9})-[0-9A-Za-z._-]*$");

/// The configuration of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxmoxConfig {
    /// The command line that it stands for.
    pub command: QemuCommand,
    /// The guest's operating system as Proxmox names it: `win11`, `l26`.
    pub guest_os: Option<String>,
    /// Lines that could not be read, or have a number that no guest can have.
    pub(crate) unread: UnreadLines,
}

/// Whether a text begins as a configuration: after notes, its first lines have keys of a guest or of a container.
pub(crate) fn begins(text: &str) -> bool {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut first = lines.take(2).peekable();
    let is_of_guest = |line: &str| line.split_once(": ").is_some_and(|(key, _)| KEY.is_match(key));
    first.peek().is_some() && first.all(is_of_guest)
}

/// Reads a configuration, whose file has the guest's number as its name.
pub(crate) fn read(file: &mut TextFile<'_>, files: &mut Files) -> Result<Vec<String>, String> {
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    let is_id = |id: &&str| (3..=MAX_ID_DIGITS).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_digit());
    let number = name.strip_suffix(".conf").filter(is_id).map(str::to_owned);
    let config = parse(file.text, number.as_deref())?;
    let notes = config.unread.notes();
    files.described.push(Description {
        number,
        command: Some(Arc::new(config.command)),
        guest_os: config.guest_os,
        is_running: true,
        ..Description::default()
    });
    Ok(notes)
}

/// Reads a configuration; `number` is the guest's, where it is known.
///
/// # Errors
/// If it is a container's.
pub fn parse(text: &str, number: Option<&str>) -> Result<ProxmoxConfig, String> {
    let mut config = ProxmoxConfig::default();
    let mut keys: BTreeMap<&str, &str> = BTreeMap::new();
    for (line_number, line) in (1..).zip(text.lines().map(str::trim)).take(MAX_LINES) {
        // Snapshots follow the present configuration.
        if line.starts_with('[') {
            break;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let pair = line.split_once(':').map(|(key, value)| (key, value.trim()));
        let is_count = |key: &str| ["sockets", "cores", "vcpus"].contains(&key);
        match pair {
            Some((key, _)) if OF_CONTAINERS.contains(&key) => {
                return Err("the configuration of a container, which is no KVM guest".into());
            }
            Some((key, value)) if is_count(key) && limits::beyond(value, limits::VCPUS.into()) => {
                config.unread.add(line_number, line);
            }
            Some((key, value)) if KEY.is_match(key) && keys.len() < MAX_KEYS => _ = keys.insert(key, value),
            _ => config.unread.add(line_number, line),
        }
    }
    config.command = parse_argv(&argv(&keys, number));
    config.command.defaults = ["cpu", "scsihw"].into_iter().filter(|key| !keys.contains_key(key)).collect();
    // `args` can have a CPU as well.
    if config.command.cpu_options.len() > 1 {
        config.command.defaults.retain(|key| *key != "cpu");
    }
    config.guest_os = keys.get("ostype").map(|name| sanitize(name, 40)).filter(|name| name != "other");
    let affinity = keys.get("affinity").and_then(|list| CpuSet::parse(list).ok());
    // Proxmox starts QEMU under taskset, so all of its threads have this mask.
    config.command.held_to = affinity.filter(|cpus| !cpus.is_empty());
    Ok(config)
}

/// QEMU's command line for a configuration; the options of `args` come last, as Proxmox appends them.
fn argv(keys: &BTreeMap<&str, &str>, number: Option<&str>) -> Vec<String> {
    let get = |key: &str| keys.get(key).copied();
    let first = |text: &str| text.split(',').next().unwrap_or_default().to_owned();
    // On Proxmox's hosts, which are x86 machines, QEMU emulates an Arm guest.
    let is_arm = get("arch") == Some("aarch64");
    let program = if is_arm { "/usr/bin/qemu-system-aarch64" } else { "/usr/bin/kvm" };
    let mut argv = vec![program.to_owned(), "-nodefaults".to_owned()];
    let mut add = |option: &str, value: String| argv.extend([option.to_owned(), value]);
    if let Some(name) = get("name") {
        add("-name", format!("{},debug-threads=on", name.replace(',', ",,")));
    }
    if let Some(uuid) = get("smbios1").and_then(|text| text.split(',').find_map(|part| part.strip_prefix("uuid="))) {
        add("-uuid", uuid.to_owned());
    }
    let count = |key: &str| get(key)?.parse::<u32>().ok().filter(|n| *n > 0);
    let sockets = count("sockets").unwrap_or(1);
    let cores = count("cores").unwrap_or(1);
    let most = sockets.saturating_mul(cores);
    let vcpus = count("vcpus").unwrap_or(most);
    add("-smp", format!("{vcpus},sockets={sockets},cores={cores},maxcpus={most}"));
    if let Some(memory) = get("memory") {
        add("-m", first(memory.trim_start_matches("current=")));
    }
    // Since version 8 the default machine of Windows is pinned, of others it is the newest.
    let default = if is_arm { "virt" } else { "pc" };
    let machine = get("machine").map_or(default.to_owned(), |text| first(text.trim_start_matches("type=")));
    let windows = windows_version(get("ostype").unwrap_or_default());
    // Proxmox switches the HPET off for Windows since Vista.
    let hpet = if windows.is_some_and(|version| version >= 6) { ",hpet=off" } else { "" };
    let accel = if get("kvm") == Some("0") || is_arm { "tcg" } else { "kvm" };
    add("-machine", format!("{machine},accel={accel}{hpet}"));
    let cpu = cpu(keys, windows, !is_arm);
    if !cpu.is_empty() {
        add("-cpu", cpu);
    }
    let local = get("localtime").map_or(windows.is_some(), |on| on == "1");
    let drift = if windows.is_some() { ",driftfix=slew" } else { "" };
    add("-rtc", format!("base={}{drift}", if local { "localtime" } else { "utc" }));
    if windows.is_some() {
        add("-global", "kvm-pit.lost_tick_policy=discard".to_owned());
    }
    // Its QMP socket has the guest's number.
    let disks = || keys.iter().filter(|(key, _)| DISK.is_match(key));
    let ids: BTreeSet<&str> = disks().filter_map(|(_, value)| group(&VOLUME.captures(volume(value))?, "id")).collect();
    // A disk may be another guest's: a clone, a replica.
    let of_disks = if ids.len() == 1 { ids.first().copied() } else { None };
    let id = number.or(of_disks).unwrap_or(UNKNOWN_PROXMOX_ID);
    add("-qmp", format!("unix:/var/run/qemu-server/{id}.qmp,server"));
    let scsihw = get("scsihw").unwrap_or(DEFAULT_SCSIHW);
    for (key, value) in keys {
        if DISK.is_match(key) {
            disk(key, value, scsihw, &mut add);
        } else if let Some(card) = network_card(key, value) {
            add("-device", card);
        }
    }
    // Proxmox adds it with the first disk.
    if get("scsihw").is_some_and(|model| model.starts_with("virtio-scsi")) {
        add("-device", "virtio-scsi-pci,id=scsihw0".to_owned());
    }
    // Without `numa: 1` Proxmox ignores the cells.
    for (key, value) in keys.iter().filter(|_| get("numa") == Some("1")) {
        if let Some(id) = key.strip_prefix("numa").and_then(|id| id.parse::<u32>().ok()) {
            let [memory, cell] = cell(id, value);
            add("-object", memory);
            add("-numa", cell);
        }
    }
    argv.extend(shell_words(get("args").unwrap_or_default()));
    argv
}

/// Limits of a disk: Proxmox's name, QEMU's name, QEMU's units in a unit of Proxmox.
const LIMITS: [(&str, &str, f64); 6] = [
    ("mbps", "bps-total", 1_048_576.0),
    ("mbps_rd", "bps-read", 1_048_576.0),
    ("mbps_wr", "bps-write", 1_048_576.0),
    ("iops", "iops-total", 1.0),
    ("iops_rd", "iops-read", 1.0),
    ("iops_wr", "iops-write", 1.0),
];

/// The drive and the device of a disk: `scsi0: local-lvm:vm-100-disk-0,aio=native,iothread=1,size=32G`.
fn disk(key: &str, value: &str, scsihw: &str, add: &mut impl FnMut(&str, String)) {
    let has = |name: &str| value.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let volume = volume(value);
    if volume == "none" || volume.ends_with("cloudinit") || has("media") == Some("cdrom") {
        return;
    }
    // Without another mode Proxmox opens disks past the host's page cache.
    let cache = has("cache").unwrap_or("none");
    let mut drive = format!("file={volume},if=none,id=drive-{key},cache={cache}");
    drive.extend(has("aio").map(|aio| format!(",aio={aio}")));
    for (proxmox_name, qemu_name, units) in LIMITS {
        let limit = has(proxmox_name).and_then(|text| text.parse::<f64>().ok());
        drive.extend(limit.map(|limit| format!(",throttling.{qemu_name}={}", (limit * units) as u64)));
    }
    add("-drive", drive);
    let is_scsi = key.starts_with("scsi");
    let driver = match key {
        _ if is_scsi => "scsi-hd",
        _ if key.starts_with("virtio") => "virtio-blk-pci",
        _ => "ide-hd",
    };
    let mut device = format!("{driver},drive=drive-{key},id={key}");
    let has_controller = driver == "virtio-blk-pci" || is_scsi;
    if has("iothread") == Some("1") && has_controller {
        // Where Proxmox ignores the option it adds no object.
        device += &format!(",iothread=iothread-{key}");
        if !is_scsi || scsihw == "virtio-scsi-single" {
            add("-object", format!("iothread,id=iothread-{key}"));
        }
    }
    add("-device", device);
    if is_scsi && !scsihw.starts_with("virtio") {
        // Proxmox's `lsi` is QEMU's lsi53c895a.
        add("-device", format!("{},id=scsihw", if scsihw == "lsi" { "lsi53c895a" } else { scsihw }));
    }
}

/// The volume of a disk.
fn volume(value: &str) -> &str {
    value.split(',').next().unwrap_or_default().trim_start_matches("file=")
}

/// The device of a network card that has its link up: `net0: e1000=BC:24:11:00:00:01,bridge=vmbr0`.
fn network_card(key: &str, value: &str) -> Option<String> {
    key.strip_prefix("net").filter(|number| number.bytes().all(|b| b.is_ascii_digit()))?;
    let model = value.split(',').next()?.trim_start_matches("model=").split('=').next()?;
    let model = if model == "virtio" { "virtio-net-pci" } else { model };
    (!value.contains("link_down=1")).then(|| format!("{model},id={key}"))
}

/// The memory and the CPUs of a NUMA cell: `cpus=0-3;8,hostnodes=0-1,memory=4096,policy=bind`.
fn cell(id: u32, value: &str) -> [String; 2] {
    let part = |name: &str| value.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let list = |name: &str, option: &str| -> String {
        part(name).into_iter().flat_map(|list| list.split(';')).flat_map(|part| [",", option, "=", part]).collect()
    };
    let nodes = match list("hostnodes", "host-nodes") {
        nodes if nodes.is_empty() => nodes,
        nodes => format!("{nodes},policy={}", part("policy").unwrap_or("preferred")),
    };
    [
        format!("memory-backend-ram,id=ram-node{id},size={}M{nodes}", part("memory").unwrap_or("0")),
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
fn cpu(keys: &BTreeMap<&str, &str>, windows: Option<u32>, has_default: bool) -> String {
    let text = keys.get("cpu").copied().unwrap_or(if has_default { DEFAULT_CPU } else { "" });
    let mut parts = text.split(',');
    let mut cpu = parts.next().unwrap_or_default().trim_start_matches("cputype=").to_owned();
    let early_uefi = keys.get("bios") == Some(&"ovmf") && windows.is_some_and(|version| version < 8);
    if windows.is_some_and(|version| version >= 6) && !early_uefi {
        cpu.push_str(",hv_spinlocks=0x1fff,hv_vapic,hv_time,hv_reset,hv_vpindex,hv_runtime");
        if windows >= Some(7) {
            cpu.push_str(",hv_relaxed,hv_synic,hv_stimer,hv_ipi");
        }
    }
    for part in parts {
        match part.split_once('=') {
            // `flags=+pcid;-spec-ctrl`
            Some(("flags", flags)) => flags.split(';').for_each(|flag| cpu.push_str(&format!(",{flag}"))),
            Some(("hidden", "1")) => cpu.push_str(",kvm=off"),
            Some(("hv-vendor-id", id)) => cpu.push_str(&format!(",hv_vendor_id={id}")),
            _ => {}
        }
    }
    cpu
}

#[cfg(test)]
mod tests;
