//! What a program cost from its start to its end.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program that uses more CPU time than this, seconds, is killed.
const MAX_CPU_S: u64 = 120;

/// What a finished program cost.
pub struct ChildCost {
    /// CPU time.
    pub cpu: Duration,
    /// Most resident memory, bytes.
    pub rss: u64,
    /// Bytes written to standard output.
    pub output: u64,
    /// The beginning of what it wrote to standard error.
    pub said: String,
    /// Its exit status, where it exited.
    pub status: Option<i32>,
}

/// Runs a program without input to its end.
#[allow(unsafe_code)]
pub fn measure(command: &mut Command) -> std::io::Result<ChildCost> {
    // SAFETY: between fork and exec only setrlimit is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: MAX_CPU_S,
                rlim_max: MAX_CPU_S,
            };
            if libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stderr = child.stderr.take();
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        for byte in stderr
            .into_iter()
            .flat_map(|e| std::io::BufReader::new(e).bytes())
            .map_while(Result::ok)
        {
            said.extend((said.len() < 4096).then_some(byte));
        }
        String::from_utf8_lossy(&said).into_owned()
    });
    let output = child.stdout.take().map_or(Ok(0), |mut stdout| {
        std::io::copy(&mut stdout, &mut std::io::sink())
    })?;
    let mut status = 0;
    // SAFETY: plain data, for which all zeros are valid, and both pointers live through the call.
    // Nobody else waits for this child.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (
            libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage),
            usage,
        )
    };
    if pid < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    Ok(ChildCost {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        rss: usage.ru_maxrss as u64 * 1024,
        output,
        said: said.join().unwrap_or_default(),
        status: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
    })
}
