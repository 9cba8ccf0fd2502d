//! What ends or breaks a guest.

use super::*;
use kvm::kernel_log;
use sample::DomainState;

fn quiet() -> Model {
    on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model()
}

/// The model of a guest whose `KVM_RUN` returned this.
fn returned(reason: i32) -> Model {
    let mut model = quiet();
    model.domains[0].userspace = vec![(None, reason, 1), (Some(0), reason, 1)];
    model
}

fn logged(model: &mut Model, text: &str) {
    model.host.kernel_log = kernel_log::parse(text);
}

fn once(model: &Model) -> Report {
    after(model, 1, &Options::default())
}

fn words(finding: &Finding) -> String {
    let fixes = finding.fix.iter().map(|f| f.text.clone() + f.needs.as_deref().unwrap_or_default());
    [finding.title.clone(), finding.why.clone(), finding.evidence.join(" "), fixes.collect::<Vec<_>>().join(" ")]
        .join(" ")
}

#[test]
fn a_failed_kvm_run_is_reported_at_once() {
    for (reason, severity, word) in [
        (-14, Severity::Critical, "EFAULT"),
        (-22, Severity::Critical, "error 22"),
        (0, Severity::Critical, "KVM_EXIT_UNKNOWN"),
        (8, Severity::Info, "KVM_EXIT_SHUTDOWN"),
        (9, Severity::Critical, "KVM_EXIT_FAIL_ENTRY"),
        (17, Severity::Critical, "KVM_EXIT_INTERNAL_ERROR"),
        (37, Severity::Warning, "KVM_EXIT_NOTIFY"),
        (39, Severity::Critical, "KVM_EXIT_MEMORY_FAULT"),
    ] {
        let report = once(&returned(reason));
        fires(&report, RuleId::AbnormalExit, severity);
        assert!(words(get(&report, RuleId::AbnormalExit)).contains(word), "{reason}");
    }
    for ordinary in [-4, -11, 2, 5, 6, 10, 24] {
        silent(&once(&returned(ordinary)), RuleId::AbnormalExit);
    }
}

#[test]
fn a_guest_that_starts_pauses_or_ends_is_judged_by_what_broke_it() {
    let mut model = returned(8);
    model.domains[0].state = DomainState::Ended;
    fires(&once(&model), RuleId::AbnormalExit, Severity::Warning);
    let mut model = returned(17);
    model.domains[0].state = DomainState::Paused;
    fires(&once(&model), RuleId::AbnormalExit, Severity::Critical);
    let mut f = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t));
    f.guests[0].facts.started_ms = Some(testkit::START_MS + 59_000);
    let mut model = f.model();
    model.domains[0].userspace = vec![(None, 9, 1)];
    fires(&once(&model), RuleId::AbnormalExit, Severity::Critical);
}

#[test]
fn an_event_outlives_its_guest_and_a_command_that_prints_once_keeps_it() {
    let mut model = returned(17);
    model.domains[0].state = DomainState::Ended;
    let fires_for = |options: &Options, seconds: i64| {
        let (mut model, mut memory) = (model.clone(), RuleMemory::default());
        assert!(!run(&model, &mut memory, options).findings.is_empty());
        model.domains.clear();
        let mut last = Report::default();
        for _ in 0..seconds {
            model.time_ms += 1000;
            last = run(&model, &mut memory, options);
        }
        !last.findings.is_empty()
    };
    assert!(fires_for(&Options::default(), 10) && !fires_for(&Options::default(), 40));
    assert!(fires_for(&Options { keep_events: true, ..Options::default() }, 400));
}

#[test]
fn a_killed_guest_is_reported_for_an_hour() {
    let at = |seconds_ago: f64, who: &str| {
        let mut model = quiet();
        model.mono_s = 100_000.0;
        let time = model.mono_s - seconds_ago;
        logged(&mut model, &format!("[{time:.3}] Out of memory: Killed process {who} total-vm:17825792kB\n"));
        judge(&model)
    };
    let report = at(30.0, "5 (qemu-kvm)");
    fires(&report, RuleId::GuestKilled, Severity::Critical);
    assert_eq!(get(&report, RuleId::GuestKilled).domain.as_deref(), Some("l"));
    let gone = at(1800.0, "99 (qemu-kvm)");
    fires(&gone, RuleId::GuestKilled, Severity::Critical);
    assert_eq!(get(&gone, RuleId::GuestKilled).domain, None);
    silent(&at(7200.0, "99 (qemu-kvm)"), RuleId::GuestKilled);
    silent(&at(30.0, "99 (java)"), RuleId::GuestKilled);
}

#[test]
fn lockups_and_failed_entries_of_the_log() {
    let mut model = quiet();
    model.mono_s = 1000.0;
    logged(&mut model, "[990.0] watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [CPU 0/KVM:5]\n");
    fires(&once(&model), RuleId::HostLockup, Severity::Critical);
    logged(&mut model, "[990.0] INFO: task qemu-system-x86:5 blocked for more than 120 seconds.\n");
    fires(&once(&model), RuleId::HostLockup, Severity::Warning);
    logged(&mut model, "[990.0] kvm_intel: set kvm_intel.dump_invalid_vmcs=1 to dump internal KVM state.\n");
    let report = once(&model);
    fires(&report, RuleId::AbnormalExit, Severity::Critical);
    assert_eq!(get(&report, RuleId::AbnormalExit).domain, None, "the line names no guest");
    let see = &get(&report, RuleId::AbnormalExit).see;
    assert!(!see.is_empty() && !see.iter().any(|link| link.contains("buslock")), "links fit the incident: {see:#?}");
}

#[test]
fn what_the_log_said_before_the_start_counts_only_where_it_can_be_judged() {
    let at_start = |text: &str| {
        let mut model = quiet();
        model.mono_s = 1000.0;
        logged(&mut model, text);
        once(&model)
    };
    let nameless = "[990.0] kvm: INTERNAL_ERROR in emulation\n";
    silent(&at_start(nameless), RuleId::AbnormalExit);
    fires(&at_start("[990.0] *** Guest State ***\n"), RuleId::AbnormalExit, Severity::Critical);
    let (mut model, mut memory, options) = (quiet(), RuleMemory::default(), Options::default());
    model.mono_s = 1000.0;
    logged(&mut model, "[980.0] kvm: something else\n");
    run(&model, &mut memory, &options);
    logged(&mut model, nameless);
    fires(&run(&model, &mut memory, &options), RuleId::AbnormalExit, Severity::Critical);
}

#[test]
fn an_ignored_access_is_no_fault() {
    let of = |lines: &str| {
        let mut model = quiet();
        logged(&mut model, lines);
        let report = judge(&model);
        words(get(&report, RuleId::UnhandledMsr))
    };
    let ignored = of("[9.0] kvm [5]: vcpu0, guest rIP: 0x1 ignored rdmsr: 0x122 data 0x0\n");
    assert!(!ignored.contains("#GP") && ignored.contains("returned 0"), "{ignored}");
    assert!(ignored.contains("report_ignored_msrs"));
    let old = of("[9.0] kvm [5]: vcpu0 unhandled rdmsr: 0x122\n");
    assert!(old.contains("#GP") && !old.contains("report_ignored_msrs"), "{old}");
    let new = of("[9.0] kvm: kvm [5]: vcpu0, guest rIP: 0x1 Unhandled RDMSR(0x122)\n");
    assert!(new.contains("#GP") && new.contains("report_ignored_msrs"), "{new}");
    let both = of("[9.0] kvm [5]: vcpu0, guest rIP: 0x1 ignored rdmsr: 0x122 data 0x0\n\
         [9.1] kvm [5]: vcpu0 unhandled rdmsr: 0x123\n");
    assert!(both.contains("returned 0") && !both.contains("ignore_msrs=1") && !both.contains("echo 0"), "{both}");
    let hwcr = of("[9.0] kvm [5]: vcpu0 unimplemented HWCR wrmsr: 0x40000\n");
    assert!(hwcr.contains("0xc0010015") && !hwcr.contains("MSR 0x40000"), "{hwcr}");
}

#[test]
fn doing_nothing_is_no_advice_beside_a_crash() {
    for crash in [
        "[9.1] Out of memory: Killed process 5 (qemu-kvm) total-vm:1kB\n",
        "[9.1] *** Guest State ***\n",
        "[9.1] qemu-kvm[5]: segfault at 0 ip 00007f sp 00007f error 4\n",
    ] {
        let mut model = quiet();
        model.mono_s = 10.0;
        logged(&mut model, &format!("[9.0] kvm [5]: vcpu0 unhandled rdmsr: 0x611\n{crash}"));
        let report = judge(&model);
        let text = report.findings.iter().map(words).collect::<String>();
        assert!(!text.contains("No action") && !text.contains("harmless"), "{text}");
    }
}

#[test]
fn like_events_keep_the_first_and_the_last() {
    let mut model = quiet();
    model.mono_s = 1000.0;
    let (mut memory, options) = (RuleMemory::default(), Options::default());
    logged(&mut model, "[900.0] kvm [5]: vcpu0 something new\n");
    run(&model, &mut memory, &options);
    let error = |at: &str| format!("[{at}] qemu-kvm[5]: segfault at 0 ip 00007f sp 00007f error 4\n");
    logged(&mut model, &error("990.0"));
    assert!(words(get(&run(&model, &mut memory, &options), RuleId::GuestKilled)).contains("the log says: "));
    logged(&mut model, &[error("990.0"), error("995.0"), error("999.5")].concat());
    let text = words(get(&run(&model, &mut memory, &options), RuleId::GuestKilled));
    assert!(text.contains("3 times") && text.contains("[990.0]") && text.contains("last: [999.5]"), "{text}");
}

/// Lines of guests' own kernels: <https://github.com/linuxboot/heads/pull/1683> and
/// <https://github.com/Mellanox/mkt/pull/74>.
#[test]
fn a_guests_own_log_is_worded_for_the_guest() {
    let judged = |log: &str| {
        let mut model = quiet();
        logged(&mut model, log);
        let options = Options { input: InputKind::File, ..Options::default() };
        run(&model, &mut RuleMemory::default(), &options)
    };
    let lockup = judged(
        "[  277.584863] watchdog: BUG: soft lockup - CPU#0 stuck for 250s! [(udev-worker):120]\n\
         [  277.585810] Modules linked in: crypto_simd cryptd\n\
         [  277.586503] CPU: 0 PID: 120 Comm: (udev-worker) Tainted: G             L     6.8.0-31-generic #31-Ubuntu\n\
         [  277.587266] Hardware name: QEMU Standard PC (Q35 + ICH9, 2009), BIOS Heads-v0.2.0 01/01/1970\n",
    );
    let found = get(&lockup, RuleId::HostLockup);
    assert!(found.title.starts_with("The guest's own kernel") && found.domain.is_some(), "{found:#?}");
    let clock = judged(
        "[    0.000000] Hypervisor detected: KVM\n\
         [   22.1] clocksource: timekeeping watchdog on CPU6: hpet read-back delay of 5252e\n\
         [   22.2] tsc: Marking TSC unstable due to clocksource watchdog\n",
    );
    assert_eq!(get(&clock, RuleId::HostErrors).title, "The guest's own kernel gave up its clock");
    silent(&clock, RuleId::HostLockup);
    let crash = judged(
        "[    4.1] BUG: unable to handle page fault for address: ffffc90000f7fe48\n\
         [    4.2] CPU: 3 PID: 812 Comm: modprobe Not tainted 6.1.0 #1\n\
         [    4.3] Hardware name: Red Hat KVM/RHEL, BIOS 1.16.1-1.el9 04/01/2014\n\
         [    4.4] RIP: 0010:virtio_gpu_probe+0x5b/0x120\n\
         [    4.9] Kernel panic - not syncing: Fatal exception\n",
    );
    let found = get(&crash, RuleId::AbnormalExit);
    assert!(
        found.title.starts_with("The guest's own kernel") && found.evidence[0].contains("virtio_gpu"),
        "{found:#?}"
    );
    // A host that is itself a guest runs vCPUs too.
    let host = judged(
        "[    0.000000] Hypervisor detected: KVM\n\
         [  277.584863] watchdog: BUG: soft lockup - CPU#1 stuck for 2471s! [CPU 0/KVM:31664]\n",
    );
    assert!(get(&host, RuleId::HostLockup).title.contains("of the host"), "{host:#?}");
}

#[test]
fn cpus_that_stand_still_at_once_did_not_hang() {
    let stuck = |second: u32, s: u32| {
        format!(
            "[100.5] BUG: soft lockup - CPU#1 stuck for {s}s! [nmbd:693]\n\
             [{second}.6] BUG: soft lockup - CPU#0 stuck for {s}s! [smbd:10]\n"
        )
    };
    let title = |log: &str| get(&of_log(log), RuleId::HostLockup).title.clone();
    assert!(title(&stuck(100, 800)).starts_with("Several CPUs stood still at once"));
    assert!(title(&stuck(190, 800)).starts_with("A CPU hung in the kernel"), "one after the other");
    assert!(title(&stuck(100, 22)).starts_with("A CPU hung in the kernel"), "the watchdog's usual time");
    assert_eq!(get(&of_log(&stuck(100, 800)), RuleId::HostLockup).confidence, Confidence::Medium);
    let again = stuck(100, 48) + &stuck(128, 76).replace("[100.5]", "[128.5]");
    assert!(title(&again).starts_with("A CPU hung in the kernel"), "the first reports are missing");
    let twice = stuck(100, 48) + &stuck(5000, 76).replace("[100.5]", "[5000.5]");
    assert!(title(&twice).starts_with("Several CPUs stood still at once"), "two pauses");
}

#[test]
fn several_guests_are_counted_and_lead_to_the_host() {
    let line = |pid: u32| format!("[9.{pid}] kvm [{pid}]: vcpu0, guest rIP: 0x1 vmx: unexpected exit reason 0x3\n");
    let found = of_log(&(line(77) + &line(78)));
    let found = get(&found, RuleId::AbnormalExit);
    assert_eq!(found.title, "CPUs of the host were reset (INIT) while they ran guests (2 processes)");
    assert!(words(found).contains("PID 77, PID 78, all within a second: look for one cause"), "{found:#?}");
    assert!(!words(get(&of_log(&line(77)), RuleId::AbnormalExit)).contains("guests)"));
    // Its PID in the journal, its name in the log of its QEMU.
    let twice = "Jun 24 17:25:51 h QEMU[9]: KVM internal error. Suberror: 1\n\
        -name guest=web,debug-threads=on \\\nKVM internal error. Suberror: 1\n";
    let found = of_log(twice);
    let found = get(&found, RuleId::AbnormalExit);
    assert!(found.evidence.len() == 2 && !found.title.contains('('), "one guest, one process: {found:#?}");
    let reads = of_log("kvm [1]: vcpu0 ignored rdmsr: 0x122\nkvm [2]: vcpu0 ignored rdmsr: 0x122\n");
    let found = get(&reads, RuleId::UnhandledMsr);
    assert!(found.title.starts_with("Several processes"), "{found:#?}");
}

#[test]
fn what_no_form_explains_is_said_with_low_confidence() {
    let line = |name: &str| format!("[9.0] vfio-pci 0000:01:00.0: {name} failed, error -22\n");
    let five: String = ["a", "b", "c", "d", "e"].map(line).concat();
    let report = of_log(&five);
    let found = get(&report, RuleId::HostErrors);
    assert_eq!((found.severity, found.confidence), (Severity::Info, Confidence::Low));
    assert!(found.evidence.len() == 5 && words(found).contains("lines of 1 more kinds"), "{found:#?}");
    assert!(found.see.len() == 1 && found.see[0].contains("reporting-issues"), "not the links of its rule");
    // Beside an error with a cause the lines are evidence alone.
    let known = of_log(&(line("a") + "[9.1] AMD-Vi: Completion-Wait loop timed out\n"));
    let found = get(&known, RuleId::HostErrors);
    assert_eq!((found.title.as_str(), found.fix.len()), ("The IOMMU waits in vain for a device", 1));
    assert!(words(found).contains("failed, error -22"), "{found:#?}");
}

#[test]
fn a_cause_is_read_from_the_lines_before() {
    let log = "kvm: warning: TSC frequency mismatch between VM (2393998 kHz) and host (3300022 kHz)\n\
        kvm: error: failed to set MSR 0x202 to 0xe000000000\n\
        kvm: ../target/i386/kvm/kvm.c:3888: kvm_buf_set_msrs: Assertion `ret == cpu->nmsrs' failed.\n";
    let report = of_log(log);
    let found = get(&report, RuleId::GuestKilled);
    let text = words(found);
    assert!(["0x202", "mismatch", "Assertion", "both hosts"].iter().all(|word| text.contains(word)), "{found:#?}");
    let hung = "[9.0] INFO: task CPU 0/KVM:77 blocked for more than 122 seconds.\n\
        [9.1]  synchronize_srcu_expedited+0x1/0x2\n[9.2]  avic_update_access_page+0x1/0x2 [kvm_amd]\n";
    assert_eq!(get(&of_log(hung), RuleId::HostLockup).title, "A guest's thread hangs in KVM itself");
    let oops = "[9.0] BUG: kernel NULL pointer dereference, address: 0000000000000008\n\
        [9.1] CPU: 10 PID: 0 Comm: swapper/10 Tainted: G\n[9.2] RIP: 0010:__list_add_valid+0x0/0x50\n";
    assert!(words(get(&of_log(oops), RuleId::AbnormalExit)).contains("__list_add_valid"));
    let held = "[9.0] vfio-pci 0000:01:00.0: BAR 3: can't reserve [mem 0xe0000000-0xe1ffffff 64bit pref]\n";
    assert!(words(get(&of_log(held), RuleId::HostErrors)).contains("sysfb_init"));
    let disk = "[9.0] ata2.00: failed command: WRITE FPDMA QUEUED\n";
    assert_eq!(get(&of_log(disk), RuleId::DiskErrors).title, "A disk, its link or its file system reports errors");
}

#[test]
fn vcpus_that_return_at_once() {
    let counted = |events: &[(&str, u64)]| {
        let mut model = on(Guest::new("l", 5)).first();
        model.interval_s = Some(1.0);
        model.domains[0].kvm_events = events.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        of_file(&model)
    };
    let storm = [("kvm_userspace_exit", 900_000), ("kvm_vcpu_wakeup", 880_000)];
    fires(&counted(&storm), RuleId::AbnormalExit, Severity::Warning);
    // A device that is emulated: an exit for each access, and nobody sleeps.
    silent(&counted(&[storm[0], storm[1], ("kvm_exit", 950_000)]), RuleId::AbnormalExit);
    silent(&counted(&storm[..1]), RuleId::AbnormalExit);
    // Without a count of exits, as many as a device can cause.
    let fewer = [("kvm_userspace_exit", 40_000), ("kvm_vcpu_wakeup", 39_000)];
    silent(&counted(&fewer), RuleId::AbnormalExit);
    fires(&counted(&[fewer[0], fewer[1], ("kvm_exit", 12)]), RuleId::AbnormalExit, Severity::Warning);
}

fn of_log(log: &str) -> Report {
    let mut model = quiet();
    model.domains.clear();
    Arc::make_mut(&mut model.host.facts).kvm_flavour = None;
    logged(&mut model, log);
    let options = Options { input: InputKind::File, ..Options::default() };
    run(&model, &mut RuleMemory::default(), &options)
}

#[test]
fn different_kills_are_each_said_and_lead_to_their_limit() {
    let kill = |at: u32, pid: u32, kind: &str| {
        format!("[{at}.0] {kind}ut of memory: Killed process {pid} (qemu-system-x86) total-vm:1kB\n")
    };
    let log = [kill(1, 70870, "Memory cgroup o"), kill(2, 24790, "Memory cgroup o"), kill(3, 39079, "Memory cgroup o")];
    let report = of_log(&log.concat());
    let found = get(&report, RuleId::GuestKilled);
    let text = words(found);
    assert!(["70870", "24790", "39079"].iter().all(|pid| text.contains(pid)) && !text.contains("3 times"), "{text}");
    assert!(found.title.contains("limit of its cgroup") && !text.contains("free -h"), "{text}");
    let text = words(get(&of_log(&kill(1, 7, "O")), RuleId::GuestKilled));
    assert!(text.contains("free -h"), "{text}");
}

#[test]
fn a_stack_decides_what_a_thread_waited_for() {
    let hung = |function: &str| {
        let log = format!(
            "[9.0] INFO: task CPU 0/KVM:77 blocked for more than 120 seconds.\n[9.0] Call Trace:\n\
             [9.0]  schedule+0x1/0x2\n[9.0]  {function}+0x1/0x2\n[9.0]  kvm_vcpu_ioctl+0x1/0x2 [kvm]\n"
        );
        get(&of_log(&log), RuleId::HostLockup).clone()
    };
    for (function, cause) in [
        ("__synchronize_srcu", "for a change of the guest's memory"),
        ("nfs_wait_bit_killable", "for the host's storage"),
        ("shrink_lruvec", "for memory of the host"),
        ("something_new", "in the kernel for minutes"),
    ] {
        assert!(hung(function).title.contains(cause), "{function}");
    }
    assert!(!words(&hung("__synchronize_srcu")).contains("iostat"));
    let lockup = |function: &str| {
        let log = format!(
            "[9.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [CPU 1/KVM:7]\n[9.0] RIP: {function}+0x1/0x2\n"
        );
        get(&of_log(&log), RuleId::HostLockup).clone()
    };
    assert!(lockup("smp_call_function_many").title.contains("another CPU"));
    let plain = lockup("vmx_vcpu_run");
    assert!(plain.why.contains("likeliest first: a bug of the host's kernel"), "{}", plain.why);
}

#[test]
fn what_keeps_kvm_away_has_its_own_fix() {
    for (log, word) in [
        ("Could not access KVM kernel module: Permission denied\n", "usermod -aG kvm"),
        ("Could not access KVM kernel module: No such file or directory\n", "modprobe"),
        ("[1.0] kvm: disabled by bios\n", "AMD-V"),
        (
            "[1.0] kvm: no hardware support\nfailed to initialize KVM: No such file or directory\n",
            "systemd-detect-virt",
        ),
        ("qemu-system-x86_64: failed to initialize KVM: Device or resource busy\n", "vboxdrv"),
    ] {
        let report = of_log(log);
        fires(&report, RuleId::NoKvm, Severity::Warning);
        silent(&report, RuleId::AbnormalExit);
        assert!(words(get(&report, RuleId::NoKvm)).contains(word), "{log}");
    }
    let mut model = quiet();
    logged(&mut model, "[1.0] kvm: no hardware support\n");
    let options = Options { input: InputKind::File, ..Options::default() };
    let judged = |model: &Model| run(model, &mut RuleMemory::default(), &options);
    let facts = Arc::make_mut(&mut model.host.facts);
    (facts.virtualised, facts.kvm_flavour) = (Some(true), None);
    assert_eq!(get(&judged(&model), RuleId::NoKvm).problem, "nested KVM is off");
    Arc::make_mut(&mut model.host.facts).kvm_flavour = Some("kvm_amd".into());
    silent(&judged(&model), RuleId::NoKvm);
}

#[test]
fn qemus_disk_errors_say_what_the_errno_means() {
    for (errno, word) in [(28, "thin pool"), (5, "smartctl"), (116, "NFS"), (108, "blocklist"), (110, "timeout")] {
        let report = of_log(&format!("block I/O error in device 'drive-virtio-disk0': Some error ({errno})\n"));
        fires(&report, RuleId::DiskErrors, Severity::Warning);
        let text = words(get(&report, RuleId::DiskErrors));
        assert!(text.contains(word) && text.contains("drive-virtio-disk0"), "{errno}: {text}");
    }
    let image = "2023-06-06T04:27:00.6Z qemu-system-x86_64: -blockdev {\"driver\":\"qcow2\"}: Could not read L1 table: \
        Input/output error\n";
    assert_eq!(rules(&of_log(image)), [RuleId::DiskErrors], "QEMU did not start for it");
    let pool = of_log("[ 9.0] device-mapper: thin: 252:4: no free data space available.\n");
    assert!(words(get(&pool, RuleId::DiskErrors)).contains("lvs -a"));
}

#[test]
fn a_device_without_a_reset_does_not_hang_in_one() {
    let none = "qemu-system-x86_64: vfio: Cannot reset device 0000:00:14.0, no available reset mechanism.\n";
    fires(&of_log(none), RuleId::HostErrors, Severity::Info);
    let hangs = "[ 9.0] vfio-pci 0000:03:00.0: not ready 65535ms after FLR; giving up\n";
    fires(&of_log(hangs), RuleId::HostErrors, Severity::Critical);
}

#[test]
fn a_start_that_failed_in_proxmox_is_not_explained_by_its_options() {
    let command = "TASK ERROR: start failed: command '/usr/bin/kvm -id 104 -name win10,debug-threads=on -cpu \
        host,hyperv=on -device 'vfio-pci,host=01:00.0'' failed: ";
    for (reason, fix) in [("exit code 1", "journalctl -b"), ("got timeout", "--timeout 600")] {
        let text = words(get(&of_log(&format!("{command}{reason}\n")), RuleId::HostErrors));
        assert!(text.contains(fix) && text.contains("of win10") && !text.contains("lspci"), "{text}");
    }
    let said = "kvm: -device vfio-pci,host=01:00.0: vfio 01:00.0: failed to open /dev/vfio/1: No such file\n";
    let text = words(get(&of_log(&format!("{said}{command}exit code 1\n")), RuleId::HostErrors));
    assert!(text.contains("lspci") && !text.contains("journalctl"), "{text}");
    let days = |day: u32, line: &str| format!("Nov {day} 10:00:00 pve pvedaemon[7]: {line}");
    let text = words(get(&of_log(&(days(22, said) + &days(23, command) + "exit code 1\n")), RuleId::HostErrors));
    assert!(text.contains("lspci") && text.contains("journalctl"), "two days, two failures: {text}");
    let cut =
        of_log("Mar 13 16:54:55 pve pve-guests[11]: start failed: command '/usr/bin/kvm -id 153 -name a -vfio>\n");
    assert!(words(get(&cut, RuleId::HostErrors)).contains("do not say"));
}

#[test]
fn a_failed_start_has_the_fix_of_its_line() {
    let of_qemu = "error: internal error: process exited while connecting to monitor: qemu-system-x86_64: ";
    for (line, fix) in [
        ("-object memory-backend-file,id=a: unable to map backing store for guest RAM", "vm.nr_hugepages"),
        ("-chardev socket,id=c,path=/run/x.sock: Failed to connect socket /run/x.sock: No such file", "helper"),
        ("-drive file=/a.qcow2: Failed to get \"write\" lock", "fuser -v"),
        ("-device vfio-pci,host=01:00.0: vfio 0000:01:00.0: group 1 is not viable", "lspci -nnk"),
        ("-drive file=/a.qcow2: Could not open '/a.qcow2': Permission denied", "namei -l"),
        ("-drive file=/vfio-hyperv.img: Could not open '/vfio-hyperv.img': Permission denied", "namei"),
        ("-cpu EPYC: host doesn't support requested feature", "domcapabilities"),
        ("-drive file=/a.qcow2,cache=none: Could not open '/a.qcow2': Invalid argument", "cache='writeback'"),
        ("-chardev tty,id=c,path=/dev/ttyS1: Could not open '/dev/ttyS1': Invalid argument", "ls -l"),
        ("kvm_init_vcpu: kvm_arch_init_vcpu failed (0): eVMCS version range is not supported", "domcapabilities"),
    ] {
        let report = of_log(&format!("error: Failed to start domain 'web'\n{of_qemu}{line}\n"));
        fires(&report, RuleId::HostErrors, Severity::Warning);
        let text = words(get(&report, RuleId::HostErrors));
        assert!(text.contains(fix) && text.contains("of web"), "{line}: {text}");
    }
    // So has what libvirt refused, whatever the reason.
    let affinity = "error: internal error cannot set CPU affinity on process 0: Invalid argument\n";
    let network = "error: Requested operation is not valid: network 'lan' is not active\n";
    let absent = "error: Network not found: no network 'lan'\n";
    for (line, fix) in [(affinity, "lscpu -e"), (network, "virsh net-start"), (absent, "virsh net-start")] {
        let text = words(get(&of_log(&format!("error: Failed to start domain web\n{line}")), RuleId::HostErrors));
        assert!(text.contains(fix) && !text.contains("look at: "), "{line}: {text}");
    }
}

#[test]
fn a_warning_of_the_kernel_and_a_closed_vhost_user_socket_are_errors_of_the_host() {
    let warning = "[5.0] WARNING: CPU: 3 PID: 412 at arch/x86/kvm/svm/svm.c:60 svm_vcpu_run+0x12/0x30\n\
        [5.1] Modules linked in: kvm_amd kvm\n[5.2] CPU: 3 PID: 412 Comm: CPU 0/KVM Not tainted 6.1.0\n\
        [5.3] ---[ end trace 0 ]---\n";
    let report = of_log(warning);
    fires(&report, RuleId::HostErrors, Severity::Info);
    silent(&report, RuleId::AbnormalExit);
    let closed = "2020-07-28T19:20:57.568089Z qemu-system-x86_64: Failed to read msg header. Read -1 instead of 12. \
        Original request 1566376224.\n";
    assert!(words(get(&of_log(closed), RuleId::HostErrors)).contains("virtiofsd"));
}

#[test]
fn events_of_one_guest_have_one_list_of_causes_and_the_exact_one_counts() {
    let mut model = returned(17);
    logged(&mut model, "KVM internal error. Suberror: 3\nextra data[0]: 0x8000002f\nextra data[1]: 0x20\n");
    let options = Options { input: InputKind::File, ..Options::default() };
    let found = run(&model, &mut RuleMemory::default(), &options);
    let found = get(&found, RuleId::AbnormalExit);
    assert_eq!(found.why.matches("likeliest first").count(), 1, "{}", found.why);
    assert!(found.why.contains("suberror 3") && found.fix.len() == 1, "{found:#?}");
    let kernel = of_log("[1.0] INFO: task CPU 0/KVM:77 blocked for more than 120 seconds.\n");
    // The log is there already.
    assert!(!words(get(&kernel, RuleId::HostLockup)).contains("look at: "));
}

/// A start that failed, or a kill, beside what else the files show.
fn with_memory(log: &str, inner: &str) -> Report {
    let mut model = on(Guest::new("db", 5).xml(inner).vcpus(1, |_, t| t)).first();
    let params = [
        ("memory.total", "4.0Gi"),
        ("memory.available", "900Mi"),
        ("numa.node1.size:", "2048 MB"),
        ("numa.node1.free:", "31 MB"),
    ];
    let params = params.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Arc::make_mut(&mut model.host.facts).params.extend(params);
    logged(&mut model, log);
    of_file(&model)
}

#[test]
fn memory_that_is_missing_is_said_with_the_setting_that_asks_for_it() {
    let start = "qemu-system-x86_64: cannot set up guest memory 'pc.ram': Cannot allocate memory\n";
    let report = with_memory(start, "<memory unit='GiB'>8</memory>");
    let found = get(&report, RuleId::HostMemoryPressure);
    let text = words(found);
    assert!(text.contains("gives the guest 8 GiB") && text.contains("900Mi available, 4.0Gi in all"), "{text}");
    silent(&report, RuleId::AbnormalExit);
    let create = "ioctl(KVM_CREATE_VM) failed: 12 Cannot allocate memory\n\
        qemu-system-x86_64: failed to initialize KVM: Cannot allocate memory\n";
    let found = of_log(create);
    assert!(get(&found, RuleId::HostMemoryPressure).title.contains("contiguous"), "{found:#?}");

    let kill = "[9.0] oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=1,task=qemu-system-x86,pid=977,uid=107\n\
        [9.1] Out of memory: Killed process 977 (qemu-system-x86) total-vm:1kB\n";
    let bound = "<numatune><memory mode='strict' nodeset='1'/></numatune>";
    let report = with_memory(kill, bound);
    let found = get(&report, RuleId::GuestKilled);
    assert!(
        words(found).contains("bound to node 1") && words(found).contains("2048 MB, 31 MB of it free"),
        "{found:#?}"
    );
    assert!(found.fix[0].text.contains("mode='preferred' nodeset='1'"), "{found:#?}");
}

#[test]
fn a_device_whose_memory_was_not_mapped_is_told_from_a_crash() {
    let report = of_log(
        "qemu-system-x86_64: vfio_dma_map(0x5581, 0x600000000000, 0x800000000, 0x7f10) = -22 (Invalid argument)\n\
         qemu-system-x86_64: vfio: DMA mapping failed, unable to continue\n\
         2024-05-01 10:00:00.000+0000: shutting down, reason=crashed\n",
    );
    let found = get(&report, RuleId::GuestKilled);
    assert!(found.title.contains("passed-through device") && words(found).contains("0x800000000"), "{found:#?}");
    let windows = of_log("2024-05-01 10:00:00.000+0000: panic hyper-v: arg1='0x50', arg2='0xffff'\n");
    assert_eq!(get(&windows, RuleId::AbnormalExit).title, "Windows reported a crash");
    // Nobody has said that libvirt runs this QEMU.
    assert!(!words(found).contains("/libvirt/"), "{found:#?}");
}

#[test]
fn a_qemu_or_an_agent_that_does_not_answer_is_told() {
    let qmp = "Feb 10 02:03:11 pve1 pvestatd[15]: VM 105 qmp command failed - VM 105 qmp command ";
    let lock = "Jun 02 12:01:03 kvm01 libvirtd[21]: Timed out during operation: cannot acquire state change lock \
        (held by monitor=remoteDispatchDomainMigratePerform3Params)\n";
    fires(&of_log(&format!("{qmp}'query-status' failed - got timeout\n")), RuleId::HostErrors, Severity::Warning);
    fires(&of_log(lock), RuleId::HostErrors, Severity::Info);
    let other = "Feb 10 02:03:11 pve1 pvestatd[15]: command 'lvs' failed - got timeout\n";
    fires(&of_log(other), RuleId::HostErrors, Severity::Info);
    let agent = of_log(&format!("{qmp}'guest-ping' failed - got timeout\n"));
    fires(&agent, RuleId::HostErrors, Severity::Info);
    assert!(words(get(&agent, RuleId::HostErrors)).contains("qemu-guest-agent"));
}

#[test]
fn what_follows_an_explained_failure_is_not_called_unexplained() {
    let after = "Sep 12 03:12:46 hv3 qmeventd[987]: cleanup failed for VM 104\n";
    fires(&of_log(after), RuleId::HostErrors, Severity::Info);
    let killed = "Sep 12 03:12:45 hv3 kernel: Out of memory: Killed process 20311 (kvm) total-vm:34kB\n";
    silent(&of_log(&format!("{killed}{after}")), RuleId::HostErrors);
    let other = format!("{}{after}", killed.replace("(kvm)", "(firefox)"));
    fires(&of_log(&other), RuleId::HostErrors, Severity::Info);
    let weeks = format!("{killed}{}", after.replace("Sep 12", "Oct 30"));
    fires(&of_log(&weeks), RuleId::HostErrors, Severity::Info);
}
