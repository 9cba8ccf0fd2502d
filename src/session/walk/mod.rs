//! The one description of a [`Sample`] on disk: a walk over all of its numbers that writes or reads them.
//!
//! Every struct is taken apart without `..`, so that a field added to the sample does not compile until it is recorded.
//! A change of the walk is a new schema version: the old order of numbers stays readable behind a question for the version.

mod domain;
mod events;
mod grain;
mod growth;
mod host;
mod timing;
mod timing_1;

pub use grain::Grain;

use super::coder::Coder;
use super::memory::{Kind, mix};
use super::range::Way;
use super::row::{RowCoder, TICK_NS};
use crate::sample::{EngineKind, EngineLevel, EngineStatus, OwnCost, Sample, SourceId, SourceState, SourceStatus};

/// Goes over a sample. Facts of host and guests are references: `coder.facts` holds that of the host, then one a domain.
pub fn sample<W: Way>(c: &mut Coder<'_, W>, s: &mut Sample) {
    let id = mix(0, Kind::Sample, &[]);
    let passed = clocks(c, s);
    let Sample { time_ms: _, mono_ns: _, boot_ns: _, host, domains, engine, sources, own } = s;
    let mut row = c.row(Kind::Sample, id).at(3);
    own_cost(&mut row, own);
    engine_status(&mut row, engine);
    let sentence = |s: &Option<String>| s.as_deref().map(str::to_string);
    c.list(
        Kind::Source,
        id,
        sources,
        |s, names| {
            let SourceStatus { id, state, cause, fix } = s;
            [names.number(id.as_str()), *state as u64, names.maybe(cause.as_deref()), names.maybe(fix.as_deref())]
        },
        |k, names| SourceStatus {
            id: source_id(&names.text(k[0])),
            state: STATES.get(k[1] as usize).copied().unwrap_or_default(),
            cause: sentence(&names.text_maybe(k[2])),
            fix: sentence(&names.text_maybe(k[3])),
        },
        |_, _, _| {},
    );
    host::host(c, id, passed, host);
    domain::domains(c, id, domains);
}

/// The source of a name.
fn source_id(name: &str) -> SourceId {
    use serde::{Deserialize, de::IntoDeserializer, de::value::Error};
    let known: Result<SourceId, Error> = SourceId::deserialize(name.into_deserializer());
    known.unwrap_or(SourceId::Session)
}

/// The clocks stand first in every frame, so that times can be read without the rest. Answers with the time since the sample
/// before, nanoseconds.
pub fn clocks<W: Way>(c: &mut Coder<'_, W>, s: &mut Sample) -> u64 {
    let mut row = c.row(Kind::Sample, mix(0, Kind::Sample, &[]));
    let before = (row.last(0), row.last(1), row.last(2));
    row.counter(&mut s.mono_ns);
    let passed = s.mono_ns.wrapping_sub(before.0);
    row.foreseen(before.1.wrapping_add(passed), &mut s.boot_ns);
    let mut ms = s.time_ms as u64;
    row.foreseen(before.2.wrapping_add(passed.wrapping_add(500_000) / 1_000_000), &mut ms);
    s.time_ms = ms as i64;
    passed
}

const STATES: [SourceState; 3] = [SourceState::Ok, SourceState::Degraded, SourceState::Missing];

fn own_cost<W: Way>(row: &mut RowCoder<'_, W>, own: &mut OwnCost) {
    let OwnCost { cpu_ns, rss_bytes } = own;
    row.counter(cpu_ns);
    row.counter(rss_bytes);
}

fn engine_status<W: Way>(row: &mut RowCoder<'_, W>, e: &mut EngineStatus) {
    let EngineStatus { kind, level, generation, lost, overflow, fires_kvm_exit, events, program_ns } = e;
    row.choice(kind, &[EngineKind::Bpf, EngineKind::Perf, EngineKind::None, EngineKind::File]);
    row.choice(level, &[EngineLevel::None, EngineLevel::Counts, EngineLevel::Full]);
    row.u32(generation);
    row.counter(lost);
    row.counter(overflow);
    row.choice(fires_kvm_exit, &[None, Some(false), Some(true)]);
    row.counter(events);
    row.maybe(program_ns, RowCoder::counter);
}
