//! Decodes a tracepoint's raw record into [`TracedEvent`]s, by the `format` file of the kernel that
//! wrote it.

use super::event::{EventKind, LeftFor, Task, TracedEvent};
use kvm::Space;
use kvm::exit_reason::{ReasonNames, arm64_code};
use kvm::format::{EventFormat, Field};
use kvm::isa::Isa;

/// Bits of `common_flags`: the event came from a hardware or software interrupt
/// (`include/linux/trace_events.h`, `trace_flag_type`).
const INTERRUPT_FLAGS: u64 = 0x08 | 0x10;
/// The task states in `prev_state`. The bit above them marks a preempted task
/// (`include/trace/events/sched.h`, `TASK_REPORT_MAX`).
const STATE_MASK: u64 = 0xff;
/// The most fields that an event is decoded from.
const MAX_FIELDS: usize = 4;

/// A tracepoint and how its record is decoded.
pub struct Tracepoint {
    /// The group, such as `kvm`.
    pub group: &'static str,
    /// The name.
    pub name: &'static str,
    /// The names of its fields; a `?` precedes a field that a kernel may lack. If the first field
    /// is the id of a thread, the event is about that thread, else about the thread that ran.
    fields: &'static str,
    decode: Decode,
}

/// What happened, by a record; `None` where it is of no interest.
type Decode = fn(&Record<'_>) -> Option<EventKind>;

/// The decoded tracepoints. In a function, `r.number(1)` is the second of the fields that the text
/// before the function names.
pub const EVENTS: [Tracepoint; 12] = [
    kvm("kvm_exit", "exit_reason isa ?vcpu_id ?info1", |r| {
        Some(EventKind::Exit {
            isa: Isa::from_code(r.number(1)?),
            code: r.number(0)?,
            vcpu: r.number(2),
        })
    }),
    kvm("kvm_entry", "?vcpu_id", |r| {
        Some(EventKind::Entry { vcpu: r.number(0) })
    }),
    kvm("kvm_pio", "port rw", |r| {
        r.access(Space::Pio, r.get(1)? != 0)
    }),
    kvm("kvm_mmio", "gpa type", |r| match r.get(1)? {
        kind @ (1 | 2) => r.access(Space::Mmio, kind == 2),
        _ => None,
    }),
    // A write to an ioeventfd, such as a virtio kick. `kvm_mmio` does not fire for it.
    kvm("kvm_fast_mmio", "gpa", |r| r.access(Space::Mmio, true)),
    kvm("kvm_msr", "ecx write ?exception", |r| {
        r.access(Space::Msr, r.get(1)? != 0)
    }),
    kvm("kvm_userspace_exit", "reason errno", |r| {
        let errno = r.number(1)?.cast_signed();
        Some(EventKind::Userspace {
            reason: if errno < 0 {
                errno
            } else {
                r.number(0)?.cast_signed()
            },
        })
    }),
    kvm("kvm_vcpu_wakeup", "ns", |r| {
        Some(EventKind::Halted { ns: r.get(0)? })
    }),
    sched("sched_migrate_task", "pid orig_cpu dest_cpu", |r| {
        Some(EventKind::Migrated {
            from: r.number(1)?,
            to: r.number(2)?,
        })
    }),
    sched("sched_waking", "pid common_flags", |r| {
        let tid = if r.get(1)? & INTERRUPT_FLAGS == 0 {
            r.tid
        } else {
            0
        };
        Some(EventKind::Waking {
            by: Task { tid, comm: [0; 16] },
        })
    }),
    sched(
        "sched_switch",
        "prev_pid prev_state next_pid ?next_comm",
        |r| {
            let next = Task {
                tid: r.number(2)?.cast_signed(),
                comm: r.text(3),
            };
            Some(EventKind::SwitchOut {
                to: LeftFor::from_state(r.get(1)? & STATE_MASK),
                next,
            })
        },
    ),
    // The thread that ends is the one that runs (kernel/exit.c, `do_exit`).
    sched("sched_process_exit", "", |_| Some(EventKind::Ended)),
];

/// `kvm_exit` of arm64.
const ARM64_EXIT: Tracepoint = kvm("kvm_exit", "ret esr_ec", |r| {
    Some(EventKind::Exit {
        isa: Isa::Arm64,
        code: arm64_code(r.number(0)?, r.number(1)?),
        vcpu: None,
    })
});

const fn kvm(name: &'static str, fields: &'static str, decode: Decode) -> Tracepoint {
    Tracepoint {
        group: "kvm",
        name,
        fields,
        decode,
    }
}

const fn sched(name: &'static str, fields: &'static str, decode: Decode) -> Tracepoint {
    Tracepoint {
        group: "sched",
        name,
        fields,
        decode,
    }
}

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

/// Position and form of a field in a record.
#[derive(Debug, Clone, Copy)]
struct RecordField {
    offset: u16,
    size: u8,
    signed: bool,
}

/// The fields of an event in the records of one kernel, in the order of [`Tracepoint::fields`].
type RecordFields = [Option<RecordField>; MAX_FIELDS];

/// How the records of an event are decoded on one kernel.
#[derive(Debug, Clone, Copy)]
struct Layout {
    fields: RecordFields,
    /// Whether the first field is the id of the thread that the event is about.
    names_thread: bool,
    decode: Decode,
}

/// A record being decoded.
struct Record<'a> {
    fields: RecordFields,
    raw: &'a [u8],
    /// The thread that ran.
    tid: i32,
}

/// Decodes the records of one kernel.
#[derive(Debug, Clone, Default)]
pub struct EventDecoder {
    /// By event id.
    layouts: Vec<Option<Layout>>,
    /// The names of exit reasons in the formats.
    pub names: ReasonNames,
    /// Whether the formats have `kvm_pio`. Without that event, accesses to ports come from the
    /// exits that name a port.
    has_pio: bool,
}

impl EventDecoder {
    /// Adds the format of an event. Returns false if it is not one of [`EVENTS`] or lacks a
    /// required field.
    pub fn add_format(&mut self, format: &EventFormat) -> bool {
        let layout = EVENTS
            .iter()
            .chain([&ARM64_EXIT])
            .find_map(|event| Layout::from_format(event, format));
        let (Some(layout), Ok(id)) = (layout, u16::try_from(format.id)) else {
            return false;
        };
        let id = usize::from(id);
        if self.layouts.len() <= id {
            self.layouts.resize(id + 1, None);
        }
        self.layouts[id] = Some(layout);
        self.has_pio |= format.name == "kvm_pio";
        // A name that is known already stays.
        let known_names = std::mem::replace(&mut self.names, format.reason_names());
        self.names.extend(known_names);
        true
    }

    /// Whether no format was added.
    pub fn is_empty(&self) -> bool {
        self.layouts.is_empty()
    }

    /// Decodes the events of one record: none if the record is unknown, too short or of no
    /// interest; two for a `sched_switch` and for an exit that names a port.
    pub fn decode(&self, sample: &RawSample, mut put: impl FnMut(TracedEvent)) {
        let id = sample.raw.first_chunk().map(|id| u16::from_le_bytes(*id));
        let Some(Some(layout)) = id.and_then(|id| self.layouts.get(usize::from(id))) else {
            return;
        };
        let record = Record {
            fields: layout.fields,
            raw: sample.raw,
            tid: sample.tid,
        };
        let Some(kind) = (layout.decode)(&record) else {
            return;
        };
        let mut event = TracedEvent {
            tid: sample.tid,
            pid: sample.pid,
            time: sample.time,
            cpu: sample.cpu,
            kind,
        };
        if layout.names_thread {
            let Some(tid) = record.number(0) else {
                return;
            };
            event.tid = tid.cast_signed();
            event.pid = 0;
        }
        put(event);
        match kind {
            EventKind::SwitchOut { next, .. } => put(TracedEvent {
                tid: next.tid,
                kind: EventKind::SwitchIn,
                ..event
            }),
            EventKind::Exit { isa, code, .. } if !self.has_pio => {
                // `info1`, the fourth field of `kvm_exit`.
                if let Some(info) = record.get(3)
                    && let Some(kind) = EventKind::port_of_exit(isa, code, info)
                {
                    put(TracedEvent { kind, ..event });
                }
            }
            _ => {}
        }
    }
}

impl Layout {
    /// `None` if this is the format of another event, or lacks a field.
    fn from_format(point: &Tracepoint, format: &EventFormat) -> Option<Self> {
        if point.name != format.name {
            return None;
        }
        let mut fields = [None; MAX_FIELDS];
        for (field, word) in fields.iter_mut().zip(point.fields.split_whitespace()) {
            let name = word.trim_start_matches('?');
            *field = format.field(name).and_then(RecordField::from_format);
            let is_optional = word != name;
            if field.is_none() && !is_optional {
                return None;
            }
        }
        Some(Self {
            fields,
            names_thread: matches!(point.fields.split(' ').next(), Some("pid" | "prev_pid")),
            decode: point.decode,
        })
    }
}

impl Record<'_> {
    fn get(&self, index: usize) -> Option<u64> {
        self.fields[index]?.get(self.raw)
    }

    /// The lower half of a number.
    fn number(&self, index: usize) -> Option<u32> {
        self.get(index).map(|value| value as u32)
    }

    /// The name of a task; zeros where the field is no such name.
    fn text(&self, index: usize) -> [u8; 16] {
        let field = self.fields[index].filter(|field| field.size == 16);
        let bytes =
            field.and_then(|field| self.raw.get(usize::from(field.offset)..)?.first_chunk());
        bytes.copied().unwrap_or_default()
    }

    /// An access to the address in the first field; the third says whether it raised a fault.
    fn access(&self, space: Space, write: bool) -> Option<EventKind> {
        Some(EventKind::access(
            space,
            self.get(0)?,
            write,
            self.get(2).is_some_and(|fault| fault != 0),
        ))
    }
}

impl RecordField {
    fn from_format(field: &Field) -> Option<Self> {
        if field.is_data_loc || !matches!(field.size, 1 | 2 | 4 | 8 | 16) {
            return None;
        }
        Some(Self {
            offset: u16::try_from(field.offset).ok()?,
            size: field.size as u8,
            signed: field.signed,
        })
    }

    /// The number, sign-extended if it is signed.
    fn get(self, raw: &[u8]) -> Option<u64> {
        let bytes = raw.get(usize::from(self.offset)..)?;
        let value = match self.size {
            4 => u32::from_le_bytes(*bytes.first_chunk()?).into(),
            8 => u64::from_le_bytes(*bytes.first_chunk()?),
            2 => u16::from_le_bytes(*bytes.first_chunk()?).into(),
            1 => u64::from(*bytes.first()?),
            _ => return None,
        };
        let shift = 64 - 8 * u32::from(self.size);
        Some(if self.signed {
            ((value << shift).cast_signed() >> shift).cast_unsigned()
        } else {
            value
        })
    }
}
