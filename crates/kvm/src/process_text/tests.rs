use super::*;
use proptest::prelude::*;

const NUMASTAT: &str = "Per-node process memory usage (in MBs) for PID 4391 (qemu-system-x86)\n\
    \x20                          Node 0          Node 1           Total\n\
    \x20                 --------------- --------------- ---------------\n\
    Huge                      8192.00            0.00         8192.00\n\
    Private                    170.70            0.50          171.20\n\
    ----------------  --------------- --------------- ---------------\n\n\
    Total                     8362.70            0.50         8363.20\n";
const COMPACT: &str = "Per-node process memory usage (in MBs)\nPID              Node 0 Node 1 Total\n\
    ---------------  ------ ------ -----\n4391 (qemu-syste   8373      2  8375\n5891 (sudo)           4      1     5\n\
    ---------------  ------ ------ -----\nTotal              8377      3  8380\n";
const STATUS: &str = "Name:\tqemu-kvm\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4391\nNgid:\t0\n\
    Pid:\t4391\nPPid:\t1\n\
    VmSwap:\t  524288 kB\nThreads:\t9\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n";
const PS: &str = "  PID   TID PSR COMMAND\n    1     1   0 systemd\n 4391  4391   6 qemu-kvm\n\
    \x204391  4397   2 CPU 0/KVM\n\
    \x204391  4398   3 CPU 1/KVM\n 4391  4401   7 IO iothread1\n";
const TASKSET: &str = "pid 4391's current affinity list: 6,7\npid 4397's current affinity list: 2\n\
    pid 4398's current affinity mask: 8\npid 4397's new affinity list: 4\n";

#[test]
fn memory_by_node_is_read() {
    let mib = |n: u64| n << 20;
    let found = parse(NUMASTAT, None);
    assert_eq!(found.memory[&4391].nodes, [(0, 8_768_926_515), (1, mib(1) / 2)].into());
    let found = parse(COMPACT, None);
    assert_eq!(found.memory.len(), 1, "sudo is no VMM");
    assert_eq!(found.memory[&4391].nodes, [(0, mib(8373)), (1, mib(2))].into());
    let maps = "7f2a40000000 default anon=8 dirty=8 N0=6 N1=2 kernelpagesize_kB=2048\n7fff default stack=3 N1=3\n\
        7ffcb1400000 default stack anon=3 N1=3 kernelpagesize_kB=4\n";
    assert_eq!(parse(maps, Some(7)).memory[&7].nodes, [(0, mib(12)), (1, mib(4) + 12 * 1024)].into());
    assert!(parse(maps, None).is_empty() && parse(&NUMASTAT.replace("qemu-system-x86", "java"), None).is_empty());
}

#[test]
fn threads_and_their_cpus_come_together() {
    let mut all = parse(PS, None);
    assert_eq!(all.threads.len(), 4, "{all:?}");
    all.merge(parse(TASKSET, None));
    let cpus = all.cpus(4391, &BTreeMap::new());
    let set = |text: &str| CpuSet::parse(text).unwrap();
    assert_eq!(cpus.vcpus, [(0, set("4")), (1, set("3"))].into());
    assert_eq!((cpus.emulator, cpus.last), (Some(set("6-7")), [(0, 2), (1, 3)].into()));
    // Without names the status XML says whose the threads are.
    let known = [(4398, (Role::Vcpu, 1))].into();
    assert_eq!(parse(TASKSET, None).cpus(4391, &known).vcpus, [(1, set("3"))].into());
}

#[test]
fn the_status_of_a_process_and_of_a_thread_is_read() {
    let thread = STATUS.replace("qemu-kvm", "CPU 0/KVM").replace("Pid:\t4391", "Pid:\t4397").replace("0-7", "2");
    let mut all = parse(STATUS, None);
    assert_eq!((all.memory[&4391].swap, all.pids()), (Some(512 << 20), vec![4391]));
    all.merge(parse(&thread, None));
    assert_eq!(all.memory[&4391].swap, Some(512 << 20));
    let cpus = all.cpus(4391, &BTreeMap::new());
    assert_eq!((cpus.vcpus.len(), cpus.emulator.map(|set| set.len())), (1, Some(8)));
    assert!(parse(&STATUS.replace("qemu-kvm", "bash"), None).is_empty());
}

#[test]
fn other_lists_of_processes_hold_nothing() {
    for text in [
        "USER PID %CPU COMMAND\nroot 1 0.0 systemd\n",
        "PID TTY TIME CMD\n77 ? 0:01 qemu-kvm\n",
        "Name: web\nTgid: x\nPid: y\nCpus_allowed_list: 0-3\n",
        "pid 's current affinity list: \n",
    ] {
        assert!(!looks_like(text, None), "{text}");
    }
}

proptest! {
    #[test]
    fn damaged_output_is_survived(cut in any::<proptest::sample::Index>(), at in any::<proptest::sample::Index>(),
        byte in any::<u8>(), noise in any::<String>()) {
        for text in [NUMASTAT, COMPACT, STATUS, PS, TASKSET] {
            let mut bytes = text.as_bytes().to_vec();
            let place = at.index(bytes.len());
            bytes[place] = byte;
            bytes.truncate(cut.index(bytes.len()) + 1);
            let _ = parse(&String::from_utf8_lossy(&bytes), Some(1));
            let _ = parse(&format!("{text}{noise}"), None);
        }
    }
}
