//! From elements to values.

use super::properties;
use super::xml::{
    attribute, check_numbers, child, children, document, elements, inner, name, number, value,
};
use super::{
    Clock, CpuXml, DiskXml, DomainXml, GuestNumaCell, GuestTopology, HypervXml, NumaTune, Timer,
};
use crate::cmdline::{self, DISK_LIMITS, QemuCommand};
use crate::cpu_set::CpuSet;
use crate::{limits, sanitize};
use anyhow::{Context as _, Result};
use roxmltree::Node;
use std::collections::{BTreeMap, BTreeSet};

/// The period of a quota without one, microseconds.
const DEFAULT_PERIOD: u64 = 100_000;
/// Reads a domain XML, or the status XML of a running domain.
///
/// # Errors
/// If the text is too large, not well-formed, has a DTD, contains no `<domain>`, or a number that
/// no guest can have.
pub fn parse(input: &str) -> Result<DomainXml> {
    if !input.contains("<domstatus") {
        return document(input, "domain", |node| {
            check_numbers(node).map(|()| domain(node))
        })?;
    }
    document(input, "domstatus", |status| {
        check_numbers(status)?;
        let domain = child(status, "domain")
            .map(domain)
            .context("no <domain> element in it")?;
        let [state, state_reason] = ["state", "reason"].map(|name| attribute(status, name));
        Ok(DomainXml {
            pid: number(status, "pid"),
            state,
            state_reason,
            ..domain
        })
    })?
}

fn cpus(node: Node, name: &str) -> Option<CpuSet> {
    CpuSet::parse(node.attribute(name)?).ok()
}

/// A size with the unit of its element, KiB without one.
fn size(node: Node, value: &str) -> Option<u64> {
    limits::bytes(value, node.attribute("unit").unwrap_or("KiB"))
}

fn domain(node: Node) -> DomainXml {
    let named = |name: &str| child(node, name);
    let inside = |outer: &str, name: &str| child(child(node, outer)?, name);
    // <metadata><libosinfo:libosinfo><libosinfo:os id=>: the namespace prefix can be any name.
    let os_id = || {
        let os = |node: &Node| node.tag_name().name() == "os" && node.attribute("id").is_some();
        attribute(named("metadata")?.descendants().find(os)?, "id")
    };
    let cells = inside("cpu", "numa").into_iter();
    let mut out = DomainXml {
        name: named("name").and_then(name),
        uuid: named("uuid")
            .and_then(name)
            .map(|uuid| uuid.to_ascii_lowercase()),
        os_id: os_id(),
        domain_type: attribute(node, "type"),
        max_vcpus: value(node, "vcpu"),
        vcpus: named("vcpu")
            .and_then(|vcpu| number(vcpu, "current"))
            .or_else(|| value(node, "vcpu")),
        vcpu_cpuset: named("vcpu").and_then(|vcpu| cpus(vcpu, "cpuset")),
        machine: inside("os", "type").and_then(|kind| attribute(kind, "machine")),
        arch: inside("os", "type").and_then(|kind| attribute(kind, "arch")),
        memory: named("memory").and_then(|node| size(node, node.text()?)),
        iothreads: value(node, "iothreads").unwrap_or(0),
        topology: inside("cpu", "topology").map(topology),
        numa_cells: (0..)
            .zip(cells.flat_map(|numa| children(numa, "cell")))
            .map(numa_cell)
            .collect(),
        hyperv: inside("features", "hyperv").map(hyperv),
        kvm_features: inside("features", "kvm")
            .into_iter()
            .flat_map(elements)
            .take(64)
            .map(state)
            .collect(),
        clock: named("clock").map(clock).unwrap_or_default(),
        cpu: named("cpu").map(cpu).unwrap_or_default(),
        disks: named("devices")
            .into_iter()
            .flat_map(|devices| children(devices, "disk"))
            .map(disk)
            .collect(),
        qemu_command: qemu_command(node),
        device_properties: properties::of_domain(node),
        parts: parts(node),
        ..DomainXml::default()
    };
    if out.iothreads == 0 {
        out.iothreads =
            named("iothreadids").map_or(0, |node| children(node, "iothread").count() as u32);
    }
    if let Some(tune) = named("cputune") {
        cputune(tune, &mut out);
    }
    if let Some(tune) = named("numatune") {
        numatune(tune, &mut out);
    }
    out
}

/// The elements of a domain that libvirt would not take: it has neither a name nor a system to
/// boot.
fn parts(domain: Node) -> Option<BTreeSet<String>> {
    if child(domain, "name").is_some() || child(domain, "os").is_some() {
        return None;
    }
    let mut parts = BTreeSet::new();
    for node in elements(domain) {
        let name = node.tag_name().name();
        parts.insert(name.to_owned());
        parts.extend(elements(node).map(|inner| format!("{name}/{}", inner.tag_name().name())));
    }
    Some(parts)
}

/// `<qemu:commandline>`. libvirt takes it in QEMU's namespace only and ignores it elsewhere.
fn qemu_command(domain: Node) -> Option<QemuCommand> {
    let added = children(domain, "commandline").filter(|node| properties::in_qemu_namespace(*node));
    let args = added
        .flat_map(|node| children(node, "arg"))
        .filter_map(|arg| arg.attribute("value"));
    let argv: Vec<String> = args.map(str::to_owned).collect();
    (!argv.is_empty()).then(|| cmdline::parse_options(&argv))
}

/// An element's name and its `state`.
fn state(node: Node) -> (String, String) {
    (
        node.tag_name().name().to_owned(),
        attribute(node, "state").unwrap_or_else(|| "on".to_owned()),
    )
}

fn hyperv(node: Node) -> HypervXml {
    let feature = |feature: Node| {
        let own = feature
            .attributes()
            .take(16)
            .map(|item| (item.name().to_owned(), sanitize(item.value(), 64)));
        (
            feature.tag_name().name().to_owned(),
            own.chain(elements(feature).take(8).map(state)).collect(),
        )
    };
    HypervXml {
        mode: attribute(node, "mode"),
        features: elements(node).take(64).map(feature).collect(),
    }
}

fn clock(node: Node) -> Clock {
    let switch = |on: &str| match on.trim() {
        "on" | "yes" => Some(true),
        "off" | "no" => Some(false),
        _ => None,
    };
    let timers = children(node, "timer").take(64).map(|timer| Timer {
        name: attribute(timer, "name").unwrap_or_default(),
        present: timer.attribute("present").and_then(switch),
        tickpolicy: attribute(timer, "tickpolicy"),
    });
    Clock {
        offset: attribute(node, "offset"),
        timers: timers.collect(),
    }
}

fn cpu(node: Node) -> CpuXml {
    let policy = |feature| attribute(feature, "policy").unwrap_or_else(|| "require".to_owned());
    let features = children(node, "feature").take(1024);
    CpuXml {
        mode: attribute(node, "mode"),
        model: child(node, "model").and_then(name),
        features: features
            .filter_map(|feature| Some((attribute(feature, "name")?, policy(feature))))
            .collect(),
    }
}

fn topology(node: Node) -> GuestTopology {
    let part = |name| number::<u32>(node, name).unwrap_or(1).max(1);
    GuestTopology {
        sockets: part("sockets"),
        dies: part("dies"),
        cores: part("cores").saturating_mul(part("clusters")),
        threads: part("threads"),
    }
}

/// A cell and its place among the cells, which is the number of a cell without `id`.
fn numa_cell((place, node): (u32, Node)) -> GuestNumaCell {
    GuestNumaCell {
        id: number(node, "id").unwrap_or(place),
        cpus: cpus(node, "cpus").unwrap_or_default(),
        memory: node
            .attribute("memory")
            .and_then(|memory| size(node, memory)),
        host_nodes: None,
    }
}

fn numatune(node: Node, out: &mut DomainXml) {
    out.numatune = child(node, "memory").map(|memory| NumaTune {
        mode: attribute(memory, "mode"),
        nodeset: cpus(memory, "nodeset"),
    });
    for memnode in children(node, "memnode") {
        let id = number::<u32>(memnode, "cellid");
        if let Some(cell) = out.numa_cells.iter_mut().find(|cell| Some(cell.id) == id) {
            cell.host_nodes = cpus(memnode, "nodeset");
        }
    }
}

fn cputune(node: Node, out: &mut DomainXml) {
    let pins = |element: &str, id: &str| -> BTreeMap<u32, CpuSet> {
        children(node, element)
            .filter_map(|pin| Some((number(pin, id)?, cpus(pin, "cpuset")?)))
            .collect()
    };
    out.vcpu_pins.extend(pins("vcpupin", "vcpu"));
    let time = |name| value::<u64>(node, name).filter(|time| *time > 0);
    let limit = |quota, period| Some((time(quota)?, time(period).unwrap_or(DEFAULT_PERIOD)));
    out.vcpu_quota = limit("quota", "period");
    out.global_quota = limit("global_quota", "global_period");
    out.iothread_pins.extend(pins("iothreadpin", "iothread"));
    out.emulator_pin = child(node, "emulatorpin").and_then(|pin| cpus(pin, "cpuset"));
    let is_realtime = |sched: &Node| {
        matches!(
            sched.attribute("scheduler").map(str::trim),
            Some("fifo" | "rr")
        )
    };
    let of = |element: &str, numbers: &str| {
        let sets = children(node, element)
            .filter(is_realtime)
            .filter_map(|sched| cpus(sched, numbers));
        sets.fold(CpuSet::new(), |all, set| all.union(&set))
    };
    out.realtime = of("vcpusched", "vcpus");
    let emulator = child(node, "emulatorsched")
        .filter(is_realtime)
        .map(|_| None);
    out.realtime_helpers.extend(
        of("iothreadsched", "iothreads")
            .iter()
            .map(Some)
            .chain(emulator),
    );
}

fn disk(node: Node) -> DiskXml {
    // The first of several `IOThread`s (`<iothreads>`, libvirt 10 and newer).
    let mapped = |driver| {
        children(child(driver, "iothreads")?, "iothread").find_map(|thread| number(thread, "id"))
    };
    let tune = child(node, "iotune");
    // Their `_max` forms allow bursts.
    let limit = |(.., name): (&str, &str, &str)| {
        Some((
            name.to_owned(),
            value::<u64>(tune?, name).filter(|n| *n > 0)?,
        ))
    };
    let target = inner(node, "target", "dev").unwrap_or_default();
    // libvirt takes the bus from the name where it is not set.
    let by_name = || {
        let buses = [("hd", "ide"), ("sd", "scsi"), ("vd", "virtio")];
        buses
            .into_iter()
            .find_map(|(begin, bus)| target.starts_with(begin).then(|| bus.to_owned()))
    };
    DiskXml {
        device: attribute(node, "device"),
        source: attribute(node, "type"),
        file: ["file", "dev", "name"].iter().find_map(|name| {
            inner(node, "source", name)?
                .rsplit('/')
                .next()
                .map(str::to_owned)
        }),
        bus: inner(node, "target", "bus").or_else(by_name),
        target,
        iothread: child(node, "driver")
            .and_then(|driver| number(driver, "iothread").or_else(|| mapped(driver))),
        // What is thrown away when the guest ends needs no flushes.
        cache: inner(node, "driver", "cache")
            .filter(|cache| cache != "unsafe" || child(node, "transient").is_none()),
        io: inner(node, "driver", "io"),
        iotune: DISK_LIMITS.into_iter().filter_map(limit).collect(),
    }
}
