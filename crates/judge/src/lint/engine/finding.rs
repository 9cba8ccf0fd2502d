//! What a rule reports: a finding with its evidence and a fix to paste.

use crate::lint::rule_id::RuleId;
use kvm::Space;
use sample::Direction;
use serde::{Serialize, Serializer};
use std::fmt;
use strum::{Display, IntoStaticStr};

/// How much a finding matters, from mild to severe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Display, IntoStaticStr)]
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
        match self {
            Self::Info => Self::Warning,
            Self::Warning | Self::Critical => Self::Critical,
        }
    }
}

/// The worst of several severities; `None` when none of them is set.
pub(crate) fn worst(all: impl IntoIterator<Item = Option<Severity>>) -> Option<Severity> {
    all.into_iter().flatten().max()
}

/// How certain the cause is, from least to most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Display, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Confidence {
    /// The figures only suggest the cause; the text says what to look at next.
    Low,
    /// The figures fit this cause far better than any other.
    #[default]
    Medium,
    /// The figures show the cause itself.
    High,
}

impl Confidence {
    /// The word on screen and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The host as a whole.
    Host,
    /// The guest as a whole.
    #[default]
    Domain,
    /// One vCPU of the guest.
    Vcpu(u32),
    /// One thread of the guest.
    Thread(i32),
    /// One CPU of the host.
    Pcpu(u32),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Domain => f.write_str("domain"),
            Self::Vcpu(n) => write!(f, "vcpu {n}"),
            Self::Thread(tid) => write!(f, "thread {tid}"),
            Self::Pcpu(n) => write!(f, "pcpu {n}"),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What kind of text a fix is, and so where it is pasted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, IntoStaticStr)]
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

/// One thing to do. kvmtop never does it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Fix {
    /// What the text is.
    pub kind: FixKind,
    /// The text to paste, or the advice.
    pub text: String,
    /// What makes it effective, or what it costs: a power cycle of the guest, a reboot of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
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
}

/// How steadily a finding held lately, on a running host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lasting {
    /// Whether it has held for longer than a recording is looked back on; its beginning is not known then.
    pub is_longer: bool,
    /// For how many seconds of the last [`Lasting::of_s`] the pattern showed.
    pub shown_s: f64,
    /// Seconds since it began, at most a minute.
    pub of_s: f64,
    /// How many seconds ago the interval ended that the evidence is of; 0 if it is this one.
    pub ago_s: f64,
    /// The decisive figure of the interval in the last minute in which it was worst, if it is another one.
    pub worst: Option<String>,
}

/// Which finding it is, from one interval to the next. The worst CPU or thread may be another one in each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FindingId {
    /// The rule.
    pub rule: RuleId,
    /// The guest.
    pub domain: Option<String>,
    /// What kind of thing it is about.
    about: u8,
    /// The other guest on a CPU.
    other: Option<String>,
}

/// Something that is wrong, or that costs performance needlessly. `report::document` holds its JSON form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Finding {
    /// The rule's name, as in the table of rules.
    pub rule: RuleId,
    /// How much it matters.
    pub severity: Severity,
    /// How sure the cause is.
    pub confidence: Confidence,
    /// The guest; `None` for a finding about the host.
    pub domain: Option<String>,
    /// Other guests that it concerns.
    pub also: Vec<String>,
    /// Which part of the guest or host it is about.
    pub target: Target,
    /// One line.
    pub title: String,
    /// The figures that made it fire, each with unit and window, and a command that shows them without kvmtop.
    pub evidence: Vec<String>,
    /// Why these figures point to this cause.
    pub why: String,
    /// What to do, best first.
    pub fix: Vec<Fix>,
    /// Public documents about the cause.
    pub see: Vec<String>,
    /// What it costs now, percent of one host CPU; `None` when unknown.
    pub cost: Option<f64>,
    /// When it was first seen, milliseconds since the Unix epoch; `None` for files and configuration.
    pub since_ms: Option<i64>,
    /// How steadily it held; `None` for files and configuration.
    pub lasting: Option<Lasting>,
    /// Other rules that fired for the same cause and are part of this finding.
    pub folded: Vec<RuleId>,
    /// The table cells that made it fire.
    pub marks: Vec<Mark>,
}

impl Finding {
    /// Which finding it is, from one interval to the next.
    pub fn id(&self) -> FindingId {
        let (about, other) = match self.target {
            Target::Host => (0, None),
            Target::Domain => (1, None),
            Target::Vcpu(_) => (2, None),
            Target::Thread(_) => (3, None),
            Target::Pcpu(_) => (4, self.also.first().cloned()),
        };
        FindingId { rule: self.rule, domain: self.domain.clone(), about, other }
    }

    /// The first fix's text: what `y` copies.
    pub fn paste(&self) -> Option<&str> {
        self.fix.iter().find(|f| f.kind != FixKind::Advice).or(self.fix.first()).map(|f| f.text.as_str())
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
}

/// Whether a line of evidence is a command that shows the same without kvmtop: after "check: " one whose output
/// `kvmtop report` reads, after "look at: " one for the reader's own eyes.
pub fn is_command(evidence: &str) -> bool {
    evidence.starts_with("check: ") || evidence.starts_with("look at: ")
}

/// The order of a list of findings: worst first, then most costly, then most certain; a stable order among equals.
pub fn order(a: &Finding, b: &Finding) -> std::cmp::Ordering {
    b.severity
        .cmp(&a.severity)
        .then_with(|| b.cost.unwrap_or(0.0).total_cmp(&a.cost.unwrap_or(0.0)))
        .then_with(|| b.confidence.cmp(&a.confidence))
        .then_with(|| (&a.domain, a.rule, a.target).cmp(&(&b.domain, b.rule, b.target)))
}

/// The order on a running host, in which nothing moves while the same findings hold: worst first, then the oldest.
pub(crate) fn steady_order(a: &Finding, b: &Finding) -> std::cmp::Ordering {
    b.severity
        .cmp(&a.severity)
        .then_with(|| a.since_ms.cmp(&b.since_ms))
        .then_with(|| (a.id(), a.target).cmp(&(b.id(), b.target)))
}
