//! A guest's identity and configuration, merged from its process, libvirt and its monitor, each
//! fact with its origin.

use super::proxmox::ProxmoxConfig;
use crate::metadata::source::{GuestMetadata, ReportedState};
use crate::metadata::status_xml::{DomainStatus, StatusFiles};
use crate::proc::fds::KvmFiles;
use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::read_context::ReadContext;
use crate::proc::slow_files::{LateFile, SlowFile};
use crate::proc::stat::TICK_NS;
use kvm::cmdline::{self, QemuCommand};
use kvm::device_map::{self, DeviceMap};
use kvm::domain_xml::DomainXml;
use kvm::labels::Labels;
use kvm::{guest_name, sanitize_name};
use procfs::process::Status;
use rights::own_user;
use sample::{DomainFacts, Known, Origin, Vmm};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A longer command line is cut; the kernel limits one argument to 128 KiB and all to some MiB
/// (execve(2)).
const MAX_COMMAND: usize = 1 << 20;
/// A guest is in a few cgroups, one a line.
const MAX_CGROUP: usize = 64 * 1024;
/// At most this many characters of a name are kept.
const MAX_NAME: usize = 256;

/// The facts of a guest's process in /proc, read once.
#[derive(Debug, Default)]
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
    /// What its name says besides the process id: its container, its disk or its program. Others
    /// may share it.
    pub kind: String,
    /// The user that it runs as (the real one).
    pub uid: Option<u32>,
    /// Number of its threads that have the name of a vCPU.
    pub vcpu_threads: u32,
    /// Number of open vCPU files. QEMU keeps the files of unplugged vCPUs open.
    pub vcpu_files: u32,
    /// Whether its open files were read, and no VM of KVM is among them.
    pub emulated: bool,
    /// Its tags and pool in Proxmox.
    pub labels: Labels,
}

impl ProcessIdentity {
    /// Reads the process, all but its command line.
    pub fn read(
        paths: &SystemPaths,
        pid: i32,
        start_ticks: u64,
        comm: &str,
        boot_time_ms: i64,
    ) -> Self {
        let status: Option<Status> = file::read_as(&paths.process(pid, "status"), file::MAX_STATUS);
        let cgroup = file::read_text(&paths.process(pid, "cgroup"), MAX_CGROUP).unwrap_or_default();
        let (machine, container) = guest_name::of_cgroup(&cgroup);
        let mut identity = Self {
            pid,
            start_ticks,
            comm: comm.to_owned(),
            own_name: machine.map(|machine| Known::new(machine, Origin::Process)),
            kind: container.unwrap_or_else(|| comm.to_owned()),
            uid: status.map(|status| status.ruid),
            ..Self::default()
        };
        let since_boot_ms = i64::try_from(start_ticks.saturating_mul(TICK_NS / 1_000_000)).ok();
        identity.started_ms = since_boot_ms.map(|ms| boot_time_ms.saturating_add(ms));
        identity
    }

    /// Takes over the command line: the content of `/proc/PID/cmdline`.
    pub fn learn(&mut self, cmdline: &[u8]) {
        // The last argument ends with a NUL too.
        let words = cmdline
            .strip_suffix(b"\0")
            .unwrap_or(cmdline)
            .split(|b| *b == 0);
        let argv: Vec<String> = words
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
        let is_qemu = argv
            .first()
            .is_some_and(|program| cmdline::is_program(program));
        self.command = if is_qemu {
            Some(Arc::new(command))
        } else {
            None
        };
    }

    /// Merges the facts. Of each the first source that has it wins.
    pub fn facts(&self, status: Option<&DomainStatus>, report: &GuestMetadata) -> DomainFacts {
        let command = self.command.as_deref();
        let xml = report
            .xml
            .clone()
            .or_else(|| Some(Known::new(status?.xml.clone(), Origin::StatusXml)));
        let machine = clean([
            from_xml(xml.as_ref(), |xml| &xml.machine),
            from_command(command, |c| &c.machine),
        ]);
        let vmm = if command.is_some() {
            Vmm::Qemu
        } else {
            Vmm::Other(self.comm.clone())
        };
        let given = [
            from_xml(xml.as_ref(), |xml| &xml.name),
            from_command(command, |c| &c.name),
            self.own_name.clone(),
        ];
        let vcpus = [
            count_in_process(self.vcpu_threads),
            xml.as_ref()
                .and_then(|xml| Some(Known::new(xml.value.vcpus?, xml.from))),
            command.and_then(|c| Some(Known::new(c.vcpus()?, Origin::CommandLine))),
            count_in_process(self.vcpu_files),
        ];
        let mut labels = xml
            .as_ref()
            .map(|xml| xml.value.labels.clone())
            .unwrap_or_default();
        labels.fill(self.labels.clone());
        let foreign = xml.is_none() && self.uid.is_some_and(|uid| uid != 0 && uid != own_user());
        DomainFacts {
            name: clean(given).unwrap_or_else(|| {
                let kind = sanitize_name(&self.kind, MAX_NAME);
                Known::new(format!("{kind}-{}", self.pid), Origin::Process)
            }),
            uuid: clean([
                from_xml(xml.as_ref(), |xml| &xml.uuid),
                from_command(command, |c| &c.uuid),
            ]),
            pid: Some(self.pid),
            start_ticks: self.start_ticks,
            started_ms: self.started_ms,
            vcpus: vcpus.into_iter().flatten().next(),
            guest_os: clean([from_xml(xml.as_ref(), |xml| &xml.os_id)]),
            xml,
            command: self.command.clone(),
            devices: report
                .devices
                .clone()
                .or_else(|| built_in(&vmm, machine.as_ref())),
            machine,
            vmm,
            persistent: report.persistent,
            labels,
            foreign,
            emulated: self.emulated && command.is_some_and(QemuCommand::may_be_emulated),
        }
    }
}

/// What is known of a guest.
#[derive(Default)]
pub(crate) struct GuestDescription {
    /// The facts of its process.
    pub identity: ProcessIdentity,
    /// Its command line, until that is read: the process can hold it back.
    pub command_line: Option<LateFile>,
    /// All facts together.
    pub facts: Arc<DomainFacts>,
    /// Its name by its sources.
    name: String,
    /// What its name has behind it in `facts`, where another guest has or had the name.
    suffix: String,
    /// Whether something changed since `facts` were merged.
    changed: bool,
    proxmox: ProxmoxConfig,
    /// The last report of libvirt and the monitor.
    pub report: Arc<GuestMetadata>,
    /// libvirt's status file.
    pub status: Option<Arc<DomainStatus>>,
    /// Whether it runs, as libvirt or its monitor says; `None`: nobody says.
    pub state: Option<ReportedState>,
    pub claim: Option<bool>,
}

impl GuestDescription {
    pub fn new(identity: ProcessIdentity, reader: &mut ReadContext) -> Self {
        let mut description = Self {
            identity,
            command_line: Some(LateFile::default()),
            changed: true,
            ..Self::default()
        };
        description.read_command_line(reader);
        description.merge();
        description
    }

    /// Merges the facts again if any of them changed.
    pub fn merge(&mut self) {
        if std::mem::take(&mut self.changed) {
            let facts = self.identity.facts(self.status.as_deref(), &self.report);
            if facts.name.value != self.name {
                self.name.clone_from(&facts.name.value);
                self.suffix.clear();
            }
            self.facts = Arc::new(facts);
        }
    }

    /// Reads the command line, unless it is known.
    pub fn read_command_line(&mut self, reader: &mut ReadContext) {
        let Some(file) = &mut self.command_line else {
            return;
        };
        let path = reader.paths.process(self.identity.pid, "cmdline");
        let cmdline = SlowFile {
            path,
            max: MAX_COMMAND,
            uid: self.identity.uid,
        };
        if let Some(bytes) = file.read(&mut reader.slow_files, cmdline) {
            self.identity.learn(&bytes.unwrap_or_default());
            (self.command_line, self.changed) = (None, true);
        }
    }

    /// Looks at its tags and pool, if Proxmox runs it.
    pub(super) fn read_proxmox(&mut self, reader: &ReadContext) {
        let known = &mut self.identity;
        // Other users' processes may write any number into their command lines.
        if known.uid != Some(0) {
            return;
        }
        let command = known.command.as_deref();
        if let Some(vmid) = command.and_then(QemuCommand::proxmox_id)
            && let Some(labels) = self.proxmox.read(known.pid, vmid, reader)
            && labels != known.labels
        {
            known.labels = labels;
            self.changed = true;
        }
    }

    /// The name that libvirt's status file of it would have.
    pub fn libvirt_name(&self) -> Option<&str> {
        self.identity.libvirt_name.as_deref()
    }

    /// Compares the UUID that the process claims with libvirt's status files.
    pub fn check_claim(&mut self, files: &StatusFiles) {
        let uuid = self
            .facts
            .uuid
            .as_ref()
            .map(|uuid| uuid.value.to_ascii_lowercase());
        self.claim =
            uuid.and_then(|uuid| Some(*files.pid_by_uuid.get(&uuid)? == self.identity.pid));
    }

    /// Takes over what libvirt, its status file and the monitor say.
    pub fn inform(&mut self, report: Arc<GuestMetadata>, status: Option<&Arc<DomainStatus>>) {
        self.state = report.state.clone().or_else(|| status?.state());
        let is_same_status = status.map(Arc::as_ptr) == self.status.as_ref().map(Arc::as_ptr);
        if is_same_status && Arc::ptr_eq(&report, &self.report) {
            return;
        }
        self.report = report;
        self.status = status.cloned();
        self.changed = true;
        self.merge();
    }

    /// Since when at the latest it has been paused, by its status file, milliseconds since the
    /// epoch.
    pub fn paused_ms(&self) -> Option<i64> {
        let status = self.status.as_ref()?;
        status.state()?.stop()?;
        Some(status.written_ms())
    }

    /// The name of the file of a disk, by the disk's name in the XML.
    pub fn disk_file(&self, target: &str) -> Option<String> {
        let xml = self.facts.xml.as_ref()?;
        xml.value
            .disks
            .iter()
            .find(|disk| disk.target == target)?
            .file
            .clone()
    }

    /// Takes over what `/proc` and the cgroups show now.
    pub fn update(&mut self, vcpu_threads: u32, files: &KvmFiles) {
        let known = &mut self.identity;
        let now = (vcpu_threads, files.vcpus.len() as u32, !files.vm);
        if (known.vcpu_threads, known.vcpu_files, known.emulated) != now {
            (known.vcpu_threads, known.vcpu_files, known.emulated) = now;
            self.changed = true;
        }
    }
}

/// Gives each guest a name of its own: what its sources say, or that with its process id. Of guests
/// with one name, one of libvirt or root keeps it, and among those the first that started: another
/// user's process cannot take it away.
pub(crate) fn give_names<'a>(guests: impl Iterator<Item = &'a mut GuestDescription>) {
    let mut guests: Vec<&mut GuestDescription> = guests.collect();
    guests.sort_by_key(|guest| {
        (
            guest.facts.foreign,
            guest.identity.start_ticks,
            guest.identity.pid,
        )
    });
    let mut taken = HashSet::new();
    for guest in guests {
        let mut name = format!("{}{}", guest.name, guest.suffix);
        while !taken.insert(name.clone()) {
            guest.suffix.push_str(&format!("#{}", guest.identity.pid));
            name = format!("{}{}", guest.name, guest.suffix);
        }
        if guest.facts.name.value != name {
            Arc::make_mut(&mut guest.facts).name.value = name;
        }
    }
}

/// The built-in tables in use. One of 15 KiB for each guest would be most of what is known of it:
/// guests share the few that there are.
static BUILT_IN: Mutex<Vec<Arc<DeviceMap>>> = Mutex::new(Vec::new());

/// The built-in table, used until the monitor reports the guest's own devices.
fn built_in(vmm: &Vmm, machine: Option<&Known<String>>) -> Option<Known<Arc<DeviceMap>>> {
    let machine = machine.map(|m| m.value.as_str());
    let map = device_map::builtin(vmm.as_str(), machine, Some(std::env::consts::ARCH));
    if map.is_empty() {
        return None;
    }
    let mut shared = BUILT_IN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = shared.iter().find(|known| ***known == map).cloned();
    let map = known.unwrap_or_else(|| {
        let map = Arc::new(map);
        shared.push(map.clone());
        map
    });
    Some(Known::new(map, Origin::BuiltIn))
}

fn from_xml(
    xml: Option<&Known<Arc<DomainXml>>>,
    value: fn(&DomainXml) -> &Option<String>,
) -> Option<Known<String>> {
    let xml = xml?;
    Some(Known::new(value(&xml.value).clone()?, xml.from))
}

fn from_command(
    command: Option<&QemuCommand>,
    value: fn(&QemuCommand) -> &Option<String>,
) -> Option<Known<String>> {
    Some(Known::new(value(command?).clone()?, Origin::CommandLine))
}

/// The vCPUs that the process shows; their number is unknown while there are none.
fn count_in_process(vcpus: u32) -> Option<Known<u32>> {
    if vcpus > 0 {
        Some(Known::new(vcpus, Origin::Process))
    } else {
        None
    }
}

/// The first of these that has anything left when it is sanitised.
fn clean<const N: usize>(given: [Option<Known<String>>; N]) -> Option<Known<String>> {
    for known in given.into_iter().flatten() {
        let value = sanitize_name(known.value.trim(), MAX_NAME);
        if !value.is_empty() {
            return Some(Known { value, ..known });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::status_xml::StatusFiles;
    use crate::tests::fake_proc::FakeProc;

    #[test]
    fn guests_of_one_machine_share_the_table_of_its_devices() {
        let table = |vmm| built_in(&vmm, None).unwrap().value;
        assert!(Arc::ptr_eq(&table(Vmm::Qemu), &table(Vmm::Qemu)));
        assert_ne!(table(Vmm::Qemu), table(Vmm::Other("firecracker".into())));
    }

    fn identity(fake: &FakeProc, command: &[u8]) -> ProcessIdentity {
        fake.process(77, "qemu-system-x86");
        let mut identity =
            ProcessIdentity::read(&fake.paths(), 77, 500, "qemu-system-x86", 1_000_000);
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
        let f = o.facts(None, &GuestMetadata::default());
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
        let f = o.facts(None, &GuestMetadata::default());
        assert_eq!(
            f.name,
            Known::new("qemu-system-x86-77".into(), Origin::Process)
        );
        assert_eq!(f.vmm, Vmm::Other("qemu-system-x86".into()));
        assert_eq!(f.vcpus, Some(Known::new(2, Origin::Process)));
    }

    #[test]
    fn a_vmm_without_libvirt_names_its_guest() {
        let fake = FakeProc::new();
        let name = |cmdline: &[u8]| {
            identity(&fake, cmdline)
                .facts(None, &GuestMetadata::default())
                .name
        };
        assert_eq!(
            name(b"/firecracker\0--id\0web\x1b[1m\0"),
            Known::new("web\u{fffd}".into(), Origin::CommandLine)
        );
        assert_eq!(
            name(b"qemu-system-x86_64\0-hda\0/vm/web.img\0").value,
            "web-77"
        );
        fake.process(77, "vmm")
            .process_file("cgroup", b"0::/machine.slice/machine-db.scope\n");
        assert_eq!(
            name(b"vmm\0run\0"),
            Known::new("db".into(), Origin::Process)
        );
    }

    #[test]
    fn libvirt_is_believed_first_then_its_file() {
        let fake = FakeProc::new();
        let o = identity(&fake, b"qemu-system-x86_64\0-name\0guest=c\0");
        fake.write(
            "run/libvirt/qemu/b.xml",
            "<domstatus state='running' pid='77'><domain \
             type='kvm'><name>b</name><vcpu>4</vcpu><os><type \
             machine='pc-q35-7.2'>hvm</type></os></domain></domstatus>",
        );
        let mut files = StatusFiles::new(&fake.paths());
        files.refresh(0, true, &["b"]);
        let f = o.facts(
            files.by_pid.get(&77).map(Arc::as_ref),
            &GuestMetadata::default(),
        );
        assert_eq!(f.name, Known::new("b".into(), Origin::StatusXml));
        assert_eq!(
            f.machine,
            Some(Known::new("pc-q35-7.2".into(), Origin::StatusXml))
        );
        assert_eq!(f.vcpus, Some(Known::new(4, Origin::StatusXml)));
        let xml = DomainXml {
            name: Some("a".into()),
            ..DomainXml::default()
        };
        let report = GuestMetadata {
            xml: Some(Known::new(Arc::new(xml), Origin::Libvirt)),
            ..GuestMetadata::default()
        };
        let f = o.facts(files.by_pid.get(&77).map(Arc::as_ref), &report);
        assert_eq!(f.name, Known::new("a".into(), Origin::Libvirt));
    }
}
