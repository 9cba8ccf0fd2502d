use super::*;
use proptest::prelude::*;

const LIST: &str = "# The following is the parsable format, which can be fed to other\n# \
    programs.\n# \
    CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,0,0,0,,0,0,0,0\n1,1,0,0,,1,1,1,0\n2,2,1,1,,2,2,2,1\n3,3,1,1,,3,3,3,1\n4,0,0,0,,0,0,0,0\n5,1,0,0,,1,1,1,0\n6,2,1,1,,2,2,2,1\n7,3,1,1,,3,3,3,1\n";
/// `lscpu -e` of a host with two nodes, SMT and an offline CPU; all CPUs were asked for (`-a`).
const TABLE: &str = "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ   MINMHZ\n0    0      \
      0    0 0:0:0:0          yes 3700.0000 800.0000\n1    1      1    1 1:1:1:1          yes \
      3700.0000 800.0000\n2    0      0    0 0:0:0:0          yes 3700.0000 800.0000\n3    -      \
      -    - -                 no 3700.0000 800.0000\n";
const SUMMARY: &str = "Architecture:          x86_64\nCPU(s):                8\nOn-line CPU(s) \
    list:   0-7\nThread(s) per core:    2\nModel name:            AMD EPYC 7302\nNUMA \
    node(s):          2\nNUMA node0 CPU(s):     0-1,4-5\nNUMA node1 CPU(s):     \
    2-3,6-7\nFlags:                 fpu vme hypervisor\n";
const CAPABILITIES: &str = "<capabilities>\n <host>\n  <topology>\n   <cells num='2'>\n    <cell \
    id='0'><memory unit='KiB'>1</memory><cpus num='2'><cpu id='0' socket_id='0' die_id='0' \
    core_id='0' siblings='0,2'/><cpu id='2' socket_id='0' die_id='0' core_id='0' \
    siblings='0,2'/></cpus></cell>\n<cell id='1'><cpus num='1'><cpu id='1' socket_id='1' \
    core_id='0' siblings='1'/></cpus></cell></cells></topology>\n<cache><bank id='0' level='3' \
    type='both' size='8' unit='MiB' cpus='0,2'/><bank id='1' level='3' type='both' \
    cpus='1'/></cache></host>\n<guest><cpu id='9'/></guest></capabilities>";
const NUMACTL: &str = "available: 2 nodes (0-1)\nnode 0 cpus: 0 1 4 5\nnode 0 size: 192019 \
    MB\nnode 1 cpus: 2 3 6 7\nnode distances:\nnode   0   1\n  0:  10  21\n";

fn read(text: &str) -> PrintedTopology {
    assert!(begins(text), "{text}");
    parse(text).unwrap()
}

#[test]
fn columns_are_found_by_their_titles() {
    let host = read(LIST).topology;
    assert_eq!(host.cpus.len(), 8);
    assert_eq!(host.siblings(3).to_string(), "3,7");
    assert_eq!(
        (host.node_of(2), host.same_llc(0, 1), host.same_llc(0, 2)),
        (Some(1), Some(true), Some(false))
    );
    let short = read("# CPU,Core,Socket\n0,0,0\n1,0,0\n").topology;
    assert!(short.same_core(0, 1) && short.node_of(0).is_none() && short.same_llc(0, 1).is_none());
    let host = read(TABLE).topology;
    assert_eq!(
        (
            host.all().to_string().as_str(),
            host.siblings(2).to_string().as_str()
        ),
        ("0-2", "0,2")
    );
    assert_eq!(
        (host.node_of(1), host.same_llc(0, 2), host.same_llc(0, 1)),
        (Some(1), Some(true), Some(false))
    );
}

#[test]
fn a_summary_gives_nodes_and_cores_by_their_order() {
    let found = read(SUMMARY);
    let host = &found.topology;
    assert_eq!(
        (
            host.cpus.len(),
            host.node_of(6),
            host.siblings(3).to_string()
        ),
        (8, Some(1), "3,7".into())
    );
    assert_eq!(found.params[CPU_MODEL], "AMD EPYC 7302");
    let interleaved = read(
        &SUMMARY
            .replace("0-1,4-5", "0,2,4,6")
            .replace("2-3,6-7", "1,3,5,7"),
    );
    assert!(!interleaved.topology.has_smt());
}

#[test]
fn nodes_are_read_from_numactl() {
    let host = read(NUMACTL).topology;
    assert_eq!(
        (host.cpus.len(), host.node_of(5), host.node_of(6)),
        (8, Some(0), Some(1))
    );
}

#[test]
fn capabilities_are_read_without_the_guests() {
    let host = read(CAPABILITIES).topology;
    assert_eq!(host.all().to_string(), "0-2");
    assert_eq!(
        (
            host.siblings(0).to_string().as_str(),
            host.node_of(1),
            host.same_llc(0, 2),
            host.same_llc(0, 1)
        ),
        ("0,2", Some(1), Some(true), Some(false))
    );
    let error = parse("<capabilities><host><topology>").unwrap_err();
    assert!(error.starts_with("not well-formed XML"), "{error}");
}

#[test]
fn the_slower_cpus_of_a_hybrid_host_are_found() {
    let text = "CPU SOCKET CORE L1d:L1i:L2 ONLINE MAXMHZ\n0 0 0 0:0:0 yes 2400.0000\n1 0 1 1:1:1 \
        yes 1800.0\n";
    assert_eq!(read(text).efficiency.to_string(), "1");
    for text in [TABLE, LIST] {
        assert!(read(text).efficiency.is_empty(), "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_survived(text in any::<String>()) {
        let list = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n";
        for begin in ["", list, "CPU NODE CORE L1d:L1i:L2\n", "Architecture: x86_64\n"] {
            let text = format!("{begin}{text}");
            let _ = (begins(&text), parse(&text));
        }
        let _ = parse(&format!("<capabilities><host><topology>{text}</topology></host></capabilities>"));
    }
}

#[test]
fn lscpu_in_another_language_is_named() {
    for text in ["Architektur:   x86_64\nCPU(s):   8\n", "架构：   aarch64\n"] {
        assert!(begins(text), "{text}");
        assert!(parse(text).unwrap_err().contains("LC_ALL=C lscpu"));
    }
}
