//! From elements to values.

use super::properties;
use super::xml::{
    attribute, check_numbers, child, children, document, elements, grandchild, inner, name, number,
    value,
};
use super::{
    Clock, CpuXml, DiskXml, DomainXml, GuestNumaCell, GuestTopology, HypervXml, NicBandwidth,
    NumaTune, Timer,
};
use crate::cmdline::{self, DISK_LIMITS, QemuCommand};
use crate::cpu_set::CpuSet;
use crate::labels::{Labels, label};
use crate::{limits, sanitize};
use anyhow::{Context as _, Result};
use roxmltree::Node;
use std::collections::{BTreeMap, BTreeSet};

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
    let vcpu = child(node, "vcpu");
    let kind = grandchild(node, "os", "type");
    let mut out = DomainXml {
        name: child(node, "name").and_then(name),
        uuid: child(node, "uuid")
            .and_then(name)
            .map(|uuid| uuid.to_ascii_lowercase()),
        labels: labels(node),
        os_id: os_id(node),
        domain_type: attribute(node, "type"),
        max_vcpus: value(node, "vcpu"),
        vcpus: vcpu
            .and_then(|vcpu| number(vcpu, "current"))
            .or_else(|| value(node, "vcpu")),
        vcpu_cpuset: vcpu.and_then(|vcpu| cpus(vcpu, "cpuset")),
        machine: kind.and_then(|kind| attribute(kind, "machine")),
        arch: kind.and_then(|kind| attribute(kind, "arch")),
        memory: child(node, "memory").and_then(|node| size(node, node.text()?)),
        iothreads: value(node, "iothreads").unwrap_or(0),
        topology: grandchild(node, "cpu", "topology").map(topology),
        numa_cells: grandchild(node, "cpu", "numa").map_or_else(Vec::new, numa_cells),
        hyperv: grandchild(node, "features", "hyperv").map(hyperv),
        kvm_features: grandchild(node, "features", "kvm")
            .into_iter()
            .flat_map(elements)
            .take(64)
            .map(state)
            .collect(),
        clock: child(node, "clock").map(clock).unwrap_or_default(),
        cpu: child(node, "cpu").map(cpu).unwrap_or_default(),
        disks: child(node, "devices")
            .into_iter()
            .flat_map(|devices| children(devices, "disk"))
            .map(disk)
            .collect(),
        bandwidths: child(node, "devices")
            .into_iter()
            .flat_map(|devices| children(devices, "interface"))
            .filter_map(bandwidth)
            .collect(),
        qemu_command: qemu_command(node),
        device_properties: properties::of_domain(node),
        parts: parts(node),
        ..DomainXml::default()
    };
    if out.iothreads == 0
        && let Some(ids) = child(node, "iothreadids")
    {
        out.iothreads = children(ids, "iothread").count() as u32;
    }
    if let Some(tune) = child(node, "cputune") {
        cputune(tune, &mut out);
    }
    if let Some(tune) = child(node, "numatune") {
        numatune(tune, &mut out);
    }
    out
}

/// The id in `<metadata><libosinfo:libosinfo><libosinfo:os id=>`. The namespace prefix can be any
/// name.
fn os_id(domain: Node) -> Option<String> {
    let os = child(domain, "metadata")?
        .descendants()
        .find(|node| node.tag_name().name() == "os" && node.attribute("id").is_some())?;
    attribute(os, "id")
}

/// The names that managers give it. nova writes `<nova:instance>` with `<nova:name>` and
/// `<nova:owner><nova:project>` (nova/virt/libvirt/config.py); `KubeVirt` marks its guests, whose
/// names are `namespace_name` (pkg/virt-launcher/virtwrap/api).
fn labels(domain: Node) -> Labels {
    let mut labels = Labels {
        title: child(domain, "title").and_then(label_of),
        ..Labels::default()
    };
    let Some(metadata) = child(domain, "metadata") else {
        return labels;
    };
    if let Some(nova) = inside(metadata, "instance") {
        let name = inside(nova, "name").and_then(label_of);
        labels.title = labels.title.or(name);
        labels.owner = inside(nova, "project").and_then(label_of);
    } else if inside(metadata, "kubevirt").is_some() {
        let name = child(domain, "name").and_then(name).unwrap_or_default();
        labels.owner = name
            .split_once('_')
            .and_then(|(namespace, _)| label(namespace));
    }
    labels
}

fn label_of(node: Node) -> Option<String> {
    label(node.text()?)
}

/// The first element of this name within a node, whatever the prefix of its namespace.
fn inside<'a>(node: Node<'a, 'a>, name: &str) -> Option<Node<'a, 'a>> {
    node.descendants()
        .find(|node| node.is_element() && node.tag_name().name() == name)
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
    if argv.is_empty() {
        None
    } else {
        Some(cmdline::parse_options(&argv))
    }
}

/// An element's name and its `state`.
fn state(node: Node) -> (String, String) {
    (
        node.tag_name().name().to_owned(),
        attribute(node, "state").unwrap_or_else(|| "on".to_owned()),
    )
}

fn hyperv(node: Node) -> HypervXml {
    let mut features = BTreeMap::new();
    for feature in elements(node).take(64) {
        let own = feature
            .attributes()
            .take(16)
            .map(|item| (item.name().to_owned(), sanitize(item.value(), 64)));
        features.insert(
            feature.tag_name().name().to_owned(),
            own.chain(elements(feature).take(8).map(state)).collect(),
        );
    }
    HypervXml {
        mode: attribute(node, "mode"),
        features,
    }
}

fn clock(node: Node) -> Clock {
    let timers = children(node, "timer").take(64).map(|timer| Timer {
        name: attribute(timer, "name").unwrap_or_default(),
        present: match timer.attribute("present").map(str::trim) {
            Some("on" | "yes") => Some(true),
            Some("off" | "no") => Some(false),
            _ => None,
        },
        tickpolicy: attribute(timer, "tickpolicy"),
    });
    Clock {
        offset: attribute(node, "offset"),
        timers: timers.collect(),
    }
}

fn cpu(node: Node) -> CpuXml {
    let mut features = BTreeMap::new();
    for feature in children(node, "feature").take(1024) {
        if let Some(name) = attribute(feature, "name") {
            let policy = attribute(feature, "policy");
            features.insert(name, policy.unwrap_or_else(|| "require".to_owned()));
        }
    }
    CpuXml {
        mode: attribute(node, "mode"),
        model: child(node, "model").and_then(name),
        features,
    }
}

fn topology(node: Node) -> GuestTopology {
    GuestTopology {
        sockets: at_least_one(node, "sockets"),
        dies: at_least_one(node, "dies"),
        cores: at_least_one(node, "cores").saturating_mul(at_least_one(node, "clusters")),
        threads: at_least_one(node, "threads"),
    }
}

fn at_least_one(node: Node, name: &str) -> u32 {
    number(node, name).unwrap_or(1).max(1)
}

/// The cells of `<numa>`. A cell without `id` is numbered by its position.
fn numa_cells(numa: Node) -> Vec<GuestNumaCell> {
    let mut cells = Vec::new();
    for (position, node) in (0..).zip(children(numa, "cell")) {
        cells.push(GuestNumaCell {
            id: number(node, "id").unwrap_or(position),
            cpus: cpus(node, "cpus").unwrap_or_default(),
            memory: node
                .attribute("memory")
                .and_then(|memory| size(node, memory)),
            host_nodes: None,
        });
    }
    cells
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
    out.vcpu_pins = pins(node, "vcpupin", "vcpu");
    out.iothread_pins = pins(node, "iothreadpin", "iothread");
    out.emulator_pin = child(node, "emulatorpin").and_then(|pin| cpus(pin, "cpuset"));
    out.realtime = realtime(node, "vcpusched", "vcpus");
    let iothreads = realtime(node, "iothreadsched", "iothreads");
    out.realtime_helpers.extend(iothreads.iter().map(Some));
    if child(node, "emulatorsched").is_some_and(is_realtime) {
        out.realtime_helpers.insert(None);
    }
}

/// The CPUs of each thread that is pinned, by its number.
fn pins(cputune: Node, element: &str, number_of: &str) -> BTreeMap<u32, CpuSet> {
    children(cputune, element)
        .filter_map(|pin| Some((number(pin, number_of)?, cpus(pin, "cpuset")?)))
        .collect()
}

/// The numbers of the threads that have a real-time scheduler.
fn realtime(cputune: Node, element: &str, numbers: &str) -> CpuSet {
    children(cputune, element)
        .filter(|sched| is_realtime(*sched))
        .filter_map(|sched| cpus(sched, numbers))
        .fold(CpuSet::new(), |all, set| all.union(&set))
}

fn is_realtime(sched: Node) -> bool {
    matches!(
        sched.attribute("scheduler").map(str::trim),
        Some("fifo" | "rr")
    )
}

/// The bus that libvirt takes from the name of a target where it is not set.
fn bus_by_name(target: &str) -> Option<String> {
    let bus = match target.get(..2)? {
        "hd" => "ide",
        "sd" => "scsi",
        "vd" => "virtio",
        _ => return None,
    };
    Some(bus.to_owned())
}

/// The `IOThread` of a disk, the first of several (`<iothreads>`, libvirt 10 and newer).
fn iothread(disk: Node) -> Option<u32> {
    let driver = child(disk, "driver")?;
    if let Some(id) = number(driver, "iothread") {
        return Some(id);
    }
    children(child(driver, "iothreads")?, "iothread").find_map(|thread| number(thread, "id"))
}

/// The limits of an interface: `average` is in units of 1000 bytes per second, as libvirt tells tc
/// (`kbps`).
fn bandwidth(node: Node) -> Option<NicBandwidth> {
    let limits = child(node, "bandwidth")?;
    let [inbound, outbound] = ["inbound", "outbound"].map(|way| {
        let kilobytes: u32 = number(child(limits, way)?, "average")?;
        Some(u64::from(kilobytes) * 1000)
    });
    Some(NicBandwidth {
        target: inner(node, "target", "dev")?,
        inbound,
        outbound,
    })
}

/// The limits of a disk. Their `_max` forms allow bursts.
fn iotune(disk: Node) -> BTreeMap<String, u64> {
    let mut limits = BTreeMap::new();
    let Some(tune) = child(disk, "iotune") else {
        return limits;
    };
    for (.., name) in DISK_LIMITS {
        if let Some(limit) = value(tune, name).filter(|limit| *limit > 0) {
            limits.insert(name.to_owned(), limit);
        }
    }
    limits
}

fn disk(node: Node) -> DiskXml {
    let target = inner(node, "target", "dev").unwrap_or_default();
    DiskXml {
        device: attribute(node, "device"),
        source: attribute(node, "type"),
        file: ["file", "dev", "name"].iter().find_map(|name| {
            inner(node, "source", name)?
                .rsplit('/')
                .next()
                .map(str::to_owned)
        }),
        bus: inner(node, "target", "bus").or_else(|| bus_by_name(&target)),
        target,
        iothread: iothread(node),
        // What is thrown away when the guest ends needs no flushes.
        cache: inner(node, "driver", "cache")
            .filter(|cache| cache != "unsafe" || child(node, "transient").is_none()),
        io: inner(node, "driver", "io"),
        iotune: iotune(node),
    }
}
