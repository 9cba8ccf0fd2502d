//! A guest's identity, merged from all sources, each fact with its origin.

use crate::metadata::source::GuestMetadata;
use crate::metadata::status_xml::DomainStatus;
use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::stat::{TICK_NS, value};
use kvm::cmdline::{self, QemuCommand};
use kvm::device_map;
use kvm::domain_xml::DomainXml;
use kvm::{Space, guest_name, sanitize_name};
use sample::{DomainFacts, GroupCpus, Known, Origin, Vmm};
use std::sync::Arc;

/// A longer command line is cut; the kernel limits one argument to 128 KiB and all to some MiB (execve(2)).
pub(crate) const MAX_COMMAND: usize = 1 << 20;
/// A guest is in a few cgroups, one a line.
const MAX_CGROUP: usize = 64 * 1024;
/// At most this many characters of a name are kept.
const MAX_NAME: usize = 256;

/// The facts of a guest's process in /proc, read once.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessIdentity {
    /// Process id.
    pub pid: i32,
    /// Start, ticks after boot.
    pub start_ticks: u64,
    /// The start by the wall clock, milliseconds since the epoch.
    pub started_ms: Option<i64>,
    /// The main thread's name.
    pub comm: String,
    /// The parsed command line of a QEMU.
    pub command: Option<Arc<QemuCommand>>,
    /// The name that libvirt's status file has: `-name` of the command line, as written.
    pub libvirt_name: Option<String>,
    /// The name that a VMM without libvirt, or a registered machine, gives it.
    pub own_name: Option<Known<String>>,
    /// What its name says besides the process id: its container, its disk or its program. Others may share it.
    pub kind: String,
    /// The user that it runs as (the real one).
    pub uid: Option<u32>,
    /// Number of its threads that have the name of a vCPU.
    pub vcpu_threads: u32,
    /// Number of open vCPU files. QEMU keeps the files of unplugged vCPUs open.
    pub vcpu_files: u32,
    /// The groups of processes that bound its CPUs.
    pub cpu_groups: Vec<GroupCpus>,
}

impl ProcessIdentity {
    /// Reads the process, all but its command line.
    pub(crate) fn read(paths: &SystemPaths, pid: i32, start_ticks: u64, comm: &str, boot_time_ms: i64) -> Self {
        let status = file::read_text(&paths.process(pid, "status"), 4096).unwrap_or_default();
        let cgroup = file::read_bytes(&paths.process(pid, "cgroup"), MAX_CGROUP).unwrap_or_default();
        let cgroup = guest_name::of_cgroup(&String::from_utf8_lossy(&cgroup));
        let mut identity = Self {
            pid,
            start_ticks,
            comm: comm.to_owned(),
            own_name: cgroup.machine.map(|machine| Known::new(machine, Origin::Process)),
            kind: cgroup.container.unwrap_or_else(|| comm.to_owned()),
            uid: value(&status, "Uid").and_then(|ids| ids.split_ascii_whitespace().next()?.parse().ok()),
            ..Self::default()
        };
        identity.started_since_boot(boot_time_ms);
        identity
    }

    /// Takes its start by the wall clock, from the time of the boot by that clock.
    pub(crate) fn started_since_boot(&mut self, boot_time_ms: i64) {
        let since_boot_ms = i64::try_from(self.start_ticks.saturating_mul(TICK_NS / 1_000_000)).ok();
        self.started_ms = since_boot_ms.map(|ms| boot_time_ms.saturating_add(ms));
    }

    /// Takes over the command line: the content of `/proc/PID/cmdline`.
    pub(crate) fn learn(&mut self, cmdline: &[u8]) {
        let argv: Vec<String> = cmdline
            .split(|b| *b == 0)
            .take(cmdline_args(cmdline))
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let command = cmdline::parse_argv(&argv);
        let given = guest_name::of_command(&argv).map(|name| Known::new(name, Origin::CommandLine));
        self.own_name = given.or(self.own_name.take());
        if self.kind == self.comm
            && let Some(disk) = guest_name::of_disk(&argv)
        {
            self.kind = disk;
        }
        // An emulator by another name may well be libvirt's.
        self.libvirt_name.clone_from(&command.name);
        let is_qemu = argv.first().is_some_and(|program| cmdline::is_program(program));
        self.command = is_qemu.then(|| Arc::new(command));
    }

    /// Merges the facts; among the metadata reports the first that has a fact wins.
    pub(crate) fn facts(&self, status: Option<&DomainStatus>, reports: &[Arc<GuestMetadata>]) -> DomainFacts {
        let command = self.command.as_deref();
        let from_metadata = |f: fn(&GuestMetadata) -> Option<Known<String>>| reports.iter().find_map(|t| clean(&f(t)?));
        let from_command = |value: Option<&String>| clean(&Known::new(value?.clone(), Origin::CommandLine));
        let full_xml = reports
            .iter()
            .find_map(|t| t.xml.clone())
            .or_else(|| status.map(|s| Known::new(s.xml.clone(), Origin::StatusXml)));
        let from_xml = |value: fn(&DomainXml) -> Option<&String>| {
            let xml = full_xml.as_ref()?;
            clean(&Known::new(value(&xml.value)?.clone(), xml.from))
        };
        let machine = from_xml(|xml| xml.machine.as_ref()).or_else(|| from_command(command?.machine.as_ref()));
        let vmm = if command.is_some() { Vmm::Qemu } else { Vmm::Other(self.comm.clone()) };
        DomainFacts {
            name: from_metadata(|t| t.name.clone())
                .or_else(|| from_xml(|xml| xml.name.as_ref()))
                .or_else(|| from_command(command?.name.as_ref()))
                .or_else(|| clean(&self.own_name.clone()?))
                .unwrap_or_else(|| {
                    let kind = sanitize_name(&self.kind, MAX_NAME);
                    Known::new(format!("{kind}-{}", self.pid), Origin::Process)
                }),
            uuid: from_metadata(|t| t.uuid.clone())
                .or_else(|| from_xml(|xml| xml.uuid.as_ref()))
                .or_else(|| from_command(command?.uuid.as_ref())),
            pid: Some(self.pid),
            start_ticks: self.start_ticks,
            started_ms: self.started_ms,
            vcpus: (self.vcpu_threads > 0)
                .then(|| Known::new(self.vcpu_threads, Origin::Process))
                .or_else(|| full_xml.as_ref().and_then(|x| Some(Known::new(x.value.vcpus?, x.from))))
                .or_else(|| Some(Known::new(command?.vcpus()?, Origin::CommandLine)))
                .or_else(|| (self.vcpu_files > 0).then(|| Known::new(self.vcpu_files, Origin::Process))),
            guest_os: from_xml(|xml| xml.os_id.as_ref()),
            xml_text: reports.iter().find_map(|t| t.xml_text.clone()).or_else(|| status.map(|s| s.text.clone())),
            xml: full_xml,
            command: self.command.clone(),
            devices: reports.iter().find_map(|t| t.devices.clone()).or_else(|| built_in(&vmm, machine.as_ref())),
            machine,
            vmm,
            persistent: reports.iter().find_map(|t| t.persistent),
            cpu_groups: self.cpu_groups.clone(),
        }
    }
}

/// The built-in table, used until the monitor reports the guest's own devices.
fn built_in(vmm: &Vmm, machine: Option<&Known<String>>) -> Option<Known<Arc<device_map::DeviceMap>>> {
    let machine = machine.map(|m| m.value.as_str());
    let map = device_map::builtin(vmm.as_str(), machine, Some(std::env::consts::ARCH));
    let empty = map.regions(Space::Pio).is_empty() && map.regions(Space::Mmio).is_empty();
    (!empty).then(|| Known::new(Arc::new(map), Origin::BuiltIn))
}

/// A sanitised name; `None` where nothing is left of it.
fn clean(known: &Known<String>) -> Option<Known<String>> {
    let value = sanitize_name(known.value.trim(), MAX_NAME);
    (!value.is_empty()).then_some(Known { value, from: known.from })
}

/// The last argument ends with a NUL too, so that splitting yields an empty last piece.
fn cmdline_args(bytes: &[u8]) -> usize {
    bytes.split(|b| *b == 0).count() - usize::from(bytes.last() == Some(&0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::status_xml::{StatusFiles, StatusQuery};
    use crate::tests::fake_proc::FakeProc;

    fn identity(fake: &FakeProc, command: &[u8]) -> ProcessIdentity {
        fake.process(77, "qemu-system-x86");
        let mut identity = ProcessIdentity::read(&fake.paths(), 77, 500, "qemu-system-x86", 1_000_000);
        identity.learn(command);
        identity
    }

    #[test]
    fn the_command_line_tells_a_guest_of_no_libvirt() {
        let fake = FakeProc::new();
        let o = identity(
            &fake,
            b"qemu-system-x86_64\0-name\0guest=a\x1b[31mb,debug-threads=on\0-smp\x003\0-machine\0q35\0",
        );
        let f = o.facts(None, &[]);
        assert_eq!(f.name, Known::new("a\u{fffd}b".into(), Origin::CommandLine));
        assert_eq!(f.vcpus, Some(Known::new(3, Origin::CommandLine)));
        assert_eq!(f.started_ms, Some(1_005_000));
        assert_eq!(f.vmm, Vmm::Qemu);
        assert_eq!(f.devices.unwrap().from, Origin::BuiltIn);
    }

    #[test]
    fn a_guest_of_no_name_is_called_by_its_process() {
        let fake = FakeProc::new();
        let mut o = identity(&fake, b"./vmm\0");
        o.vcpu_files = 2;
        let f = o.facts(None, &[]);
        assert_eq!(f.name, Known::new("qemu-system-x86-77".into(), Origin::Process));
        assert_eq!(f.vmm, Vmm::Other("qemu-system-x86".into()));
        assert_eq!(f.vcpus, Some(Known::new(2, Origin::Process)));
    }

    #[test]
    fn a_vmm_without_libvirt_names_its_guest() {
        let fake = FakeProc::new();
        let name = |cmdline: &[u8]| identity(&fake, cmdline).facts(None, &[]).name;
        assert_eq!(name(b"/firecracker\0--id\0web\x1b[1m\0"), Known::new("web\u{fffd}".into(), Origin::CommandLine));
        assert_eq!(name(b"qemu-system-x86_64\0-hda\0/vm/web.img\0").value, "web-77");
        fake.process(77, "vmm").process_file("cgroup", b"0::/machine.slice/machine-db.scope\n");
        assert_eq!(name(b"vmm\0run\0"), Known::new("db".into(), Origin::Process));
    }

    #[test]
    fn libvirt_is_believed_first_then_its_file() {
        let fake = FakeProc::new();
        let o = identity(&fake, b"qemu-system-x86_64\0-name\0guest=c\0");
        fake.write(
            "run/libvirt/qemu/b.xml",
            "<domstatus state='running' pid='77'><domain type='kvm'><name>b</name><vcpu>4</vcpu>\
             <os><type machine='pc-q35-7.2'>hvm</type></os></domain></domstatus>",
        );
        let mut files = StatusFiles::new(fake.paths().run);
        let query = StatusQuery { pid: 77, uid: None, name: "b".into(), answered: false };
        files.refresh(0, true, &[query]);
        let f = o.facts(files.status_of(77), &[]);
        assert_eq!(f.name, Known::new("b".into(), Origin::StatusXml));
        assert_eq!(f.machine, Some(Known::new("pc-q35-7.2".into(), Origin::StatusXml)));
        assert_eq!(f.vcpus, Some(Known::new(4, Origin::StatusXml)));
        let reports = GuestMetadata { name: Some(Known::new("a".into(), Origin::Libvirt)), ..GuestMetadata::default() };
        let f = o.facts(files.status_of(77), &[Arc::new(reports)]);
        assert_eq!(f.name, Known::new("a".into(), Origin::Libvirt));
        assert_eq!(f.vcpus.unwrap().from, Origin::StatusXml);
    }
}
