//! A QEMU guest that reads its disk for ever, without a system to boot.

use rustix::process::Signal;
use std::io::Write;
use std::process::{Child, Command, Stdio};

/// A process that is killed when this is dropped.
pub struct Running(pub Child);

impl Running {
    /// Its process.
    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    /// Lets the waiting process finish.
    pub fn finish(&mut self) {
        writeln!(self.0.stdin.as_ref().unwrap()).unwrap();
        assert!(self.0.wait().unwrap().success());
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boot code that reads eight sectors after eight sectors through the BIOS for ever: `mov ah, 0x42;
/// int 0x13; add [lba], 8; and [lba], 0x3fff`, followed by the address packet (SeaBIOS has a driver
/// for virtio disks).
const READER: [u8; 51] = [
    0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0xfb, 0xbe, 0x23, 0x7c, 0xb8,
    0x00, 0x42, 0xb2, 0x80, 0xcd, 0x13, 0x83, 0x06, 0x2b, 0x7c, 0x08, 0x81, 0x26, 0x2b, 0x7c, 0xff,
    0x3f, 0xeb, 0xe9, 0x10, 0x00, 0x08, 0x00, 0x00, 0x00, 0x00, 0x10, 0x08, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00,
];

/// The boot sector that does so.
pub fn reader() -> Vec<u8> {
    let mut sector = READER.to_vec();
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    sector
}

/// The same with writes.
pub fn writer() -> Vec<u8> {
    let mut sector = reader();
    // `mov ah, 0x43`.
    sector[17] = 0x43;
    sector
}

/// Starts a guest with one virtio disk on an `IOThread`; `drive` has the file and its options.
pub fn with_disk(name: &str, drive: &str) -> Result<Running, String> {
    let qemu = Command::new("qemu-system-x86_64")
        .args([
            "-name",
            &format!("{name},debug-threads=on"),
            "-accel",
            "kvm",
            "-m",
            "32",
            "-display",
            "none",
        ])
        .args([
            "-nodefaults",
            "-object",
            "iothread,id=io1",
            "-drive",
            &format!("{drive},if=none,id=d0,format=raw"),
        ])
        .args(["-device", "virtio-blk-pci,drive=d0,iothread=io1"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    qemu.map(Running)
        .map_err(|e| format!("qemu-system-x86_64: {e}"))
}
