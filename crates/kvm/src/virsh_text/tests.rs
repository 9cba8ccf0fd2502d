use super::*;
use proptest::prelude::*;

fn only(text: &str) -> VirshDomain {
    assert!(looks_like(text), "{text}");
    let found = parse(text);
    assert_eq!((found.domains.len(), found.unread.count), (1, 0), "{found:?}");
    found.domains.into_iter().next().unwrap()
}

fn pins(domain: &VirshDomain) -> Vec<(u32, String)> {
    domain.threads.vcpus.iter().map(|(vcpu, cpus)| (*vcpu, cpus.to_string())).collect()
}

#[test]
fn pins_of_all_ages_are_read() {
    for text in [
        "VCPU: CPU Affinity\n----------------------------------\n   0: 2\n   1: 3,7-8\n",
        " VCPU   CPU Affinity\n----------------------\n 0      2\n 1      3,7-8\n\n",
    ] {
        let domain = only(text);
        assert_eq!((pins(&domain), domain.name), (vec![(0, "2".into()), (1, "3,7-8".into())], None));
    }
    let domain = only("emulator: CPU Affinity\n----------------------------------\n       *: 0-1\n");
    assert_eq!(domain.threads.emulator.unwrap().to_string(), "0-1");
}

#[test]
fn vcpuinfo_gives_the_last_cpu_and_the_mask() {
    let text = "VCPU:           0\nCPU:            3\nState:          running\nCPU time:       7,0s\n\
        CPU Affinity:   --yy\n\nVCPU:           1\nCPU:            N/A\nState:          N/A\nCPU time        N/A\n\
        CPU Affinity:   yyyy\n\n";
    let domain = only(text);
    // A mask that includes every CPU is known, and restricts nothing.
    assert_eq!(pins(&domain), [(0, "2-3".into()), (1, "0-3".into())]);
    assert_eq!((domain.threads.last[&0], domain.paused), (3, false));
    let pretty = only("VCPU:           0\nCPU:            1\nState:          paused\nCPU Affinity:   1-2 (out of 4)\n");
    assert_eq!((pins(&pretty), pretty.paused), (vec![(0, "1-2".into())], true));
}

#[test]
fn totals_since_the_start_are_read() {
    let text = "# virsh domblkstat web vda\nvda rd_req                    12\nvda flush_total_times         99000\n\n\
        # virsh domblkstat web vdb\nvdb wr_req 7\nvdb odd_row 7\n# virsh vcpuinfo web\nVCPU:           0\n\
        CPU:            3\nState:          running\nCPU time:       7,5s\nCPU Affinity:   --yy\n";
    let totals: Vec<_> = only(text).totals.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        totals.join(" "),
        "block.0.fl.times=99000 block.0.name=vda block.0.rd.reqs=12 block.1.name=vdb block.1.wr.reqs=7 block.count=2 \
         vcpu.0.time=7500000000"
    );
    let human = "$ virsh domblkstat web vda --human\nDevice: vda\nvda number of read operations:      12\n";
    assert_eq!(only(human).totals["block.0.rd.reqs"], "12");
    let all = only("$ virsh domblkstat web\n rd_req 12\n rd_bytes 4096\n").totals;
    assert_eq!((all["block.0.name"].as_str(), all["block.0.rd.bytes"].as_str()), ("all disks", "4096"));
}

#[test]
fn statistics_of_several_domains_are_read() {
    let text = "Domain: 'web'\n  state.state=3\n  state.reason=1\n  vcpu.current=4\n  vcpu.maximum=8\n\
        \x20 vcpu.0.state=1\n\n\
        Domain: 'db 2'\n  state.state=1\n  vcpu.current=2\n";
    let found = parse(text);
    let said: Vec<_> = found.domains.iter().map(|d| (d.name.as_deref(), d.vcpus, d.paused)).collect();
    assert_eq!(said, [(Some("web"), Some(4), true), (Some("db 2"), Some(2), false)]);
}

#[test]
fn readings_of_statistics_are_kept_with_their_times() {
    let parts = "Domain: 'web'\n  vcpu.current=1\n  vcpu.0.time=7\n\nDomain: 'web'\n  cpu.time=9\n";
    assert_eq!(parse(parts).domains[0].stats.len(), 1, "two parts of one reading");
    let reading = |time: u64| format!("Domain: 'web'\n  vcpu.0.time={time}\n  balloon.current=8\n\n");
    let text = format!(
        "Sun Nov 22 10:00:05 UTC 2026\n{}{}Every 2.0s: x    kvm7: Sun Nov 22 10:00:15.500 2026\n{}",
        reading(1),
        reading(2),
        reading(3)
    );
    let stats = only(&text).stats;
    let said: Vec<_> = stats.iter().map(|r| (r.values["vcpu.0.time"].as_str(), r.clock_ms)).collect();
    assert_eq!(said, [("1", Some(36_005_000)), ("3", Some(36_015_500))]);
    let values = |text: &str| only(text).stats.iter().map(|r| r.values.len()).collect::<Vec<_>>();
    assert_eq!(values("# virsh domstats web | grep time\n vcpu.0.time=1\n vcpu.0.time=5\n"), [1, 1]);
}

#[test]
fn a_pasted_shell_names_the_domain_of_each_output() {
    let text = "[root@kvm01 ~]# virsh vcpupin web\n VCPU   CPU Affinity\n----------------------\n 0      2\n\n\
        [root@kvm01 ~]# virsh -c qemu:///system emulatorpin --domain 'db 2'\n emulator   CPU Affinity\n\
        -------------------\n *          0-1\n\n$ sudo virsh vcpuinfo web | head\n\
        VCPU:           0\nCPU:            2\n\
        virsh # emulatorpin web\n emulator   CPU Affinity\n---\n *             5\n";
    let found = parse(text);
    let names: Vec<_> = found.domains.iter().map(|d| d.name.as_deref().unwrap()).collect();
    assert_eq!((names, found.unread.count), (vec!["web", "db 2"], 0));
    let web = &found.domains[0].threads;
    let emulator = web.emulator.as_ref().map(ToString::to_string);
    assert_eq!((web.last[&0], emulator, web.vcpus[&0].to_string()), (2, Some("5".into()), "2".into()));
}

#[test]
fn two_tables_of_one_kind_without_names_are_two_domains() {
    let table = "VCPU: CPU Affinity\n-----\n   0: 2\n\n";
    assert_eq!(parse(&format!("{table}{table}")).domains.len(), 2);
}

#[test]
fn blank_lines_end_no_table() {
    let domain = only("VCPU: CPU Affinity\n\n0: 3\n\n1: 4\n\nand 7 more words\n2: 5\n");
    assert_eq!(pins(&domain), [(0, "3".into()), (1, "4".into())]);
}

#[test]
fn where_a_vcpu_runs_now_does_not_narrow_its_setting() {
    let setting = "# virsh vcpupin web\nVCPU: CPU Affinity\n---\n 0: 1-3\n";
    let now = |mask: &str| format!("# virsh vcpuinfo web\nVCPU: 0\nCPU: 2\nState: running\nCPU Affinity: {mask}\n");
    let read = |text: String| pins(&only(&text)).remove(0).1;
    assert_eq!(read(setting.to_owned() + &now("--y-")), "1-3");
    assert_eq!(read(now("--y-") + setting), "1-3");
    assert_eq!(read(setting.to_owned() + &now("y---")), "0", "set to something else since then");
    assert_eq!(read(now("y---") + &now("--y-")), "2", "without a setting the last one counts");
    assert_eq!(parse(&now("--y-")).host_cpus, Some(4));
    assert_eq!(parse(&(now("--y-") + &now("--y--"))).host_cpus, None);
}

#[test]
fn a_placeholder_of_a_manual_is_no_name() {
    let found = parse("Run `virsh vcpupin <vm_name>` to check:\nVCPU: CPU Affinity\n\n0: 3\n");
    assert_eq!(found.domains[0].name, None);
}

#[test]
fn a_row_that_cannot_be_read_is_named() {
    let found = parse(" VCPU   CPU Affinity\n----------------------\n 0      2\n 1      x-y\nand so on\n");
    assert_eq!(found.unread.first, [(4, "1      x-y".to_owned())]);
}

#[test]
fn other_text_is_no_output_of_virsh() {
    for text in [
        "CPU NODE SOCKET CORE\n 0 0 0 0\n",
        "<domain><name>x</name></domain>",
        "State: running\nCPU: 3\nhello: world\n",
        "please run virsh vcpupin web\n",
        "Architecture: x86_64\nCPU(s): 8\n",
    ] {
        assert!(!looks_like(text), "{text}");
    }
}

#[test]
fn both_prompts_name_the_domain() {
    for prompt in ["virsh # ", "root@host:~# virsh ", "$ virsh -c qemu:///system "] {
        let found = parse(&format!("{prompt}emulatorpin 'my vm'\n emulator: CPU Affinity\n---\n *: 5\n"));
        assert_eq!(found.domains[0].name.as_deref(), Some("my vm"), "{prompt}");
    }
    for option in ["web", "--domain web", "--domain=web"] {
        let found = parse(&format!("# virsh vcpupin --vcpu 0 {option}\nVCPU: CPU Affinity\n---\n 0: 2\n"));
        assert_eq!(found.domains[0].name.as_deref(), Some("web"), "{option}");
    }
}

proptest! {
    #[test]
    fn any_text_is_survived(text in any::<String>(), at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let _ = parse(&text);
        let real = "# virsh vcpuinfo w\nVCPU: 0\nCPU: 4294967295\nState: running\nCPU Affinity: yy--\n\
            VCPU CPU Affinity\n 0 0-8191\n \
            9999999 1\nDomain: 'x'\n vcpu.current=99999999999\n";
        let mut bytes = real.as_bytes().to_vec();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        let _ = parse(&String::from_utf8_lossy(&bytes));
        let _ = parse(&format!("virsh vcpupin {text}"));
    }
}

#[test]
fn masks_that_lack_their_ends_are_no_pins() {
    let info =
        |vcpu: u32, mask: &str| format!("VCPU:           {vcpu}\nCPU:            {vcpu}\nCPU Affinity:   {mask}\n\n");
    let all = |masks: &[&str]| -> String { (0..).zip(masks).map(|(vcpu, mask)| info(vcpu, mask)).collect() };
    assert_eq!(pins(&only(&all(&["y---", "-y--"]))), [(0, "0".into()), (1, "1".into())]);
    let cut = all(&["y", "-y", "--y"]);
    assert_eq!((pins(&only(&cut)), only(&cut).threads.last.len(), parse(&cut).host_cpus), (vec![], 3, None));
    // What `vcpupin` printed is whole.
    let both = format!("# virsh vcpupin web\n VCPU   CPU Affinity\n---\n 0      0\n\n# virsh vcpuinfo web\n{cut}");
    assert_eq!(pins(&only(&both)), [(0, "0".into())]);
}

#[test]
fn memory_by_node_belongs_to_the_process_that_the_text_is_about() {
    let table = "PID                         Node 0          Node 1           Total\n-----------  ------- -------\n\
        108 (qemu-kvm)    1.00      2.00     3.00\n141 (qemu-kvm)   6.50    0.00   6.50\n-----  ----\n\
        Total                     7.50        2.00        9.50\n";
    let said = |text: &str| -> Vec<(i32, bool, u64)> {
        let row = |(pid, (is_it, nodes)): (i32, (bool, BTreeMap<u32, u64>))| (pid, is_it, nodes[&0] >> 10);
        parse(text).node_memory.into_iter().map(row).collect()
    };
    assert_eq!(said(table), [(108, false, 1024), (141, false, 6656)]);
    assert_eq!(said(&format!("# pidof qemu-kvm\n141\n{table}")), [(108, false, 1024), (141, true, 6656)]);
    let one = "Per-node process memory usage (in MBs) for PID 7 (qemu-kvm)\n      Node 0    Node 1     Total\n\
        ---- ----\nHuge    0.00   0.00   0.00\nTotal   2.00  1.00   3.00\n";
    assert_eq!(said(one), [(7, true, 2048)]);
}

#[test]
fn the_commands_of_a_page_name_its_guest() {
    let name = |text: &str| only_name(text).unwrap_or_default();
    assert_eq!(name("$ sudo virsh define /tmp/a.xml\n$ sudo virsh start web-1\n# virsh vcpupin web-1 0 2\n"), "web-1");
    for text in
        ["virsh start a\nvirsh edit b\n", "virsh start `whoami`\n", "virsh edit VM_NAME", "virsh start 7", "virsh list"]
    {
        assert_eq!(name(text), "", "{text}");
    }
}
