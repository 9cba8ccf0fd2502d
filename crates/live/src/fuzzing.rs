//! What only `fuzz/readers.rs` calls: readers of the running host that no other crate sees.

use super::metadata::qmp;
use super::proc::stat::{SchedStat, Stat, Switches, kilobytes};
use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// Any bytes as all that a QEMU monitor sends. The first byte chooses the question.
///
/// # Errors
/// The sentence that stands for an answer, or no socket could be made.
pub fn qmp(replies: &[u8]) -> Result<(), String> {
    let Some((question, replies)) = replies.split_first() else { return Ok(()) };
    let (near, mut far) = UnixStream::pair().map_err(|e| e.to_string())?;
    far.set_nonblocking(true).map_err(|e| e.to_string())?;
    // What the socket does not take is not sent: such a monitor closes early.
    let _ = far.write_all(replies);
    far.shutdown(Shutdown::Write).map_err(|e| e.to_string())?;
    qmp::ask_any(*question, near)
}

/// Any bytes as each of the texts of `/proc/PID` that kvmtop reads.
pub fn proc_texts(input: &[u8]) {
    Stat::parse(input).map(|stat| stat.is_dead());
    SchedStat::parse(input);
    Switches::parse(input);
    let text = String::from_utf8_lossy(input);
    let _ = (kilobytes(&text, "VmSwap"), kilobytes(&text, "VmRSS"));
}
