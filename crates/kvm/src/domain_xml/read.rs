//! From elements to values.

use super::properties;
use super::xml::{attribute, check_numbers, child, children, document, elements, inner, name, number, value};
use super::{Clock, CpuXml, DiskXml, DomainXml, GuestNumaCell, GuestTopology, HypervXml, NumaTune, Timer};
use crate::cmdline::{self, DISK_LIMITS, QemuCommand};
use crate::cpu_set::CpuSet;
use crate::{limits, sanitize};
use anyhow::{Context as _, Result};
use roxmltree::Node;
use std::collections::BTreeMap;

/// The period of a quota without one, microseconds.
const DEFAULT_PERIOD: u64 = 100_000;
/// Elements with text that a person wrote.
const FREE_TEXT: [&str; 4] = ["name", "title", "description", "metadata"];
/// Where something was left out of a text, one of these is found.
const LEFT_OUT: [&str; 5] = ["...", "\u{2026}", "snip", "omitted", "truncated"];

/// Reads a domain XML, or the status XML of a running domain.
///
/// # Errors
/// If the text is too large, not well-formed, has a DTD, contains no `<domain>`, or a number that no guest can have.
pub fn parse(input: &str) -> Result<DomainXml> {
    if super::xml::slice(input, "domstatus").is_none() {
        return document(input, "domain", |node| check_numbers(node).map(|()| domain(node)))?;
    }
    document(input, "domstatus", |status| {
        check_numbers(status)?;
        let domain = child(status, "domain").map(domain).context("no <domain> element in it")?;
        let [state, state_reason] = ["state", "reason"].map(|name| attribute(status, name));
        Ok(DomainXml { pid: number(status, "pid"), state, state_reason, ..domain })
    })?
}

fn cpus(node: Node, name: &str) -> Option<CpuSet> {
    CpuSet::parse(node.attribute(name)?).ok()
}

/// A size with the unit of its element, KiB without one.
fn size(node: Node, value: &str) -> Option<u64> {
    limits::bytes(value, node.attribute("unit").unwrap_or("KiB"))
}

/// The namespace of nova's metadata, without its version.
const NOVA: &str = "openstack.org/xmlns/libvirt/nova";

fn domain(node: Node) -> DomainXml {
    let named = |name: &str| child(node, name);
    let inside = |outer: &str, name: &str| child(child(node, outer)?, name);
    // <metadata><libosinfo:libosinfo><libosinfo:os id=>: the namespace prefix can be any name.
    let os_id = || {
        let os = |node: &Node| node.tag_name().name() == "os" && node.attribute("id").is_some();
        attribute(named("metadata")?.descendants().find(os)?, "id")
    };
    let written_by = |manager: &str| {
        let spaces = named("metadata").into_iter().flat_map(elements).filter_map(|child| child.tag_name().namespace());
        spaces.into_iter().any(|space| space.contains(manager))
    };
    // The memory limit of a cgroup does not count huge pages.
    let locks_pages = || {
        let mut devices = named("devices").into_iter().flat_map(|devices| children(devices, "hostdev"));
        devices.any(|device| device.attribute("type") == Some("pci")) && inside("memoryBacking", "hugepages").is_none()
    };
    let cells = inside("cpu", "numa").into_iter();
    let mut out = DomainXml {
        name: named("name").and_then(name),
        uuid: named("uuid").and_then(name).map(|uuid| uuid.to_ascii_lowercase()),
        os_id: os_id(),
        nova: written_by(NOVA),
        kubevirt: written_by("kubevirt.io"),
        limit_on_locked: inside("memtune", "hard_limit").filter(|_| locks_pages()).and_then(|n| size(n, n.text()?)),
        domain_type: attribute(node, "type"),
        max_vcpus: value(node, "vcpu"),
        vcpus: named("vcpu").and_then(|vcpu| number(vcpu, "current")).or_else(|| value(node, "vcpu")),
        vcpu_cpuset: named("vcpu").and_then(|vcpu| cpus(vcpu, "cpuset")),
        machine: inside("os", "type").and_then(|kind| attribute(kind, "machine")),
        arch: inside("os", "type").and_then(|kind| attribute(kind, "arch")),
        memory: named("memory").and_then(|node| size(node, node.text()?)),
        iothreads: value(node, "iothreads").unwrap_or(0),
        topology: inside("cpu", "topology").map(topology),
        numa_cells: (0..).zip(cells.flat_map(|numa| children(numa, "cell"))).map(numa_cell).collect(),
        hyperv: hyperv(children(node, "features").flat_map(|features| children(features, "hyperv"))),
        kvm_features: inside("features", "kvm").into_iter().flat_map(elements).take(64).map(state).collect(),
        clock: named("clock").map(clock).unwrap_or_default(),
        cpu: named("cpu").map(cpu).unwrap_or_default(),
        disks: named("devices").into_iter().flat_map(|devices| children(devices, "disk")).map(disk).collect(),
        qemu_command: qemu_command(node),
        device_properties: properties::of_domain(node),
        parts: parts(node),
        ..DomainXml::default()
    };
    if out.iothreads == 0 {
        out.iothreads = named("iothreadids").map_or(0, |node| children(node, "iothread").count() as u32);
    }
    // A post shows its parts one by one. A second one with pins is another guest's, or an earlier state.
    for tune in children(node, "cputune") {
        if out.vcpu_pins.is_empty() || child(tune, "vcpupin").is_none() {
            cputune(tune, &mut out);
        }
    }
    if let Some(tune) = named("numatune") {
        numatune(tune, &mut out);
    }
    out
}

/// The elements of a domain that is not whole, and whether each of them is. Empty for a whole one.
fn parts(domain: Node) -> BTreeMap<String, bool> {
    // QEMU's options have two kinds of elements: others between them were put there by mistake.
    let options = children(domain, "commandline").flat_map(elements).map(|option| option.tag_name().name());
    let is_in_order = options.into_iter().all(|option| matches!(option, "arg" | "env"));
    // libvirt takes no domain without a name and a system to boot: one that lacks both is a frame around elements.
    let is_frame = child(domain, "name").is_none() && child(domain, "os").is_none();
    let mut parts = BTreeMap::from([(String::new(), is_in_order && !is_frame && !is_elided(domain))]);
    // Of these, texts are the administrator's.
    let outer = elements(domain).filter(|node| !FREE_TEXT.contains(&node.tag_name().name()));
    for (name, node) in outer.map(|node| (node.tag_name().name(), node)) {
        let inner = elements(node).map(|inner| (format!("{name}/{}", inner.tag_name().name()), inner));
        for (path, node) in inner.chain([(name.to_owned(), node)]) {
            *parts.entry(path).or_insert(true) &= !is_elided(node);
        }
    }
    if parts.values().all(|whole| *whole) { BTreeMap::new() } else { parts }
}

/// Whether a part of an element was left out.
fn is_elided(node: Node) -> bool {
    node.children()
        .filter(|child| child.is_text() || child.is_comment())
        .filter_map(|child| child.text())
        .any(lacks_text)
}

/// Whether something is left out of a text: dots, or a word for it, stand there.
pub(super) fn lacks_text(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    LEFT_OUT.iter().any(|mark| text.contains(mark))
}

/// `<qemu:commandline>`, of which fragments show parts. libvirt takes it in QEMU's namespace only and ignores it
/// elsewhere.
fn qemu_command(domain: Node) -> Option<QemuCommand> {
    let added = children(domain, "commandline").filter(|node| properties::in_qemu_namespace(*node));
    let args = added.flat_map(|node| children(node, "arg")).filter_map(|arg| arg.attribute("value"));
    let argv: Vec<String> = args.map(str::to_owned).collect();
    (!argv.is_empty()).then(|| cmdline::parse_options(&argv))
}

/// An element's name and its `state`.
fn state(node: Node) -> (String, String) {
    (node.tag_name().name().to_owned(), attribute(node, "state").unwrap_or_else(|| "on".to_owned()))
}

/// The enlightenments; where a text shows several lists of them, as alternatives, they are added up.
fn hyperv<'a, 'i: 'a>(shown: impl Iterator<Item = Node<'a, 'i>>) -> Option<HypervXml> {
    let feature = |feature: Node| {
        let own = feature.attributes().take(16).map(|item| (item.name().to_owned(), sanitize(item.value(), 64)));
        (feature.tag_name().name().to_owned(), own.chain(elements(feature).take(8).map(state)).collect())
    };
    shown.fold(None, |all: Option<HypervXml>, node| {
        let mut all = all.unwrap_or_default();
        all.mode = all.mode.or_else(|| attribute(node, "mode"));
        all.features.extend(elements(node).take(64).map(feature));
        Some(all)
    })
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
    Clock { offset: attribute(node, "offset"), timers: timers.collect() }
}

fn cpu(node: Node) -> CpuXml {
    let policy = |feature| attribute(feature, "policy").unwrap_or_else(|| "require".to_owned());
    let features = children(node, "feature").take(1024);
    CpuXml {
        mode: attribute(node, "mode"),
        model: child(node, "model").and_then(name),
        features: features.filter_map(|feature| Some((attribute(feature, "name")?, policy(feature)))).collect(),
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
        memory: node.attribute("memory").and_then(|memory| size(node, memory)),
        host_nodes: None,
    }
}

fn numatune(node: Node, out: &mut DomainXml) {
    out.numatune = child(node, "memory")
        .map(|memory| NumaTune { mode: attribute(memory, "mode"), nodeset: cpus(memory, "nodeset") });
    for memnode in children(node, "memnode") {
        let id = number::<u32>(memnode, "cellid");
        if let Some(cell) = out.numa_cells.iter_mut().find(|cell| Some(cell.id) == id) {
            cell.host_nodes = cpus(memnode, "nodeset");
        }
    }
}

fn cputune(node: Node, out: &mut DomainXml) {
    let pins = |element: &str, id: &str| -> BTreeMap<u32, CpuSet> {
        children(node, element).filter_map(|pin| Some((number(pin, id)?, cpus(pin, "cpuset")?))).collect()
    };
    out.vcpu_pins.extend(pins("vcpupin", "vcpu"));
    let time = |name| value::<u64>(node, name).filter(|time| *time > 0);
    let limit = |quota, period| Some((time(quota)?, time(period).unwrap_or(DEFAULT_PERIOD)));
    out.vcpu_quota = limit("quota", "period").or(out.vcpu_quota);
    out.global_quota = limit("global_quota", "global_period").or(out.global_quota);
    out.iothread_pins.extend(pins("iothreadpin", "iothread"));
    out.emulator_pin = child(node, "emulatorpin").and_then(|pin| cpus(pin, "cpuset")).or(out.emulator_pin.take());
    let is_realtime = |sched: &Node| matches!(sched.attribute("scheduler").map(str::trim), Some("fifo" | "rr"));
    let of = |element: &str, numbers: &str| {
        let sets = children(node, element).filter(is_realtime).filter_map(|sched| cpus(sched, numbers));
        sets.fold(CpuSet::new(), |all, set| all.union(&set))
    };
    // Pins of the first and the last vCPU alone, or a remark on the missing ones: the list is abridged.
    let last = out.vcpus.map_or_else(|| out.vcpu_pins.keys().last().copied(), |vcpus| vcpus.checked_sub(1));
    let has_ends = last.is_some_and(|last| [0, last].iter().all(|vcpu| out.vcpu_pins.contains_key(vcpu)));
    let is_remark = |child: Node| child.is_comment() && child.text().is_some_and(|text| text.contains("vcpu"));
    let lacks_some = last.is_some_and(|last| (1..=last as usize).contains(&out.vcpu_pins.len()));
    if lacks_some && (has_ends || node.children().any(is_remark)) {
        out.parts.entry(String::new()).or_insert(true);
        out.parts.insert("cputune".to_owned(), false);
    }
    out.realtime = out.realtime.union(&of("vcpusched", "vcpus"));
    let emulator = child(node, "emulatorsched").filter(is_realtime).map(|_| None);
    out.realtime_helpers.extend(of("iothreadsched", "iothreads").iter().map(Some).chain(emulator));
}

fn disk(node: Node) -> DiskXml {
    // The first of several `IOThread`s (`<iothreads>`, libvirt 10 and newer).
    let mapped = |driver| children(child(driver, "iothreads")?, "iothread").find_map(|thread| number(thread, "id"));
    let tune = child(node, "iotune");
    // Their `_max` forms allow bursts.
    let limit = |(.., name): (&str, &str, &str)| Some((name.to_owned(), value::<u64>(tune?, name).filter(|n| *n > 0)?));
    let target = inner(node, "target", "dev").unwrap_or_default();
    // libvirt takes the bus from the name where it is not set.
    let by_name = || {
        let buses = [("hd", "ide"), ("sd", "scsi"), ("vd", "virtio")];
        buses.into_iter().find_map(|(begin, bus)| target.starts_with(begin).then(|| bus.to_owned()))
    };
    DiskXml {
        device: attribute(node, "device"),
        source: attribute(node, "type"),
        file: ["file", "dev", "name"]
            .iter()
            .find_map(|name| inner(node, "source", name)?.rsplit('/').next().map(str::to_owned)),
        bus: inner(node, "target", "bus").or_else(by_name),
        target,
        iothread: child(node, "driver").and_then(|driver| number(driver, "iothread").or_else(|| mapped(driver))),
        // What is thrown away when the guest ends needs no flushes.
        cache: inner(node, "driver", "cache").filter(|cache| cache != "unsafe" || child(node, "transient").is_none()),
        io: inner(node, "driver", "io"),
        iotune: DISK_LIMITS.into_iter().filter_map(limit).collect(),
    }
}
