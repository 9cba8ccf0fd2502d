//! How VMMs without libvirt are configured: cloud-hypervisor, Firecracker and crosvm by command line and JSON, QEMU
//! under Proxmox by its `.conf`.
//!
//! Each is read into the fields of a [`QemuCommand`] that it has: number and topology of vCPUs, memory, devices. Its
//! program's name tells whose they are.

mod cloud_hypervisor;
mod crosvm;
mod firecracker;
mod proxmox;
mod text;

use super::cmdline::{QemuCommand, Smp, shell_lines, shell_words};
use super::cpu_set::MAX_CPUS;
use super::sanitize;
use super::thread_cpus::ThreadCpus;
use super::unread::UnreadLines;
use serde_json::Value;
pub(crate) use text::option;

/// A configuration larger than this is none of one guest.
const MAX_TEXT: usize = 4 * 1024 * 1024;
/// Limit of the guests of one text, such as a listing of processes.
const MAX_GUESTS: usize = 1024;
/// Limit of devices of a guest.
const MAX_DEVICES: usize = 1024;

/// The configuration of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmmConfig {
    /// The VMM's name; `None`: QEMU.
    pub vmm: Option<&'static str>,
    /// What it has in common with QEMU's.
    pub command: QemuCommand,
    /// Where its threads may run.
    pub threads: ThreadCpus,
    /// The guest's system, as Proxmox calls it: `win11`, `l26`.
    pub guest_os: Option<String>,
    /// Lines that could not be read.
    pub unread: UnreadLines,
}

impl VmmConfig {
    fn of(vmm: &'static str) -> Self {
        Self {
            vmm: Some(vmm),
            command: QemuCommand { program: vmm.to_owned(), ..QemuCommand::default() },
            ..Self::default()
        }
    }

    fn vcpus(&mut self, vcpus: Option<u32>) {
        self.command.smp.cpus = vcpus.filter(|n| (1..=MAX_CPUS).contains(n)).or(self.command.smp.cpus);
    }

    /// A guest's topology: threads in a core, cores in a die, dies in a socket, sockets.
    fn topology(&mut self, parts: [Option<u32>; 4]) {
        let [threads, cores, dies, sockets] = parts.map(|part| part.filter(|n| (1..=MAX_CPUS).contains(n)));
        self.command.smp = Smp { cpus: self.command.smp.cpus, threads, cores, dies, sockets, ..Smp::default() };
    }

    fn device(&mut self, driver: &str, id: &str) {
        if self.command.devices.len() < MAX_DEVICES {
            self.command.devices.push((driver.to_owned(), sanitize(id, 80)));
        }
    }
}

/// Whether a text holds a configuration of one of these VMMs.
pub fn looks_like(text: &str) -> bool {
    text.len() <= MAX_TEXT && !parse(text).is_empty()
}

/// Reads the configurations of a text: a JSON file, a Proxmox `.conf`, or command lines.
pub fn parse(text: &str) -> Vec<VmmConfig> {
    if text.len() > MAX_TEXT {
        return Vec::new();
    }
    if text.trim_start().starts_with('{') {
        return json(text).into_iter().collect();
    }
    let configs = proxmox::parse(text);
    if !configs.is_empty() {
        return configs;
    }
    if !["cloud-hypervisor", "firecracker", "crosvm"].iter().any(|vmm| text.contains(vmm)) {
        return Vec::new();
    }
    shell_lines(text).iter().filter_map(|line| command(&shell_words(line))).take(MAX_GUESTS).collect()
}

fn json(text: &str) -> Option<VmmConfig> {
    let whole: Value = serde_json::from_str(text.trim()).ok()?;
    // `ch-remote info` wraps the configuration.
    let config = whole.get("config").filter(|inner| inner.is_object()).unwrap_or(&whole);
    cloud_hypervisor::json(config).or_else(|| firecracker::json(config)).or_else(|| crosvm::json(config))
}

/// A command line of one of the VMMs, anywhere in a line of `ps` or of a script.
fn command(words: &[String]) -> Option<VmmConfig> {
    let name = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
    words.iter().enumerate().find_map(|(at, word)| {
        let args = words.get(at + 1..)?;
        match name(word).as_str() {
            "cloud-hypervisor" => cloud_hypervisor::command(args),
            "firecracker" | "jailer" => firecracker::command(args),
            "crosvm" => crosvm::command(args),
            _ => None,
        }
    })
}

/// A number within JSON.
fn number(value: &Value, key: &str) -> Option<u64> {
    value.get(key)?.as_u64()
}

fn small(value: &Value, key: &str) -> Option<u32> {
    number(value, key).and_then(|n| u32::try_from(n).ok())
}

#[cfg(test)]
mod tests;
