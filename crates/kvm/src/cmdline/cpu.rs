//! `-cpu`, as QEMU's `x86_cpu_parse_featurestr` and `x86_cpu_expand_features` (target/i386/cpu.c) read it.

use super::QemuCommand;
use super::options::{is_on, pairs};
use crate::{hyperv, sanitize};

/// Limit of the `-cpu` options that are kept.
const MAX_CPU_OPTIONS: usize = 16;
/// The longest argument that is kept.
const MAX_ARGUMENT: usize = 4096;

/// Reads one `-cpu`: it replaces what an earlier one said.
pub(super) fn cpu(command: &mut QemuCommand, value: &str) {
    if command.cpu_options.len() >= MAX_CPU_OPTIONS {
        command.cpu_options.remove(0);
    }
    command.cpu_options.push(sanitize(value, MAX_ARGUMENT));
    command.cpu_features.clear();
    command.hyperv.clear();
    (command.hv_time, command.kvmclock) = (None, None);
    let parts = pairs(value);
    // QEMU applies `feature=on` first, then each `+feature`, then each `-feature`, in any order on the command line.
    for sign in [None, Some('+'), Some('-')] {
        for (index, (key, value)) in parts.iter().enumerate() {
            // The model comes first.
            if index == 0 && value.is_none() || key.chars().next().filter(|c| matches!(c, '+' | '-')) != sign {
                continue;
            }
            let name = key.trim_start_matches(['+', '-']);
            let value = match sign {
                Some('+') => "on",
                Some(_) => "off",
                None => value.as_deref().unwrap_or("on"),
            };
            feature(command, name, value);
        }
    }
}

/// `-global TYPE-cpu.PROPERTY=VALUE`: the features of `-cpu` are set after it, so they win.
pub(super) fn global_of_cpu(command: &mut QemuCommand, property: &str, value: &str) {
    if !command.cpu_features.contains_key(property) {
        feature(command, property, value);
    }
}

/// One feature. Underscores are the older spelling.
fn feature(command: &mut QemuCommand, name: &str, value: &str) {
    let name = name.replace('_', "-");
    if let Some(flag) = name.strip_prefix("hv-") {
        let name = hyperv::of_flag(flag);
        if name == hyperv::CLOCK {
            command.hv_time = Some(is_on(value));
        } else {
            command.hyperv.insert(name, value.to_owned());
        }
        return;
    }
    if name == "kvmclock" {
        command.kvmclock = Some(is_on(value));
    }
    command.cpu_features.insert(name, value.to_owned());
}
