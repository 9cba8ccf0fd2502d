//! libvirt's domain XML (`virsh dumpxml`) and live status XML (`/run/libvirt/qemu/NAME.xml`).

mod properties;
mod read;
mod repeated;
mod xml;

pub use read::parse;
pub use repeated::repeated;
pub use xml::{Node, children, document};

use super::cmdline::QemuCommand;
use super::cpu_set::CpuSet;
use super::device_property::DeviceProperty;
use super::labels::Labels;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A domain with hundreds of devices needs a tenth of this.
pub const MAX_TEXT: usize = 4 * 1024 * 1024;

/// The state of a domain that does not run, as `virsh domstate` words it.
pub const SHUT_OFF: &str = "shut off";

/// Guest CPU topology as the guest sees it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestTopology {
    /// Sockets.
    pub sockets: u32,
    /// Dies in a socket.
    pub dies: u32,
    /// Cores in a die (clusters multiplied in).
    pub cores: u32,
    /// Threads in a core.
    pub threads: u32,
}

impl GuestTopology {
    /// The vCPUs that it has room for.
    pub fn vcpus(&self) -> u32 {
        [self.dies, self.cores, self.threads]
            .into_iter()
            .fold(self.sockets, u32::saturating_mul)
    }
}

/// A NUMA cell of the guest, as domain XML and QEMU's `-numa` describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestNumaCell {
    /// Cell number.
    pub id: u32,
    /// Its vCPUs.
    pub cpus: CpuSet,
    /// Its memory in bytes.
    pub memory: Option<u64>,
    /// Host nodes that its memory is bound to (`<memnode>`, `host-nodes=` of its memory backend).
    pub host_nodes: Option<CpuSet>,
}

/// `<numatune><memory>`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumaTune {
    /// `strict`, `preferred`, `interleave`, `restrictive`.
    pub mode: Option<String>,
    /// Host nodes.
    pub nodeset: Option<CpuSet>,
}

/// `<features><hyperv>`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HypervXml {
    /// `custom`, `passthrough`, `host-model`; `None` when not written.
    pub mode: Option<String>,
    /// Attributes by element; the state of an inner element (`<direct>`, `<extended>`) is an
    /// attribute of its name.
    pub features: BTreeMap<String, BTreeMap<String, String>>,
}

impl HypervXml {
    fn is_on(&self, element: &str, attribute: &str) -> bool {
        self.features
            .get(element)
            .and_then(|attributes| attributes.get(attribute))
            .is_some_and(|state| state == "on")
    }
}

/// A `<timer>` of `<clock>`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timer {
    /// `rtc`, `pit`, `hpet`, `hypervclock`, `kvmclock`, `tsc`, `armvtimer`, `platform`.
    pub name: String,
    /// `present='yes'`; `None` when not written.
    pub present: Option<bool>,
    /// `delay`, `catchup`, `discard`, `merge`.
    pub tickpolicy: Option<String>,
}

/// `<clock>`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// `utc`, `localtime`, `timezone`, `variable`, `absolute`.
    pub offset: Option<String>,
    /// Timers in file order.
    pub timers: Vec<Timer>,
}

impl Clock {
    /// The timer of this name.
    pub fn timer(&self, name: &str) -> Option<&Timer> {
        self.timers.iter().find(|timer| timer.name == name)
    }

    /// Whether a timer is configured as present or absent; `None`: the hypervisor's default.
    pub fn present(&self, name: &str) -> Option<bool> {
        self.timer(name)?.present
    }
}

/// `<cpu>`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuXml {
    /// `host-passthrough`, `host-model`, `custom`, `maximum`.
    pub mode: Option<String>,
    /// `<model>`: `EPYC`, `qemu64`.
    pub model: Option<String>,
    /// Features by name, with their policy (`require`, `disable`).
    pub features: BTreeMap<String, String>,
}

/// A `<disk>`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskXml {
    /// `<disk device=>`: `disk` if not written, `lun`, `cdrom`, `floppy`.
    pub device: Option<String>,
    /// `<disk type=>`: `file`, `block`, `network`.
    pub source: Option<String>,
    /// Name of its file or volume, without its folder.
    pub file: Option<String>,
    /// `<target dev=>`: `vda`. libvirt's statistics use this name.
    pub target: String,
    /// Bus: `virtio`, `sata`, `ide`, `scsi`, `usb`.
    pub bus: Option<String>,
    /// `<driver iothread=>`.
    pub iothread: Option<u32>,
    /// `<driver cache=>`.
    pub cache: Option<String>,
    /// `<driver io=>`.
    pub io: Option<String>,
    /// `<iotune>`: limits per second by element (`total_iops_sec`); those that are 0 limit nothing
    /// and are left out.
    pub iotune: BTreeMap<String, u64>,
}

/// The `<bandwidth>` of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NicBandwidth {
    /// Its device on the host: `vnet0`.
    pub target: String,
    /// The most that the guest may receive on average, bytes per second.
    pub inbound: Option<u64>,
    /// The same of what it sends.
    pub outbound: Option<u64>,
}

/// What a domain XML says. `None` and empty mean that it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainXml {
    /// Domain name.
    pub name: Option<String>,
    /// UUID, lower case.
    pub uuid: Option<String>,
    /// `<title>`, and what nova and `KubeVirt` write into `<metadata>`. Not recorded.
    #[serde(skip)]
    pub labels: Labels,
    /// libosinfo id: `http://microsoft.com/win/10`.
    pub os_id: Option<String>,
    /// `kvm`, `qemu`.
    pub domain_type: Option<String>,
    /// The most vCPUs that it may have (`<vcpu>`).
    pub max_vcpus: Option<u32>,
    /// vCPUs now (`<vcpu current=>`, else the maximum).
    pub vcpus: Option<u32>,
    /// Machine type: `pc-q35-6.2`.
    pub machine: Option<String>,
    /// Architecture: `x86_64`.
    pub arch: Option<String>,
    /// Memory at start in bytes.
    pub memory: Option<u64>,
    /// Guest topology.
    pub topology: Option<GuestTopology>,
    /// `<vcpupin>` by vCPU.
    pub vcpu_pins: BTreeMap<u32, CpuSet>,
    /// `<emulatorpin>`.
    pub emulator_pin: Option<CpuSet>,
    /// `<iothreadpin>` by `IOThread`.
    pub iothread_pins: BTreeMap<u32, CpuSet>,
    /// Number of `IOThread`s.
    pub iothreads: u32,
    /// `<vcpu cpuset=>`: where vCPUs without a `<vcpupin>` may run.
    pub vcpu_cpuset: Option<CpuSet>,
    /// The vCPUs with a real-time scheduler (`<vcpusched scheduler='fifo'>` or `rr`).
    pub realtime: CpuSet,
    /// The same of `IOThread`s by number (`<iothreadsched>`) and of the emulator, without a number
    /// (`<emulatorsched>`). Not recorded.
    #[serde(skip)]
    pub realtime_helpers: BTreeSet<Option<u32>>,
    /// `<numatune>`.
    pub numatune: Option<NumaTune>,
    /// Guest NUMA cells.
    pub numa_cells: Vec<GuestNumaCell>,
    /// Hyper-V enlightenments; `None` without the element.
    pub hyperv: Option<HypervXml>,
    /// `<features><kvm>`: element to state (`hint-dedicated` to `on`).
    pub kvm_features: BTreeMap<String, String>,
    /// Clock and timers.
    pub clock: Clock,
    /// CPU.
    pub cpu: CpuXml,
    /// Disks.
    pub disks: Vec<DiskXml>,
    /// Interfaces whose traffic is limited.
    pub bandwidths: Vec<NicBandwidth>,
    /// Status XML: process id of the emulator.
    pub pid: Option<i32>,
    /// Status XML: `running`, `paused`; `shut off` where files say that the domain does not run.
    pub state: Option<String>,
    /// Status XML: why it is in that state, such as `ioerror`.
    pub state_reason: Option<String>,
    /// What `<qemu:commandline>` adds at the end of QEMU's command line.
    pub qemu_command: Option<QemuCommand>,
    /// Properties of devices in `<devices>` and `<qemu:override>` that change how they are served.
    pub device_properties: Vec<DeviceProperty>,
    /// Of an XML that libvirt would not take, as it lacks both a name and a system to boot: its
    /// elements by path below `<domain>` (`features/hyperv`), about which alone it says something.
    /// Not recorded.
    #[serde(skip)]
    pub parts: Option<BTreeSet<String>>,
}

impl DomainXml {
    /// Whether it is complete, so that what it lacks is absent.
    pub fn is_whole(&self) -> bool {
        self.parts.is_none()
    }

    /// Whether the element at this path (`features/hyperv`) is there, or is known to be absent.
    pub fn shows(&self, path: &str) -> bool {
        let Some(parts) = &self.parts else {
            return true;
        };
        parts.contains(path)
            || path
                .rsplit_once('/')
                .is_some_and(|(outer, _)| parts.contains(outer))
    }

    /// Whether a Hyper-V enlightenment is on; `stimer_direct` asks for the inner element.
    /// `passthrough` turns all on.
    pub fn hyperv_on(&self, name: &str) -> bool {
        let Some(hyperv) = &self.hyperv else {
            return false;
        };
        hyperv.mode.as_deref() == Some("passthrough")
            || hyperv.is_on(name, "state")
            || name
                .split_once('_')
                .is_some_and(|(outer, inner)| hyperv.is_on(outer, inner))
    }
}

#[cfg(test)]
mod tests;
