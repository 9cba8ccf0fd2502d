//! `kvmtop export` as a scraper meets it, a hostile one too.

use crate::common;
use crate::common::exporter::{Exporter, answer, value};
use crate::common::guest::{Guest, Work};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A sample of the host alone.
const HOST: &[&str] = &["-d", "0.2", "--engine", "none", "--no-monitor"];

#[test]
fn it_serves_two_paths_and_nothing_else() {
    let _beside = common::beside_others();
    let exporter = Exporter::start(HOST);
    let metrics = exporter.get("/metrics", "");
    assert_eq!(metrics.status, 200);
    assert!(
        metrics
            .head
            .contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{}",
        metrics.head
    );
    assert!(
        metrics.body.ends_with("# EOF\n")
            && metrics.body.contains("# TYPE kvmtop_samples counter\n")
    );
    let health = exporter.get("/healthz", "");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    assert!(exporter.get("/", "").body.contains("<a href=metrics>"));
    for path in ["/metrics/", "/metrics/../etc/passwd", "/debug", "*"] {
        assert_eq!(exporter.get(path, "").status, 404, "{path}");
    }
    let head = exporter.send("HEAD /metrics HTTP/1.1\r\nHost: kvmtop\r\n\r\n");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let post =
        exporter.send("POST /metrics HTTP/1.1\r\nHost: kvmtop\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(post.status, 405);
}

/// Checks the rights of each thread: the thread that listens to the network holds no rights.
#[test]
fn the_thread_that_serves_has_no_rights() {
    let _beside = common::beside_others();
    let exporter = Exporter::start(HOST);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", exporter.pid())).expect("threads");
    let statuses = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let http = statuses
        .into_iter()
        .find(|status| status.starts_with("Name:\tkvmtop/http\n"))
        .expect("the thread");
    for set in [
        "CapPrm:\t",
        "CapEff:\t",
        "CapInh:\t",
        "CapBnd:\t",
        "CapAmb:\t",
    ] {
        let bits = http
            .lines()
            .find_map(|line| line.strip_prefix(set))
            .expect("a set");
        assert_eq!(u64::from_str_radix(bits, 16), Ok(0), "{set}");
    }
}

#[test]
fn large_and_broken_requests_are_refused() {
    let _beside = common::beside_others();
    let exporter = Exporter::start(HOST);
    let long = exporter.get("/metrics", &format!("X-Long: {}\r\n", "a".repeat(64 << 10)));
    assert_eq!(long.status, 431, "{}", long.head);
    let many = exporter.get("/metrics", &"X-Many: a\r\n".repeat(100));
    assert_eq!(many.status, 431, "{}", many.head);
    let path = exporter.get(&format!("/{}", "a".repeat(64 << 10)), "");
    assert!([414, 431].contains(&path.status), "{}", path.head);
    assert_eq!(exporter.send("\0\0\0\0\r\n\r\n").status, 400);
    // A body is not read, however long it says it is.
    let body =
        exporter.send("GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\nabc");
    assert_eq!(body.status, 200);
    assert_eq!(exporter.get("/healthz", "").status, 200, "it lives");
}

/// Checks that clients that send a byte now and then, or read nothing, are closed in time, and that
/// sampling continues.
#[test]
fn slow_clients_hold_nothing_up() {
    let _beside = common::beside_others();
    let exporter = Exporter::start(HOST);
    let before = value(&exporter.metrics(), "kvmtop_samples_total").expect("samples");
    let began = Instant::now();
    let connect = |_| TcpStream::connect(&exporter.address).expect("it listens");
    let mut slow: Vec<TcpStream> = (0..60).map(connect).collect();
    for stream in &mut slow {
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nX-")
            .expect("sent");
    }
    // All places are taken: the silent give way, the first of them first.
    let served = exporter.get("/metrics", "");
    assert_eq!(served.status, 200);
    let last = slow.last_mut().expect("clients");
    last.set_nonblocking(true).expect("a socket");
    let read = last.read(&mut [0]).map_err(|e| e.kind());
    assert_eq!(
        read,
        Err(std::io::ErrorKind::WouldBlock),
        "it was served before the others' time was over"
    );
    last.set_nonblocking(false).expect("a socket");
    let closed = slow.iter_mut().map(|stream| {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        let read = stream.read_to_end(&mut Vec::new());
        read.map_or_else(|e| e.kind() != std::io::ErrorKind::WouldBlock, |_| true)
    });
    assert!(
        closed.into_iter().all(|is_closed| is_closed),
        "each of them is closed"
    );
    let after = value(&exporter.metrics(), "kvmtop_samples_total").expect("samples");
    // Five a second when nothing else runs; half of that on a busy machine.
    assert!(
        after - before > began.elapsed().as_secs_f64() * 2.5,
        "{before} to {after} in {:?}",
        began.elapsed()
    );
}

/// Whoever asks at once with many others is served: only the silent give way.
#[test]
fn a_burst_of_requests_is_served() {
    let _beside = common::beside_others();
    let exporter = Exporter::start(HOST);
    let pid = rustix::process::Pid::from_raw(i32::try_from(exporter.pid()).expect("a pid"))
        .expect("a process");
    let send = |signal| rustix::process::kill_process(pid, signal).expect("a signal");
    // They wait in the kernel's queue together.
    send(rustix::process::Signal::STOP);
    let streams: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut stream = TcpStream::connect(&exporter.address).expect("it listens");
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("sent");
            stream
        })
        .collect();
    send(rustix::process::Signal::CONT);
    for mut stream in streams {
        assert_ne!(answer(&mut stream).status, 0, "each gets an answer");
    }
}

#[test]
fn other_hosts_are_warned_of_and_a_port_in_use_is_named() {
    let _beside = common::beside_others();
    let open = Exporter::on("0.0.0.0:0", HOST);
    assert!(
        open.said.contains("without TLS and passwords"),
        "{}",
        open.said
    );
    let port = open.address.rsplit(':').next().expect("a port");
    let address = format!("0.0.0.0:{port}");
    let out = common::kvmtop()
        .args(["export", "--listen", &address])
        .output()
        .expect("kvmtop runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        said.contains(&format!("cannot listen on {address}")) && said.contains("--listen"),
        "{said}"
    );
}

/// Checks a guest that does a known number of accesses: the metrics count each access exactly once.
#[test]
fn a_real_guests_counters_are_exact() {
    const TEST: &str = "a_real_guests_counters_are_exact";
    const READS: u32 = 30_011;
    const WRITES: u32 = 5_003;
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let mut guest = Guest::start(
        &[
            Work::PortReads(0x608, READS),
            Work::PortWrites(0x70, WRITES),
        ],
        true,
    );
    let pid = guest.pid().to_string();
    let exporter = Exporter::start(&[
        "-d",
        "0.3",
        "--engine",
        "bpf",
        "--no-monitor",
        "--domain",
        &pid,
    ]);
    exporter.until(|metrics| metrics.contains("kvmtop_guest_info{"));
    exporter.settled();
    guest.go();
    guest.wait_done();
    let metrics = exporter.settled();
    let about = metrics
        .lines()
        .find(|line| line.starts_with("kvmtop_guest_info{"))
        .expect("the guest");
    let name = about.split('"').nth(1).expect("its name");
    let row = |family: &str, labels: &str| {
        value(&metrics, &format!("{family}{{domain=\"{name}\",{labels}}}"))
    };
    let reads = row("kvmtop_accesses_total", r#"space="pio",device="acpi-tmr""#);
    assert_eq!(reads, Some(f64::from(READS)), "{metrics}");
    assert_eq!(
        row("kvmtop_accesses_total", r#"space="pio",device="rtc""#),
        Some(f64::from(WRITES))
    );
    let to_vmm = row("kvmtop_userspace_exits_total", r#"reason="KVM_EXIT_IO""#);
    assert_eq!(to_vmm, Some(f64::from(READS + WRITES)));
    assert_eq!(value(&metrics, "kvmtop_lost_events_total"), Some(0.0));
    guest.end();
    exporter.until(|metrics| !metrics.contains("kvmtop_guest_info{"));
    common::ran(TEST);
}

/// What the page on performance quotes: `cargo test --test guests export -- --ignored --nocapture`.
#[test]
#[ignore = "measures, with 200 real guests"]
fn scrapes_of_a_large_host() {
    const TEST: &str = "scrapes_of_a_large_host";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let mut guests: Vec<Guest> = (0..200)
        .map(|_| Guest::start(&[Work::PortReads(0x608, 10); 8], true))
        .collect();
    guests.iter_mut().for_each(Guest::go);
    guests.iter_mut().for_each(Guest::wait_done);
    let exporter = Exporter::start(&["--no-monitor"]);
    exporter.until(|metrics| value(metrics, "kvmtop_guests{state=\"running\"}") == Some(200.0));
    let scrape = |_| {
        exporter.settled();
        let began = Instant::now();
        let bytes = exporter.metrics().len();
        (began.elapsed(), bytes)
    };
    let mut scrapes: Vec<_> = (0..7).map(scrape).collect();
    scrapes.sort_unstable();
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", exporter.pid())).expect("it lives");
    let memory: Vec<_> = status
        .lines()
        .filter(|l| l.starts_with("VmRSS") || l.starts_with("VmHWM"))
        .collect();
    // Most scrapes find that an earlier request has already written the text of the last sample.
    eprintln!(
        "median and longest of 7 scrapes with bytes: {:?} {:?}; {memory:?}",
        scrapes[3], scrapes[6]
    );
    common::ran(TEST);
}
