//! The command line as clap sees it. Doc comments here are the help: `-h` shows the first line,
//! `--help` all of it.

use super::{file_values, values};
use crate::ui::{EngineDetail, ThemeChoice};
use clap::{Args, Parser, Subcommand, ValueEnum};
use judge::analysis::{Pattern, RecordingTime};
use judge::lint::{self, RuleId};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The end of `-h`.
const HINT: &str = "Try:  kvmtop --batch -n 1     one look at every guest, as text\nMore: kvmtop \
                    --help";

/// The end of `--help`. A test parses the examples.
const LONG_HINT: &str = "\
Examples:
  kvmtop                            the live screen
  kvmtop --domain 'web-*' -d 0.5    guests whose name begins with web-, twice a second
  kvmtop --batch -n 1               one look at every guest, as text
  kvmtop --batch --json -n 60       a minute as JSON, one object a line
  kvmtop check --duration 30s       what is wrong on this host; scripts read the exit status
  kvmtop report perf.data.guest     read a file of `perf kvm stat record`
  kvmtop report vmexit.txt win10.xml --duration 10s
                                    a table of perf and the guest that it is from
  kvmtop report --html night.html night.kvmtop
                                    a page with charts, for a colleague without kvmtop
  kvmtop diff before/ after/        did the change help?
  kvmtop record night.kvmtop --duration 8h --max-size 500M
                                    record a night
  kvmtop replay night.kvmtop --at 03:10
                                    look at it the next day
  kvmtop plan                       where all guests should run, and the commands
  kvmtop profile web-1              what QEMU and the kernel do for this guest
  kvmtop doctor                     what this host hides from kvmtop, and how to enable it
  kvmtop export                     metrics for Prometheus on http://127.0.0.1:9753/metrics

What percentages are relative to:
  CPU usr, sys, guest, wait   one host CPU: 8 busy vCPUs show 800. usr excludes guest time;
                              wait is runnable but not running (the guest sees it as steal)
  exits, count%               all exits of the guest
  exits, time%                the time in all of its exits, from kvm_exit to kvm_entry, with
                              sleep
  exits, work%                the same without exits in which the guest sleeps (HLT, WFx)
  accesses, time%             the time in all exits of the guest; in a perf or trace file, the
                              time in that table. An access counts the whole exit that
                              served it
  host CPUs                   that CPU's time: busy is the interval less its idle time, by the
                              kernel's clock; timer ticks split it into usr, sys, guest, irq
Batch intervals show exits and accesses for up to 4 guests, or for those that --domain selects.

Exit status: 0 done, 1 an error (reported on stderr), 2 wrong usage; see also `kvmtop check --help`.
Config file: $XDG_CONFIG_HOME/kvmtop/config.toml (~/.config), else /etc/kvmtop.toml. Options win.";

/// The screen a KVM host's admin opens first when a guest is slow.
///
/// One top-like screen shows how much CPU time each guest's threads use, why its vCPUs exit, which
/// devices own the addresses that it accesses most, and where its vCPUs run. Without a command,
/// kvmtop shows the live screen.
#[derive(Debug, Parser)]
#[command(
    name = "kvmtop",
    version,
    after_help = HINT,
    after_long_help = LONG_HINT,
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
pub struct Cli {
    /// The command; without one, the live screen.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// `--batch` and its options.
    #[command(flatten)]
    pub batch: BatchArgs,
    /// How to sample.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Which guests and findings.
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// How to draw.
    #[command(flatten)]
    pub screen: ScreenArgs,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record samples into a session file, until the duration ends or Ctrl-C
    Record(RecordArgs),
    /// Show a recorded session on the screen: pause, step, seek, speed
    Replay(ReplayArgs),
    /// Read files instead of a live host: exits, accesses, threads, findings
    Report(ReportArgs),
    /// Compare two inputs: what changed, and what is noise
    Diff(DiffArgs),
    /// Plan where all guests should run on this host, or on one that files describe
    Plan(PlanArgs),
    /// Watch this host for a while and print what is wrong
    Check(CheckArgs),
    /// Sample what a guest's host threads do: the functions that take their CPU time
    Profile(ProfileArgs),
    /// Print what this host hides from kvmtop, and how to enable it
    Doctor(DoctorArgs),
    /// Serve metrics to Prometheus, until Ctrl-C
    Export(ExportArgs),
    /// Show a recording of real guests that ships with kvmtop
    Demo(DemoArgs),
}

/// How a live host is sampled. The config file has the same settings.
#[derive(Debug, Default, PartialEq, Args, Deserialize)]
#[command(next_help_heading = "Sampling")]
#[serde(default, deny_unknown_fields)]
pub struct SamplingArgs {
    /// Seconds between samples, 0.1 to 60 [default: 1]
    #[arg(
        short = 'd', long, value_name = "SECONDS", value_parser = values::interval,
        allow_negative_numbers = true
    )]
    #[serde(deserialize_with = "file_values::interval")]
    pub interval: Option<Duration>,
    /// How exits are counted [default: auto]
    ///
    /// auto takes the first engine that this host allows.
    #[arg(long, value_enum, value_name = "ENGINE", hide_default_value = true)]
    pub engine: Option<EngineChoice>,
    /// Also ask the QEMU monitor of libvirt's guests, which marks their domains as tainted
    ///
    /// The monitor names the device behind an address (`info mtree -f`, once after each start of a
    /// guest). Through libvirt this marks the domain as tainted (custom-monitor) until it restarts,
    /// so it is not asked by default. A guest's own QMP socket is asked without this option, and
    /// marks nothing.
    #[arg(long, overrides_with = "no_monitor")]
    #[serde(skip)]
    pub monitor: bool,
    /// Never talk to any QEMU monitor (devices are then named from tables)
    #[arg(long, overrides_with = "monitor")]
    #[serde(skip)]
    pub no_monitor: bool,
    /// `--monitor` (true) or `--no-monitor` (false), in the config file.
    #[arg(skip)]
    #[serde(rename = "monitor")]
    pub monitor_in_file: Option<bool>,
    /// The libvirt connection to use [default: libvirt's own choice]
    #[arg(long, value_name = "URI")]
    pub libvirt_uri: Option<String>,
    /// Only these guests, in the config file; the option is one of [`ChoiceArgs`].
    #[arg(skip)]
    #[serde(deserialize_with = "file_values::patterns")]
    pub domains: Vec<Pattern>,
    /// Also count every kvm tracepoint for each guest
    #[arg(long)]
    pub kvm_events: bool,
    /// What to trace beyond exits and the scheduler; each costs the guests something
    ///
    /// disks: what the host's block devices take for the guests' requests. A guest's page and the
    /// list of disks trace it while they are open.
    ///
    /// interrupts: what interrupts vCPUs, and how long it is on its way. A guest's page and the
    /// view of latency trace it while they are open.
    #[arg(long, value_enum, value_name = "DETAIL", value_delimiter = ',')]
    pub engine_detail: Vec<EngineDetail>,
}

/// Which guests and which findings.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Selection")]
pub struct ChoiceArgs {
    /// Only these guests: a glob on the name, a UUID or a PID; repeatable
    #[arg(long = "domain", value_name = "PATTERN", value_parser = Pattern::new)]
    pub domains: Vec<Pattern>,
    /// Raise the severity of these findings by one step
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = rule)]
    pub warn: Vec<RuleId>,
    /// Hide these findings; `all` hides all but those of --warn
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = rule_or_all)]
    pub allow: Vec<RuleId>,
    /// Read this config file instead of the usual one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Intervals as text or JSON instead of a screen.
#[derive(Debug, Args)]
#[command(next_help_heading = "Without a screen")]
pub struct BatchArgs {
    /// Print each interval as a text table
    #[arg(short, long)]
    pub batch: bool,
    /// One JSON object a line instead of tables (with --batch)
    #[arg(long, requires = "batch")]
    pub json: bool,
    /// Comma-separated values instead of tables: a line for each guest, or, with =wide, one for each
    /// interval as `esxtop -b` and perfmon have it (with --batch)
    #[arg(
        long, value_name = "FORM", requires = "batch", conflicts_with = "json", value_enum,
        num_args = 0..=1, default_missing_value = "long", require_equals = true
    )]
    pub csv: Option<CsvForm>,
    /// Columns of the list for --csv, by the names that filters use: cpu,mem,disk
    #[arg(long, value_name = "NAMES", requires = "csv", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Stop after N intervals (with --batch)
    #[arg(
        short = 'n', long = "count", value_name = "N", requires = "batch",
        value_parser = values::count
    )]
    pub count: Option<u64>,
}

/// How to draw.
#[derive(Debug, Args)]
#[command(next_help_heading = "Screen")]
pub struct ScreenArgs {
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Colours: auto, dark, light, 16 or mono (as with the variable `NO_COLOR`) [default: auto]
    ///
    /// auto looks at TERM, COLORTERM and COLORFGBG. No theme uses what the terminal lacks.
    #[arg(long, value_enum, value_name = "THEME", hide_possible_values = true)]
    pub theme: Option<ThemeChoice>,
}

/// `kvmtop record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The session file to write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// How long to record, such as 10m [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub duration: Option<Duration>,
    /// Limits of the recording.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// How to sample.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Which guests.
    #[command(flatten)]
    pub choice: ChoiceArgs,
}

/// Limits of a recording. The config file has the same settings.
#[derive(Debug, Default, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitArgs {
    /// Limit the size, such as 500M; the oldest samples go first
    ///
    /// A recording with a limit is FILE and its older parts FILE.1, FILE.2, …: copy and delete them
    /// together.
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    #[serde(deserialize_with = "file_values::size")]
    pub max_size: Option<u64>,
    /// Limit the age of samples, such as 7d; the oldest go first
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    #[serde(deserialize_with = "file_values::age")]
    pub max_age: Option<Duration>,
}

/// `kvmtop replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A session file of `kvmtop record` or the key r
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Begin at 14:03, 2026-11-21T14:03, +10m (from the start) or -10m
    #[arg(long, value_name = "TIME", value_parser = RecordingTime::parse,
          allow_hyphen_values = true)]
    pub at: Option<RecordingTime>,
    /// Without a screen.
    #[command(flatten)]
    pub batch: BatchArgs,
    /// Which guests and findings.
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// How to draw.
    #[command(flatten)]
    pub screen: ScreenArgs,
}

/// How files are read.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Reading")]
pub struct InputArgs {
    /// The time that a text table covers, such as 10s (tables omit it)
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub duration: Option<Duration>,
    /// How many vCPUs the guest of a text table has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub vcpus: Option<u32>,
    /// Read one interval of a session: 14:03, +10m or -10m [default: all]
    #[arg(
        long, value_name = "TIME", value_parser = RecordingTime::parse,
        allow_hyphen_values = true, conflicts_with_all = ["from", "to"]
    )]
    pub at: Option<RecordingTime>,
    /// Read a session from this time on; in diff, AFTER alone
    #[arg(
        long, value_name = "TIME", value_parser = RecordingTime::parse, allow_hyphen_values = true
    )]
    pub from: Option<RecordingTime>,
    /// Read a session up to this time; in diff, BEFORE alone: two parts of one session can be
    /// compared
    #[arg(
        long, value_name = "TIME", value_parser = RecordingTime::parse, allow_hyphen_values = true
    )]
    pub to: Option<RecordingTime>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl InputArgs {
    /// Whether a part of a session is selected.
    pub fn has_time(&self) -> bool {
        self.at.or(self.from).or(self.to).is_some()
    }
}

const INPUTS: &str = "\
A file is the output of one tool, as that tool wrote it; its first lines tell
which. A folder means all its files:
  a recording of kvmtop                    perf.data of `perf kvm stat record`
  text of `perf kvm stat report|live`      trace-cmd report, ftrace, perf script
  `kvm_stat`, `kvm_stat -1`, `kvm_stat -l` `info mtree` of QEMU
  a libvirt domain XML (or status XML)     a Proxmox .conf, `qm config`
  a QEMU command line of a shell, `ps`, libvirt's log or `qm showcmd`
  `lscpu`, `lscpu -e`, -p, `numactl -H`    `virsh capabilities`
  a kernel log
Files given together are of one host. They are joined by the guest's name or
UUID, or because there is only one guest.";

/// `kvmtop report`.
#[derive(Debug, Args)]
#[command(after_long_help = INPUTS)]
pub struct ReportArgs {
    /// Files or folders; --help lists what can be read
    #[arg(value_name = "INPUT", required = true)]
    pub inputs: Vec<PathBuf>,
    /// Write one self-contained HTML page to FILE
    ///
    /// Findings, tables, and charts of everything over time. The page loads nothing from the
    /// network, so it can be mailed or attached to a ticket. It is about as private as the
    /// recording: it holds the guests' names.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub html: Option<PathBuf>,
    /// How to read them.
    #[command(flatten)]
    pub reading: InputArgs,
    /// Which guests and findings.
    #[command(flatten)]
    pub choice: ChoiceArgs,
}

/// `kvmtop diff`.
#[derive(Debug, Args)]
#[command(after_long_help = INPUTS)]
pub struct DiffArgs {
    /// Baseline: a file or folder
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// What to compare with it: a file or folder
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// How to read them.
    #[command(flatten)]
    pub reading: InputArgs,
    /// Which guests and findings.
    #[command(flatten)]
    pub choice: ChoiceArgs,
}

/// `kvmtop plan`.
///
/// One placement for all guests: the host's CPUs before and after, why each thread moves, and the
/// commands and XML to get there. Nothing is applied. What is placed well stays.
#[derive(Debug, Args)]
#[command(after_long_help = INPUTS)]
pub struct PlanArgs {
    /// Files or folders that describe a host and its guests, as for report [default: this host]
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// How to read them.
    #[command(flatten)]
    pub reading: InputArgs,
    /// How to sample.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Which guests.
    #[command(flatten)]
    pub choice: ChoiceArgs,
}

const CHECK_STATUS: &str = "Exit status: 0 nothing found, 1 warnings, 2 critical findings, 3 could \
not look, saw too little to tell, wrong usage, or nobody reads the result.";

/// `kvmtop check`.
#[derive(Debug, Args)]
#[command(after_help = CHECK_STATUS)]
pub struct CheckArgs {
    /// How long to watch, such as 30s [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub duration: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print each rule's name and what it sees, and exit
    #[arg(long, conflicts_with = "json")]
    pub list_rules: bool,
    /// How to sample.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Which guests and findings.
    #[command(flatten)]
    pub choice: ChoiceArgs,
}

const FLAME: &str = "\
The text shows the threads that ran, the functions with the most time of their own, and who called \
whom.
Folded stacks are for programs that draw flame graphs, such as inferno-flamegraph and speedscope.";

/// `kvmtop profile`.
///
/// Samples where the threads of a guest's process on the host are, 199 times for each second of CPU
/// time that they use: what QEMU and the kernel do, such as polling a timer, compressing a display
/// or writing a log. Time in the guest is shown as `[guest]`. Nothing stays attached at the end.
#[derive(Debug, Args)]
#[command(after_long_help = FLAME)]
pub struct ProfileArgs {
    /// A guest (name, glob, UUID or PID) or one of its threads (TID)
    #[arg(value_name = "GUEST|TID", value_parser = Pattern::new)]
    pub target: Pattern,
    /// How long to sample, such as 30s
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "5s")]
    pub duration: Duration,
    /// Print folded stacks, for flame graphs
    #[arg(long, conflicts_with = "json")]
    pub folded: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `kvmtop export`.
///
/// OpenMetrics over HTTP, on a separate thread: /metrics has counters that begin when kvmtop first
/// sees a guest, and /healthz says whether samples are taken. docs/metrics.md lists them,
/// docs/fleet.md shows many hosts. For TLS and passwords, put a reverse proxy before it.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The address and port to serve on
    #[arg(
        long, value_name = "ADDRESS", default_value = "127.0.0.1:9753",
        value_parser = values::listen
    )]
    pub listen: SocketAddr,
    /// Counters of each vCPU instead of all vCPUs of a guest together
    #[arg(long)]
    pub per_vcpu: bool,
    /// How to sample.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Which guests.
    #[command(flatten)]
    pub choice: ChoiceArgs,
}

/// `kvmtop doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// How to sample.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Read this config file instead of the usual one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `kvmtop demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Without a screen.
    #[command(flatten)]
    pub batch: BatchArgs,
    /// Which guests and findings.
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// How to draw.
    #[command(flatten)]
    pub screen: ScreenArgs,
}

/// `--csv`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CsvForm {
    /// A line for each guest and interval
    Long,
    /// A line for each interval
    Wide,
}

/// `--engine`.
#[derive(Debug, Clone, Copy, Default, PartialEq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// bpf where possible, else perf, else none
    #[default]
    Auto,
    /// Counted inside the kernel by BPF programs: cheapest
    Bpf,
    /// Tracepoints through perf rings
    Perf,
    /// No tracing: KVM's own counters and /proc
    None,
}

/// The name of a rule.
///
/// # Errors
/// A sentence, for any other name.
pub fn rule(name: &str) -> Result<RuleId, String> {
    let rule = lint::rule(name).map(|rule| rule.id);
    rule.ok_or_else(|| "there is no such rule; `kvmtop check --list-rules` lists them".to_owned())
}

/// The name of a rule, or `all`.
///
/// # Errors
/// As [`rule`].
pub fn rule_or_all(name: &str) -> Result<RuleId, String> {
    if name == "all" {
        Ok(RuleId::Every)
    } else {
        rule(name)
    }
}
