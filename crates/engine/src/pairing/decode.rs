//! Decodes a tracepoint's raw record into [`TracedEvent`]s, by the `format` file of the kernel that wrote it.

use super::event::{EventKind, Task, TracedEvent};
use kvm::Space;
use kvm::exit_reason::{ReasonNames, arm64_code};
use kvm::format::{EventFormat, Field};
use kvm::isa::Isa;

/// The decoded tracepoints: group and name.
pub const EVENTS: [(&str, &str); 12] = [
    ("kvm", "kvm_exit"),
    ("kvm", "kvm_entry"),
    ("kvm", "kvm_pio"),
    ("kvm", "kvm_mmio"),
    ("kvm", "kvm_fast_mmio"),
    ("kvm", "kvm_msr"),
    ("kvm", "kvm_userspace_exit"),
    ("kvm", "kvm_vcpu_wakeup"),
    ("sched", "sched_migrate_task"),
    ("sched", "sched_waking"),
    ("sched", "sched_switch"),
    ("sched", "sched_process_exit"),
];

/// Bits of `common_flags`: the event came from a hardware or software interrupt (`include/linux/trace_events.h`,
/// `trace_flag_type`).
const IN_INTERRUPT: u64 = 0x08 | 0x10;
/// The task states in `prev_state`. The bit above them marks a preempted task (`include/trace/events/sched.h`,
/// `TASK_REPORT_MAX`).
const STATES: u64 = 0xff;

/// One sample of perf: thread, time, CPU, and the raw bytes, which begin with the `common_` fields.
#[derive(Debug, Clone, Copy)]
pub struct RawSample<'a> {
    /// Process id.
    pub pid: i32,
    /// Id of the running thread.
    pub tid: i32,
    /// Nanoseconds.
    pub time: u64,
    /// CPU.
    pub cpu: u32,
    /// The tracepoint's record.
    pub raw: &'a [u8],
}

/// Position and form of a number in a record.
#[derive(Debug, Clone, Copy)]
struct FieldSlot {
    offset: u16,
    size: u8,
    signed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Layout {
    Exit {
        reason: FieldSlot,
        isa: FieldSlot,
        vcpu: Option<FieldSlot>,
        info: Option<FieldSlot>,
    },
    ExitArm64 {
        ret: FieldSlot,
        esr_ec: FieldSlot,
    },
    Entry {
        vcpu: Option<FieldSlot>,
    },
    Pio {
        rw: FieldSlot,
        port: FieldSlot,
    },
    Mmio {
        kind: FieldSlot,
        gpa: FieldSlot,
    },
    /// A write to an ioeventfd, such as a virtio kick. `kvm_mmio` does not fire for it.
    FastMmio {
        gpa: FieldSlot,
    },
    Msr {
        write: FieldSlot,
        ecx: FieldSlot,
        exception: Option<FieldSlot>,
    },
    Userspace {
        reason: FieldSlot,
        errno: FieldSlot,
    },
    Halted {
        ns: FieldSlot,
    },
    Migrate {
        pid: FieldSlot,
        from: FieldSlot,
        to: FieldSlot,
    },
    Waking {
        flags: FieldSlot,
        pid: FieldSlot,
    },
    Ended,
    Switch {
        prev: FieldSlot,
        state: FieldSlot,
        next: FieldSlot,
        next_comm: Option<u16>,
    },
}

/// Decodes the records of one kernel.
#[derive(Debug, Clone, Default)]
pub struct EventDecoder {
    /// By event id.
    layouts: Vec<Option<Layout>>,
    names: ReasonNames,
    /// Whether `kvm_pio` is among them. Without it, ports are those that exits name.
    has_pio: bool,
}

impl EventDecoder {
    /// Adds the format of an event. Returns false if it is not one of [`EVENTS`] or lacks a required field.
    pub fn add_format(&mut self, format: &EventFormat) -> bool {
        let layout = u16::try_from(format.id).ok().zip(Layout::of(format));
        if let Some((id, layout)) = layout {
            let at = usize::from(id);
            if self.layouts.len() <= at {
                self.layouts.resize(at + 1, None);
            }
            self.layouts[at] = Some(layout);
            self.has_pio |= matches!(layout, Layout::Pio { .. });
            self.names.merge(&format.reason_names());
        }
        layout.is_some()
    }

    /// The names of exit reasons in the formats.
    pub fn reason_names(&self) -> &ReasonNames {
        &self.names
    }

    /// Whether no format was added.
    pub fn is_empty(&self) -> bool {
        self.layouts.is_empty()
    }

    /// Decodes the events of one record: none if it is unknown, too short or of no interest, two for a `sched_switch`
    /// and for an exit that names a port.
    pub fn decode(&self, sample: &RawSample, mut put: impl FnMut(TracedEvent)) {
        let mut emit = |tid: i32, pid: i32, kind: EventKind| {
            put(TracedEvent { tid, pid, time: sample.time, cpu: sample.cpu, kind });
        };
        let Some(layout) = self.layout(sample.raw) else { return };
        if let Layout::Switch { prev, state, next, next_comm } = layout {
            let (Some(prev), Some(state), Some(next)) =
                (prev.id(sample.raw), state.get(sample.raw), next.id(sample.raw))
            else {
                return;
            };
            let comm = next_comm.map_or([0; 16], |offset| text(sample.raw, offset));
            emit(prev, 0, EventKind::SwitchOut { runnable: state & STATES == 0, next: Task { tid: next, comm } });
            emit(next, 0, EventKind::SwitchIn);
        } else if let Some((tid, pid, kind)) = layout.kind(sample) {
            emit(tid, pid, kind);
            if !self.has_pio
                && let (Layout::Exit { info: Some(info), .. }, EventKind::Exit { isa, code, .. }) = (layout, kind)
                && let Some(access) = EventKind::port_of_exit(isa, code, info.get(sample.raw).unwrap_or_default())
            {
                emit(tid, pid, access);
            }
        }
    }

    fn layout(&self, raw: &[u8]) -> Option<Layout> {
        let id = u16::from_le_bytes(*raw.first_chunk()?);
        *self.layouts.get(usize::from(id))?
    }
}

impl Layout {
    /// The thread, its process and the event of a record.
    fn kind(self, sample: &RawSample) -> Option<(i32, i32, EventKind)> {
        let get = |slot: FieldSlot| slot.get(sample.raw);
        let number = |slot: FieldSlot| get(slot).map(|value| value as u32);
        let access = EventKind::access;
        let kind = match self {
            Self::Exit { reason, isa, vcpu, .. } => EventKind::Exit {
                isa: Isa::from_code(number(isa)?),
                code: number(reason)?,
                vcpu: vcpu.and_then(number),
            },
            Self::ExitArm64 { ret, esr_ec } => {
                EventKind::Exit { isa: Isa::Arm64, code: arm64_code(number(ret)?, number(esr_ec)?), vcpu: None }
            }
            Self::Entry { vcpu } => EventKind::Entry { vcpu: vcpu.and_then(number) },
            Self::Pio { rw, port } => access(Space::Pio, get(port)?, get(rw)? != 0, false),
            Self::Mmio { kind, gpa } => match get(kind)? {
                1 => access(Space::Mmio, get(gpa)?, false, false),
                2 => access(Space::Mmio, get(gpa)?, true, false),
                _ => return None,
            },
            Self::FastMmio { gpa } => access(Space::Mmio, get(gpa)?, true, false),
            Self::Msr { write, ecx, exception } => {
                access(Space::Msr, get(ecx)?, get(write)? != 0, exception.and_then(get).is_some_and(|fault| fault != 0))
            }
            Self::Userspace { reason, errno } => {
                let errno = number(errno)? as i32;
                EventKind::Userspace { reason: if errno < 0 { errno } else { number(reason)? as i32 } }
            }
            Self::Halted { ns } => EventKind::Halted { ns: get(ns)? },
            Self::Migrate { pid, from, to } => {
                return Some((pid.id(sample.raw)?, 0, EventKind::Migrated { from: number(from)?, to: number(to)? }));
            }
            Self::Waking { flags, pid } => {
                let tid = if get(flags)? & IN_INTERRUPT == 0 { sample.tid } else { 0 };
                return Some((pid.id(sample.raw)?, 0, EventKind::Waking { by: Task { tid, comm: [0; 16] } }));
            }
            Self::Ended => EventKind::Ended,
            Self::Switch { .. } => return None,
        };
        Some((sample.tid, sample.pid, kind))
    }

    fn of(format: &EventFormat) -> Option<Self> {
        let slot = |name: &str| format.field(name).and_then(FieldSlot::of);
        Some(match format.name.as_str() {
            "kvm_exit" if slot("esr_ec").is_some() => Self::ExitArm64 { ret: slot("ret")?, esr_ec: slot("esr_ec")? },
            "kvm_exit" => Self::Exit {
                reason: slot("exit_reason")?,
                isa: slot("isa")?,
                vcpu: slot("vcpu_id"),
                info: slot("info1"),
            },
            "kvm_entry" => Self::Entry { vcpu: slot("vcpu_id") },
            "kvm_pio" => Self::Pio { rw: slot("rw")?, port: slot("port")? },
            "kvm_mmio" => Self::Mmio { kind: slot("type")?, gpa: slot("gpa")? },
            "kvm_fast_mmio" => Self::FastMmio { gpa: slot("gpa")? },
            "kvm_msr" => Self::Msr { write: slot("write")?, ecx: slot("ecx")?, exception: slot("exception") },
            "kvm_userspace_exit" => Self::Userspace { reason: slot("reason")?, errno: slot("errno")? },
            "kvm_vcpu_wakeup" => Self::Halted { ns: slot("ns")? },
            "sched_migrate_task" => Self::Migrate { pid: slot("pid")?, from: slot("orig_cpu")?, to: slot("dest_cpu")? },
            // The thread that ends is the one that runs (kernel/exit.c, `do_exit`).
            "sched_process_exit" => Self::Ended,
            "sched_waking" => Self::Waking { flags: slot("common_flags")?, pid: slot("pid")? },
            "sched_switch" => Self::Switch {
                prev: slot("prev_pid")?,
                state: slot("prev_state")?,
                next: slot("next_pid")?,
                next_comm: format
                    .field("next_comm")
                    .filter(|field| !field.is_data_loc && field.size == 16)
                    .and_then(|field| u16::try_from(field.offset).ok()),
            },
            _ => return None,
        })
    }
}

impl FieldSlot {
    fn of(field: &Field) -> Option<Self> {
        (matches!(field.size, 1 | 2 | 4 | 8) && !field.is_data_loc).then_some(())?;
        Some(Self { offset: u16::try_from(field.offset).ok()?, size: field.size as u8, signed: field.signed })
    }

    /// The value, sign-extended if it is signed.
    fn get(self, raw: &[u8]) -> Option<u64> {
        let bytes = raw.get(usize::from(self.offset)..)?;
        let value = match self.size {
            4 => u32::from_le_bytes(*bytes.first_chunk()?).into(),
            8 => u64::from_le_bytes(*bytes.first_chunk()?),
            2 => u16::from_le_bytes(*bytes.first_chunk()?).into(),
            _ => u64::from(*bytes.first()?),
        };
        let shift = 64 - 8 * u32::from(self.size);
        Some(if self.signed { ((value << shift).cast_signed() >> shift).cast_unsigned() } else { value })
    }

    /// The id of a thread.
    fn id(self, raw: &[u8]) -> Option<i32> {
        self.get(raw).map(|value| value as i32)
    }
}

fn text(raw: &[u8], offset: u16) -> [u8; 16] {
    let bytes = raw.get(usize::from(offset)..).and_then(|rest| rest.first_chunk::<16>());
    bytes.copied().unwrap_or_default()
}
