//! `kvmtop export` as a scraper meets it, a hostile one too.

use crate::common;
use crate::common::exporter::{Answer, Exporter, answer, value};
use crate::common::guest::{Guest, Work};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A sample of the host alone.
const HOST: &[&str] = &["-d", "0.2", "--engine", "none", "--no-monitor"];

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export").join(name);
    path.to_str().expect("a path").to_owned()
}

#[test]
fn it_serves_two_paths_and_nothing_else() {
    let _beside = common::beside_others();
    let exporter = Exporter::start(HOST);
    let metrics = exporter.get("/metrics", "");
    assert_eq!(metrics.status, 200);
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    assert!(metrics.body.contains("# TYPE kvmtop_samples_total counter\n"), "{}", metrics.body);
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let open = exporter.get("/metrics", accept);
    assert!(open.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{}", open.head);
    assert!(open.body.ends_with("# EOF\n") && open.body.contains("# TYPE kvmtop_samples counter\n"));
    let health = exporter.get("/healthz", "");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    assert!(exporter.get("/", "").body.contains("<a href=metrics>"));
    let packed = exporter.get("/metrics", "Accept-Encoding: gzip, deflate\r\n");
    assert!(packed.head.contains("content-encoding: gzip"), "{}", packed.head);
    for path in ["/metrics/", "/metrics/../etc/passwd", "/debug", "*"] {
        assert_eq!(exporter.get(path, "").status, 404, "{path}");
    }
    let head = exporter.send("HEAD /metrics HTTP/1.1\r\nHost: kvmtop\r\n\r\n");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let post = exporter.send("POST /metrics HTTP/1.1\r\nHost: kvmtop\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(post.status, 405);
}

/// Checks the rights of each thread: the thread that listens to the network holds no rights.
#[test]
fn the_thread_that_serves_has_no_rights() {
    let _beside = common::beside_others();
    let exporter = Exporter::start(HOST);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", exporter.pid())).expect("threads");
    let statuses = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let http = statuses.into_iter().find(|status| status.starts_with("Name:\thttp\n")).expect("the thread");
    for set in ["CapPrm:\t", "CapEff:\t", "CapInh:\t", "CapBnd:\t", "CapAmb:\t"] {
        let bits = http.lines().find_map(|line| line.strip_prefix(set)).expect("a set");
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
    let body = exporter.send("GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\nabc");
    assert_eq!(body.status, 200);
    assert_eq!(exporter.get("/healthz", "").status, 200, "it lives");
}

/// Checks that clients that send a byte now and then, or read nothing, are closed in time, and that sampling continues.
#[test]
fn slow_clients_hold_nothing_up() {
    let _beside = common::beside_others();
    let exporter = Exporter::start(HOST);
    let before = value(&exporter.metrics(), "kvmtop_samples_total").expect("samples");
    let began = Instant::now();
    let connect = |_| TcpStream::connect(&exporter.address).expect("it listens");
    let mut slow: Vec<TcpStream> = (0..60).map(connect).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nX-").expect("sent");
    }
    // All places are taken: the silent give way, the first of them first.
    let served = exporter.get("/metrics", "");
    assert_eq!(served.status, 200);
    let last = slow.last_mut().expect("clients");
    last.set_nonblocking(true).expect("a socket");
    let read = last.read(&mut [0]).map_err(|e| e.kind());
    assert_eq!(read, Err(std::io::ErrorKind::WouldBlock), "it was served before the others' time was over");
    last.set_nonblocking(false).expect("a socket");
    let closed = slow.iter_mut().map(|stream| {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let read = stream.read_to_end(&mut Vec::new());
        read.map_or_else(|e| e.kind() != std::io::ErrorKind::WouldBlock, |_| true)
    });
    assert!(closed.into_iter().all(|is_closed| is_closed), "each of them is closed");
    let after = value(&exporter.metrics(), "kvmtop_samples_total").expect("samples");
    // Five a second when nothing else runs; half of that on a busy machine.
    assert!(after - before > began.elapsed().as_secs_f64() * 2.5, "{before} to {after} in {:?}", began.elapsed());
}

/// A request by TLS that trusts the test's certificate.
fn by_tls(exporter: &Exporter, request: &str) -> Answer {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(fixture("server.crt")).expect("a certificate")).expect("a root");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().expect("a name"));
    let stream = TcpStream::connect(&exporter.address).expect("it listens");
    let mut stream = StreamOwned::new(connection.expect("a connection"), stream);
    stream.write_all(request.as_bytes()).expect("a handshake");
    answer(&mut stream)
}

/// `alice:correct horse`.
const ALICE: &str = "Authorization: Basic YWxpY2U6Y29ycmVjdCBob3JzZQ==\r\n";

const ALICES_HASH: &str = "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e";

#[test]
fn tls_and_passwords() {
    let _beside = common::beside_others();
    let config = fixture("web-config.yml");
    let exporter = Exporter::start(&[HOST, &["--web-config", &config]].concat());
    let get = |headers: &str| by_tls(&exporter, &format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).status;
    // Until the first sample is taken it is not healthy.
    assert!([200, 503].contains(&get(ALICE)));
    assert_eq!(get(""), 401);
    assert_eq!(get("Authorization: Bearer abc\r\n"), 401);
    // alice:wrong, bob:correct horse
    assert_eq!(get("Authorization: Basic YWxpY2U6d3Jvbmc=\r\n"), 401);
    assert_eq!(get("Authorization: Basic Ym9iOmNvcnJlY3QgaG9yc2U=\r\n"), 401);
    assert!([200, 503].contains(&get(ALICE)));
    assert_eq!(exporter.get("/metrics", ALICE).status, 0, "without TLS there is no answer");
}

/// A file with a mistake names it, before anything is served.
#[test]
fn mistakes_of_the_web_configuration_are_named() {
    let _beside = common::beside_others();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("web.yml");
    let said = |text: &str| {
        std::fs::write(&path, text).expect("written");
        let options = ["export", "--listen", "127.0.0.1:0", "--engine", "none", "--web-config"];
        let out = common::kvmtop().args(options).arg(&path).output().expect("kvmtop runs");
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    for (text, wanted) in [
        ("basic_auth_users: {alice: secret}", "no bcrypt hash; make one with `htpasswd -nB alice`"),
        ("tls_server_config: {cert_file: a, key_file: b, cipher_suites: [x]}", "line 1 is not one of"),
        ("tls_server_config: {cert_file: none.crt, key_file: b}", "none.crt"),
        ("\ntls_config: {}", "line 2 is not one of tls_server_config and basic_auth_users"),
        ("root:*:20228:0:99999:7:::", "line 1 is not one of"),
        ("[", "web.yml"),
    ] {
        let said = said(text);
        assert!(said.contains(wanted) && said.contains("web.yml"), "{text}: {said}");
        assert!(!said.contains("20228"), "what the file holds is nobody's business: {said}");
    }
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let options = ["export", "--listen", "127.0.0.1:0", "--engine", "none", "--web-config"];
    let out = common::kvmtop().args(options).arg(&pipe).output().expect("it does not wait for a writer");
    assert!(String::from_utf8_lossy(&out.stderr).contains("it is not a regular file"));
}

/// Certificates and passwords change without a restart; a file that is broken changes nothing.
#[test]
fn the_web_configuration_is_read_again() {
    let _beside = common::beside_others();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("web.yml");
    let exporter = {
        std::fs::write(&path, "").expect("written");
        Exporter::on("127.0.0.1:0", &[HOST, &["--web-config", path.to_str().expect("a path")]].concat())
    };
    assert_ne!(exporter.get("/healthz", "").status, 401);
    let users = "basic_auth_users:\n  alice: ".to_owned() + ALICES_HASH;
    std::fs::write(&path, users).expect("written");
    assert_eq!(exporter.get("/healthz", "").status, 401);
    assert_ne!(exporter.get("/healthz", ALICE).status, 401);
    std::fs::write(&path, "[").expect("written");
    assert_eq!(exporter.get("/healthz", "").status, 401);
}

/// Whoever asks at once with many others is served: only the silent give way.
#[test]
fn a_burst_of_requests_is_served() {
    let _beside = common::beside_others();
    let exporter = Exporter::start(HOST);
    let pid = rustix::process::Pid::from_raw(i32::try_from(exporter.pid()).expect("a pid")).expect("a process");
    let send = |signal| rustix::process::kill_process(pid, signal).expect("a signal");
    // They wait in the kernel's queue together.
    send(rustix::process::Signal::STOP);
    let streams: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut stream = TcpStream::connect(&exporter.address).expect("it listens");
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
            stream
        })
        .collect();
    send(rustix::process::Signal::CONT);
    for mut stream in streams {
        assert_ne!(answer(&mut stream).status, 0, "each gets an answer");
    }
}

/// Guesses of passwords are checked one after the other, and few may wait.
#[test]
fn wrong_passwords_keep_nobody_waiting() {
    let _beside = common::beside_others();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("web.yml");
    std::fs::write(&path, "basic_auth_users:\n  alice: ".to_owned() + ALICES_HASH).expect("written");
    let exporter = Exporter::on("127.0.0.1:0", &[HOST, &["--web-config", path.to_str().expect("a path")]].concat());
    let guess = || exporter.get("/healthz", "Authorization: Basic YWxpY2U6d3Jvbmc=\r\n").status;
    let statuses = std::thread::scope(|scope| {
        let guesses: Vec<_> = (0..30).map(|_| scope.spawn(guess)).collect();
        guesses.into_iter().map(|guess| guess.join().expect("an answer")).collect::<Vec<_>>()
    });
    assert!(statuses.contains(&401) && statuses.iter().all(|status| [401, 503].contains(status)), "{statuses:?}");
    let scrape = |_| {
        std::thread::sleep(Duration::from_millis(100));
        exporter.get("/metrics", ALICE).status == 200
    };
    assert!((0..200).any(scrape), "who knows the password is served");
}

#[test]
fn other_hosts_are_warned_of_and_a_port_in_use_is_named() {
    let _beside = common::beside_others();
    let open = Exporter::on("0.0.0.0:0", HOST);
    assert!(open.said.contains("without TLS and passwords"), "{}", open.said);
    let port = open.address.rsplit(':').next().expect("a port");
    let address = format!("0.0.0.0:{port}");
    let out = common::kvmtop().args(["export", "--listen", &address]).output().expect("kvmtop runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    assert!(said.contains(&format!("cannot listen on {address}")) && said.contains("--listen"), "{said}");
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
    let mut guest = Guest::start(&[Work::PortReads(0x608, READS), Work::PortWrites(0x70, WRITES)], true);
    let pid = guest.pid().to_string();
    let exporter = Exporter::start(&["-d", "0.3", "--engine", "bpf", "--no-monitor", "--domain", &pid]);
    exporter.until(|metrics| metrics.contains("kvmtop_guest_info{"));
    exporter.settled();
    guest.go();
    guest.wait_done();
    let metrics = exporter.settled();
    let about = metrics.lines().find(|line| line.starts_with("kvmtop_guest_info{")).expect("the guest");
    let name = about.split('"').nth(1).expect("its name");
    let row = |family: &str, labels: &str| value(&metrics, &format!("{family}{{domain=\"{name}\",{labels}}}"));
    let reads = row("kvmtop_accesses_total", r#"space="pio",device="acpi-tmr""#);
    assert_eq!(reads, Some(f64::from(READS)), "{metrics}");
    assert_eq!(row("kvmtop_accesses_total", r#"space="pio",device="rtc""#), Some(f64::from(WRITES)));
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
    let mut guests: Vec<Guest> = (0..200).map(|_| Guest::start(&[Work::PortReads(0x608, 10); 8], true)).collect();
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
    let status = std::fs::read_to_string(format!("/proc/{}/status", exporter.pid())).expect("it lives");
    let memory: Vec<_> = status.lines().filter(|l| l.starts_with("VmRSS") || l.starts_with("VmHWM")).collect();
    // Most scrapes find that an earlier request has already written the text of the last sample.
    eprintln!("median and longest of 7 scrapes with bytes: {:?} {:?}; {memory:?}", scrapes[3], scrapes[6]);
    common::ran(TEST);
}
