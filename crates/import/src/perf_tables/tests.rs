use super::*;
use proptest::prelude::*;

const REPORT: &str = "
Analyze events for all VMs, all VCPUs:

             VM-EXIT    Samples  Samples%     Time%    Min Time    Max Time         Avg time

                 HLT        310    15.50%    98.71%     10.02us  90210.40us   3181.51us ( +-   4.10% )
           MSR_WRITE       1200    60.00%     0.32%      0.61us     40.11us      2.66us ( +-   1.20% )
      IO_INSTRUCTION        480    24.00%     0.96%      2.10us    612.90us     19.98us ( +-   3.75% )
       EXCEPTION_NMI         10     0.50%     0.01%      0.90us      9.10us      1.95us ( +-  11.00% )

Total Samples:2000, Total events handled time:999086.10us.

";

const TOTAL: u64 = 2000;

fn files(text: &str) -> (Files, Vec<String>) {
    assert!(begins(text.trim_start()), "{text}");
    let mut files = Files::default();
    read(text, &mut files);
    let notes = std::mem::take(&mut files.notes);
    (files, notes)
}

fn one(text: &str) -> ThreadEvents {
    let guest = files(text).0.measured.remove(0);
    assert!(guest.threads.is_empty());
    guest.unattributed
}

fn exits(events: &ThreadEvents) -> u64 {
    events.exits.iter().map(|c| c.time.count).sum()
}

#[test]
fn every_figure_of_a_report_is_kept() {
    let events = one(REPORT);
    assert_eq!((events.exits.len(), exits(&events)), (4, TOTAL));
    let io = events.exits.iter().find(|c| c.code == 30).unwrap();
    assert_eq!((io.isa, &io.name, io.time.count), (Isa::Vmx, &None, 480));
    assert_eq!(
        (io.time.min_ns, io.time.max_ns),
        (Some(2_100), Some(612_900))
    );
    let span = io.time.since(None);
    assert_eq!(
        format!(
            "{:.2} {:.2}",
            span.mean_us().unwrap(),
            span.stderr_percent().unwrap()
        ),
        "19.98 3.75"
    );
}

#[test]
fn old_columns_and_missing_columns_are_read() {
    let old = "    Analyze events for all VCPUs:\n\n             VM-EXIT    Samples    \
    Samples%     Time%    Avg time\n\nAPIC_ACCESS       6500    65.00%     5.95%     37.72us ( \
    +-   6.54% )\nHLT       3500    35.00%    94.05%   8360.34us ( +-   5.22% )\n\nTotal \
    Samples:10000, Total events handled time:29506370.00us.\n";
    let events = one(old);
    assert_eq!(exits(&events), 10_000);
    let hlt = events.exits.iter().find(|c| c.code == 12).unwrap();
    assert_eq!(
        (hlt.time.min_ns, hlt.time.total_ns),
        (None, Some(29_261_190_000))
    );
    let no_times = "VM-EXIT    Samples  Samples%     Time%\n\n       EPT_VIOLATION    9833    \
    63.41%    15.96%\n IO_INSTRUCTION 5674 36.59% 84.04%\n";
    let events = one(no_times);
    assert_eq!(
        (exits(&events), events.exits[0].time.total_ns),
        (15_507, None)
    );
    let counts_only = "VM-EXIT    Samples  Samples%\n HLT 5 50.00%\n CPUID 5 50.00%\n";
    assert_eq!(exits(&one(counts_only)), 10);
    // A last row whose bracket was lost, and one that was cut in the middle.
    let cut = "VM-EXIT    Samples  Samples%     Time%    Min Time    Max Time         Avg time\n \
    VMCALL 17 5.00% 1.00% 0.75us 15.64us 4.20us ( +- 0.33%\n CPUID 3 1.00%";
    let events = one(cut);
    let of = |code: u32| {
        events
            .exits
            .iter()
            .find(|c| c.isa == Isa::Vmx && c.code == code)
            .map(|c| c.time.count)
    };
    assert_eq!((of(18), of(10)), (Some(17), Some(3)));
}

#[test]
fn accesses_of_all_kinds_are_read() {
    let text = "
      IO Port Access    Samples  Samples%     Time%    Min Time    Max Time         Avg time

           0x608:PIN         70    70.00%    50.00%      1.00us      2.00us      1.50us ( +-   0.28% )
              0:POUT         30    30.00%    50.00%      1.00us      9.00us      3.50us ( +-   1.28% )

Total Samples:100, Total events handled time:210.00us.

         MMIO Access    Samples  Samples%     Time%    Min Time    Max Time         Avg time

        0xfee00300:W          9    90.00%    90.00%      1.00us      2.00us      1.50us ( +-   0.28% )
        0xfee00300:R          1    10.00%    10.00%      1.50us      1.50us      1.50us ( +-   0.00% )

Total Samples:10, Total events handled time:15.00us.

          MSR Access    Samples  Samples%     Time%    Min Time    Max Time         Avg time

         0x40000070:W         5   100.00%   100.00%      1.00us      2.00us      1.50us ( +-   0.28% )

Total Samples:5, Total events handled time:7.50us.
";
    let events = one(text);
    let all: Vec<_> = events
        .accesses
        .iter()
        .map(|c| (c.space, c.address.unwrap(), c.direction, c.time.count))
        .collect();
    assert_eq!(
        all,
        [
            (Space::Pio, 0x608, Direction::Read, 70),
            (Space::Pio, 0, Direction::Write, 30),
            (Space::Mmio, 0xfee0_0300, Direction::Write, 9),
            (Space::Mmio, 0xfee0_0300, Direction::Read, 1),
            (Space::Msr, 0x4000_0070, Direction::Write, 5),
        ]
    );
}

#[test]
fn duplicate_rows_are_added_and_unknown_codes_kept_apart() {
    let text = "VM-EXIT  Samples  Samples%  Time%   Min Time   Max Time    Avg \
        time\nIO_INSTRUCTION     14    70.00%   99.97%   10.00us  65.00us   25.00us ( +- 11.94% \
        )\nunknown kvm exit code:131072 on VMX\nUNKNOWN 3 15.00% 0.01% 1.00us 1.00us 1.00us ( +- \
        0.00% )\nunknown kvm exit code:65536 on VMX\nUNKNOWN 2 10.00% 0.01% 1.00us 1.00us 1.00us ( \
        +- 0.00% )\nIO_INSTRUCTION      1    5.00%    0.01%   9.00us   9.00us    9.00us ( +- 0.00% \
        )\n";
    let events = one(text);
    let all: Vec<_> = events
        .exits
        .iter()
        .map(|c| (c.code, c.time.count))
        .collect();
    assert_eq!(all, [(30, 15), (131_072, 3), (65_536, 2)]);
    let io = &events.exits[0].time;
    assert_eq!(
        (io.min_ns, io.max_ns, io.total_ns),
        (Some(9_000), Some(65_000), Some(359_000))
    );
}

#[test]
fn unknown_reasons_keep_their_names() {
    let text = REPORT
        .replace("EXCEPTION_NMI", "FROBNICATED")
        .replace("MSR_WRITE", "  QUUXED");
    let events = one(&text);
    let names: Vec<_> = events
        .exits
        .iter()
        .filter_map(|c| c.name.as_deref())
        .collect();
    assert_eq!(names, ["QUUXED", "FROBNICATED"]);
    assert_eq!(exits(&events), TOTAL);
}

#[test]
fn shares_of_no_time_are_none() {
    let text = REPORT.replace("0.32%", "-nan%").replace("1.20%", "   nan%");
    let events = one(&text);
    assert_eq!(exits(&events), TOTAL);
    let msr = events.exits.iter().find(|c| c.code == 32).unwrap();
    assert_eq!(
        (msr.time.total_ns, msr.time.sum_sq),
        (Some(3_192_000), None)
    );
}

/// Pieces that a hostile text is made of.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(
            "VM-EXIT    Samples  Samples%     Time%    Min Time    Max Time         Avg time\n"
                .to_owned()
        ),
        Just("Analyze events for pid(s) 1, VCPU 99999999999:\n".to_owned()),
        Just("Total Samples:99999999999999999999, Total events handled time:1e308us.\n".to_owned()),
        Just(
            " HLT 18446744073709551615 100.00% 99999999.99% 99999999999.99us 1.00us 1.00us ( +- \
                99999.00% )\n"
                .to_owned()
        ),
        Just("> 0x608:PIN 5 ".to_owned()),
        Just("5.00%\n".to_owned()),
        Just("\u{1b}[".to_owned()),
        Just("23:59:59.9\n".to_owned()),
        "[ -~\n]{0,40}",
        any::<String>(),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|v| v.concat())
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in pieces()) {
        let mut files = Files::default();
        read(&text, &mut files);
        prop_assert!(files.table_seconds.is_none_or(|s| s.is_finite() && s >= 0.0));
        for cell in &files.measured[0].unattributed.exits {
            let _ = cell.time.since(None).stderr_percent();
        }
    }
}

#[test]
fn the_table_of_a_vcpu_is_its_threads() {
    let (files, notes) = files(&REPORT.replace("all VCPUs", "VCPU 3"));
    let guest = &files.measured[0];
    assert_eq!(
        (
            guest.threads[0].index,
            exits(&guest.threads[0].events),
            notes.len()
        ),
        (Some(3), TOTAL, 0)
    );
    assert_eq!(guest.unattributed, ThreadEvents::default());
}

#[test]
fn missing_rows_are_said() {
    let text = REPORT
        .lines()
        .filter(|l| !l.contains("MSR_WRITE"))
        .collect::<Vec<_>>()
        .join("\n");
    let (files, notes) = files(&text);
    assert_eq!(
        notes,
        [": the table states 2000 samples and its rows hold 800"]
    );
    assert_eq!(exits(&files.measured[0].unattributed), 800);
}

#[test]
fn frames_of_live_add_up_and_tell_their_time() {
    let frame = |clock: &str| format!("{clock}\n\n{}", REPORT.replace("all VMs", "pid(s) 4711"));
    let text = format!(
        "{}{}{}",
        frame("23:59:58.500000"),
        frame("23:59:59.500000"),
        frame("00:00:00.500000")
    );
    let (several, notes) = files(&text);
    let guest = &several.measured[0];
    assert_eq!(
        (guest.facts.pid, exits(&guest.unattributed), notes.len()),
        (Some(4711), 3 * TOTAL, 0)
    );
    assert_eq!(several.table_seconds, Some(3.0));
    assert_eq!(files(&frame("11:12:07.687968")).0.table_seconds, Some(1.0));
    // Without clocks nothing states the time, and a second table is of another measurement.
    let (bare, notes) = files(&REPORT.repeat(2));
    assert_eq!(
        (bare.table_seconds, exits(&bare.measured[0].unattributed)),
        (None, TOTAL)
    );
    assert!(notes[0].contains("several measurements"), "{notes:?}");
}

#[test]
fn an_empty_table_is_a_table() {
    let text = "Analyze events for all VMs, all VCPUs:\n\n      IO Port Access    Samples  \
    Samples%     Time%    Min Time    Max Time         Avg time\n\n\nTotal Samples:0, Total events \
    handled time:0.00us.\n";
    let (files, notes) = files(text);
    assert_eq!(
        (files.measured[0].unattributed.accesses.len(), notes.len()),
        (0, 0)
    );
}

#[test]
fn times_of_other_machines_are_the_guests_own() {
    for rows in [
        "DABT_LOW 661867 98.91% 40.45% 2.19us 3364.65us 6.24us ( +- 0.34% )\nIRQ 4598 0.69% 57.44% \
        2.89us 3397.59us 1276.27us\n",
        "STORE_GUEST_PAGE_FAULT 5 50.00% 50.00% 1.00us 1.00us 1.00us\nVIRTUAL_INST_FAULT 5 50.00% \
        50.00% 1.00us 1.00us 1.00us\n",
    ] {
        let text = format!(
            "VM-EXIT    Samples  Samples%     Time%    Min Time    Max Time         Avg \
            time\n{rows}"
        );
        let exits = one(&text).exits;
        assert!(
            exits
                .iter()
                .all(|c| c.time.count > 0 && c.time.total_ns.is_none() && c.time.max_ns.is_none())
        );
    }
}
