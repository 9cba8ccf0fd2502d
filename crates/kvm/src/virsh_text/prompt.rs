//! A pasted command line of virsh: `root@host:~# virsh -c qemu:///system vcpupin web`, or `virsh # vcpupin web`.

use super::VirshOutput;
use crate::cmdline::shell_words;

/// A command whose output is read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PastedCommand {
    pub output: VirshOutput,
    /// The domain that it names.
    pub domain: Option<String>,
}

/// Options of virsh itself, and of its commands, that take a value.
const WITH_VALUE: &[&str] =
    &["-c", "--connect", "-d", "--debug", "-e", "--escape", "-k", "-K", "-l", "--log", "--vcpu", "--cpulist"];

pub(super) fn command(line: &str) -> Option<PastedCommand> {
    let at = line.find("virsh")?;
    let before = line.get(..at)?;
    if before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') || line.len() > 4096 {
        return None;
    }
    // The prompt of virsh's own shell.
    let rest = line.get(at + "virsh".len()..)?.trim_start();
    let mut words = shell_words(rest.strip_prefix(['#', '>']).unwrap_or(rest)).into_iter();
    let mut output = None;
    let mut domain = None;
    while let Some(word) = words.next() {
        if word == "--domain" {
            domain = words.next();
        } else if let Some(name) = word.strip_prefix("--domain=") {
            domain = Some(name.to_owned());
        } else if WITH_VALUE.contains(&word.as_str()) {
            words.next();
        } else if word.starts_with('-') {
            // An option without a value, or with a value after `=`.
        } else if matches!(word.as_str(), "|" | ">" | ">>" | ";" | "&&" | "2>&1") {
            break;
        } else if output.is_none() {
            output = Some(match word.trim_end_matches(';') {
                "vcpupin" => VirshOutput::Vcpus,
                "emulatorpin" => VirshOutput::Emulator,
                "vcpuinfo" => VirshOutput::VcpuInfo(None),
                "domstats" => VirshOutput::Stats,
                _ => return None,
            });
        } else if domain.is_none() {
            domain = Some(word.trim_end_matches(';').to_owned());
        }
    }
    // The statistics name each domain themselves.
    Some(PastedCommand { output: output?, domain: domain.filter(|name| !name.is_empty()) })
}
