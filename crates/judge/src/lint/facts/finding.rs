//! What a rule reports: a finding with its evidence and a fix to paste.

use super::{EventTotals, RuleId, is_plain_name};
use crate::figures;
pub use crate::model::Confidence;
use crate::model::ThreadModel;
use kvm::Space;
use sample::Direction;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use strum::{Display, IntoStaticStr};

// Input is hostile: a few bytes of it name thousands of vCPUs or guests, and a report that lists
// all of them for each grows with the square of the input.
/// The most findings of one interval.
pub(crate) const MAX_FINDINGS: usize = 16_384;
/// The most text in all findings of one interval, bytes.
pub(crate) const MAX_TEXT: usize = 64 << 20;
/// The most lines of evidence of one finding, not counting the commands that check it.
const MAX_EVIDENCE: usize = 32;
/// The most characters of [`Finding::problem`].
pub(crate) const MAX_PROBLEM: usize = 26;
/// The most characters of a line of evidence.
const MAX_CHARS: usize = 2000;
/// The most other guests that one finding names.
const MAX_GUESTS: usize = 1024;
/// The most cells that one finding marks.
const MAX_MARKS: usize = 16_384;

/// How much a finding matters, from mild to severe.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    JsonSchema,
    Display,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; costs little or nothing now.
    #[default]
    Info,
    /// Costs the guest or the host performance that a fix recovers.
    Warning,
    /// Ruins the guest's or the host's performance.
    Critical,
}

impl Severity {
    /// The word on screen and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// One level higher; critical stays critical.
    pub(crate) const fn raised(self) -> Self {
        if matches!(self, Self::Info) {
            Self::Warning
        } else {
            Self::Critical
        }
    }
}

/// The worst of several candidates by severity, then by figure; the first of equal ones.
pub(crate) fn worst_of<T>(
    all: impl IntoIterator<Item = (Severity, f64, T)>,
) -> Option<(Severity, f64, T)> {
    all.into_iter()
        .reduce(|a, b| if (b.0, b.1) > (a.0, a.1) { b } else { a })
}

/// Those of several lines of evidence or fixes that there are.
pub(crate) fn known<T>(all: impl IntoIterator<Item = Option<T>>) -> Vec<T> {
    all.into_iter().flatten().collect()
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Display)]
#[schemars(with = "String")]
#[strum(serialize_all = "lowercase")]
pub enum Target {
    /// The host as a whole.
    Host,
    /// The guest as a whole.
    #[default]
    Domain,
    /// One vCPU of the guest.
    #[strum(to_string = "vcpu {0}")]
    Vcpu(u32),
    /// One thread of the guest.
    #[strum(to_string = "thread {0}")]
    Thread(i32),
    /// One CPU of the host.
    #[strum(to_string = "pcpu {0}")]
    Pcpu(u32),
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What kind of text a fix is, and so where it is pasted.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum FixKind {
    /// Elements of the domain's XML, from the child of `<domain>` downwards, for `virsh edit`.
    LibvirtXml,
    /// A command for the host's shell.
    Command,
    /// Options for the host's kernel command line.
    KernelOption,
    /// Options for QEMU's command line, for a guest that libvirt does not run.
    QemuOption,
    /// Something to do, without a text to paste.
    #[default]
    Advice,
}

impl FixKind {
    /// The word on screen and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Whom a fix that is a command, a kernel option or advice is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Audience {
    /// Everyone.
    #[default]
    Everyone,
    /// Guests of libvirt.
    Libvirt,
    /// Guests of QEMU.
    Qemu,
}

/// One thing to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub struct Fix {
    /// Where the text is pasted: `virsh edit`, the host's shell, the host's kernel command line,
    /// QEMU's command line; or nowhere.
    pub kind: FixKind,
    /// The text to paste, or the advice.
    pub text: String,
    /// What it takes to become effective, or what it costs. Absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// The commands that undo it. Absent: it is no command, or needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// The guest whose XML or QEMU options it changes, or in which the command runs. Absent: the
    /// host, or the text names the guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Whom it is for.
    #[serde(skip)]
    pub audience: Audience,
}

/// A table cell that made the finding fire, for panels to highlight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The row of this exit reason.
    Exit(String),
    /// The row of this port, address or MSR; `None`: the overflow cell.
    Access(Space, Option<u64>, Direction),
    /// A CPU of the host.
    Pcpu(u32),
    /// A thread of the guest, by its id.
    Thread(i32),
    /// A vCPU of the guest.
    Vcpu(u32),
    /// A disk of the guest, by its name.
    Disk(String),
    /// A block device of the host, by its name.
    HostDisk(String),
    /// A network interface of the guest, by its name on the host.
    Nic(String),
}

/// How steadily a finding held on a running host or in a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Lasting {
    /// Whether the finding is older than `since`: a recording is looked back on for a minute.
    pub is_longer: bool,
    /// For how many of the last `of_s` seconds it showed.
    pub shown_s: f64,
    /// Seconds since it began, at most 60.
    pub of_s: f64,
    /// How many seconds ago the interval ended that the evidence is of. 0: this interval.
    pub ago_s: f64,
}

/// Which finding it is, from one interval to the next. The worst CPU or thread may be another one
/// in each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FindingId {
    /// The rule.
    pub rule: RuleId,
    /// The guest.
    pub domain: Option<String>,
    /// The other guest on a CPU.
    other: Option<String>,
}

/// What a rule found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Name of the rule; docs/rules.md lists them.
    pub rule: RuleId,
    /// `critical` ruins performance, `warning` costs what could be saved, `info` is worth knowing.
    pub severity: Severity,
    /// How sure the cause is. `low`: the evidence only suggests it; the text says what to look at
    /// next.
    pub confidence: Confidence,
    /// The guest. `null`: the host.
    pub domain: Option<String>,
    /// Other guests that it is about. Absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub also: Vec<String>,
    /// What it is about: `host`, `domain`, `vcpu N`, `thread TID`, `pcpu N`.
    #[schemars(extend("pattern" = "^(host|domain|(vcpu|thread|pcpu) [0-9]+)$"))]
    pub target: Target,
    /// One line.
    pub title: String,
    /// What is wrong, in at most 26 ASCII characters.
    #[serde(skip)]
    pub problem: String,
    /// The figures that made the rule fire, with units, the most telling first.
    pub evidence: Vec<String>,
    /// Why these figures mean this cause.
    pub why: String,
    /// What to do, best first. kvmtop applies nothing.
    pub fix: Vec<Fix>,
    /// Documents of libvirt, QEMU and the kernel.
    #[schemars(inner(url))]
    pub see: Vec<String>,
    /// What it costs, percent of one host CPU. Absent: not known.
    #[serde(rename = "cost_percent", skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Since when it has been true: RFC 3339, UTC. Absent: not known, as for files and
    /// configuration.
    #[serde(
        rename = "since",
        serialize_with = "utc",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since_ms: Option<i64>,
    /// How steadily it held. The evidence comes from the newest interval in which it showed.
    /// Absent: files and configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasting: Option<Lasting>,
    /// Other rules that fired for the same cause and are part of this finding. Absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub folded: Vec<RuleId>,
    /// The table cells that made it fire.
    #[serde(skip)]
    pub marks: Vec<Mark>,
    /// Whether it stands above others of its severity, whatever those cost: it can lose data, or
    /// makes a whole configuration useless.
    #[serde(skip)]
    pub comes_first: bool,
}

/// A finding's title and explanation.
#[derive(Clone, Copy)]
pub(crate) struct Prose {
    /// One line, the guest or host as its subject.
    pub title: &'static str,
    /// The title in at most 26 characters; empty: the rule's.
    pub problem: &'static str,
    /// Why the evidence points to this cause, and what it costs.
    pub why: &'static str,
}

#[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
fn utc<S: Serializer>(ms: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    ms.and_then(figures::utc).serialize(serializer)
}

impl Fix {
    /// Where its text is pasted, with the guest: `virsh edit web-1`, `QEMU option of web-1`, `run`.
    pub fn place(&self) -> String {
        let guest = self.domain.as_deref().unwrap_or("the guest");
        match self.kind {
            FixKind::LibvirtXml if self.is_for_creator() => {
                format!("XML that {guest} is created from")
            }
            FixKind::LibvirtXml if is_plain_name(guest) => format!("virsh edit {guest}"),
            FixKind::LibvirtXml => format!("XML of {guest}"),
            FixKind::Command if self.domain.is_some() => format!("run inside {guest}"),
            FixKind::Command => "run".into(),
            FixKind::KernelOption => "kernel command line".into(),
            FixKind::QemuOption => format!("QEMU option of {guest}"),
            FixKind::Advice => "advice".into(),
        }
    }
}

impl Finding {
    /// A finding with the title, explanation and links of its rule.
    pub(crate) fn new(
        severity: Severity,
        confidence: Confidence,
        evidence: Vec<String>,
        fix: Vec<Fix>,
    ) -> Self {
        Self {
            severity,
            confidence,
            evidence,
            fix,
            ..Self::default()
        }
    }

    /// The same in other words.
    pub(crate) fn saying(self, prose: Prose) -> Self {
        Self {
            title: prose.title.into(),
            problem: prose.problem.into(),
            why: prose.why.into(),
            ..self
        }
    }

    /// The same with what these events cost and where they are shown.
    pub(crate) fn caused_by(self, events: EventTotals) -> Self {
        Self {
            cost: events.cost,
            marks: events.marks,
            ..self
        }
    }

    /// The same about a vCPU, which is marked.
    pub(crate) fn about_vcpu(self, thread: &ThreadModel) -> Self {
        let marks = thread
            .index
            .map(Mark::Vcpu)
            .into_iter()
            .chain(self.marks)
            .collect();
        Self {
            target: Target::Vcpu(thread.index.unwrap_or_default()),
            marks,
            ..self
        }
    }

    /// Which finding it is, from one interval to the next.
    pub fn id(&self) -> FindingId {
        let other = match self.target {
            Target::Pcpu(_) => self.also.first().cloned(),
            _ => None,
        };
        FindingId {
            rule: self.rule,
            domain: self.domain.clone(),
            other,
        }
    }

    /// The fix that is handed out: the first with a text to paste, or else the first advice.
    pub fn first_fix(&self) -> Option<&Fix> {
        self.fix
            .iter()
            .find(|f| f.kind != FixKind::Advice)
            .or(self.fix.first())
    }

    /// The guests that it is about; `the host` if none.
    pub fn subjects(&self) -> String {
        let guests: Vec<&str> = self
            .domain
            .iter()
            .chain(&self.also)
            .map(String::as_str)
            .collect();
        if guests.is_empty() {
            "the host".into()
        } else {
            guests.join(", ")
        }
    }

    /// The first piece of evidence: the decisive figure.
    pub fn figure(&self) -> Option<&str> {
        self.evidence.first().map(String::as_str)
    }

    /// Whether it concerns this guest, alone or with others.
    pub fn concerns(&self, guest: &str) -> bool {
        self.domain.as_deref() == Some(guest) || self.also.iter().any(|name| name == guest)
    }

    /// Whether this finding reports a rule: its own or one that is part of it.
    pub fn covers(&self, rule: RuleId) -> bool {
        self.rule == rule || self.folded.contains(&rule)
    }

    /// The finding with its lists cut to a readable length; what is left out is counted.
    pub(crate) fn limited(mut self) -> Self {
        let guests = self.also.len().saturating_sub(MAX_GUESTS);
        let lines = self.evidence.len().saturating_sub(MAX_EVIDENCE);
        self.also.truncate(MAX_GUESTS);
        self.evidence.truncate(MAX_EVIDENCE);
        if guests + lines > 0 {
            self.evidence
                .push(format!("and {lines} more such lines, {guests} more guests"));
        }
        self.evidence.iter_mut().for_each(shorten);
        self.marks.truncate(MAX_MARKS);
        self
    }

    /// The length of its texts, bytes.
    pub(crate) fn text_len(&self) -> usize {
        let lists = self
            .evidence
            .iter()
            .chain(&self.also)
            .chain(self.fix.iter().map(|f| &f.text));
        self.title.len() + self.why.len() + lists.map(String::len).sum::<usize>()
    }
}

/// Whether a line of evidence says where to look next, by commands, where the cause is not certain.
pub fn is_command(evidence: &str) -> bool {
    evidence.starts_with("look at: ")
}

/// A finding of unknown cost comes between those that cost less and more, percent of one CPU.
const UNKNOWN_COST: f64 = 2.0;
/// Findings that have held for a while and whose costs lie between the same two of these keep their
/// order.
const COST_STEPS: [f64; 4] = [UNKNOWN_COST, 10.0, 30.0, 100.0];

/// The order of a list of findings: worst first, what `comes_first`, then by steps of the cost, the
/// oldest first; those of unknown age by cost and confidence.
pub fn order(a: &Finding, b: &Finding) -> std::cmp::Ordering {
    let [cost_a, cost_b] = [a, b].map(|f| f.cost.unwrap_or(UNKNOWN_COST));
    let [step_a, step_b] =
        [cost_a, cost_b].map(|cost| COST_STEPS.iter().filter(|step| cost >= **step).count());
    let weight_a = (a.severity, a.comes_first, step_a);
    let weight_b = (b.severity, b.comes_first, step_b);
    let mut order = weight_b.cmp(&weight_a);
    order = order.then(a.since_ms.cmp(&b.since_ms));
    if a.since_ms.is_none() {
        order = order.then(cost_b.total_cmp(&cost_a));
        order = order.then(b.confidence.cmp(&a.confidence));
    }
    order.then_with(|| (a.id(), a.target).cmp(&(b.id(), b.target)))
}

/// Cuts a line that is too long.
fn shorten(line: &mut String) {
    if let Some((at, _)) = line.char_indices().nth(MAX_CHARS) {
        line.truncate(at);
        line.push('…');
    }
}

/// Adds what is not there yet.
pub(crate) fn join<T: PartialEq>(into: &mut Vec<T>, from: Vec<T>) {
    for x in from {
        if !into.contains(&x) {
            into.push(x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_what_is_left_out_is_counted() {
        let mut evidence: Vec<String> = (0..100).map(|i| format!("vCPU {i}")).collect();
        evidence.insert(1, "x".repeat(3 * MAX_CHARS));
        let also = (0..MAX_GUESTS + 7).map(|i| i.to_string()).collect();
        let finding = Finding {
            also,
            evidence,
            ..Finding::default()
        }
        .limited();
        assert_eq!(finding.evidence.len(), MAX_EVIDENCE + 1);
        let tail: Vec<_> = finding
            .evidence
            .iter()
            .skip(MAX_EVIDENCE)
            .map(String::as_str)
            .collect();
        assert_eq!(tail, ["and 69 more such lines, 7 more guests"]);
        assert_eq!(finding.evidence[1].chars().count(), MAX_CHARS + 1);
        assert_eq!(finding.also.len(), MAX_GUESTS);
        let few = Finding {
            evidence: vec!["a".into(), "look at: b".into(), "c".into()],
            ..Finding::default()
        }
        .limited();
        assert_eq!(few.evidence, ["a", "look at: b", "c"]);
    }
}
