//! QEMU guests of a boot sector each, under libvirt.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// libvirt's driver for QEMU.
const URI: &str = "qemu:///system";

/// Runs virsh.
pub fn virsh(args: &[&str]) -> Output {
    Command::new("virsh")
        .args(["-c", URI, "-q"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("virsh")
}

/// Libvirt's daemons, for one test at a time: two at once would start and end each other's daemons,
/// and each would be the other's unsteady load.
pub struct Daemons {
    started: Vec<PathBuf>,
    _alone: MutexGuard<'static, ()>,
}

/// Waits for other tests' libvirt guests, then starts the daemons where none answers.
pub fn start() -> Result<Daemons, String> {
    static ALONE: Mutex<()> = Mutex::new(());
    if let Some(why) = super::cannot_trace() {
        return Err(why);
    }
    for tool in ["virsh", "libvirtd", "virtlogd", "qemu-system-x86_64"] {
        let found = ["/usr/bin", "/usr/sbin"]
            .iter()
            .any(|d| Path::new(d).join(tool).exists());
        if !found {
            return Err(format!("{tool} is not installed"));
        }
    }
    let mut daemons = Daemons {
        started: Vec::new(),
        _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
    };
    if !virsh(&["version"]).status.success() {
        for daemon in ["virtlogd", "libvirtd"] {
            let pid_file = PathBuf::from(format!("/run/{daemon}.pid"));
            if Command::new(daemon)
                .arg("-d")
                .status()
                .is_ok_and(|s| s.success())
            {
                daemons.started.push(pid_file);
            }
        }
        let until = Instant::now() + Duration::from_secs(20);
        while !virsh(&["version"]).status.success() {
            if Instant::now() > until {
                return Err("libvirtd does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(daemons)
}

impl Daemons {
    /// Whether libvirtd was started here, so that a test may stop it.
    pub fn are_own(&self) -> bool {
        self.started.len() == 2
    }
}

/// The process of libvirtd.
pub fn daemon() -> u32 {
    let text = std::fs::read_to_string("/run/libvirtd.pid").expect("libvirtd runs");
    text.trim().parse().expect("a PID")
}

/// Ends what was started here, and waits until no daemon answers, so that the next test starts its
/// own.
impl Drop for Daemons {
    fn drop(&mut self) {
        for pid_file in self.started.iter().rev() {
            let Ok(pid) = std::fs::read_to_string(pid_file) else {
                continue;
            };
            let process = PathBuf::from("/proc").join(pid.trim());
            let _ = Command::new("kill").arg(pid.trim()).status();
            let until = Instant::now() + Duration::from_secs(10);
            while process.exists() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// How a domain is set up.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub vcpus: u32,
    /// vCPUs with those that can be plugged in.
    pub max_vcpus: u32,
    /// `<cputune>` and similar elements.
    pub tune: &'a str,
    /// The whole of `<clock>`.
    pub clock: &'a str,
}

/// A transient domain; destroyed when dropped.
pub struct Domain {
    pub name: String,
    image: PathBuf,
}

impl Domain {
    /// Starts a guest that boots this sector.
    pub fn start(name: &str, sector: &[u8], setup: &Setup<'_>) -> Result<Self, String> {
        let Setup {
            vcpus,
            max_vcpus,
            tune,
            clock,
        } = setup;
        let image = PathBuf::from(format!("/var/lib/libvirt/images/{name}.img"));
        let mut disk = sector.to_vec();
        disk.resize(510, 0);
        disk.extend([0x55, 0xaa]);
        disk.resize(1 << 20, 0); // SeaBIOS boots no disk of one sector
        std::fs::write(&image, disk).map_err(|e| format!("{}: {e}", image.display()))?;
        let xml = format!(
            "<domain type='kvm'><name>{name}</name><memory unit='MiB'>64</memory>
             <vcpu placement='static' current='{vcpus}'>{max_vcpus}</vcpu>{tune}
             <os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os><features><acpi/><apic/></features>
             <cpu mode='host-passthrough'><feature policy='disable' name='arch-capabilities'/></cpu>{clock}
             <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
             <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{}'/>
             <target dev='sda' bus='sata'/></disk>
             <memballoon model='none'/></devices></domain>",
            image.display()
        );
        let file = std::env::temp_dir().join(format!("{name}.xml"));
        std::fs::write(&file, xml).map_err(|e| e.to_string())?;
        let made = virsh(&["create", &file.to_string_lossy()]);
        let _ = std::fs::remove_file(file);
        if !made.status.success() {
            return Err(format!(
                "virsh create: {}",
                String::from_utf8_lossy(&made.stderr).trim()
            ));
        }
        Ok(Self {
            name: name.into(),
            image,
        })
    }

    /// QEMU's process.
    pub fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(format!("/run/libvirt/qemu/{}.pid", self.name))
            .expect("pid file");
        text.trim().parse().expect("a PID")
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let _ = virsh(&["destroy", &self.name]);
        let _ = std::fs::remove_file(&self.image);
    }
}
