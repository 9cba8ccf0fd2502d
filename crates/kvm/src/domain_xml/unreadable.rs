//! Lists of CPUs and nodes that cannot be read: what libvirt refuses, and what was probably meant.

use super::document;
use crate::cpu_set::CpuSet;
use crate::sanitize;
use roxmltree::Node;

/// The most that are listed.
const MOST: usize = 64;
/// A longer list is cut where it is quoted.
const LONGEST: usize = 80;
/// The attributes of a domain's XML that hold a list, by their elements.
pub(super) const LISTS: &[(&str, &str)] = &[
    ("vcpu", "cpuset"),
    ("vcpupin", "cpuset"),
    ("emulatorpin", "cpuset"),
    ("iothreadpin", "cpuset"),
    ("vcpusched", "vcpus"),
    ("iothreadsched", "iothreads"),
    ("cell", "cpus"),
    ("memory", "nodeset"),
    ("memnode", "nodeset"),
];

/// A list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableSet {
    /// The element with its number: `<iothreadpin iothread='1'>`.
    pub place: String,
    /// The attribute.
    pub attribute: &'static str,
    /// Its text.
    pub text: String,
    /// What was probably meant; `None` where nothing is likely.
    pub meant: Option<String>,
}

/// The lists of a domain's XML that cannot be read, in order of the file.
pub fn unreadable_sets(text: &str) -> Vec<UnreadableSet> {
    document(text, "domain", in_domain).unwrap_or_default()
}

fn in_domain(domain: Node) -> Vec<UnreadableSet> {
    let mut found = Vec::new();
    for node in domain.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        for (element, attribute) in LISTS.iter().filter(|(element, _)| *element == name) {
            let Some(list) = node.attribute(*attribute).filter(|list| CpuSet::parse(list).is_err()) else { continue };
            let number = ["vcpu", "iothread", "id", "cellid"].into_iter().find_map(|n| Some((n, node.attribute(n)?)));
            let number = number.map_or_else(String::new, |(n, value)| format!(" {n}='{}'", sanitize(value, 20)));
            found.push(UnreadableSet {
                place: format!("<{element}{number}>"),
                attribute,
                text: sanitize(list, LONGEST),
                meant: meant(list),
            });
            if found.len() >= MOST {
                return found;
            }
        }
    }
    found
}

/// A list with the usual slips put right: a dot, a semicolon or a blank for a comma, `..` for a dash.
fn meant(list: &str) -> Option<String> {
    let list = list.trim().replace("..", "-").replace(['–', '—', '~'], "-");
    let list: String =
        list.chars().map(|c| if matches!(c, '.' | ';' | ' ' | '/' | '，' | '、') { ',' } else { c }).collect();
    CpuSet::parse(&list).ok().filter(|set| !set.is_empty()).map(|_| sanitize(&list, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_named_with_what_was_meant() {
        let found = unreadable_sets(
            "<domain><cputune><vcpupin vcpu='0' cpuset='2'/><iothreadpin iothread='1' cpuset='0.8,1,9'/>\
             <emulatorpin cpuset='0..3'/><vcpupin vcpu='1' cpuset='all'/></cputune></domain>",
        );
        let said: Vec<(&str, Option<&str>)> = found.iter().map(|f| (f.place.as_str(), f.meant.as_deref())).collect();
        assert_eq!(
            said,
            [
                ("<iothreadpin iothread='1'>", Some("0,8,1,9")),
                ("<emulatorpin>", Some("0-3")),
                ("<vcpupin vcpu='1'>", None)
            ]
        );
        assert!(unreadable_sets("<domain><vcpu cpuset='0-3,^2'>4</vcpu></domain>").is_empty());
        assert!(unreadable_sets("<domain").is_empty());
    }
}
