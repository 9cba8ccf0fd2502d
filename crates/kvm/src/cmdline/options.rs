//! Reads each option into [`QemuCommand`].

use super::{QemuCommand, TCG, disks};
use crate::cpu_set::CpuSet;
use crate::device_property::{DRIVER, DeviceProperty, MAX_PROPERTIES, PropertyPlace};
use crate::domain_xml::GuestNumaCell;
use crate::{hyperv, limits, sanitize};
use anyhow::{Result, bail};
use std::collections::BTreeMap;

/// A key and its value, if it has one.
pub(super) type Pair = (String, Option<String>);

/// Limit of the `-cpu` options that are kept.
const MAX_CPU_OPTIONS: usize = 16;
/// The longest argument that is kept.
const MAX_ARGUMENT: usize = 4096;
/// Limit of the drives whose files are kept.
const MAX_DRIVES: usize = 64;
/// At most this many kinds of network backends of a guest are kept.
const MAX_NETDEV_KINDS: usize = 16;
/// Limit of the cells, and of the memory backends, of a guest.
const MAX_CELLS: usize = limits::NUMA_CELLS as usize;

/// The character devices of monitors.
#[derive(Default)]
pub(super) struct Monitors {
    /// Paths of the sockets on which QEMU listens, by their ids.
    pub sockets: BTreeMap<String, String>,
    /// The ids of monitors in control mode.
    pub control: Vec<String>,
}

/// `key=value,flag,key2=a,,b`: a double comma is a literal comma. The value of a word without `=`
/// is `None`.
pub(super) fn pairs(text: &str) -> Vec<Pair> {
    let text = text.replace(",,", "\0");
    text.split(',')
        .filter(|part| !part.trim().is_empty())
        .map(|part| match part.split_once('=') {
            Some((key, value)) => (key.trim().to_owned(), Some(value.replace('\0', ","))),
            None => (part.trim().replace('\0', ","), None),
        })
        .collect()
}

/// The value of a key.
pub(super) fn get(pairs: &[Pair], key: &str) -> Option<String> {
    pairs
        .iter()
        .rev()
        .filter(|(known, _)| known == key)
        .find_map(|(_, value)| value.clone())
}

/// The value of a key, which may be left out: a first part without a value is then the value.
fn get_implied(pairs: &[Pair], key: &str) -> Option<String> {
    get(pairs, key).or_else(|| match pairs.first()? {
        (first, None) => Some(first.clone()),
        _ => None,
    })
}

pub(super) fn is_on(value: &str) -> bool {
    matches!(value, "on" | "yes" | "true" | "y" | "1")
}

/// Whether an option with this value is on, where it may have a number or a text as its value.
pub fn is_switched_on(value: &str) -> bool {
    !matches!(value, "off" | "false" | "no" | "n")
}

/// Whether QEMU listens on a socket in a folder. Without `server` QEMU connects to another
/// program's socket, and an `abstract` name is not a path (QEMU's qemu-options.hx).
fn listens(pairs: &[Pair]) -> bool {
    has_flag(pairs, "server") && !has_flag(pairs, "abstract")
}

/// Whether a flag is on: the last part of this key has no value, or one that means yes.
fn has_flag(pairs: &[Pair], key: &str) -> bool {
    pairs
        .iter()
        .rev()
        .find(|(known, _)| known == key)
        .is_some_and(|(_, value)| value.as_deref().is_none_or(is_on))
}

/// A device, an object, a drive or a character device.
struct Component {
    /// Its `driver`, `qom-type` or `backend`.
    kind: String,
    id: String,
    pairs: Vec<Pair>,
}

/// Reads a component, which is written as options or, by recent libvirt, as JSON.
fn component(value: &str, kind: &str) -> Option<Component> {
    let json = value.trim_start().starts_with('{');
    let pairs = if json {
        let mut pairs = Vec::new();
        flatten(String::new(), serde_json::from_str(value).ok()?, &mut pairs);
        pairs
    } else {
        pairs(value)
    };
    Some(Component {
        kind: get_implied(&pairs, kind)?,
        id: get(&pairs, "id").unwrap_or_default(),
        pairs,
    })
}

/// JSON as QEMU's options are written: `{"cache":{"direct":true}}` is `cache.direct=on`.
fn flatten(key: String, value: serde_json::Value, pairs: &mut Vec<Pair>) {
    let text = match value {
        serde_json::Value::Object(map) => {
            for (inner, value) in map {
                let name = if key.is_empty() {
                    inner
                } else {
                    format!("{key}.{inner}")
                };
                flatten(name, value, pairs);
            }
            return;
        }
        serde_json::Value::String(text) => text,
        serde_json::Value::Bool(on) => if on { "on" } else { "off" }.to_owned(),
        other => other.to_string(),
    };
    pairs.push((key, Some(text)));
}

pub(super) fn read_option(
    command: &mut QemuCommand,
    monitors: &mut Monitors,
    option: &str,
    value: &str,
) {
    match option {
        "name" => {
            let pairs = pairs(value);
            command.name = get_implied(&pairs, "guest").or(command.name.take());
            command.debug_threads |= get(&pairs, "debug-threads").is_some_and(|on| is_on(&on));
        }
        "uuid" => command.uuid = Some(value.to_ascii_lowercase()),
        "machine" | "M" => machine(command, value),
        // The first one that works counts (system/vl.c, `configure_accelerators`).
        "accel" => {
            let pairs = pairs(value);
            command.accel = command
                .accel
                .take()
                .or_else(|| get_implied(&pairs, "accel"));
            if let Some(irqchip) = get(&pairs, "kernel-irqchip") {
                property(command, "machine", "kernel-irqchip", &irqchip);
            }
        }
        "enable-kvm" => command.accel = Some("kvm".to_owned()),
        "no-kvm" => command.accel = Some(TCG.to_owned()),
        // The rest is in a file.
        "readconfig" => _ = command.accel.get_or_insert_with(|| "unknown".to_owned()),
        "smp" => smp(command, value),
        "numa" => numa(command, value),
        "m" => {
            command.memory = get_implied(&pairs(value), "size")
                .and_then(|size| bytes(&size))
                .or(command.memory);
        }
        "cpu" => cpu(command, value),
        "no-hpet" => command.hpet = Some(false),
        "rtc" => {
            command.rtc_base = get(&pairs(value), "base").or(command.rtc_base.take());
        }
        "localtime" => command.rtc_base = Some("localtime".to_owned()),
        "global" => global(command, value),
        "no-kvm-pit-reinjection" => command.pit_policy = Some("discard".to_owned()),
        "qmp" | "qmp-pretty" | "chardev" | "mon" => monitor(command, monitors, option, value),
        "netdev" => {
            let Some(peer) = component(value, "type") else {
                return;
            };
            let socket = get(&peer.pairs, "addr.path");
            command.peer_sockets.extend(socket);
            let kind = get_implied(&peer.pairs, "type").unwrap_or_default();
            let kind = sanitize(&kind, 32);
            let others = &mut command.other_netdevs;
            // `bridge` has QEMU's helper open a tap device.
            if !matches!(&*kind, "" | "tap" | "bridge")
                && others.len() < MAX_NETDEV_KINDS
                && !others.contains(&kind)
            {
                others.push(kind);
            }
        }
        "object" => object(command, value),
        "device" => device(command, value),
        "set" => set(command, value),
        "append" => command.append = Some(sanitize(value, 512)),
        "cdrom" | "fda" => drive_file(command, value),
        "hda" | "hdb" | "hdc" | "hdd" => {
            disks::drive(
                &mut command.disks,
                &pairs(&format!("file={},if=ide", value.replace(',', ",,"))),
            );
            drive_file(command, value);
        }
        "drive" | "blockdev" => drive(command, value),
        _ => {}
    }
}

/// A QMP monitor, or the character device of one.
fn monitor(command: &mut QemuCommand, monitors: &mut Monitors, option: &str, value: &str) {
    match option {
        "chardev" => {
            if let Some(Component { kind, id, pairs }) = component(value, "backend")
                && kind == "socket"
                && let Some(path) = get(&pairs, "path")
            {
                if listens(&pairs) {
                    monitors.sockets.insert(id, path);
                } else {
                    command.peer_sockets.push(path);
                }
            }
        }
        "mon" => {
            let pairs = pairs(value);
            if get(&pairs, "mode").as_deref() == Some("control") {
                monitors.control.extend(get_implied(&pairs, "chardev"));
            }
        }
        _ => {
            if let Some(id) = value.strip_prefix("chardev:") {
                monitors.control.push(id.to_owned());
            } else if let Some(socket) = value.strip_prefix("unix:") {
                let pairs = pairs(socket);
                if listens(&pairs) {
                    let path = pairs.into_iter().next().map(|(path, _)| path);
                    command.qmp_sockets.extend(path);
                }
            }
        }
    }
}

fn device(command: &mut QemuCommand, value: &str) {
    let Some(Component { kind, id, pairs }) = component(value, "driver") else {
        return;
    };
    // A card without an id goes by its network, so that two of one model stay two.
    let id = if id.is_empty() {
        get(&pairs, "netdev").unwrap_or_default()
    } else {
        id
    };
    let name = if id.is_empty() { &kind } else { &id };
    property(command, name, DRIVER, &kind);
    for (key, value) in &pairs {
        property(command, name, key, value.as_deref().unwrap_or("on"));
    }
    disks::device(&mut command.disks, &kind, &id, &pairs);
    command.plugged_vcpus += u32::from(kind.ends_with("-cpu"));
}

/// `-set device.net0.ioeventfd=off`
fn set(command: &mut QemuCommand, text: &str) {
    if let Some((path, value)) = text.split_once('=')
        && let Some(path) = path.strip_prefix("device.")
        && let Some((device, name)) = path.rsplit_once('.')
    {
        property(command, device, name, value);
    }
}

fn drive(command: &mut QemuCommand, value: &str) {
    let parts = match component(value, "driver") {
        Some(component) => component.pairs,
        None => pairs(value),
    };
    disks::drive(&mut command.disks, &parts);
    if let Some(file) = ["file", "filename", "file.filename"]
        .iter()
        .find_map(|key| get(&parts, key))
    {
        drive_file(command, &file);
    }
}

/// The cards of `-net nic` and `-nic`. Where the option names no model a PC has its machine's own
/// (`default_nic` of hw/i386).
pub(super) fn cards(command: &mut QemuCommand, all: &[(&str, &str)]) {
    let machine = command.machine.as_deref().unwrap_or("pc");
    let default = match command.arch() {
        None | Some("x86_64" | "i386") if machine.contains("q35") => Some("e1000e"),
        None | Some("x86_64" | "i386") if machine.starts_with("pc") => Some("e1000"),
        _ => None,
    };
    let mut count = 0;
    for (option, value) in all {
        let pairs = pairs(value);
        let name = match (*option, pairs.first().map(|(kind, _)| kind.as_str())) {
            ("net", Some("nic")) => "-net nic",
            ("nic", Some("none")) => continue,
            ("nic", _) => "-nic",
            _ => continue,
        };
        count += 1;
        let name = if count == 1 {
            name.to_owned()
        } else {
            format!("{name} {count}")
        };
        let model = get(&pairs, "model")
            .or_else(|| default.map(str::to_owned))
            .unwrap_or_default();
        property(command, &get(&pairs, "id").unwrap_or(name), DRIVER, &model);
    }
}

/// Keeps a property of a device, if it matters. A later one of the same name replaces it.
fn property(command: &mut QemuCommand, device: &str, name: &str, value: &str) {
    let device = device.strip_prefix("ua-").unwrap_or(device);
    let Some(new) = DeviceProperty::new(device, name, value, PropertyPlace::CommandLine) else {
        return;
    };
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
            }
            _ => {}
        }
    }
}

/// A repeated -smp is merged key by key (system/vl.c, `merge_lists` of its options).
fn smp(command: &mut QemuCommand, value: &str) {
    let pairs = pairs(value);
    let smp = &mut command.smp;
    for (key, part) in [
        ("cpus", &mut smp.cpus),
        ("maxcpus", &mut smp.maxcpus),
        ("sockets", &mut smp.sockets),
        ("dies", &mut smp.dies),
        ("cores", &mut smp.cores),
        ("threads", &mut smp.threads),
    ] {
        let written = if key == "cpus" {
            get_implied(&pairs, key)
        } else {
            get(&pairs, key)
        };
        if let Some(text) = written {
            *part = text.parse().ok().filter(|n| *n <= limits::VCPUS);
        }
    }
}

/// A cell of the guest: `node,nodeid=0,cpus=0-3,cpus=8,memdev=ram-node0`.
fn numa(command: &mut QemuCommand, value: &str) {
    let pairs = pairs(value);
    if pairs
        .first()
        .is_none_or(|(kind, value)| kind != "node" || value.is_some())
        || command.cells.len() >= MAX_CELLS
    {
        return;
    }
    let mut cell = GuestNumaCell {
        id: command.cells.len() as u32,
        ..GuestNumaCell::default()
    };
    for (key, value) in &pairs {
        match (key.as_str(), value) {
            ("nodeid", Some(id)) => cell.id = id.parse().unwrap_or(cell.id),
            ("cpus", Some(list)) => {
                cell.cpus = cell.cpus.union(&CpuSet::parse(list).unwrap_or_default());
            }
            ("mem", Some(size)) => cell.memory = bytes(size),
            _ => {}
        }
    }
    command.cells.push((cell, get(&pairs, "memdev")));
}

/// An `IOThread`, or a memory backend with the host nodes that it is bound to:
/// `host-nodes=0,policy=bind`, in JSON `[0]`.
fn object(command: &mut QemuCommand, value: &str) {
    let Some(Component { kind, id, pairs }) = component(value, "qom-type") else {
        return;
    };
    command.by_libvirt |= id == "masterKey0";
    if kind == "iothread" {
        command.iothreads.push(id);
    } else if kind.starts_with("memory-backend-")
        && get(&pairs, "policy").as_deref() == Some("bind")
    {
        let lists = pairs
            .iter()
            .filter(|(key, _)| key == "host-nodes")
            .filter_map(|(_, list)| list.as_deref());
        let nodes = lists.filter_map(|list| CpuSet::parse(list.trim_matches(['[', ']'])).ok());
        let nodes = nodes.fold(CpuSet::new(), |all, nodes| all.union(&nodes));
        if !nodes.is_empty() && command.bound_memory.len() < MAX_CELLS {
            command.bound_memory.insert(id, nodes);
        }
    }
}

/// Keeps the name of a drive's file.
fn drive_file(command: &mut QemuCommand, path: &str) {
    let name = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(path);
    if !name.is_empty() && command.drive_files.len() < MAX_DRIVES {
        command.drive_files.push(sanitize(name, 128));
    }
}

/// Checks that an option's numbers are possible for a guest.
pub(super) fn check(option: &str, value: &str) -> Result<()> {
    for part in value.split(',') {
        let number = part.rsplit('=').next().unwrap_or_default();
        if option == "smp" {
            limits::check("a number of -smp", number, u64::from(limits::VCPUS))?;
        } else if option == "m"
            && number.starts_with(|c: char| c.is_ascii_digit())
            && bytes(number).is_none()
        {
            bail!(
                "not a KVM guest's: {}",
                limits::too_large("the size of -m", number, limits::GUEST_MEMORY)
            );
        }
    }
    Ok(())
}

/// Bytes of `-m`: `4096` is MiB; `4G` and `512M` have a unit.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..)?.to_ascii_uppercase();
    let unit = match unit.as_str() {
        "" => "M",
        "B" => "b",
        unit => unit,
    };
    limits::bytes(digits, unit)
}

/// `kvm-pit.lost_tick_policy=delay`.
fn global(command: &mut QemuCommand, text: &str) {
    let Some((path, value)) = text.split_once('=') else {
        return;
    };
    let Some((driver, name)) = path.split_once('.') else {
        return;
    };
    property(command, driver, name, value);
    let is_tick_policy = name.replace('-', "_") == "lost_tick_policy";
    if driver == "kvm-pit" && is_tick_policy {
        command.pit_policy = Some(value.to_owned());
    } else if driver.ends_with("-cpu") {
        // The features of `-cpu` are set after it, so they win.
        if !command.cpu_features.contains_key(name) {
            feature(command, name, value);
        }
    }
}

/// Reads one `-cpu`, as QEMU's `x86_cpu_parse_featurestr` and `x86_cpu_expand_features`
/// (target/i386/cpu.c) do: it replaces what an earlier one said.
fn cpu(command: &mut QemuCommand, value: &str) {
    if command.cpu_options.len() >= MAX_CPU_OPTIONS {
        command.cpu_options.remove(0);
    }
    command.cpu_options.push(sanitize(value, MAX_ARGUMENT));
    command.cpu_features.clear();
    command.hyperv.clear();
    command.hv_time = None;
    let parts = pairs(value);
    // QEMU applies `feature=on` first, then each `+feature`, then each `-feature`, in any order on
    // the command line.
    for sign in [None, Some('+'), Some('-')] {
        for (index, (key, value)) in parts.iter().enumerate() {
            // The model comes first.
            if (index == 0 && value.is_none())
                || key.chars().next().filter(|c| matches!(c, '+' | '-')) != sign
            {
                continue;
            }
            let name = key.trim_start_matches(['+', '-']);
            let value = match sign {
                Some('+') => "on",
                Some(_) => "off",
                None => value.as_deref().unwrap_or("on"),
            };
            feature(command, name, value);
        }
    }
}

/// One feature. Underscores are the older spelling.
fn feature(command: &mut QemuCommand, name: &str, value: &str) {
    let name = name.replace('_', "-");
    if let Some(flag) = name.strip_prefix("hv-") {
        let name = hyperv::of_flag(flag);
        if name == hyperv::CLOCK {
            command.hv_time = Some(is_on(value));
        } else {
            command.hyperv.insert(name, value.to_owned());
        }
        return;
    }
    command.cpu_features.insert(name, value.to_owned());
}
