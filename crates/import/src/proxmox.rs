//! The configuration of a QEMU guest under Proxmox VE: `/etc/pve/qemu-server/100.conf`
//! (qm.conf(5)). It is read as the command line with which Proxmox starts QEMU (its
//! PVE/QemuServer.pm and CPUConfig.pm).

use super::files::{Description, Files};
use kvm::cmdline::{QemuCommand, UNKNOWN_PROXMOX_ID, parse_argv, shell_words};
use kvm::labels::Labels;
use kvm::pattern::Pattern;
use kvm::{limits, sanitize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most keys: a guest has some hundred devices at most.
const MAX_KEYS: usize = 1024;
/// A line of a configuration.
static LINE: Pattern = Pattern::new("^[a-z]+[a-z_]*[0-9]*: ");
/// Keys that tell a guest's configuration from other texts, and those of a container's
/// (pct.conf(5)).
static KEY: Pattern =
    Pattern::new("(?m)^(?:ostype|scsihw|smbios1|bootdisk|cores|sockets|vmgenid|rootfs): ");
/// A disk and a network card of a guest.
static DISK: Pattern = Pattern::new("^(?:virtio|scsi|sata|ide)[0-9]{1,2}$");
static CARD: Pattern = Pattern::new("^net[0-9]{1,2}$");

/// The configuration of one guest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProxmoxConfig {
    /// The command line that it stands for.
    pub command: QemuCommand,
    /// The guest's operating system as Proxmox names it: `win11`, `l26`.
    pub guest_os: Option<String>,
    /// Its tags.
    pub labels: Labels,
}

/// Whether a text begins as a configuration: after notes, its first lines have keys.
pub(crate) fn begins(text: &str) -> bool {
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    KEY.is_match(text) && lines.take(2).all(|line| LINE.is_match(line))
}

/// Reads a configuration, whose file has the guest's number as its name.
pub(crate) fn read(text: &str, files: &mut Files) -> Result<(), String> {
    let name = files.path.file_stem().unwrap_or_default().to_string_lossy();
    let is_number = (3..=9).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_digit());
    let config = parse(text, if is_number { Some(&name) } else { None })?;
    files.described.push(Description {
        command: Some(Arc::new(config.command)),
        guest_os: config.guest_os,
        labels: config.labels,
        is_running: true,
        ..Description::default()
    });
    Ok(())
}

/// Reads a configuration; `number` is the guest's, where it is known.
///
/// # Errors
/// If it is a container's.
pub fn parse(text: &str, number: Option<&str>) -> Result<ProxmoxConfig, String> {
    // The present configuration ends at the first snapshot, `[name]`.
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter(|line| LINE.is_match(line));
    let keys: BTreeMap<&str, &str> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key, value.trim()))
        .take(MAX_KEYS)
        .collect();
    if keys.contains_key("rootfs") {
        return Err("the configuration of a container, which is no KVM guest".into());
    }
    let mut command = parse_argv(&qemu_argv(&keys, number));
    command.defaults = ["cpu", "scsihw"]
        .into_iter()
        .filter(|key| {
            // `args` can name a CPU as well.
            let is_in_args = *key == "cpu" && command.cpu_options.len() > 1;
            !is_in_args && !keys.contains_key(key)
        })
        .collect();
    let guest_os = keys
        .get("ostype")
        .map(|name| sanitize(name, 40))
        .filter(|name| name != "other");
    let labels = Labels::with_tags(keys.get("tags").unwrap_or(&""));
    Ok(ProxmoxConfig {
        command,
        guest_os,
        labels,
    })
}

/// The words of a command line of QEMU in the making.
struct QemuOptions {
    words: Vec<String>,
}

impl QemuOptions {
    fn add(&mut self, option: &str, value: impl Into<String>) {
        self.words.push(option.to_owned());
        self.words.push(value.into());
    }
}

/// QEMU's command line for a configuration; the options of `args` come last, as Proxmox appends
/// them.
fn qemu_argv(keys: &BTreeMap<&str, &str>, number: Option<&str>) -> Vec<String> {
    let mut options = QemuOptions {
        words: vec!["/usr/bin/kvm".to_owned(), "-nodefaults".to_owned()],
    };
    if let Some(name) = keys.get("name").copied().or(number) {
        let name = name.replace(',', ",,");
        options.add("-name", format!("{name},debug-threads=on"));
    }
    if let Some(uuid) = keys
        .get("smbios1")
        .and_then(|value| named_part(value, "uuid"))
    {
        options.add("-uuid", uuid);
    }
    add_cpus(keys, &mut options);
    if let Some(memory) = keys.get("memory") {
        options.add("-m", first_part(memory, "current="));
    }
    add_machine(keys, &mut options);
    // Proxmox names the QMP socket after the guest's number.
    let number = number.unwrap_or(UNKNOWN_PROXMOX_ID);
    options.add(
        "-qmp",
        format!("unix:/var/run/qemu-server/{number}.qmp,server"),
    );
    let scsihw = keys.get("scsihw").copied().unwrap_or("lsi");
    for (key, value) in keys {
        if DISK.is_match(key) {
            add_disk(key, value, scsihw, &mut options);
        } else if CARD.is_match(key) {
            // `e1000=BC:24:11:00:00:01,bridge=vmbr0`
            let model = first_part(value, "model=")
                .split('=')
                .next()
                .unwrap_or_default();
            let device = if model == "virtio" {
                "virtio-net-pci"
            } else {
                model
            };
            options.add("-device", format!("{device},id={key}"));
        }
    }
    if scsihw.starts_with("virtio-scsi") {
        options.add("-device", "virtio-scsi-pci,id=scsihw0");
    }
    let args = keys.get("args").copied().unwrap_or_default();
    options.words.extend(shell_words(args));
    options.words
}

fn add_cpus(keys: &BTreeMap<&str, &str>, options: &mut QemuOptions) {
    let sockets = cpu_count(keys, "sockets").unwrap_or(1);
    let cores = cpu_count(keys, "cores").unwrap_or(1);
    let most = sockets.saturating_mul(cores);
    let vcpus = cpu_count(keys, "vcpus").unwrap_or(most);
    options.add(
        "-smp",
        format!("{vcpus},sockets={sockets},cores={cores},maxcpus={most}"),
    );
}

fn cpu_count(keys: &BTreeMap<&str, &str>, key: &str) -> Option<u32> {
    let count = keys.get(key)?.parse().ok()?;
    if (1..=limits::VCPUS).contains(&count) {
        Some(count)
    } else {
        None
    }
}

fn add_machine(keys: &BTreeMap<&str, &str>, options: &mut QemuOptions) {
    // `wxp`, `w2k8`, `win10`. Since Vista Proxmox switches the HPET off, and since 7 it adds these
    // enlightenments (`get_hyperv_enlightenments`).
    let ostype = keys.get("ostype").copied().unwrap_or_default();
    let is_windows = ostype.starts_with('w');
    let is_modern = ostype.starts_with("win");
    let accel = if keys.get("kvm") == Some(&"0") {
        "tcg"
    } else {
        "kvm"
    };
    let hpet = if is_modern { ",hpet=off" } else { "" };
    let machine = first_part(keys.get("machine").copied().unwrap_or("pc"), "type=");
    options.add("-machine", format!("{machine},accel={accel}{hpet}"));
    // Proxmox's screens leave the key out for its default (`get_default_cpu_type`).
    let configured = keys.get("cpu").copied().unwrap_or("kvm64");
    let mut cpu = first_part(configured, "cputype=").to_owned();
    if is_modern {
        cpu.push_str(",hv_spinlocks=0x1fff,hv_vapic,hv_time,hv_reset,hv_vpindex,hv_runtime");
        cpu.push_str(",hv_relaxed,hv_synic,hv_stimer,hv_ipi");
    }
    // `flags=+pcid;-spec-ctrl`
    if let Some(flags) = named_part(configured, "flags") {
        for flag in flags.split(';') {
            cpu.push_str(&format!(",{flag}"));
        }
    }
    options.add("-cpu", cpu);
    let is_local = keys.get("localtime").map_or(is_windows, |on| *on == "1");
    let base = if is_local {
        "localtime,driftfix=slew"
    } else {
        "utc"
    };
    options.add("-rtc", format!("base={base}"));
    if is_windows {
        options.add("-global", "kvm-pit.lost_tick_policy=discard");
    }
}

/// The first part of a value, whose name can be left out: `local-lvm:vm-100-disk-0,size=32G`.
fn first_part<'a>(value: &'a str, name: &str) -> &'a str {
    value
        .split(',')
        .next()
        .unwrap_or_default()
        .trim_start_matches(name)
}

/// A named part of a value.
fn named_part<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value
        .split(',')
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// The drive and the device of a disk: `scsi0:
/// local-lvm:vm-100-disk-0,aio=native,iothread=1,size=32G`.
fn add_disk(key: &str, value: &str, scsihw: &str, options: &mut QemuOptions) {
    let volume = first_part(value, "file=");
    if volume.ends_with("cloudinit") || named_part(value, "media") == Some("cdrom") {
        return;
    }
    // Without another mode Proxmox opens disks past the host's page cache.
    let mut drive = format!(
        "file={volume},if=none,id=drive-{key},cache={}",
        named_part(value, "cache").unwrap_or("none")
    );
    if let Some(aio) = named_part(value, "aio") {
        drive.push_str(&format!(",aio={aio}"));
    }
    options.add("-drive", drive);
    let is_scsi = key.starts_with("scsi");
    let driver = if is_scsi {
        "scsi-hd"
    } else if key.starts_with("virtio") {
        "virtio-blk-pci"
    } else {
        "ide-hd"
    };
    let mut device = format!("{driver},drive=drive-{key},id={key}");
    if named_part(value, "iothread") == Some("1") && driver != "ide-hd" {
        // With other SCSI controllers than virtio-scsi-single, Proxmox ignores the option: it adds
        // no object.
        device.push_str(&format!(",iothread=iothread-{key}"));
        if !is_scsi || scsihw == "virtio-scsi-single" {
            options.add("-object", format!("iothread,id=iothread-{key}"));
        }
    }
    options.add("-device", device);
    if is_scsi && !scsihw.starts_with("virtio") {
        // Proxmox's `lsi` is QEMU's lsi53c895a.
        let model = if scsihw == "lsi" {
            "lsi53c895a"
        } else {
            scsihw
        };
        options.add("-device", format!("{model},id=scsihw"));
    }
}

#[cfg(test)]
mod tests;
