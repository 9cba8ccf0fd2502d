//! Names of guests that a text mentions beside its tables: in `virsh list`, commands, prompts and `kvm_stat`'s title.

use super::pattern::{Pattern, group};
use super::sanitize;
use std::collections::{BTreeMap, BTreeSet};

/// Limits of lines that are read and of names that are kept.
const MAX_LINES: usize = 500_000;
const MAX_NAMES: usize = 1024;

/// `virsh list`, which prints ids and names.
static LIST: Pattern = Pattern::new("(?:^|[^A-Za-z0-9_])virsh(?: *[#>])?(?: +-[^ ]+| +[^ ]+://[^ ]*)* +list(?: |$)");
/// A guest's log or configuration, the title of `kvm_stat -p`, or a command about one guest at the end of its line or
/// code: prose goes further after it.
static GUEST: Pattern = Pattern::new(concat!(
    r"/libvirt/qemu/(?P<file>[A-Za-z0-9][A-Za-z0-9._+:@-]*)\.(?:log|xml)|",
    r"kvm statistics - pid [0-9]+ \((?P<stat>[^()]+)\)|",
    "(?:^|[^A-Za-z0-9_])virsh(?: *[#>])?(?: +-[^ ]+| +[^ ]+://[^ ]*)* +",
    "(?:autostart|console|destroy|dumpxml|edit|reboot|reset|resume|shutdown|start|suspend) +(?:--domain[ =])?",
    "(?:'(?P<single>[^']+)'|\"(?P<double>[^\"]+)\"|(?P<plain>[A-Za-z0-9][A-Za-z0-9._+:@-]*)) *",
    "(?:$|[|>;&#`]|--)",
));
/// The state of a guest, where only one space separates it from the name.
static STATE: Pattern = Pattern::new(" (?:running|paused|idle|crashed|pmsuspended|shut off|in shutdown|no state)$");
/// Words that follow a command's name in prose.
const PROSE: [&str; 10] = ["a", "and", "for", "in", "on", "or", "the", "this", "to", "your"];

/// The guests that a text mentions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesInText {
    /// Names by libvirt's id of the running guest. Several names: the ids of several hosts or starts.
    pub ids: BTreeMap<u32, BTreeSet<String>>,
    /// The guests of `virsh list`.
    listed: BTreeSet<String>,
    /// The guests of commands and titles.
    asked: BTreeSet<String>,
}

impl NamesInText {
    /// Reads a text.
    pub fn find(text: &str) -> Self {
        let mut found = Self::default();
        let (mut after_command, mut in_list) = (false, false);
        for line in text.lines().take(MAX_LINES).map(str::trim).filter(|line| !line.is_empty()) {
            if in_list && (found.list_row(line).is_some() || line.bytes().all(|b| b == b'-')) {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().take(4).collect();
            in_list = matches!(words.as_slice(), [id, name, state, ..] if id.eq_ignore_ascii_case("id")
                && (after_command || name.eq_ignore_ascii_case("name") && state.eq_ignore_ascii_case("state")));
            if in_list {
                continue;
            }
            if line.contains("virsh") {
                after_command = LIST.is_match(line);
            }
            if ["virsh", "/libvirt/qemu/", "kvm statistics"].iter().any(|word| line.contains(word)) {
                found.ask(line);
            }
        }
        found
    }

    /// ` 6    web 2    running`, ` -    db    shut off`.
    fn list_row(&mut self, line: &str) -> Option<()> {
        let (id, rest) = line.split_once([' ', '\t'])?;
        let id = if id == "-" { None } else { Some(id.parse::<u32>().ok()?) };
        let rest = rest.trim_start();
        let end = rest.find("  ").or_else(|| rest.find('\t'));
        let end = end.or_else(|| Some(STATE.regex()?.find(rest)?.start()))?;
        let name = sanitize(rest.get(..end)?, 256);
        if self.listed.len() < MAX_NAMES {
            if let Some(id) = id {
                self.ids.entry(id).or_default().insert(name.clone());
            }
            self.listed.insert(name);
        }
        Some(())
    }

    fn ask(&mut self, line: &str) {
        let Some(found) = GUEST.captures(line) else { return };
        let kinds = ["file", "stat", "single", "double", "plain"];
        let name = kinds.iter().find_map(|kind| group(&found, kind)).unwrap_or_default().trim_end_matches('.');
        if self.asked.len() < MAX_NAMES && !name.is_empty() && !PROSE.contains(&name) && !is_id(name) {
            self.asked.insert(sanitize(name, 256));
        }
    }

    /// The guest that the text is about, if it names a single one.
    pub fn only(&self) -> Option<&str> {
        let names = if self.asked.is_empty() { &self.listed } else { &self.asked };
        names.first().filter(|_| names.len() == 1).map(String::as_str)
    }
}

/// Whether virsh takes a name for the id of a running guest.
pub fn is_id(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(text: &str) -> Vec<(u32, String)> {
        let all = NamesInText::find(text).ids;
        all.into_iter().flat_map(|(id, names)| names.into_iter().map(move |name| (id, name))).collect()
    }

    #[test]
    fn a_list_maps_ids_to_names() {
        let new =
            " Id   Name       State\n--------------------------\n\n 1    csr 1   running\n 12   web     shut off\n";
        assert_eq!(ids(new), [(1, "csr 1".into()), (12, "web".into())]);
        let chinese = "[root@a ~]# virsh list\n Id    名称                           状态\n\n---\n\n 6  web  运行\n";
        assert_eq!(ids(chinese), [(6, "web".into())]);
        let long = " Id Name                 State\n---\n 3 a-name-that-is-longer-than-its-column running\n";
        assert_eq!(ids(long), [(3, "a-name-that-is-longer-than-its-column".into())]);
        // Another table has ids as well.
        assert_eq!(ids(" Id   Path   Size\n---\n 1    a   b\n"), []);
    }

    #[test]
    fn a_text_names_its_guest() {
        for (text, name) in [
            ("$ sudo virsh edit win10\n", Some("win10")),
            ("virsh # dumpxml --domain 'my vm' > a.xml", Some("my vm")),
            ("Run `virsh edit win10` to change it, then `virsh start win10`.", Some("win10")),
            ("$ tail /var/log/libvirt/qemu/web.log", Some("web")),
            ("kvm statistics - pid 2137740 (openeuler-20_03)", Some("openeuler-20_03")),
            ("# virsh list\n Id   Name   State\n----\n 1    rt-vm   running\n", Some("rt-vm")),
            ("Use virsh edit to change it", None),
            ("Use virsh edit to", None),
            ("virsh edit <name>", None),
            ("virsh start $VM", None),
            ("virsh start 6", None),
            ("virsh start web1\nvirsh start web2", None),
            ("virsh net-start default", None),
            ("kvm statistics - summary", None),
        ] {
            assert_eq!(NamesInText::find(text).only(), name, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in any::<String>()) {
            let _ = NamesInText::find(&text);
            let _ = NamesInText::find(&format!("virsh list\nId Name State\n 1 {text}\n"));
        }
    }
}
