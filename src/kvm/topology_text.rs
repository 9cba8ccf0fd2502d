//! Reads the host's CPU topology from text: `lscpu -p` with any columns, and `virsh capabilities`.

use super::cpu_set::{CpuSet, MAX_CPUS};
use super::domain_xml::{XmlError, document};
use super::topology::{CpuTopo, HostTopology};

const MAX_TEXT: usize = 8 * 1024 * 1024;
/// lscpu knows some twenty columns.
const MAX_COLUMNS: usize = 64;

/// Why a topology could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Neither of the two formats.
    #[error("no CPU found: neither the output of 'lscpu -p' nor of 'virsh capabilities'")]
    NothingFound,
    /// Capabilities that are not well-formed.
    #[error("virsh capabilities: {0}")]
    Xml(#[from] XmlError),
}

/// Whether a text is in one of the two formats.
pub fn looks_like(text: &str) -> bool {
    is_capabilities(text) || text.lines().take(20).any(|line| columns(line).is_some())
}

fn is_capabilities(text: &str) -> bool {
    text.contains("<capabilities>") && text.contains("<topology>")
}

/// Parses either format.
///
/// # Errors
/// When no CPU is found.
pub fn parse(text: &str) -> Result<HostTopology, TopologyError> {
    let mut host = if is_capabilities(text) { capabilities(text)? } else { lscpu(text) };
    if host.cpus.is_empty() {
        return Err(TopologyError::NothingFound);
    }
    host.normalise();
    Ok(host)
}

/// The column names of `# CPU,Core,Socket,Node,,L1d,L1i,L2,L3`.
fn columns(line: &str) -> Option<Vec<String>> {
    let names: Vec<String> = line
        .trim()
        .strip_prefix('#')?
        .trim()
        .split(',')
        .take(MAX_COLUMNS)
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    (names.first().is_some_and(|name| name == "cpu") && names.len() > 1).then_some(names)
}

fn lscpu(text: &str) -> HostTopology {
    let mut names: Vec<String> = Vec::new();
    let mut host = HostTopology::default();
    if text.len() > MAX_TEXT {
        return host;
    }
    for line in text.lines() {
        let line = line.trim();
        if let Some(found) = columns(line) {
            names = found;
            continue;
        }
        if line.starts_with('#') || line.is_empty() || names.is_empty() {
            continue;
        }
        let values: Vec<&str> = line.split(',').map(str::trim).collect();
        let value = |name: &str| names.iter().position(|known| known == name).and_then(|at| values.get(at)).copied();
        let number = |name: &str| value(name).and_then(|text| text.parse::<u32>().ok());
        let offline = value("online").is_some_and(|online| matches!(online, "N" | "no" | "n"));
        let Some(cpu) = number("cpu").filter(|cpu| *cpu < MAX_CPUS && !offline) else { continue };
        // The last level that the CPU has; `CACHE` puts all levels into one column, `0:0:0:0`.
        let llc = ["l4", "l3", "l2"].into_iter().find_map(number).or_else(|| {
            value("cache").and_then(|all| all.rsplit(':').find(|id| !id.is_empty())).and_then(|id| id.parse().ok())
        });
        host.cpus.push(CpuTopo {
            cpu,
            core: number("core"),
            socket: number("socket"),
            die: number("die"),
            node: number("node"),
            llc,
            siblings: CpuSet::new(),
        });
        if host.cpus.len() >= MAX_CPUS as usize {
            break;
        }
    }
    host
}

fn capabilities(text: &str) -> Result<HostTopology, XmlError> {
    document(text, "capabilities", |root| {
        let mut host = HostTopology::default();
        let named = |node: &roxmltree::Node, name: &str| node.is_element() && node.tag_name().name() == name;
        // Only the host's part: guests have their own <cpu> elements.
        let Some(part) = root.children().find(|node| named(node, "host")) else { return host };
        for cell in part.descendants().filter(|node| named(node, "cell")) {
            let node_id = cell.attribute("id").and_then(|id| id.parse().ok());
            for cpu in cell.descendants().filter(|node| named(node, "cpu")).take(MAX_CPUS as usize) {
                let number = |name: &str| cpu.attribute(name).and_then(|value| value.trim().parse::<u32>().ok());
                let Some(id) = number("id").filter(|id| *id < MAX_CPUS) else { continue };
                if host.cpus.len() >= MAX_CPUS as usize {
                    return host;
                }
                host.cpus.push(CpuTopo {
                    cpu: id,
                    core: number("core_id"),
                    socket: number("socket_id"),
                    die: number("die_id"),
                    node: node_id,
                    llc: None,
                    siblings: cpu.attribute("siblings").and_then(|list| CpuSet::parse(list).ok()).unwrap_or_default(),
                });
            }
        }
        // Each cache is compared with each CPU.
        host.cpus.sort_by_key(|entry| entry.cpu);
        host.cpus.dedup_by_key(|entry| entry.cpu);
        let banks = part.descendants().filter(|node| named(node, "bank")).filter_map(|bank| {
            Some((bank.attribute("level")?.parse::<u32>().ok()?, CpuSet::parse(bank.attribute("cpus")?).ok()?))
        });
        let mut banks: Vec<(u32, CpuSet)> = banks.take(MAX_CPUS as usize).collect();
        banks.sort_by_key(|bank| bank.0);
        for (id, (_, cpus)) in banks.iter().enumerate() {
            // Higher levels come later and overwrite.
            for entry in host.cpus.iter_mut().filter(|entry| cpus.contains(entry.cpu)) {
                entry.llc = Some(id as u32);
            }
        }
        host
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LSCPU: &str = "# The following is the parsable format, which can be fed to other\n# programs.\n# \
    CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n\
        0,0,0,0,,0,0,0,0\n1,1,0,0,,1,1,1,0\n2,2,1,1,,2,2,2,1\n3,3,1,1,,3,3,3,1\n4,0,0,0,,0,0,0,0\n5,1,0,0,,1,1,1,0\n\
        6,2,1,1,,2,2,2,1\n7,3,1,1,,3,3,3,1\n";
    const CAPABILITIES: &str = "<capabilities>\n <host>\n  <topology>\n   <cells num='2'>\n    <cell id='0'><memory \
    unit='KiB'>1</memory><cpus num='2'>\
        <cpu id='0' socket_id='0' die_id='0' core_id='0' siblings='0,2'/><cpu id='2' socket_id='0' die_id='0' \
        core_id='0' siblings='0,2'/></cpus></cell>\n\
        <cell id='1'><cpus num='1'><cpu id='1' socket_id='1' core_id='0' \
        siblings='1'/></cpus></cell></cells></topology>\n\
        <cache><bank id='0' level='3' type='both' size='8' unit='MiB' cpus='0,2'/><bank id='1' level='3' type='both' \
        cpus='1'/></cache></host>\n\
        <guest><cpu id='9'/></guest></capabilities>";

    #[test]
    fn lscpu_columns_are_found_by_name() {
        let host = parse(LSCPU).unwrap();
        assert_eq!(host.cpus.len(), 8);
        assert_eq!(host.siblings(3).to_string(), "3,7");
        assert_eq!((host.node_of(2), host.same_llc(0, 1), host.same_llc(0, 2)), (Some(1), Some(true), Some(false)));
        let short = parse("# CPU,Core,Socket\n0,0,0\n1,0,0\n").unwrap();
        assert!(short.same_core(0, 1) && short.node_of(0).is_none() && short.same_llc(0, 1).is_none());
        let cache = parse("# CPU,Node,Cache,Online\n0,0,0:0:0:7,Y\n1,0,1:1:1:7,Y\n2,,,N\n").unwrap();
        assert_eq!((cache.cpus.len(), cache.same_llc(0, 1)), (2, Some(true)));
    }

    #[test]
    fn capabilities_are_read_without_the_guests() {
        let host = parse(CAPABILITIES).unwrap();
        assert_eq!(host.all().to_string(), "0-2");
        assert_eq!(
            (host.siblings(0).to_string().as_str(), host.node_of(1), host.same_llc(0, 2), host.same_llc(0, 1)),
            ("0,2", Some(1), Some(true), Some(false))
        );
    }

    #[test]
    fn other_text_is_refused() {
        assert!(
            looks_like(LSCPU) && looks_like(CAPABILITIES) && !looks_like("# hello, world") && !looks_like("<domain/>")
        );
        assert_eq!(parse("x"), Err(TopologyError::NothingFound));
        assert!(matches!(parse("<capabilities><host><topology>"), Err(TopologyError::Xml(_))));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in any::<String>()) {
            let _ = parse(&text);
            let _ = parse(&format!("# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n{text}"));
            let _ = parse(&format!("<capabilities><host><topology>{text}</topology></host></capabilities>"));
            let _ = looks_like(&text);
        }
    }
}
