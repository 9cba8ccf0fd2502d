//! What most rules use: the context, findings and their fixes, and the row of a rule.

pub(super) use super::context::Context;
pub(super) use super::context::guest::{GuestContext, NO_VCPUS};
pub(super) use super::context::totals::EventTotals;
pub(super) use super::engine::finding::{
    Audience, Confidence, Finding, Fix, MAX_PROBLEM, Mark, Severity, Target, known, worst, worst_of,
};
pub(super) use super::engine::hold::Hold;
pub(super) use super::engine::prose::Prose;
pub(super) use super::engine::thresholds::thresholds;
pub(super) use super::fixes::isolation::Isolation;
pub(super) use super::fixes::placement::{guest_placement, placement};
pub(super) use super::rule::Check::{self, Behaviour, Host, Setup};
pub(super) use super::rule::{Rule, RuleDoc};
pub(super) use super::rule_id::RuleId;
pub(super) use super::verdicts::Verdicts;
pub(super) use super::{fixes, links};
pub(super) use crate::figures::{duration, figure, or_unknown};
pub(super) use crate::model::{AccessRow, ExitKind, ThreadModel, total};
pub(super) use crate::placement::{HelperLayout, MoveReason, faults};
pub(super) use kvm::thread_name::Role;
pub(super) use kvm::{CpuSet, Isa, Space};
pub(super) use sample::Direction;
