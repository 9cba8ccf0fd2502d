//! Sends one command to a QEMU monitor socket (QMP), with a deadline. Blocks: call it on a thread that may wait.
//!
//! A socket serves one client at a time: while another one holds it, QEMU's greeting does not come and the deadline
//! ends the attempt. Protocol: QEMU's docs/interop/qmp-spec.rst.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A longer reply is refused: `info mtree -f` of a large guest has some hundred KiB.
const LONGEST: usize = 8 << 20;
/// The longest time for a command, greeting included.
const DEADLINE: Duration = Duration::from_secs(5);

/// Runs a human monitor command.
///
/// # Errors
/// A sentence: the socket cannot be reached, another client holds it, or it answered with an error.
pub fn human(socket: &Path, command: &str) -> Result<String, String> {
    let answer = ask(socket, &json!({"execute": "human-monitor-command", "arguments": {"command-line": command}}))?;
    answer.as_str().map(String::from).ok_or_else(|| format!("{}: the answer is not a string", socket.display()))
}

/// Thread ids of the vCPUs by number (`query-cpus-fast`).
///
/// # Errors
/// As [`human`].
pub fn vcpu_threads(socket: &Path) -> Result<Vec<(u32, i32)>, String> {
    let answer = ask(socket, &json!({"execute": "query-cpus-fast"}))?;
    let number = |v: &Value, name: &str| v.get(name).and_then(Value::as_i64);
    let cpus = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(cpus
        .iter()
        .filter_map(|c| {
            Some((u32::try_from(number(c, "cpu-index")?).ok()?, i32::try_from(number(c, "thread-id")?).ok()?))
        })
        .collect())
}

fn ask(socket: &Path, command: &Value) -> Result<Value, String> {
    let name = socket.display();
    let until = Instant::now() + DEADLINE;
    let stream = UnixStream::connect(socket).map_err(|e| format!("{name}: {e}"))?;
    stream.set_write_timeout(Some(DEADLINE)).map_err(|e| format!("{name}: {e}"))?;
    let mut lines = QmpConnection { stream, until, buffer: Vec::new() };
    let greeting = lines.next().map_err(|e| format!("{name}: {e}; another program may hold the monitor"))?;
    if greeting.get("QMP").is_none() {
        return Err(format!("{name} is not a QMP socket"));
    }
    lines.say(&json!({"execute": "qmp_capabilities"})).map_err(|e| format!("{name}: {e}"))?;
    lines.answer().map_err(|e| format!("{name}: {e}"))?;
    lines.say(command).map_err(|e| format!("{name}: {e}"))?;
    lines.answer().map_err(|e| format!("{name}: {e}"))
}

struct QmpConnection {
    stream: UnixStream,
    until: Instant,
    buffer: Vec<u8>,
}

impl QmpConnection {
    fn say(&mut self, message: &Value) -> Result<(), String> {
        self.stream.write_all(format!("{message}\n").as_bytes()).map_err(|e| e.to_string())
    }

    /// The answer to the last command; skips events in between.
    fn answer(&mut self) -> Result<Value, String> {
        loop {
            let mut message = self.next()?;
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
            if let Some(error) = message.get("error") {
                let said = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given");
                return Err(format!("the monitor refuses: {}", crate::kvm::sanitize(said, 200)));
            }
        }
    }

    fn next(&mut self) -> Result<Value, String> {
        let mut chunk = [0; 16384];
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return serde_json::from_slice(&line).map_err(|e| format!("not JSON: {e}"));
            }
            if self.buffer.len() > LONGEST {
                return Err("the answer is too long".into());
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("no answer in time".into());
            }
            self.stream.set_read_timeout(Some(left)).map_err(|e| e.to_string())?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err("closed without an answer".into()),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    return Err("no answer in time".into());
                }
                Err(e) => return Err(e.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    /// A monitor that answers each line with the next of `replies`.
    fn monitor(replies: &'static [&'static str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            stream.write_all(b"{\"QMP\": {\"version\": {}}}\r\n").unwrap();
            for reply in replies {
                lines.next();
                stream.write_all(reply.as_bytes()).unwrap();
            }
        });
        (dir, path)
    }

    #[test]
    fn an_answer_behind_an_event() {
        let (_dir, path) = monitor(&[
            "{\"return\": {}}\r\n",
            "{\"event\": \"STOP\"}\r\n{\"return\": \"address-space: memory\\r\\n\"}\r\n",
        ]);
        assert_eq!(human(&path, "info mtree -f").unwrap(), "address-space: memory\r\n");
    }

    #[test]
    fn threads_of_vcpus() {
        let (_dir, path) = monitor(&[
            "{\"return\": {}}\r\n",
            "{\"return\": [{\"cpu-index\": 1, \"thread-id\": 42}, {\"cpu-index\": \"x\"}]}\r\n",
        ]);
        assert_eq!(vcpu_threads(&path).unwrap(), [(1, 42)]);
    }

    #[test]
    fn a_refusal_is_a_sentence() {
        let (_dir, path) = monitor(&["{\"return\": {}}\r\n", "{\"error\": {\"desc\": \"not now\\u001b[2J\"}}\r\n"]);
        let e = human(&path, "info mtree -f").unwrap_err();
        assert!(e.contains("the monitor refuses: not now") && !e.contains('\u{1b}'), "{e}");
    }

    #[test]
    fn no_monitor_at_all() {
        assert!(human(Path::new("/nonexistent/qmp"), "info mtree -f").unwrap_err().contains("/nonexistent/qmp"));
    }
}
