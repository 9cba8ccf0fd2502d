use super::*;
use proptest::prelude::*;

fn only(text: &str) -> EventCounts {
    let (mut all, left_out) = parse(text);
    assert_eq!((all.len(), left_out.len()), (1, 0), "{text}");
    all.remove(0)
}

/// As the kernel's script prints it: `%-42s%10d%10d`.
const BATCH: &str = "exits                                           351826     51826\n\
    halt_exits                                        1105       105\n\
    kvm_exit                                        351826     51826\n\
    kvm_exit(HLT)                                     1105       105\n\
    kvm_exit(IO_INSTRUCTION)                        256738     25673\n\
    kvm_userspace_exit(IO)                          256738     25673\n";
const LOG: &str = "exits halt_exits kvm_exit(HLT) \n       100        10        10\n       300        20        20\n";
const CSV: &str = "timestamp,exits,halt_exits\n2020-04-01 10:00:00,100,10\n2020-04-01 10:00:02,300,20\n";
const SCREEN: &str = "kvm statistics - summary\n\n Event                             Total %Total CurAvg/s\n\
    \x20kvm_exit                         90000   60.0     9000\n\
    \x20  HLT                            30000   33.3     3000\n\
    \x20kvm_entry                        60000   40.0     9000\n\
    \x20Total                           150000           18000\n";
const STAT: &str = " Performance counter stats for process id '4711':\n\n\
    \x20       1,234,567      kvm:kvm_exit              #  123.457 K/sec\n\
    \x20             100      kvm:kvm_userspace_exit\n\
    \x20   <not counted>      kvm:kvm_entry\n\n      10.000500000 seconds time elapsed\n";

#[test]
fn kvm_stat_is_read_in_all_its_forms() {
    let batch = only(BATCH);
    assert_eq!((batch.counts["exits"], batch.exits["HLT"], batch.userspace["IO"]), (51826, 105, 25673));
    assert_eq!(batch.seconds, Some(1.0));
    let log = only(LOG);
    assert_eq!((log.counts["exits"], log.exits["HLT"], log.seconds), (400, 30, Some(2.0)));
    let csv = only(CSV);
    assert_eq!((csv.counts["halt_exits"], csv.seconds), (30, Some(4.0)));
    let screen = only(SCREEN);
    assert_eq!((screen.counts["kvm_exit"], screen.exits["HLT"], screen.counts["kvm_entry"]), (9000, 3000, 9000));
    for text in [BATCH, LOG, CSV, SCREEN] {
        assert!(looks_like(text), "{text}");
    }
}

#[test]
fn rows_of_kvm_stat_are_read_without_their_heading() {
    // `kvm_stat | grep kvm_exit`, and the same rate on three screens.
    let row = |second: u64| format!(" kvm_exit             {}   23.1   277006\n", 5_198_976 + second * 277_006);
    let found = only(&[row(0), row(1), row(2)].concat());
    assert_eq!((found.counts["kvm_exit"], found.seconds), (277_006, Some(1.0)));
    assert_eq!(only(&row(0).repeat(3)).seconds, Some(1.0), "quoted again");
    let found = only("   kvm_ple_window                      36    0.0\n   kvm_exit   5   0.1   2\n");
    assert_eq!((found.counts["kvm_ple_window"], found.counts["kvm_exit"]), (0, 2));
    // Statistics of s390, of which the table's title says that they are KVM's, with reasons below their event.
    let found = only(
        "  kvm statistics - pid 77 (web)\n   Event      Total %Total CurAvg/s\n   exit_instruction     276  100.0  12\n\
        \x20    instruction_diag_44        256   92.8       11\n   Total    276              12\n   broken 12 x\n",
    );
    assert_eq!((found.pid, &found.counts), (Some(77), &[("exit_instruction".to_owned(), 12)].into()));
    assert_eq!(found.unread.first, [(6, "broken 12 x".to_owned())]);
    assert!(parse("cores 4 2\nmemory 12 0.5 1\n").0.is_empty());
}

#[test]
fn another_recording_is_not_another_second() {
    let idle = SCREEN.replace("90000", "4000").replace("9000\n", "40\n").replace("3000\n", "30\n");
    let (all, left_out) = parse(&format!("{idle}then:\n{SCREEN}"));
    let [worse] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((worse.counts["kvm_exit"], worse.exits["HLT"], worse.seconds), (9000, 3000, Some(1.0)), "{left_out:?}");
    assert!(left_out[0].contains("line 12 on, with 9000 kvm_exit/s") && left_out[0].contains("40 kvm_exit/s"));
    // Later, at the same rates: totals grew.
    let later = SCREEN.replace("90000", "99000").replace("30000", "33000").replace("60000", "69000");
    let found = only(&format!("{SCREEN}{later}"));
    assert_eq!((found.counts["kvm_exit"], found.seconds), (9000, Some(1.0)));
    // Two guests.
    let of = |pid: &str| SCREEN.replace("summary", &format!("pid {pid} (web)"));
    let (all, left_out) = parse(&format!("{}{}", of("7"), of("8")));
    assert_eq!((all.len(), all[0].pid, all[1].pid, left_out.len()), (2, Some(7), Some(8), 0));
    let run = STAT.replace("1,234,567", "1,234");
    let (all, left_out) = parse(&format!("{run}{STAT}"));
    assert_eq!((all[0].counts["kvm_exit"], all[0].seconds, left_out.len()), (1_234_567, Some(10.0005), 1));
}

#[test]
fn perf_stat_is_read_in_all_its_forms() {
    let table = only(STAT);
    assert_eq!((table.counts["kvm_exit"], table.counts["kvm_userspace_exit"]), (1_234_567, 100));
    assert!(!table.counts.contains_key("kvm_entry"), "what was not counted is not 0");
    assert_eq!((table.seconds, table.pid), (Some(10.0005), Some(4711)));
    for (text, seconds) in [
        (
            "     1.000123456      1,000      kvm:kvm_exit\n     2.000200000        234      kvm:kvm_exit\n",
            Some(2.0002),
        ),
        ("S0-D0-C0           2              1.000      kvm:kvm_exit\nS0-D0-C1   2   234      kvm:kvm_exit\n", None),
        ("CPU 0/KVM-4711       1'000      kvm:kvm_exit\nCPU 1/KVM-4712   234      kvm:kvm_exit\n", None),
    ] {
        assert!(looks_like(text), "{text}");
        let found = only(text);
        assert_eq!((found.counts["kvm_exit"], found.seconds), (1234, seconds), "{text}");
    }
}

#[test]
fn other_text_holds_no_totals() {
    for text in [
        "",
        "CPU 0/KVM  131 [000]    12.108283:           kvm:kvm_exit: vcpu 1 reason npf rip 0x1\n",
        "          HLT        123     456\n",
        "exits with 1 2\n",
        "perf stat -e kvm:kvm_exit sleep 1\n",
        "foo 1 2\nbar 3 4\n",
        "Module                  Size  Used by\nkvm_intel             368640  0\nkvm_amd    155648  3\n",
    ] {
        assert!(!looks_like(text), "{text}");
        assert!(parse(text).0.is_empty(), "{text}");
    }
}

#[test]
fn prose_is_no_heading_of_a_log() {
    let prose = "the kvm_stat command is a script\nkvm_exit shows how often the guest exits\n";
    assert_eq!(only(&format!("{prose}exits 9 4\nio_exits 5 3\n")).counts["io_exits"], 3);
}

#[test]
fn a_line_of_a_log_with_missing_values_is_named() {
    assert_eq!(only("exits halt_exits\n 1 2\n 3\n").unread.first, [(3, "3".to_owned())]);
}

proptest! {
    #[test]
    fn damaged_output_is_survived(cut in any::<proptest::sample::Index>(), at in any::<proptest::sample::Index>(),
        byte in any::<u8>(), noise in any::<String>()) {
        for text in [BATCH, LOG, CSV, SCREEN, STAT] {
            let mut bytes = text.as_bytes().to_vec();
            let place = at.index(bytes.len());
            bytes[place] = byte;
            bytes.truncate(cut.index(bytes.len()) + 1);
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }
        let _ = parse(&format!("exits halt_exits\n{noise}"));
        let _ = parse(&format!("{noise} kvm:kvm_exit"));
    }
}

#[test]
fn a_table_with_exits_comes_before_more_events_without() {
    let few = STAT.replace("1,234,567", "1,000");
    let entries = few.replace("kvm:kvm_exit ", "kvm:kvm_msr  ").replace("1,000", "9,999,999");
    for text in [format!("{few}\n{entries}"), format!("{entries}\n{few}")] {
        let (all, left_out) = parse(&text);
        assert_eq!((all.len(), left_out.len()), (1, 1), "{left_out:?}");
        assert_eq!(all[0].counts.get("kvm_exit"), Some(&1000));
    }
}
