//! A running `kvmtop export`, and requests to it as bytes on a socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes longer on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running exporter, on a port that the kernel chose.
pub struct Exporter {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub address: String,
    /// What it said before it served.
    pub said: String,
}

/// What a server answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Exporter {
    /// Starts it and waits for its first sample.
    pub fn start(options: &[&str]) -> Self {
        let exporter = Self::on("127.0.0.1:0", options);
        exporter.until(|metrics| metrics.contains("kvmtop_samples_total"));
        exporter
    }

    /// Starts it on an address.
    pub fn on(listen: &str, options: &[&str]) -> Self {
        let mut command = super::kvmtop();
        command.args(["export", "--listen", listen]).args(options);
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("kvmtop starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let mut said = String::new();
        let address = loop {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("it ended: {said}"))
                .expect("text");
            let served = line
                .strip_prefix("kvmtop: serving ")
                .and_then(|rest| rest.split_once("://"));
            if let Some((_, rest)) = served {
                break rest.split('/').next().expect("an address").to_owned();
            }
            said.push_str(&line);
            said.push('\n');
        };
        // A full pipe would hold it up.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            address,
            said,
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The metrics of now.
    pub fn metrics(&self) -> String {
        self.get("/metrics", "").body
    }

    /// Waits until the metrics say something.
    pub fn until(&self, says: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let metrics = self.metrics();
            if says(&metrics) {
                return metrics;
            }
            assert!(Instant::now() < until, "{metrics}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for two more samples: what happened before this call is in the answer.
    pub fn settled(&self) -> String {
        let now = value(&self.metrics(), "kvmtop_samples_total").expect("samples");
        self.until(|metrics| value(metrics, "kvmtop_samples_total").is_some_and(|n| n >= now + 2.0))
    }

    pub fn get(&self, path: &str, headers: &str) -> Answer {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: kvmtop\r\n{headers}\r\n"
        ))
    }

    /// Sends this and reads until the server closes.
    pub fn send(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // A server that refuses early closes before it has read all.
        let _ = stream.write_all(request.as_bytes());
        answer(&mut stream)
    }
}

/// Reads an answer to its end.
pub fn answer(stream: &mut impl Read) -> Answer {
    let mut bytes = Vec::new();
    // A reset after the answer ends it as well.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0);
    Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// The value of a row.
pub fn value(metrics: &str, row: &str) -> Option<f64> {
    let found = metrics
        .lines()
        .find_map(|line| line.strip_prefix(row)?.strip_prefix(' '));
    found.map(|value| value.parse().expect("a number"))
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
