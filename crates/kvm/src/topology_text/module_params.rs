//! Parameters of KVM's modules: `grep . /sys/module/kvm*/parameters/*`, `tail` or `head` of these files, `cat` of one.

use super::TopologyText;
use crate::sanitize;
use std::collections::BTreeMap;

/// KVM's modules have some dozens.
const MAX_PARAMS: usize = 256;
/// Longest value.
const MAX_VALUE: usize = 32;
const FOLDER: &str = "/sys/module/kvm";

pub(super) fn looks_like(text: &str) -> bool {
    text.contains(FOLDER) && !params(text).is_empty()
}

pub(super) fn parse(text: &str) -> TopologyText {
    TopologyText { params: params(text), ..TopologyText::default() }
}

/// By module and name: `kvm_amd.avic`.
fn params(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((before, name, behind)) = file(line) else { continue };
        let value = match behind.strip_prefix(':') {
            Some(value) => Some(value),
            // The file's content stands below its name, or below the command that prints it.
            None if before.ends_with("==>") || before.ends_with("cat") => lines.peek().copied(),
            None => None,
        };
        let value = value.map(str::trim).filter(|value| is_value(value));
        if let Some(value) = value.filter(|_| found.len() < MAX_PARAMS) {
            found.insert(name, value.to_owned());
        }
    }
    found
}

/// What stands before the name of a parameter's file, the parameter, and what follows.
fn file(line: &str) -> Option<(&str, String, &str)> {
    let at = line.find(FOLDER)?;
    let (module, rest) = line.get(at + "/sys/module/".len()..)?.split_once("/parameters/")?;
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.is_empty();
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, behind) = rest.split_at(end);
    let plain = is_name(module) && is_name(name) && !behind.starts_with('*');
    plain.then(|| (line.get(..at).unwrap_or_default().trim_end(), sanitize(&format!("{module}.{name}"), 64), behind))
}

/// `Y`, `200000`, `-1`, `auto`.
fn is_value(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b',' | b'(' | b')');
    (1..=MAX_VALUE).contains(&text.len()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_however_they_were_printed() {
        let all = |text: &str| params(text).into_iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ");
        assert_eq!(
            all("$ grep . /sys/module/kvm*/parameters/*\n/sys/module/kvm/parameters/halt_poll_ns:200000\n\
                /sys/module/kvm_amd/parameters/avic:N\n"),
            "kvm.halt_poll_ns=200000 kvm_amd.avic=N"
        );
        assert_eq!(all("==> /sys/module/kvm_intel/parameters/nested <==\nY\n\n"), "kvm_intel.nested=Y");
        assert_eq!(all("# cat /sys/module/kvm_intel/parameters/enable_apicv\nN\n#"), "kvm_intel.enable_apicv=N");
        for other in [
            "echo 0 > /sys/module/kvm/parameters/halt_poll_ns\nY",
            "see /sys/module/kvm/parameters/halt_poll_ns: it is in ns",
            "cat /sys/module/kvm/parameters/*\nY\nN",
            "cat /sys/module/kvm/parameters/x\ncat: no such file\n",
        ] {
            assert_eq!(all(other), "", "{other}");
        }
    }
}
