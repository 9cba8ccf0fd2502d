use super::*;
use proptest::prelude::*;

const DEBUGFS: &str = "Sun Nov 22 10:00:00 UTC 2026\n/sys/kernel/debug/kvm/exits:900\n\
    /sys/kernel/debug/kvm/halt_exits:90\n\
    /sys/kernel/debug/kvm/4391-12/exits:500\n/sys/kernel/debug/kvm/4391-12/vcpu0/exits:300\n\
    /sys/kernel/debug/kvm/4391-12/vcpu0/halt_exits:30\n/sys/kernel/debug/kvm/77-9/io_exits:5\n";
const QM: &str = "root@pve:~# qm status 105 --verbose\nballoon: 4294967296\nballooninfo:\n\tactual: 4294967296\n\
    \tfree_mem: 104857600\n\ttotal_mem: 4194304000\nblockstat:\n\tscsi0:\n\t\trd_bytes: 4096\n\t\trd_operations: 10\n\
    \t\trd_total_time_ns: 5000000\n\t\twr_bytes: 0\n\t\twr_operations: 0\ncpus: 2\nname: web\nnics:\n\ttap105i0:\n\
    \t\tnetin: 5\npid: 4391\nqmpstatus: io-error\nrunning-machine: pc-i440fx-8.0+pve0\nstatus: running\nuptime: 100\n\
    vmid: 105\n";

#[test]
fn debugfs_is_read_per_guest() {
    let found = parse(&format!("{DEBUGFS}{}", DEBUGFS.replace("10:00:00", "10:00:05").replace(":500", ":900")));
    let of = |pid| found.iter().filter(|stats| stats.pid == Some(pid)).collect::<Vec<_>>();
    assert_eq!((found.len(), of(77).len(), of(4391).len()), (4, 2, 2), "sums of all guests are left out: {found:?}");
    let [first, last] = of(4391)[..] else { panic!() };
    assert_eq!((first.reading.values["vm.exits.sum"].as_str(), first.reading.values.len()), ("500", 3));
    assert_eq!(last.reading.values["vm.exits.sum"], "900");
    assert_eq!(last.reading.clock_ms.unwrap() - first.reading.clock_ms.unwrap(), 5000);
    // Within the folder, and of all guests together.
    let bare = parse("exits:900\nhalt_exits:5\nio_exits:7\n");
    assert_eq!((bare.len(), bare[0].pid, bare[0].reading.values["vm.io_exits.sum"].as_str()), (1, None, "7"));
    assert!(parse("exits:900\nlines:5\ncolumns:7\n").is_empty());
}

#[test]
fn a_status_of_proxmox_is_read() {
    let found = parse(&format!("{QM}{}", QM.replace("uptime: 100", "uptime: 110").replace("ons: 10", "ons: 30")));
    let [first, last] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((first.name.as_deref(), first.pid, first.vcpus, first.paused), (Some("web"), Some(4391), Some(2), true));
    assert!(first.stopped.unwrap().contains("disk returned an error"));
    let values = &first.reading.values;
    assert_eq!((values["block.0.name"].as_str(), values["block.0.rd.reqs"].as_str()), ("scsi0", "10"));
    assert_eq!((values["balloon.current"].as_str(), values["balloon.unused"].as_str()), ("4194304", "102400"));
    assert_eq!(last.reading.values["block.0.rd.reqs"], "30");
    assert_eq!((first.reading.clock_ms, last.reading.clock_ms), (Some(100_000), Some(110_000)));
    assert!(parse("status: running\nname: web\n").is_empty());
}

proptest! {
    #[test]
    fn damaged_output_is_survived(cut in any::<proptest::sample::Index>(), at in any::<proptest::sample::Index>(),
        byte in any::<u8>(), noise in any::<String>()) {
        for text in [DEBUGFS, QM] {
            let mut bytes = text.as_bytes().to_vec();
            let place = at.index(bytes.len());
            bytes[place] = byte;
            bytes.truncate(cut.index(bytes.len()) + 1);
            let _ = parse(&String::from_utf8_lossy(&bytes));
            let _ = parse(&format!("{text}{noise}"));
        }
    }
}
