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
use super::limits::{self, Implausible};
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
    /// Numbers that no guest can have. They are left out.
    pub implausible: Vec<Implausible>,
}

impl VmmConfig {
    fn of(vmm: &'static str) -> Self {
        Self {
            vmm: Some(vmm),
            command: QemuCommand { program: vmm.to_owned(), ..QemuCommand::default() },
            ..Self::default()
        }
    }

    /// A number of vCPUs or of a topology, as written behind `what`.
    fn count(&mut self, what: &'static str, written: Option<&str>) -> Option<u32> {
        let written = written?.trim();
        if limits::beyond(written.trim_start_matches('-'), u64::from(limits::VCPUS)) {
            let (what, value) = (what.to_owned(), sanitize(written, 40));
            self.implausible.push(Implausible { what, value, most: u64::from(limits::VCPUS) });
            return None;
        }
        written.parse().ok().filter(|n| *n > 0)
    }

    fn vcpus(&mut self, what: &'static str, written: Option<&str>) {
        self.command.smp.cpus = self.count(what, written).or(self.command.smp.cpus);
    }

    /// Where the numbers that are left out stand in the text: a sentence each.
    pub fn notes(&self, file: &str, text: &str) -> Vec<String> {
        let place = |bad: &Implausible| {
            let has = |line: &str, word: &str| line.contains(word);
            let both = text.lines().position(|line| has(line, &bad.value) && has(line, &bad.what));
            let line = both.or_else(|| text.lines().position(|line| has(line, &bad.value)));
            line.map_or_else(|| file.to_owned(), |at| format!("{file}:{}", at + 1))
        };
        self.implausible.iter().map(|bad| format!("{}: {bad}; it is left out", place(bad))).collect()
    }

    /// A guest's topology: threads in a core, cores in a die, dies in a socket, sockets.
    fn topology(&mut self, [threads, cores, dies, sockets]: [Option<u32>; 4]) {
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

/// A number within JSON, as written.
fn written(value: &Value, key: &str) -> Option<String> {
    value.get(key).filter(|value| value.is_number()).map(Value::to_string)
}

/// The number of a vCPU within JSON.
fn vcpu_number(value: &Value, key: &str) -> Option<u32> {
    number(value, key).and_then(|n| u32::try_from(n).ok()).filter(|n| *n < limits::VCPUS)
}

#[cfg(test)]
mod tests;
