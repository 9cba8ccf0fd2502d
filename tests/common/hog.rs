//! Tasks of the host that never sleep.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A process that never sleeps; killed when dropped.
pub struct Hog {
    child: Child,
    _shell: tempfile::TempDir,
}

impl Hog {
    /// Starts one that goes by this name.
    pub fn start(name: &str) -> Self {
        // A task is called by the file it was started from: a link to the shell, since a file just
        // written may be busy.
        let dir = tempfile::tempdir().expect("a folder");
        let shell = dir.path().join(name);
        std::os::unix::fs::symlink("/bin/sh", &shell).expect("a link");
        let child = Command::new(&shell)
            .arg0("sh")
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn()
            .expect("sh");
        Self { child, _shell: dir }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
