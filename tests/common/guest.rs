//! A KVM guest of a few bytes of real-mode code, in its own process.
//!
//! The test binary starts itself again: the test named `guest_process` (see [`guest_process!`]) is
//! the guest when the environment says so, and an empty test otherwise. The parent says over a pipe
//! when to continue, so that a watcher can be in place before the first access.
#![allow(unsafe_code, reason = "maps a guest's memory and hands it to KVM")]

use kvm_bindings::{
    KVM_IRQ_ROUTING_MSI, KVM_IRQCHIP_IOAPIC, kvm_irq_routing, kvm_irq_routing_entry, kvm_irqchip,
    kvm_irqfd, kvm_msi, kvm_regs, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const ENV: &str = "KVMTOP_TEST_GUEST";
const LOAD: u64 = 0x8000;

/// What a vCPU does after `go`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Reads a port this often.
    PortReads(u16, u32),
    /// Writes a port this often.
    PortWrites(u16, u32),
    /// Reads four bytes at a guest-physical address (16-byte aligned) this often.
    MmioReads(u32, u32),
    /// Reads an MSR this often.
    MsrReads(u32, u32),
    /// Executes CPUID, reads CR4 and writes it, this often.
    CpuidAndCr4(u32),
    /// Reads ports 0, 1, 2, … this many, each once; begins again after 65 535.
    PortSweep(u32),
    /// Reads every port once, then this one for ever.
    SweepThenLoop(u16),
    /// Reads a port for ever.
    PortLoop(u16),
    /// Reads four bytes at a guest-physical address (16-byte aligned) for ever.
    MmioLoop(u32),
    /// Halts for ever, a millisecond a time.
    Idle,
    /// Reads a port for ever, at most this many times a second.
    PacedReads(u16, u32),
    /// Reads a port for ever and counts the rounds in its memory, at [`PROGRESS`].
    CountedPort(u16),
    /// Reads an MSR for ever, counted: an exit that the kernel serves.
    CountedMsr(u32),
    /// Reads the local APIC's page for ever, counted: memory-mapped, served by the kernel.
    CountedApic,
    /// Meets a fault that it cannot handle, then a double fault.
    TripleFault,
    /// Loads a float from device memory, which KVM's emulator does not have.
    UnknownInstruction,
    /// Sleeps (`true`) or spins (`false`) until it is interrupted as [`Guest::interrupt`] orders,
    /// and counts that at [`PROGRESS`].
    Interrupted(bool),
    /// Is not run: `KVM_RUN` returns EINVAL, because the process asks for registers that do not
    /// exist.
    RefusedRun,
}

/// Where a counting guest keeps its rounds, an array of 32-bit numbers by vCPU.
pub const PROGRESS: usize = 0x6000;
/// Names a file that the guest's memory is to be shared through.
pub const MEMORY_ENV: &str = "KVMTOP_TEST_GUEST_MEMORY";
/// The user that the guest's process becomes once it has opened `/dev/kvm`.
pub const USER_ENV: &str = "KVMTOP_TEST_GUEST_USER";
/// For how many milliseconds the process uses a CPU under the name of a QEMU before it opens its
/// VM.
pub const LOADS_ENV: &str = "KVMTOP_TEST_GUEST_LOADS";
/// Whether the vCPUs rest in user space, as ordered.
static REST: AtomicBool = AtomicBool::new(false);
/// Size of the guest's memory.
pub const MEMORY: usize = 0x10000;

impl Work {
    pub fn word(self) -> String {
        match self {
            Self::PortReads(p, n) => format!("in:{p}:{n}"),
            Self::PortWrites(p, n) => format!("out:{p}:{n}"),
            Self::MmioReads(a, n) => format!("mmio:{a}:{n}"),
            Self::MsrReads(m, n) => format!("msr:{m}:{n}"),
            Self::CpuidAndCr4(n) => format!("cpuidcr4:0:{n}"),
            Self::PortSweep(n) => format!("sweep:0:{n}"),
            Self::SweepThenLoop(p) => format!("sweeploop:{p}:0"),
            Self::PortLoop(p) => format!("loop:{p}:0"),
            Self::MmioLoop(a) => format!("mmioloop:{a}:0"),
            Self::Idle => "idle:0:0".into(),
            Self::PacedReads(p, n) => format!("paced:{p}:{n}"),
            Self::CountedPort(p) => format!("cport:{p}:0"),
            Self::CountedMsr(m) => format!("cmsr:{m}:0"),
            Self::CountedApic => "capic:0:0".into(),
            Self::TripleFault => "triple:0:0".into(),
            Self::UnknownInstruction => "unknown:0:0".into(),
            Self::Interrupted(sleeps) => format!("interrupted:{}:0", u8::from(sleeps)),
            Self::RefusedRun => "refused:0:0".into(),
        }
    }

    fn parse(word: &str) -> Self {
        let mut parts = word.split(':');
        let kind = parts.next().expect("kind");
        let mut number = || {
            parts
                .next()
                .expect("number")
                .parse::<u32>()
                .expect("number")
        };
        let (a, n) = (number(), number());
        match kind {
            "in" => Self::PortReads(a as u16, n),
            "out" => Self::PortWrites(a as u16, n),
            "mmio" => Self::MmioReads(a, n),
            "msr" => Self::MsrReads(a, n),
            "cpuidcr4" => Self::CpuidAndCr4(n),
            "sweep" => Self::PortSweep(n),
            "sweeploop" => Self::SweepThenLoop(a as u16),
            "loop" => Self::PortLoop(a as u16),
            "mmioloop" => Self::MmioLoop(a),
            "paced" => Self::PacedReads(a as u16, n),
            "cport" => Self::CountedPort(a as u16),
            "cmsr" => Self::CountedMsr(a),
            "capic" => Self::CountedApic,
            "triple" => Self::TripleFault,
            "unknown" => Self::UnknownInstruction,
            "interrupted" => Self::Interrupted(a == 1),
            "refused" => Self::RefusedRun,
            _ => Self::Idle,
        }
    }

    /// The code of a vCPU, ending in HLT where it ends.
    fn code(self, vcpu: usize) -> Vec<u8> {
        let mut c = Vec::new();
        // inc dword [es:PROGRESS + 4 * vcpu]
        let count = |c: &mut Vec<u8>| {
            c.extend([0x26, 0x66, 0xff, 0x06]);
            c.extend(((PROGRESS + 4 * vcpu) as u16).to_le_bytes());
        };
        let counted = |c: &mut Vec<u8>, n: u32, body: &[u8]| {
            c.extend([0x66, 0xbe]); // mov esi, n
            c.extend(n.to_le_bytes());
            c.extend(body);
            c.extend([0x66, 0x4e, 0x75]); // dec esi; jnz body
            c.push((-(body.len() as i8) - 4) as u8);
            c.push(0xf4); // hlt
        };
        match self {
            Self::PortReads(p, n) => {
                c.push(0xba); // mov dx, p
                c.extend(p.to_le_bytes());
                counted(&mut c, n, &[0xec]); // in al, dx
            }
            Self::PortWrites(p, n) => {
                c.push(0xba);
                c.extend(p.to_le_bytes());
                counted(&mut c, n, &[0xee]); // out dx, al
            }
            // mov eax, [a & 15]; ds holds the other bits of the address.
            Self::MmioReads(a, n) => counted(&mut c, n, &[0x66, 0xa1, (a & 0xf) as u8, 0]),
            Self::MsrReads(m, n) => {
                c.extend([0x66, 0xb9]); // mov ecx, m
                c.extend(m.to_le_bytes());
                counted(&mut c, n, &[0x0f, 0x32]); // rdmsr
            }
            // xor eax, eax; cpuid; mov eax, cr4; mov cr4, eax
            Self::CpuidAndCr4(n) => {
                counted(
                    &mut c,
                    n,
                    &[
                        0x66, 0x31, 0xc0, 0x0f, 0xa2, 0x0f, 0x20, 0xe0, 0x0f, 0x22, 0xe0,
                    ],
                );
            }
            Self::PortSweep(n) => {
                c.extend([0x31, 0xd2]); // xor dx, dx
                counted(&mut c, n, &[0xec, 0x42]); // in al, dx; inc dx
            }
            Self::SweepThenLoop(p) => {
                c.extend([0x31, 0xd2]); // xor dx, dx
                counted(&mut c, 0x10000, &[0xec, 0x42]); // in al, dx; inc dx
                c.pop(); // no hlt
                c.extend(Self::PortLoop(p).code(vcpu));
            }
            Self::PortLoop(p) | Self::PacedReads(p, _) => {
                c.push(0xba);
                c.extend(p.to_le_bytes());
                c.extend([0xec, 0xeb, 0xfd]); // again: in al, dx; jmp again
            }
            // again: mov eax, [a & 15]; jmp again
            Self::MmioLoop(a) => c.extend([0x66, 0xa1, (a & 0xf) as u8, 0, 0xeb, 0xfa]),
            Self::Idle => c.extend([0xf4, 0xeb, 0xfd]), // again: hlt; jmp again
            Self::CountedPort(p) => {
                c.push(0xba); // mov dx, p
                c.extend(p.to_le_bytes());
                c.push(0xec); // again: in al, dx
                count(&mut c);
                c.extend([0xeb, 0xf7]); // jmp again
            }
            Self::CountedMsr(m) => {
                c.extend([0x66, 0xb9]); // mov ecx, m
                c.extend(m.to_le_bytes());
                c.extend([0x0f, 0x32]); // again: rdmsr
                count(&mut c);
                c.extend([0xeb, 0xf6]); // jmp again
            }
            Self::CountedApic => {
                c.extend([0x66, 0xa1, 0x20, 0x00]); // again: mov eax, [0x20]; ds is at the APIC's page
                count(&mut c);
                c.extend([0xeb, 0xf4]); // jmp again
            }
            Self::TripleFault => c.extend([0x0f, 0x0b]), // ud2, without an interrupt table
            Self::UnknownInstruction => c.extend([0xd9, 0x06, 0, 0]), // fld dword [0]; ds is no memory
            Self::Interrupted(sleeps) => {
                c.push(0xfb); // sti
                c.extend(if sleeps {
                    [0xf4, 0xeb, 0xfd]
                } else {
                    [0x90, 0xeb, 0xfd]
                }); // again: hlt or nop; jmp again
                c.resize(HANDLER as usize, 0xf4);
                count(&mut c);
                c.extend([0x66, 0xa3, 0xb0, 0x00, 0xcf]); // mov [0xb0], eax (end of interrupt); iret
            }
            Self::RefusedRun => c.push(0xf4), // hlt
        }
        c
    }

    fn is_endless(self) -> bool {
        use Work::{
            CountedApic, CountedMsr, CountedPort, Idle, MmioLoop, PacedReads, PortLoop,
            SweepThenLoop,
        };
        let counted = matches!(
            self,
            CountedPort(_) | CountedMsr(_) | CountedApic | Self::Interrupted(_)
        );
        counted
            || matches!(
                self,
                PortLoop(_) | MmioLoop(_) | SweepThenLoop(_) | Idle | PacedReads(..)
            )
    }

    fn data_base(self) -> u64 {
        match self {
            Self::MmioReads(a, _) | Self::MmioLoop(a) => u64::from(a & !0xf),
            Self::CountedApic | Self::Interrupted(_) => 0xfee0_0000,
            Self::UnknownInstruction => 0xfed0_0000,
            _ => 0,
        }
    }
}

/// How a guest is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// `KVM_SIGNAL_MSI`.
    Message,
    /// `KVM_IRQ_LINE` of [`LINE`], through the IOAPIC.
    Line,
    /// An irqfd whose line is routed to a message.
    Irqfd,
}

/// The line of [`Way::Line`].
pub const LINE: u32 = 10;
/// Offset of the interrupt handler in a vCPU's code.
const HANDLER: u16 = 0x40;

impl Way {
    const ALL: [Self; 3] = [Self::Message, Self::Line, Self::Irqfd];

    /// The vector that the guest gets.
    pub fn vector(self) -> u8 {
        0x40 + self as u8
    }
}

/// The address of a message to vCPU 0.
const MESSAGE: u32 = 0xfee0_0000;

/// Interrupts vCPU 0 this many times.
fn interrupt(vm: &VmFd, progress: &AtomicU32, way: Way, times: u32) {
    let vector = u32::from(way.vector());
    let mut eventfd = None;
    match way {
        Way::Message => {}
        Way::Line => {
            let mut chip = kvm_irqchip {
                chip_id: KVM_IRQCHIP_IOAPIC,
                ..kvm_irqchip::default()
            };
            vm.get_irqchip(&mut chip).expect("the IOAPIC");
            // SAFETY: the chip asked for has this part. An edge to vCPU 0, not masked.
            unsafe { chip.chip.ioapic.redirtbl[LINE as usize].bits = u64::from(vector) };
            vm.set_irqchip(&chip).expect("the IOAPIC");
        }
        Way::Irqfd => eventfd = Some(irqfd(vm, vector)),
    }
    for _ in 0..times {
        // It sleeps again, and has polled before.
        std::thread::sleep(Duration::from_millis(3));
        let before = progress.load(Ordering::Relaxed);
        match (way, &eventfd) {
            (Way::Line, _) => {
                vm.set_irq_line(LINE, true).expect("a line");
                vm.set_irq_line(LINE, false).expect("a line");
            }
            (_, Some(eventfd)) => {
                rustix::io::write(eventfd, &1_u64.to_ne_bytes()).expect("an eventfd");
            }
            _ => {
                let message = kvm_msi {
                    address_lo: MESSAGE,
                    data: vector,
                    ..kvm_msi::default()
                };
                assert_eq!(vm.signal_msi(message).expect("a message"), 1);
            }
        }
        let until = Instant::now() + Duration::from_secs(20);
        while progress.load(Ordering::Relaxed) == before {
            if Instant::now() > until {
                // A panic would wait for the vCPUs' threads.
                eprintln!("the guest does not see {way:?}");
                std::process::exit(1);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// An eventfd that is a message to vCPU 0.
fn irqfd(vm: &VmFd, vector: u32) -> OwnedFd {
    const KVM_SET_GSI_ROUTING: libc::c_ulong = 0x4008_ae6a;
    const KVM_IRQFD: libc::c_ulong = 0x4020_ae76;
    #[repr(C)]
    struct Routing {
        head: kvm_irq_routing,
        entry: kvm_irq_routing_entry,
    }
    let mut routing = Routing {
        head: kvm_irq_routing::default(),
        entry: kvm_irq_routing_entry::default(),
    };
    routing.head.nr = 1;
    (routing.entry.gsi, routing.entry.type_) = (24, KVM_IRQ_ROUTING_MSI);
    (routing.entry.u.msi.address_lo, routing.entry.u.msi.data) = (MESSAGE, vector);
    let eventfd =
        rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("an eventfd");
    let request = kvm_irqfd {
        fd: eventfd.as_raw_fd() as u32,
        gsi: 24,
        ..kvm_irqfd::default()
    };
    // SAFETY: both are what the kernel reads for these requests, one entry with its head.
    let done = unsafe {
        [
            libc::ioctl(vm.as_raw_fd(), KVM_SET_GSI_ROUTING, &raw const routing),
            libc::ioctl(vm.as_raw_fd(), KVM_IRQFD, &raw const request),
        ]
    };
    assert_eq!(done, [0, 0], "{}", std::io::Error::last_os_error());
    eventfd
}

/// Makes the test binary able to be a guest.
#[macro_export]
macro_rules! guest_process {
    () => {
        #[test]
        fn guest_process() {
            $crate::common::guest::main();
        }
    };
}

/// A running guest process; killed when dropped.
pub struct Guest {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Guest {
    /// Starts a guest with one vCPU for each piece of work; none works before [`Guest::go`].
    pub fn start(work: &[Work], vcpu_names: bool) -> Self {
        Self::spawn(&mut Self::command(work, vcpu_names))
    }

    /// What [`Guest::start`] runs, for more settings: [`USER_ENV`], [`LOADS_ENV`].
    pub fn command(work: &[Work], vcpu_names: bool) -> Command {
        let words: Vec<_> = work.iter().map(|w| w.word()).collect();
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command
            .args([
                "guest_process",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ENV, words.join(","))
            .env(
                "KVMTOP_TEST_GUEST_NAMES",
                if vcpu_names { "1" } else { "0" },
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    /// Starts the guest of a command.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the test binary starts itself");
        let to = child.stdin.take().expect("stdin");
        let from = BufReader::new(child.stdout.take().expect("stdout"));
        let mut guest = Self { child, to, from };
        guest.wait_for("guest ready");
        guest
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the vCPUs work.
    pub fn go(&mut self) {
        self.to.write_all(b"go\n").expect("the guest listens");
    }

    /// Orders endless vCPUs to rest at their next exit to user space.
    pub fn rest(&mut self) {
        self.to.write_all(b"rest\n").expect("the guest listens");
    }

    /// Interrupts vCPU 0 `times` times in this way, each time after it has handled the previous
    /// interrupt and could sleep again.
    pub fn interrupt(&mut self, way: Way, times: u32) {
        self.to
            .write_all(format!("{way:?} {times}\n").as_bytes())
            .expect("the guest listens");
        self.wait_for("guest interrupted");
    }

    /// Waits until every counted piece of work is done. The process lives on.
    pub fn wait_done(&mut self) {
        self.wait_for("guest done");
    }

    /// Lets the process end.
    pub fn end(mut self) {
        let _ = self.to.write_all(b"end\n");
        let _ = self.child.wait();
    }

    fn wait_for(&mut self, what: &str) {
        let mut line = String::new();
        while self.from.read_line(&mut line).expect("the guest speaks") > 0 {
            // The test harness writes text before the first line.
            if line.trim_end().ends_with(what) {
                return;
            }
            line.clear();
        }
        panic!("the guest ended before it said '{what}'");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The guest process itself; returns at once where this is an ordinary test run.
pub fn main() {
    let Ok(words) = std::env::var(ENV) else {
        return;
    };
    let names = std::env::var("KVMTOP_TEST_GUEST_NAMES").is_ok_and(|v| v == "1");
    let kvm = Kvm::new().expect("/dev/kvm");
    if let Ok(user) = std::env::var(USER_ENV) {
        become_user(user.parse().expect("a number"));
    }
    if let Ok(ms) = std::env::var(LOADS_ENV) {
        std::fs::write("/proc/self/comm", "qemu-system-x86").expect("a name");
        let until = Instant::now() + Duration::from_millis(ms.parse().expect("a number"));
        while Instant::now() < until {}
    }
    let vm = kvm.create_vm().expect("a VM");
    let work: Vec<Work> = words.split(',').map(Work::parse).collect();
    // Only then: with it, the kernel and not this process would serve the HLT of the others.
    let interrupted = work.iter().any(|w| matches!(w, Work::Interrupted(_)));
    if interrupted || work.contains(&Work::CountedApic) {
        vm.create_irq_chip().expect("an interrupt controller");
    }
    let size = MEMORY;
    let shared = std::env::var_os(MEMORY_ENV).map(|path| {
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .expect("the file for the memory")
    });
    let (kind, fd) = match &shared {
        Some(file) => (libc::MAP_SHARED, std::os::fd::AsRawFd::as_raw_fd(file)),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a fresh mapping, never unmapped while the process lives; KVM and this function are
    // its only users.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            kind,
            fd,
            0,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED);
    for (i, w) in work.iter().enumerate() {
        let code = w.code(i);
        // SAFETY: each vCPU's code has its own 256 bytes of the mapping.
        unsafe {
            let to = memory.cast::<u8>().add(LOAD as usize + i * 256);
            std::ptr::copy_nonoverlapping(code.as_ptr(), to, code.len());
        }
    }
    for vector in Way::ALL.map(Way::vector) {
        let handler = (LOAD as u16 + HANDLER).to_le_bytes();
        // SAFETY: the real-mode interrupt table is at the beginning of the mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(
                handler.as_ptr(),
                memory.cast::<u8>().add(4 * usize::from(vector)),
                2,
            );
        };
    }
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: size as u64,
        userspace_addr: memory as u64,
    };
    // SAFETY: the mapping outlives the VM.
    unsafe { vm.set_user_memory_region(region).expect("memory") };
    let go = std::sync::Barrier::new(work.len() + 1);
    let done = std::sync::Barrier::new(work.len() + 1);
    std::thread::scope(|scope| {
        for (i, w) in work.iter().copied().enumerate() {
            let vcpu = vm.create_vcpu(i as u64).expect("a vCPU");
            let (go, done) = (&go, &done);
            let name = if names {
                format!("CPU {i}/KVM")
            } else {
                "worker".into()
            };
            std::thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, move || {
                    go.wait();
                    run(vcpu, i, w, done);
                })
                .expect("a thread");
        }
        say("guest ready");
        expect("go");
        go.wait();
        done.wait();
        say("guest done");
        // SAFETY: aligned, within the mapping.
        let progress = unsafe { &*memory.cast::<AtomicU32>().add(PROGRESS / 4) };
        while handle_command(&vm, progress) {}
        std::process::exit(0);
    });
}

/// Becomes another user, with all threads.
pub fn become_user(user: u32) {
    // SAFETY: plain system calls; the C library changes all threads.
    let done = unsafe {
        [
            libc::setresgid(user, user, user),
            libc::setresuid(user, user, user),
        ]
    };
    assert_eq!(done, [0, 0], "{}", std::io::Error::last_os_error());
}

/// Does what the parent says; returns whether to continue.
fn handle_command(vm: &VmFd, progress: &AtomicU32) -> bool {
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    let order = line.trim();
    if let Some((way, times)) = order.split_once(' ') {
        let way = Way::ALL
            .into_iter()
            .find(|w| format!("{w:?}") == way)
            .expect("a way");
        interrupt(vm, progress, way, times.parse().expect("a number"));
        say("guest interrupted");
        return true;
    }
    REST.store(order == "rest", Ordering::Relaxed);
    matches!(order, "rest" | "work")
}

fn say(what: &str) {
    println!("{what}");
    std::io::stdout().flush().expect("the parent reads");
}

fn expect(what: &str) {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .expect("the parent speaks");
    if line.trim() != what {
        std::process::exit(0); // the parent is gone
    }
}

/// Limits a vCPU to a number of accesses per second: in bursts every five milliseconds, or one at a
/// time at low rates.
struct Pace {
    /// Accesses in a burst; `None`: as fast as it goes.
    burst: Option<u32>,
    period: Duration,
    left: u32,
    next: Instant,
}

impl Pace {
    fn new(work: Work) -> Self {
        let (burst, periods) = match work {
            Work::PacedReads(_, n) => (Some((n / 200).max(1)), n.clamp(1, 200)),
            _ => (None, 200),
        };
        let period = Duration::from_secs(1) / periods;
        Self {
            burst,
            period,
            left: burst.unwrap_or(0),
            next: Instant::now() + period,
        }
    }

    fn step(&mut self) {
        let Some(burst) = self.burst else { return };
        self.left -= 1;
        if self.left == 0 {
            std::thread::sleep(self.next.saturating_duration_since(Instant::now()));
            // What a busy machine did not let it do is not made up for.
            self.next = (self.next + self.period).max(Instant::now());
            self.left = burst;
        }
    }
}

/// Enables the local APIC. A separate function: its copies of the registers would take half of the
/// stack that a sample of `run` holds.
fn enable_apic(vcpu: &VcpuFd) {
    let mut lapic = vcpu.get_lapic().expect("the local APIC");
    // The spurious-interrupt vector register: enabled. LVT0 masked: the PIC does not reach this
    // vCPU.
    (lapic.regs[0xf0], lapic.regs[0xf1], lapic.regs[0x352]) = (-1, 1, 1);
    vcpu.set_lapic(&lapic).expect("the local APIC");
}

fn run(mut vcpu: VcpuFd, index: usize, work: Work, done: &std::sync::Barrier) {
    let mut s = vcpu.get_sregs().expect("sregs");
    (s.cs.base, s.cs.selector) = (0, 0);
    s.ds.base = work.data_base();
    if work == Work::TripleFault {
        // Protected mode with flat segments and an empty interrupt table.
        s.cr0 |= 1;
        s.idt.limit = 0;
        for segment in [&mut s.cs, &mut s.ds, &mut s.es, &mut s.ss] {
            (
                segment.base,
                segment.limit,
                segment.g,
                segment.db,
                segment.selector,
            ) = (0, u32::MAX, 1, 1, 8);
        }
    }
    vcpu.set_sregs(&s).expect("sregs");
    if matches!(work, Work::Interrupted(_)) {
        enable_apic(&vcpu);
    }
    let rip = LOAD + index as u64 * 256;
    vcpu.set_regs(&kvm_regs {
        rip,
        rflags: 2,
        ..kvm_regs::default()
    })
    .expect("regs");
    if work.is_endless() {
        done.wait();
    }
    if work == Work::RefusedRun {
        vcpu.get_kvm_run().kvm_valid_regs = u64::MAX;
    }
    let mut pace = Pace::new(work);
    loop {
        while REST.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let exit = match vcpu.run() {
            Err(_) if work == Work::RefusedRun => break,
            Err(stopped) if stopped.errno() == libc::EINTR => continue,
            exit => exit.expect("KVM_RUN"),
        };
        match exit {
            VcpuExit::Shutdown if work == Work::TripleFault => break,
            VcpuExit::InternalError if work == Work::UnknownInstruction => break,
            VcpuExit::IoIn(_, data) | VcpuExit::MmioRead(_, data) => {
                data.fill(0);
                pace.step();
            }
            VcpuExit::IoOut(..) | VcpuExit::MmioWrite(..) => {}
            VcpuExit::Hlt if work == Work::Idle => std::thread::sleep(Duration::from_millis(1)),
            VcpuExit::Hlt => break,
            other => panic!("unexpected exit {other:?}"),
        }
    }
    done.wait();
    // The thread must live on for its counters to be read.
    loop {
        std::thread::park();
    }
}
