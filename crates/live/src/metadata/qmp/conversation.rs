//! QMP, the protocol of QEMU's monitor (docs/interop/qmp-spec.rst): lines of JSON, a greeting
//! first.
//!
//! The other side may be hostile: its answers together may take only so long and be only so large,
//! and of its JSON only the expected fields are kept.

use kvm::sanitize;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Take, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// All that a monitor may send: `info mtree -f` of a large guest has some hundred KiB.
const MAX_REPLY: u64 = 2 << 20;
/// The longest time for a conversation, greeting included.
const CONVERSATION_TIMEOUT: Duration = Duration::from_secs(5);

/// A conversation with a monitor.
pub(crate) struct QmpConversation {
    lines: BufReader<Take<UntilDeadline>>,
}

/// A stream whose reads all end at one instant at the latest.
struct UntilDeadline {
    stream: UnixStream,
    until: Instant,
}

impl Read for UntilDeadline {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

#[derive(Deserialize)]
struct QmpGreeting {
    #[serde(rename = "QMP")]
    _versions: IgnoredAny,
}

/// An answer, or an event, which has neither field.
#[derive(Deserialize)]
struct QmpMessage<T> {
    #[serde(rename = "return")]
    answer: Option<T>,
    error: Option<QmpRefusal>,
}

#[derive(Deserialize)]
struct QmpRefusal {
    desc: Option<String>,
}

impl QmpConversation {
    /// Reads the greeting and agrees on commands.
    ///
    /// # Errors
    /// A sentence: no greeting came in time, as while another client holds the monitor, or the
    /// other side does not speak QMP.
    pub fn begin(stream: UnixStream) -> Result<Self, String> {
        let until = Instant::now() + CONVERSATION_TIMEOUT;
        stream
            .set_write_timeout(Some(CONVERSATION_TIMEOUT))
            .map_err(|e| e.to_string())?;
        let mut monitor = Self {
            lines: BufReader::new(UntilDeadline { stream, until }.take(MAX_REPLY)),
        };
        let greeting = monitor
            .next_line()
            .map_err(|e| format!("{e}; another program may hold the monitor"))?;
        serde_json::from_slice::<QmpGreeting>(&greeting)
            .map_err(|_| "does not greet as a QMP monitor does")?;
        monitor.ask::<IgnoredAny>(&json!({"execute": "qmp_capabilities"}))?;
        Ok(monitor)
    }

    /// Sends a command and returns its answer.
    ///
    /// # Errors
    /// A sentence: no answer in time, a refusal, or an answer of another kind.
    pub fn ask<T: DeserializeOwned>(&mut self, command: &serde_json::Value) -> Result<T, String> {
        let stream = &mut self.lines.get_mut().get_mut().stream;
        stream
            .write_all(format!("{command}\n").as_bytes())
            .map_err(|e| sentence(&e))?;
        loop {
            let message: QmpMessage<T> = serde_json::from_slice(&self.next_line()?)
                .map_err(|e| format!("an unexpected answer: {e}"))?;
            if let Some(refusal) = message.error {
                let said = refusal.desc.unwrap_or_else(|| "no reason given".into());
                return Err(format!("the monitor refuses: {}", sanitize(&said, 200)));
            }
            if let Some(answer) = message.answer {
                return Ok(answer);
            }
        }
    }

    /// The next line of the monitor that is not empty.
    fn next_line(&mut self) -> Result<Vec<u8>, String> {
        let mut line = Vec::new();
        while line.trim_ascii().is_empty() {
            line.clear();
            self.lines
                .read_until(b'\n', &mut line)
                .map_err(|e| sentence(&e))?;
            if line.last() != Some(&b'\n') {
                let is_limit_reached = self.lines.get_ref().limit() == 0;
                return Err(if is_limit_reached {
                    "the answer is too long"
                } else {
                    "closed without an answer"
                }
                .into());
            }
        }
        Ok(line)
    }
}

fn sentence(e: &io::Error) -> String {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer in time".into(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => "closed without an answer".into(),
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A monitor that sends each of `replies` after a line of the client, the first at once.
    fn monitor(replies: Vec<String>) -> UnixStream {
        let (near, mut far) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(far.try_clone().unwrap()).lines();
            for (i, reply) in replies.iter().enumerate() {
                if i > 0 {
                    lines.next();
                }
                // The client gives up on some of them.
                let _ = far.write_all(reply.as_bytes());
            }
        });
        near
    }

    fn answers(replies: &[&str]) -> Result<String, String> {
        let replies = replies.iter().map(|r| format!("{r}\r\n")).collect();
        QmpConversation::begin(monitor(replies))?.ask(&json!({"execute": "x"}))
    }

    const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": ["oob"]}}"#;
    const DONE: &str = r#"{"return": {}}"#;

    #[test]
    fn an_answer_behind_an_event() {
        let text = answers(&[
            GREETING,
            DONE,
            "{\"event\": \"STOP\", \"data\": {}}\r\n\r\n{\"return\": \"a\\r\\n\"}",
        ]);
        assert_eq!(text.unwrap(), "a\r\n");
    }

    #[test]
    fn a_refusal_is_a_sentence() {
        let e = answers(&[
            GREETING,
            DONE,
            r#"{"error": {"class": "x", "desc": "not now\u001b[2J"}}"#,
        ])
        .unwrap_err();
        assert_eq!(e, "the monitor refuses: not now");
        assert_eq!(
            answers(&[GREETING, r#"{"error": {}}"#]).unwrap_err(),
            "the monitor refuses: no reason given"
        );
    }

    #[test]
    fn what_is_no_monitor_is_said() {
        assert_eq!(
            answers(&["hello"]).unwrap_err(),
            "does not greet as a QMP monitor does"
        );
        assert_eq!(
            answers(&[DONE]).unwrap_err(),
            "does not greet as a QMP monitor does"
        );
        assert!(
            answers(&[GREETING, DONE, r#"{"return": [1]}"#])
                .unwrap_err()
                .starts_with("an unexpected answer")
        );
        assert!(
            answers(&[GREETING, DONE])
                .unwrap_err()
                .contains("closed without an answer")
        );
    }

    #[test]
    fn an_answer_of_a_large_guest_arrives_whole() {
        let tree = "  0000000000000000-ffffffffffffffff (prio 0, i/o): pci-device\r\n".repeat(8000);
        let answer = json!({"return": tree}).to_string();
        assert!(answer.len() > 500_000);
        assert_eq!(answers(&[GREETING, DONE, &answer]).unwrap(), tree);
    }

    #[test]
    fn endless_events_end_at_the_limit() {
        let event = format!("{{\"event\": \"{}\"}}\n", "x".repeat(1000)).repeat(5000);
        assert_eq!(
            answers(&[GREETING, DONE, &event]).unwrap_err(),
            "the answer is too long"
        );
        let deep = format!("{{\"event\": {}", "[".repeat(3 << 20));
        assert_eq!(
            answers(&[GREETING, DONE, &deep]).unwrap_err(),
            "the answer is too long"
        );
        let deep = format!("{{\"return\": {}", "[".repeat(1 << 20));
        assert!(
            answers(&[GREETING, DONE, &deep])
                .unwrap_err()
                .starts_with("an unexpected answer")
        );
    }

    #[test]
    fn a_byte_now_and_then_does_not_move_the_deadline() {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut stream = UntilDeadline {
            stream: near,
            until: Instant::now(),
        };
        assert_eq!(
            stream.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
    }
}
