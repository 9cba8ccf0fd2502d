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

fn of_node(host: &HostTopology, node: u32) -> String {
    let cpus = host.cpus.iter().filter(|entry| entry.node == Some(node));
    cpus.map(|entry| entry.cpu).collect::<CpuSet>().to_string()
}

#[test]
fn lists_of_sysfs_say_which_cpus_share_a_core() {
    let text = "NUMA node0 CPU(s): 0,2\nNUMA node1 CPU(s): 1,3\n\n$ cat /sys/devices/system/cpu/cpu*/topology/\
        thread_siblings_list | sort -n | uniq\n0,2\n1,3\n\nall of 0-3\n4,5\n";
    let host = parse(text).unwrap().topology;
    assert_eq!((host.cpus.len(), host.siblings(2).to_string(), host.node_of(3)), (4, "0,2".into(), Some(1)));
    let named = "/sys/devices/system/cpu/cpu0/topology/core_cpus_list:0-1\n\
        /sys/devices/system/cpu/cpu2/topology/core_cpus_list:2-3\n\
        GRUB_CMDLINE_LINUX_DEFAULT=\"quiet isolcpus=1\"";
    assert!(looks_like(named) && !looks_like("see thread_siblings_list: it lists\nthreads"));
    let host = parse(named).unwrap().topology;
    assert_eq!((host.siblings(1).to_string(), host.isolated), ("0-1".into(), Some(CpuSet::from_iter([1]))));
}

#[test]
fn lscpu_columns_are_found_by_name() {
    let host = parse(LSCPU).unwrap().topology;
    assert_eq!(host.cpus.len(), 8);
    assert_eq!(host.siblings(3).to_string(), "3,7");
    assert_eq!((host.node_of(2), host.same_llc(0, 1), host.same_llc(0, 2)), (Some(1), Some(true), Some(false)));
    let short = parse("# CPU,Core,Socket\n0,0,0\n1,0,0\n").unwrap().topology;
    assert!(short.same_core(0, 1) && short.node_of(0).is_none() && short.same_llc(0, 1).is_none());
    let cache = parse("# CPU,Node,Cache,Online\n0,0,0:0:0:7,Y\n1,0,1:1:1:7,Y\n2,,,N\n").unwrap().topology;
    assert_eq!((cache.cpus.len(), cache.same_llc(0, 1)), (2, Some(true)));
}

#[test]
fn capabilities_are_read_without_the_guests() {
    let host = parse(CAPABILITIES).unwrap().topology;
    assert_eq!(host.all().to_string(), "0-2");
    assert_eq!(
        (host.siblings(0).to_string().as_str(), host.node_of(1), host.same_llc(0, 2), host.same_llc(0, 1)),
        ("0,2", Some(1), Some(true), Some(false))
    );
}

#[test]
fn a_guests_table_is_not_the_hosts() {
    let host =
        "CPU CORE L1d:L1i:L2:L3 MAXMHZ\n0 0 0:0:0:0 3500\n1 1 1:1:1:0 3500\n2 0 0:0:0:0 3500\n3 1 1:1:1:0 3500\n";
    let guest = "CPU CORE L1d:L1i:L2:L3\n0 0 0:0:0:0\n1 0 0:0:0:0\n";
    for text in [format!("{host}\n{guest}"), format!("{guest}\n{host}")] {
        let found = parse(&text).unwrap();
        assert_eq!((found.topology.cpus.len(), found.topology.siblings(1).to_string()), (4, "1,3".into()));
        assert!(found.efficiency.is_empty() && found.notes == [TWO_MACHINES], "{:?}", found.notes);
    }
    let same = parse(&format!("{host}\n# CPU,Core,Socket\n0,0,0\n1,1,0\n2,0,0\n3,1,0\n")).unwrap();
    assert!(same.notes.is_empty() && same.topology.cpus.len() == 4, "{:?}", same.notes);
}

#[test]
fn capabilities_that_were_cut_are_not_the_host() {
    let cut = CAPABILITIES.replace("<cpus num='1'>", "<cpus num='15'>");
    let found = parse(&format!("{cut}\nNUMA node0 CPU(s): 0-17\n")).unwrap();
    assert_eq!((found.topology.cpus.len(), found.notes[0].as_str()), (18, CUT_CAPABILITIES));
}

#[test]
fn other_text_is_refused() {
    assert!(looks_like(LSCPU) && looks_like(CAPABILITIES) && !looks_like("# hello, world") && !looks_like("<domain/>"));
    assert_eq!(parse("x").unwrap_err().to_string(), NOTHING_FOUND);
    let error = parse("<capabilities><host><topology>").unwrap_err();
    assert!(format!("{error:#}").starts_with("virsh capabilities: not well-formed XML"), "{error:#}");
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

/// `lscpu -e` of a host with two nodes, SMT and an offline CPU; all CPUs were asked for (`-a`).
const TABLE: &str = "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ   MINMHZ\n\
      0    0      0    0 0:0:0:0          yes 3700.0000 800.0000\n\
      1    1      1    1 1:1:1:1          yes 3700.0000 800.0000\n\
      2    0      0    0 0:0:0:0          yes 3700.0000 800.0000\n\
      3    -      -    - -                 no 3700.0000 800.0000\n";

#[test]
fn a_table_is_read_by_its_titles() {
    let found = parse(TABLE).unwrap();
    let host = &found.topology;
    assert_eq!((host.all().to_string().as_str(), found.offline.to_string().as_str()), ("0-2", "3"));
    assert_eq!((host.siblings(2).to_string().as_str(), host.node_of(1)), ("0,2", Some(1)));
    assert_eq!((host.same_llc(0, 2), host.same_llc(0, 1)), (Some(true), Some(false)));
    let old = parse("CPU SOCKET CORE L1d:L1i:L2\n0   0      0    0:0:0\n1   0      1    1:1:1\n").unwrap().topology;
    assert_eq!((old.cpus.len(), old.node_of(0), old.same_core(0, 1)), (2, None, false));
    let few = parse("CPU ONLINE\n  0    yes\n  1     no\n").unwrap();
    assert_eq!((few.topology.all().to_string(), few.offline.to_string()), ("0".into(), "1".into()));
}

/// Core i7-1260P as in public output of `lscpu -e`, shortened: two cores with two threads, and eight efficiency cores
/// that share a second-level cache in fours.
#[test]
fn the_slower_cpus_of_a_hybrid_host_are_found() {
    let mut table = "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ   MINMHZ\n".to_owned();
    let mut list = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n".to_owned();
    for cpu in 0..12 {
        let core = if cpu < 4 { cpu / 2 } else { cpu - 2 };
        let (l1, l2) = (core * 4, if cpu < 4 { core * 4 } else { 16 + (cpu - 4) / 4 });
        table += &format!("{cpu} 0 0 {core} {l1}:{l1}:{l2}:0 yes 4600.0000 400.0000\n");
        list += &format!("{cpu},{core},0,0,,{l1},{l1},{l2},0\n");
    }
    for text in [&table, &list] {
        assert_eq!(parse(text).unwrap().efficiency.to_string(), "4-11", "{text}");
    }
    let by_frequency = "CPU SOCKET CORE L1d:L1i:L2 ONLINE MAXMHZ MINMHZ\n0 0 0 0:0:0 ja 2400,0000 408,0\n\
        1 0 1 1:1:1 ja 1800,0000 408,0\n2 - - - nein 1800,0 408,0\n";
    assert_eq!(parse(by_frequency).unwrap().efficiency.to_string(), "1");
    for text in [TABLE, LSCPU] {
        assert!(parse(text).unwrap().efficiency.is_empty(), "{text}");
    }
}

/// util-linux 2.38 on a host with two nodes; the values come from an English and two translated outputs.
#[test]
fn a_summary_gives_nodes_in_any_language() {
    let english = "Architecture:          x86_64\nCPU(s):                8\nOn-line CPU(s) list:   0-6\n\
        Off-line CPU(s) list:  7\nThread(s) per core:    2\nNUMA node(s):          2\n\
        NUMA node0 CPU(s):     0,2,4,6\nNUMA node1 CPU(s):     1,3,5\n";
    let german = "Architektur:                  x86_64\nCPU(s):                       8\n\
        Liste der Online-CPU(s):      0-6\nThread(s) pro Kern:           2\nNUMA-Knoten:                  2\n\
        NUMA-Knoten0 CPU(s):          0,2,4,6\nNUMA-Knoten1 CPU(s):          1,3,5\n";
    let chinese = "架构：                   x86_64\nCPU:                    8\n在线 CPU 列表：          0-6\n\
        每个核的线程数：          2\nNUMA 节点：              2\nNUMA 节点0 CPU：         0,2,4,6\n\
        NUMA 节点1 CPU：         1,3,5\n";
    for text in [english, german, chinese] {
        assert!(looks_like(text), "{text}");
        let found = parse(text).unwrap();
        assert_eq!(found.topology.all().to_string(), "0-6", "{text}");
        assert_eq!(of_node(&found.topology, 1), "1,3,5", "{text}");
        assert!(!found.topology.has_smt() && found.notes.len() == 1, "which CPUs share a core is not said");
    }
    assert_eq!(parse(english).unwrap().offline.to_string(), "7");
    let flat = "CPU(s):              2\nOn-line CPU(s) list: 0,1\nThread(s) per core:  1\n";
    let flat = parse(flat).unwrap();
    assert_eq!((flat.topology.all().to_string(), flat.notes.len()), ("0-1".into(), 0));
}

#[test]
fn numactl_gives_nodes_also_such_without_cpus() {
    let text = "available: 3 nodes (0-2)\nnode 0 cpus: 0 1 4 5\nnode 0 size: 64 MB\nnode 0 free: 1 MB\n\
        node 1 cpus: 2 3 6 7\nnode 1 size: 64 MB\nnode 2 cpus:\nnode 2 size: 512 MB\nnode distances:\n\
        node   0   1   2\n  0:  10  21  17\n  1:  21  10  28\n  2:  17  28  10\n";
    assert!(looks_like(text));
    let host = parse(text).unwrap().topology;
    assert_eq!((host.all().to_string().as_str(), of_node(&host, 1).as_str()), ("0-7", "2-3,6-7"));
}

#[test]
fn a_list_that_a_terminal_wrapped_goes_on() {
    let text = "node 0 cpus: 0 1 2\n3\nnode 0 size: 64 MB\nnode 1 cpus: 4 5\n\n6 7\nnode 1 free: 3 MB\n9\n";
    let host = parse(text).unwrap().topology;
    assert_eq!((of_node(&host, 0), of_node(&host, 1)), ("0-3".into(), "4-7".into()));
}

#[test]
fn the_order_of_the_nodes_cpus_tells_cores() {
    let nodes = "NUMA node0 CPU(s):     0-3,8-11\nNUMA node1 CPU(s):     4-7,12-15\nNUMA node0 CPU(s):  0-15\n";
    for threads in ["L1d:                   1 MiB (8 instances)\n", "Thread(s) per core:    2\n"] {
        let found = parse(&format!("{threads}{nodes}")).unwrap();
        assert_eq!((found.topology.siblings(5).to_string().as_str(), found.notes.len()), ("5,13", 1));
    }
    let found = parse("Thread(s) per core: 2\nNUMA node0 CPU(s): 0-7\nNUMA node1 CPU(s): 8-15\n").unwrap();
    assert!(!found.topology.has_smt(), "0 and 1 can share a core, or 0 and 4");
}

#[test]
fn sibling_lists_of_sysfs_give_cores() {
    let lists = "$ cat $(find /sys -regex .*thread_siblings_list) | sort -n | uniq\n0,2\n1,3\n\n4-5\n";
    let host = parse(lists).map(|found| found.topology.siblings(3).to_string());
    assert_eq!(host.unwrap(), "1,3");
    let grep = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list:0-1\n\
        /sys/devices/system/cpu/cpu2/topology/thread_siblings_list:2-3\n";
    assert_eq!(parse(grep).unwrap().topology.siblings(2).to_string(), "2-3");
    let one = "$ cat /sys/devices/system/cpu/cpu0/topology/thread_siblings_list\n0,2\n";
    assert!(!looks_like(one), "one core is not the host");
    let known = parse(&format!("node 0 cpus: 0 1 2 3\n{one}")).unwrap().topology;
    assert_eq!((known.cpus.len(), known.siblings(2).to_string()), (4, "0,2".into()));
    assert!(!looks_like("look at thread_siblings_list\nthen 3\n"));
}

#[test]
fn what_one_text_leaves_open_another_fills() {
    let nodes = "node 0 cpus: 0 2\nnode 1 cpus: 1\n";
    let cores = "# CPU,Core,Socket\n0,0,0\n1,1,1\n2,0,0\n";
    for text in [format!("{nodes}\n{cores}"), format!("{cores}\n{nodes}")] {
        let host = parse(&text).unwrap().topology;
        assert_eq!((host.siblings(0).to_string(), host.node_of(1), host.node_of(2)), ("0,2".into(), Some(1), Some(0)));
    }
    let mut first = parse(nodes).unwrap().topology;
    first.complete(&parse(cores).unwrap().topology);
    assert_eq!((first.siblings(0).to_string(), first.node_of(1)), ("0,2".into(), Some(1)));
}

#[test]
fn a_row_that_is_none_is_named() {
    let found = parse("CPU NODE SOCKET CORE\n  0    0      0    0\n  1\n  2    0      0    1\n").unwrap();
    assert_eq!(found.unread.first, [(3, "1".to_owned())]);
    // Blanks were lost: the CPU, its node and its socket are one word.
    let moved =
        "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE\n  0    0      0    0 0:0:0:0 yes\n100  0   10 10:10:10:1 yes\n";
    let found = parse(moved).unwrap();
    assert_eq!((found.topology.all().to_string(), found.unread.count), ("0".into(), 1));
}

#[test]
fn prose_and_logs_are_no_topology() {
    for text in [
        "[    0.000000] NUMA: Node 0 [mem 0x00000000-0x0009ffff] + [mem 0x00100000-0xbfffffff]\n",
        "CPU 0/KVM-131     [001] d..1.    58.246573: kvm_exit: vcpu 1 reason npf rip 0x1\n",
        "      VM-EXIT    Samples  Samples%\n          HLT       1234    0.00%\n",
        "threads: 4\nonline: 0-3\nnothing else\n0 1 2\n",
        "VCPU   CPU Affinity\n----------------------\n 0      0-3\n 1      0-3\n",
        "VCPU:           0\nCPU:            3\nState:          running\nCPU time:       7,0s\nCPU Affinity:   yyyy\n",
    ] {
        assert!(!looks_like(text), "{text}");
    }
}

proptest! {
    #[test]
    fn damaged_output_of_every_kind_is_survived(cut in any::<proptest::sample::Index>(), byte in any::<u8>(),
        at in any::<proptest::sample::Index>()) {
        for text in [TABLE, LSCPU, CAPABILITIES, "node 0 cpus: 0 1 2 3\nnode 1 cpus: 4\n",
            "Thread(s) per core: 2\nOn-line CPU(s) list: 0-7\nNUMA node0 CPU(s): 0-7\n"] {
            let mut bytes = text.as_bytes().to_vec();
            let place = at.index(bytes.len());
            bytes[place] = byte;
            bytes.truncate(cut.index(bytes.len()) + 1);
            let text = String::from_utf8_lossy(&bytes);
            let _ = looks_like(&text);
            let _ = parse(&text);
        }
    }
}

#[test]
fn what_decides_the_frequency_of_cpus_is_read_from_every_form() {
    let params = |text: &str| parse(text).map(|found| found.params).unwrap_or_default();
    let value = |text: &str, name: &str| params(text).get(name).cloned().unwrap_or_default();
    let old = "analyzing CPU 0:\n  driver: powernow-k8\n  hardware limits: 800 MHz - 1.50 GHz\n  current policy: \
        frequency should be within 800 MHz and 1.50 GHz.\n    The governor \"ondemand\" may decide which speed\n  \
        current CPU frequency is 800 MHz.\n";
    let new = "analyzing CPU 1:\n  driver: intel_pstate\n  hardware limits: 800 MHz - 3.80 GHz\n  The governor \
        \"powersave\" may decide\n  current CPU frequency: Unable to call hardware\n  current CPU frequency: 1.20 GHz \
        (asserted by call to kernel)\n";
    let guide = "```\ncat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor\n```\nThe host returned:\nschedutil\n\
        lscpu\nCPU max MHz:  3000,0000\ncpu MHz\t\t: 1899.983\ncpu MHz : 800.006\necho performance | tee \
        /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor\nperformance\n";
    let sysfs = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor:ondemand\n\
        /sys/devices/system/cpu/cpu0/cpufreq/scaling_driver:acpi-cpufreq\n\
        /sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq:2400000\n";
    for (text, governor, driver, max, clocks) in [
        (old, "ondemand", "powernow-k8", "1500000", "800000"),
        (new, "powersave", "intel_pstate", "3800000", "1200000"),
        (guide, "schedutil", "", "3000000", "1899983 800006"),
        (sysfs, "ondemand", "acpi-cpufreq", "2400000", ""),
        ("performance\nperformance\n", "performance", "", "", ""),
    ] {
        assert!(looks_like(text), "{text}");
        let names = [topology::CPU_GOVERNOR, topology::CPU_DRIVER, topology::CPU_MAX_KHZ, topology::CPU_KHZ];
        assert_eq!(names.map(|name| value(text, name)), [governor, driver, max, clocks], "{text}");
    }
    for text in ["driver: virtio_net\nversion: 1.0\n", "A governor of\nperformance\nis best\n", "echo ondemand\n"] {
        assert!(!looks_like(text), "{text}");
    }
}

#[test]
fn parameters_of_kvm_are_read_as_cat_and_grep_print_them() {
    let params = |text: &str| parse(text).map(|found| found.params).unwrap_or_default();
    let cat = "On the host:\n# cat /sys/module/kvm/parameters/halt_poll_ns\n500000\n";
    assert_eq!(params(cat).get("kvm.halt_poll_ns").map(String::as_str), Some("500000"));
    let grep = "/sys/module/kvm_amd/parameters/avic:0\n/sys/module/kvm/parameters/ignore_msrs:Y\n";
    assert_eq!(
        params(grep),
        [("kvm.ignore_msrs", "Y"), ("kvm_amd.avic", "0")].map(|(a, b)| (a.into(), b.into())).into()
    );
    // A command that sets one says nothing of the present value.
    assert!(params("echo 0 > /sys/module/kvm/parameters/halt_poll_ns\nthen\n").is_empty());
}
