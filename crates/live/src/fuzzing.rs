//! What only `fuzz/readers.rs` calls: readers of the running host that no other crate sees.

use super::metadata::qmp;
use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// Any bytes as all that a QEMU monitor sends.
///
/// # Errors
/// The sentence that stands for an answer, or no socket could be made.
pub fn qmp(replies: &[u8]) -> Result<(), String> {
    let (near, mut far) = UnixStream::pair().map_err(|e| e.to_string())?;
    far.set_nonblocking(true).map_err(|e| e.to_string())?;
    // What the socket does not take is not sent: such a monitor closes early.
    let _ = far.write_all(replies);
    far.shutdown(Shutdown::Write).map_err(|e| e.to_string())?;
    qmp::ask_all(near)
}
