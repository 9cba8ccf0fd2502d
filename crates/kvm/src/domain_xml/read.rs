//! From elements to values.

use super::xml::{attribute, child, children, document, name, number, size, switch, text};
use super::{
    BandwidthXml, Clock, CpuXml, DiskXml, DomainXml, GuestTopology, HypervXml, InterfaceXml, NumaTune, SchedXml, Timer,
    XmlError,
};
use super::{bounds, properties};
use crate::cmdline::{self, QemuCommand};
use crate::cpu_set::CpuSet;
use crate::guest_numa::GuestNumaCell;
use roxmltree::Node;
use std::collections::BTreeMap;

/// Reads a domain XML, or the status XML of a running domain.
///
/// # Errors
/// If the text is too large, not well-formed, has a DTD, contains no `<domain>`, or a number that no guest can have.
pub fn parse(input: &str) -> Result<DomainXml, XmlError> {
    if super::xml::slice(input, "domstatus").is_none() {
        return document(input, "domain", |node| bounds::check(node).map(|()| domain(node)))?;
    }
    document(input, "domstatus", |status| {
        bounds::check(status)?;
        let mut out = child(status, "domain").map(domain).ok_or(XmlError::Missing("domain"))?;
        out.pid = number(status, "pid");
        out.state = attribute(status, "state");
        out.monitor_path = child(status, "monitor").and_then(|node| attribute(node, "path"));
        for vcpu in child(status, "vcpus").into_iter().flat_map(|node| children(node, "vcpu")) {
            if let (Some(id), Some(pid)) = (number(vcpu, "id"), number(vcpu, "pid")) {
                out.vcpu_threads.insert(id, pid);
            }
        }
        for thread in child(status, "iothreads").into_iter().flat_map(|node| children(node, "iothread")) {
            if let (Some(id), Some(pid)) =
                (number(thread, "id"), number(thread, "pid").or_else(|| number(thread, "thread_id")))
            {
                out.iothread_threads.insert(id, pid);
            }
        }
        Ok(out)
    })?
}

fn cpus(node: Node, name: &str) -> Option<CpuSet> {
    CpuSet::parse(node.attribute(name)?).ok()
}

fn domain(node: Node) -> DomainXml {
    let named = |name: &str| child(node, name);
    let mut out = DomainXml {
        name: named("name").and_then(name),
        uuid: named("uuid").and_then(text).map(|uuid| uuid.to_ascii_lowercase()),
        domain_type: attribute(node, "type"),
        memory: named("memory").and_then(|node| size(node.text()?, node.attribute("unit"))),
        clock: named("clock").map(clock).unwrap_or_default(),
        cpu: named("cpu").map(cpu).unwrap_or_default(),
        ..DomainXml::default()
    };
    // <metadata><libosinfo:libosinfo><libosinfo:os id=>: the namespace prefix can be any name.
    out.os_id = named("metadata").and_then(|metadata| {
        metadata
            .descendants()
            .find(|node| node.tag_name().name() == "os" && node.attribute("id").is_some())
            .and_then(|node| attribute(node, "id"))
    });
    if let Some(vcpu) = named("vcpu") {
        out.vcpus = number(vcpu, "current").or_else(|| vcpu.text()?.trim().parse().ok());
        out.vcpu_cpuset = cpus(vcpu, "cpuset");
        out.placement = attribute(vcpu, "placement");
    }
    if let Some(os) = named("os") {
        if let Some(kind) = child(os, "type") {
            out.machine = attribute(kind, "machine");
            out.arch = attribute(kind, "arch");
        }
        out.uefi = os.attribute("firmware") == Some("efi")
            || child(os, "loader").is_some_and(|node| node.attribute("type") == Some("pflash"));
    }
    out.iothreads = named("iothreads").and_then(|node| node.text()?.trim().parse().ok()).unwrap_or(0);
    if out.iothreads == 0 {
        out.iothreads = named("iothreadids").map_or(0, |node| children(node, "iothread").count() as u32);
    }
    if let Some(tune) = named("cputune") {
        cputune(tune, &mut out);
    }
    if let Some(cpu) = named("cpu") {
        out.topology = child(cpu, "topology").map(topology);
        out.numa_cells =
            child(cpu, "numa").into_iter().flat_map(|numa| children(numa, "cell")).map(numa_cell).collect();
    }
    if let Some(tune) = named("numatune") {
        numatune(tune, &mut out);
    }
    if let Some(backing) = named("memoryBacking") {
        out.hugepages = child(backing, "hugepages").is_some();
        out.memory_locked = child(backing, "locked").is_some();
        out.nosharepages = child(backing, "nosharepages").is_some();
    }
    if let Some(features) = named("features") {
        out.hyperv = child(features, "hyperv").map(hyperv);
        out.kvm_features = child(features, "kvm")
            .into_iter()
            .flat_map(|node| node.children())
            .filter(Node::is_element)
            .take(64)
            .map(state)
            .collect();
        out.pmu = child(features, "pmu").map(|node| switch(node, "state").unwrap_or(true));
        out.ioapic = child(features, "ioapic").and_then(|node| attribute(node, "driver"));
    }
    if let Some(devices) = named("devices") {
        self::devices(devices, &mut out);
    }
    out.qemu_command = named("commandline").and_then(qemu_command);
    out.device_properties = properties::of_domain(node);
    out
}

/// `<qemu:commandline>`. libvirt takes it in QEMU's namespace only and ignores it elsewhere.
fn qemu_command(node: Node) -> Option<QemuCommand> {
    if !properties::in_qemu_namespace(node) {
        return None;
    }
    let argv: Vec<String> = children(node, "arg").filter_map(|arg| arg.attribute("value")).map(str::to_owned).collect();
    (!argv.is_empty()).then(|| cmdline::parse_options(&argv))
}

/// An element's name and its `state`.
fn state(node: Node) -> (String, String) {
    (node.tag_name().name().to_owned(), attribute(node, "state").unwrap_or_else(|| "on".to_owned()))
}

fn hyperv(node: Node) -> HypervXml {
    let mut features = BTreeMap::new();
    for feature in node.children().filter(Node::is_element).take(64) {
        let mut attributes: BTreeMap<String, String> = feature
            .attributes()
            .take(16)
            .map(|item| (item.name().to_owned(), crate::sanitize(item.value(), 64)))
            .collect();
        attributes.extend(feature.children().filter(Node::is_element).take(8).map(state));
        features.insert(feature.tag_name().name().to_owned(), attributes);
    }
    HypervXml { mode: attribute(node, "mode"), features }
}

fn clock(node: Node) -> Clock {
    let timers = children(node, "timer").take(64).map(|timer| Timer {
        name: attribute(timer, "name").unwrap_or_default(),
        present: switch(timer, "present"),
        tickpolicy: attribute(timer, "tickpolicy"),
        track: attribute(timer, "track"),
        mode: attribute(timer, "mode"),
        frequency: number(timer, "frequency"),
    });
    Clock { offset: attribute(node, "offset"), timers: timers.collect() }
}

fn cpu(node: Node) -> CpuXml {
    CpuXml {
        mode: attribute(node, "mode"),
        model: child(node, "model").and_then(text),
        features: children(node, "feature")
            .take(1024)
            .filter_map(|feature| {
                Some((
                    attribute(feature, "name")?,
                    attribute(feature, "policy").unwrap_or_else(|| "require".to_owned()),
                ))
            })
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

fn numa_cell(node: Node) -> GuestNumaCell {
    GuestNumaCell {
        id: number(node, "id").unwrap_or(0),
        cpus: cpus(node, "cpus").unwrap_or_default(),
        memory: node.attribute("memory").and_then(|memory| size(memory, node.attribute("unit"))),
        host_nodes: None,
    }
}

fn numatune(node: Node, out: &mut DomainXml) {
    out.numatune = child(node, "memory").map(|memory| NumaTune {
        mode: attribute(memory, "mode"),
        nodeset: cpus(memory, "nodeset"),
        placement: attribute(memory, "placement"),
    });
    for memnode in children(node, "memnode") {
        let id = number::<u32>(memnode, "cellid");
        if let Some(cell) = out.numa_cells.iter_mut().find(|cell| Some(cell.id) == id) {
            cell.host_nodes = cpus(memnode, "nodeset");
        }
    }
}

/// The number in a child element.
fn value<T: std::str::FromStr>(node: Node, name: &str) -> Option<T> {
    child(node, name)?.text()?.trim().parse().ok()
}

fn cputune(node: Node, out: &mut DomainXml) {
    let pins = |element: &'static str, id: &'static str| -> BTreeMap<u32, CpuSet> {
        children(node, element).filter_map(|pin| Some((number(pin, id)?, cpus(pin, "cpuset")?))).collect()
    };
    out.vcpu_pins = pins("vcpupin", "vcpu");
    out.iothread_pins = pins("iothreadpin", "iothread");
    out.emulator_pin = child(node, "emulatorpin").and_then(|pin| cpus(pin, "cpuset"));
    for (element, target, ids) in
        [("vcpusched", "vcpu", "vcpus"), ("iothreadsched", "iothread", "iothreads"), ("emulatorsched", "emulator", "")]
    {
        out.scheds.extend(children(node, element).map(|sched| SchedXml {
            target: target.to_owned(),
            ids: cpus(sched, ids).unwrap_or_default(),
            scheduler: attribute(sched, "scheduler").unwrap_or_default(),
            priority: number(sched, "priority"),
        }));
    }
    out.bandwidth = BandwidthXml {
        period: value(node, "period"),
        quota: value(node, "quota"),
        global_period: value(node, "global_period"),
        global_quota: value(node, "global_quota"),
        emulator_period: value(node, "emulator_period"),
        emulator_quota: value(node, "emulator_quota"),
    };
}

/// The limits of `<iotune>` (libvirt's formatdomain, "Hard drives") that hold at any time; their `_max` forms allow
/// bursts.
const IOTUNE: [&str; 6] =
    ["total_iops_sec", "read_iops_sec", "write_iops_sec", "total_bytes_sec", "read_bytes_sec", "write_bytes_sec"];

/// The `IOThread` of a disk, or the first of several (`<iothreads>`, libvirt 10 and newer).
fn disk_iothread(driver: Node) -> Option<u32> {
    let mapped = || children(child(driver, "iothreads")?, "iothread").find_map(|node| number(node, "id"));
    number(driver, "iothread").or_else(mapped)
}

/// The elements of `<iotune>` that limit something.
fn iotune(node: Node) -> BTreeMap<String, u64> {
    let limit = |name: &&str| Some(((*name).to_owned(), value::<u64>(node, name).filter(|n| *n > 0)?));
    IOTUNE.iter().filter_map(limit).collect()
}

fn devices(node: Node, out: &mut DomainXml) {
    for device in node.children().filter(Node::is_element) {
        let inner = |name: &str, value: &str| child(device, name).and_then(|node| attribute(node, value));
        match device.tag_name().name() {
            "disk" => out.disks.push(DiskXml {
                target: inner("target", "dev").unwrap_or_default(),
                bus: inner("target", "bus"),
                device: attribute(device, "device"),
                iothread: child(device, "driver").and_then(disk_iothread),
                cache: inner("driver", "cache"),
                io: inner("driver", "io"),
                iotune: child(device, "iotune").map(iotune).unwrap_or_default(),
            }),
            "interface" => out.interfaces.push(InterfaceXml {
                target: inner("target", "dev"),
                model: inner("model", "type"),
                driver: inner("driver", "name"),
                kind: attribute(device, "type"),
            }),
            "serial" => out.serials += 1,
            "console" => out.consoles.push(inner("target", "type").unwrap_or_else(|| "serial".to_owned())),
            "graphics" => out.graphics.extend(attribute(device, "type")),
            "video" => out.videos.extend(inner("model", "type")),
            "memballoon" => out.memballoon = attribute(device, "model"),
            "hostdev" => out.hostdevs += 1,
            _ => {}
        }
    }
}
