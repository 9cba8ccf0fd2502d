//! Reads each option into [`QemuCommand`].

use super::QemuCommand;
use super::cpu::{cpu, global_of_cpu};
use super::disks;
use super::values::{Pair, Pairs, get, is_on, pairs};
use crate::cpu_set::CpuSet;
use crate::device_property::{DeviceProperty, MAX_PROPERTIES, PropertyPlace};
use crate::guest_numa::GuestNumaCell;
use crate::limits::{self, Implausible};
use crate::sanitize;
use std::collections::{BTreeMap, BTreeSet};

/// Kind, id and all parts of a device, object or character device.
type DeviceSpec = (String, String, Pairs);

/// Limit of the drives whose files are kept.
const MAX_DRIVES: usize = 64;
/// Limit of the cells, and of the memory backends, of a guest; QEMU's is 128 (include/sysemu/numa.h, `MAX_NODES`).
const MAX_CELLS: usize = 128;

/// Character devices by id, which monitors and serial ports refer to.
#[derive(Default)]
pub(super) struct Chardevs {
    sockets: BTreeMap<String, String>,
    nulls: BTreeSet<String>,
    /// Chardevs of monitors in control mode.
    control: Vec<String>,
    /// Chardevs of serial ports.
    serial: Vec<String>,
    /// Whether no option named or removed a serial port.
    no_serial: bool,
}

impl Chardevs {
    pub(super) fn finish(self, command: &mut QemuCommand) {
        for id in &self.control {
            if let Some(path) = self.sockets.get(id) {
                command.qmp_sockets.push(path.clone());
            }
        }
        command.serial |= !self.no_serial && self.serial.iter().any(|id| !self.nulls.contains(id));
    }
}

/// Whether QEMU listens on a socket in a folder. Without `server` QEMU connects to another program's socket, and an
/// `abstract` name is not a path (QEMU's qemu-options.hx).
fn listens(pairs: &[Pair]) -> bool {
    let flag = |key: &str| pairs.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value);
    let on = |key: &str| flag(key).is_some_and(|value| value.as_deref().is_none_or(is_on));
    on("server") && !on("abstract")
}

/// Devices and objects are written as options or, by recent libvirt, as JSON: kind (`driver`, `qom-type`) and id.
fn kind_and_id(value: &str, kind: &str) -> Option<DeviceSpec> {
    if value.trim_start().starts_with('{') {
        let json: serde_json::Value = serde_json::from_str(value).ok()?;
        let map = json.as_object()?;
        let text = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Bool(true) => "on".to_owned(),
            serde_json::Value::Bool(false) => "off".to_owned(),
            other => other.to_string(),
        };
        let pairs: Vec<_> = map.iter().map(|(key, value)| (key.clone(), Some(text(value)))).collect();
        return Some((get(&pairs, kind, false)?, get(&pairs, "id", false).unwrap_or_default(), pairs));
    }
    let pairs = pairs(value);
    Some((get(&pairs, kind, true)?, get(&pairs, "id", false).unwrap_or_default(), pairs))
}

pub(super) fn option(command: &mut QemuCommand, chardevs: &mut Chardevs, option: &str, value: &str) {
    match option {
        "name" => {
            let pairs = pairs(value);
            command.name = get(&pairs, "guest", true).or(command.name.take());
            command.debug_threads |= get(&pairs, "debug-threads", false).is_some_and(|on| is_on(&on));
        }
        "uuid" => command.uuid = Some(value.to_ascii_lowercase()),
        "machine" | "M" => machine(command, value),
        "accel" => command.accel = get(&pairs(value), "accel", true),
        "enable-kvm" => command.accel = Some("kvm".to_owned()),
        "smp" => smp(command, value),
        "numa" => numa(command, value),
        "m" => command.memory = get(&pairs(value), "size", true).and_then(|size| bytes(&size)).or(command.memory),
        "cpu" => cpu(command, value),
        "no-hpet" => command.hpet = Some(false),
        "rtc" => {
            let pairs = pairs(value);
            command.rtc_base = get(&pairs, "base", false).or(command.rtc_base.take());
            command.rtc_driftfix = get(&pairs, "driftfix", false).or(command.rtc_driftfix.take());
            command.rtc_clock = get(&pairs, "clock", false).or(command.rtc_clock.take());
        }
        "localtime" => command.rtc_base = Some("localtime".to_owned()),
        "rtc-td-hack" => command.rtc_driftfix = Some("slew".to_owned()),
        "global" => global(command, value),
        "no-kvm-pit-reinjection" => command.pit_policy = Some("discard".to_owned()),
        "qmp" | "qmp-pretty" => {
            if let Some(rest) = value.strip_prefix("unix:") {
                let pairs = pairs(rest);
                let path = pairs.first().map(|(path, _)| path.clone());
                command.qmp_sockets.extend(path.filter(|_| listens(&pairs)));
            } else if let Some(id) = value.strip_prefix("chardev:") {
                chardevs.control.push(id.to_owned());
            }
        }
        "chardev" => chardev(chardevs, value),
        "mon" => {
            let pairs = pairs(value);
            if get(&pairs, "mode", false).as_deref() == Some("control") {
                chardevs.control.extend(get(&pairs, "chardev", true));
            }
        }
        "serial" => match value {
            "none" => chardevs.no_serial = true,
            "null" | "" => {}
            other => match other.strip_prefix("chardev:") {
                Some(id) => chardevs.serial.push(id.to_owned()),
                None => command.serial = true,
            },
        },
        // Without a screen the first serial port goes to the terminal.
        "nographic" => command.serial |= !chardevs.no_serial,
        "overcommit" | "realtime" => {
            let pairs = pairs(value);
            let on = |key: &str| get(&pairs, key, false).is_some_and(|on| is_on(&on));
            command.overcommit_cpu_pm |= on("cpu-pm");
            command.mem_lock |= on("mem-lock") || on("mlock");
        }
        "mem-path" => command.hugepages |= value.contains("hugepage"),
        "object" => object(command, value),
        "device" => {
            if let Some((driver, id, pairs)) = kind_and_id(value, "driver") {
                if matches!(driver.as_str(), "isa-serial" | "pci-serial" | "pl011") {
                    chardevs.serial.extend(get(&pairs, "chardev", false));
                }
                let device = if id.is_empty() { driver.as_str() } else { &id };
                for (name, value) in &pairs {
                    property(command, device, name, value.as_deref().unwrap_or("on"));
                }
                disks::device(&mut command.disks, &driver, &id, &pairs);
                command.devices.push((driver, id));
            }
        }
        // `-set device.net0.ioeventfd=off`
        "set" => {
            let path = value.split_once('=').and_then(|(path, to)| Some((path.strip_prefix("device.")?, to)));
            if let Some(((device, name), to)) = path.and_then(|(path, to)| Some((path.rsplit_once('.')?, to))) {
                property(command, device, name, to);
            }
        }
        "netdev" => {
            command.vhost |=
                value.contains("\"vhost\":true") || get(&pairs(value), "vhost", false).is_some_and(|on| is_on(&on));
        }
        "append" => command.append = Some(sanitize(value, 512)),
        "cdrom" | "hda" | "hdb" | "hdc" | "hdd" | "fda" => drive_file(command, value),
        "bios" | "drive" | "blockdev" | "pflash" => {
            drive(command, value);
            command.uefi |= ["OVMF", "AAVMF", "edk2", "QEMU_EFI"].iter().any(|mark| value.contains(mark));
        }
        _ => {}
    }
}

fn chardev(chardevs: &mut Chardevs, value: &str) {
    let Some((kind, id, pairs)) = kind_and_id(value, "backend") else { return };
    match (kind.as_str(), get(&pairs, "path", false)) {
        ("socket", Some(path)) if listens(&pairs) => {
            chardevs.sockets.insert(id, path);
        }
        ("null", _) => {
            chardevs.nulls.insert(id);
        }
        _ => {}
    }
}

/// Keeps a property of a device, if it matters. A later one of the same name replaces it.
fn property(command: &mut QemuCommand, device: &str, name: &str, value: &str) {
    let device = device.strip_prefix("ua-").unwrap_or(device);
    let Some(new) = DeviceProperty::new(device, name, value, PropertyPlace::CommandLine) else { return };
    let all = &mut command.device_properties;
    all.retain(|known| (&known.device, &known.name) != (&new.device, &new.name));
    if all.len() < MAX_PROPERTIES {
        all.push(new);
    }
}

fn machine(command: &mut QemuCommand, value: &str) {
    for (index, (key, value)) in pairs(value).into_iter().enumerate() {
        match (key.as_str(), value) {
            (_, None) if index == 0 => command.machine = Some(key),
            ("type", Some(value)) => command.machine = Some(value),
            ("accel", Some(value)) => command.accel = value.split(':').next().map(str::to_owned),
            ("hpet", Some(value)) => command.hpet = Some(is_on(&value)),
            ("kernel_irqchip" | "kernel-irqchip", Some(value)) => {
                property(command, "machine", "kernel-irqchip", &value);
                command.kernel_irqchip = Some(value);
            }
            _ => {}
        }
    }
}

fn smp(command: &mut QemuCommand, value: &str) {
    let pairs = pairs(value);
    let number = |key: &str, implied: bool, before: Option<u32>| match get(&pairs, key, implied) {
        Some(text) => text.parse().ok().filter(|n| *n <= limits::VCPUS),
        None => before,
    };
    // A repeated -smp is merged key by key (system/vl.c, `merge_lists` of its options).
    let before = command.smp;
    command.smp = super::Smp {
        cpus: number("cpus", true, before.cpus),
        maxcpus: number("maxcpus", false, before.maxcpus),
        sockets: number("sockets", false, before.sockets),
        dies: number("dies", false, before.dies),
        cores: number("cores", false, before.cores),
        threads: number("threads", false, before.threads),
    };
}

/// A cell of the guest: `node,nodeid=0,cpus=0-3,cpus=8,memdev=ram-node0`.
fn numa(command: &mut QemuCommand, value: &str) {
    let pairs = pairs(value);
    if pairs.first().is_none_or(|(kind, value)| kind != "node" || value.is_some()) || command.cells.len() >= MAX_CELLS {
        return;
    }
    let mut cell = GuestNumaCell { id: command.cells.len() as u32, ..GuestNumaCell::default() };
    for (key, value) in &pairs {
        match (key.as_str(), value) {
            ("nodeid", Some(id)) => cell.id = id.parse().unwrap_or(cell.id),
            ("cpus", Some(list)) => cell.cpus = cell.cpus.union(&CpuSet::parse(list).unwrap_or_default()),
            ("mem", Some(size)) => cell.memory = bytes(size),
            _ => {}
        }
    }
    command.cells.push((cell, get(&pairs, "memdev", false)));
}

/// The host nodes that a memory backend is bound to: `host-nodes=0,policy=bind`, in JSON `[0]`.
fn bound_nodes(pairs: &[Pair]) -> Option<CpuSet> {
    if get(pairs, "policy", false)? != "bind" {
        return None;
    }
    let lists = pairs.iter().filter(|(key, _)| key == "host-nodes").filter_map(|(_, list)| list.as_deref());
    let nodes = lists.filter_map(|list| CpuSet::parse(list.trim_matches(['[', ']'])).ok());
    nodes.reduce(|a, b| a.union(&b)).filter(|nodes| !nodes.is_empty())
}

fn object(command: &mut QemuCommand, value: &str) {
    let Some((kind, id, pairs)) = kind_and_id(value, "qom-type") else { return };
    if kind.starts_with("memory-backend-")
        && command.bound_memory.len() < MAX_CELLS
        && let Some(nodes) = bound_nodes(&pairs)
    {
        command.bound_memory.insert(id.clone(), nodes);
    }
    match kind.as_str() {
        "iothread" => command.iothreads.push(id),
        "memory-backend-file" => {
            command.hugepages |= get(&pairs, "mem-path", false).is_some_and(|path| path.contains("hugepage"));
        }
        "memory-backend-memfd" => {
            command.hugepages |= get(&pairs, "hugetlb", false).is_some_and(|on| is_on(&on));
        }
        _ => {}
    }
}

/// The file of `-drive` or `-blockdev`.
fn drive(command: &mut QemuCommand, value: &str) {
    let parts = kind_and_id(value, "driver").map_or_else(|| pairs(value), |(_, _, parts)| parts);
    disks::drive(&mut command.disks, &parts);
    if let Some(file) = get(&parts, "file", false).or_else(|| get(&parts, "filename", false)) {
        drive_file(command, &file);
    }
}

/// Keeps the name of a drive's file.
fn drive_file(command: &mut QemuCommand, path: &str) {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
    if !name.is_empty() && command.drive_files.len() < MAX_DRIVES {
        command.drive_files.push(sanitize(name, 128));
    }
}

/// Checks that an option's numbers are possible for a guest.
pub(super) fn check(option: &str, value: &str) -> Result<(), Implausible> {
    let pairs = pairs(value);
    let (what, most) = match option {
        "smp" => ("a number of -smp", u64::from(limits::VCPUS)),
        "m" => ("the size of -m", limits::GUEST_MEMORY),
        _ => return Ok(()),
    };
    let numbers = pairs.iter().enumerate().filter_map(|(index, (key, value))| match value {
        Some(value) => Some(value),
        None => (index == 0).then_some(key),
    });
    for text in numbers {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let too_large = option == "m" && !digits.is_empty() && bytes(text).is_none() && digits.len() < text.len();
        if limits::beyond(digits, most) || too_large {
            let value = crate::sanitize(text, 40);
            return Err(Implausible { what: what.into(), value, most });
        }
    }
    Ok(())
}

/// Bytes of `-m`: `4096` is MiB; `4G` and `512M` have a unit.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" | "m" | "mb" | "mib" => 20,
        "b" => 0,
        "k" | "kb" | "kib" => 10,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes <= limits::GUEST_MEMORY)
}

/// `kvm-pit.lost_tick_policy=delay`, or the same in three parts.
fn global(command: &mut QemuCommand, value: &str) {
    let long = pairs(value);
    let part = |key: &str| get(&long, key, false);
    let (driver, property, value) =
        if let (Some(driver), Some(property), Some(value)) = (part("driver"), part("property"), part("value")) {
            (driver, property, value)
        } else {
            let Some((name, value)) = value.split_once('=') else { return };
            let Some((driver, property)) = name.split_once('.') else { return };
            (driver.to_owned(), property.to_owned(), value.to_owned())
        };
    self::property(command, &driver, &property, &value);
    if driver == "kvm-pit" && property.replace('-', "_") == "lost_tick_policy" {
        command.pit_policy = Some(value);
    } else if driver.ends_with("-cpu") {
        global_of_cpu(command, &property, &value);
    } else if driver.ends_with("-rtc") && property.replace('-', "_") == "lost_tick_policy" && value == "slew" {
        command.rtc_driftfix = Some(value);
    }
}
