//! The names of the rules.

use schemars::JsonSchema;
use serde::Serialize;
use strum::{Display, IntoStaticStr};

/// A rule by its name. Names never change: JSON, the config file, `--warn` and `--allow` use them.
///
/// The variants are in the order of their names, by which findings of equal weight are sorted.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    JsonSchema,
    Display,
    IntoStaticStr,
)]
#[expect(
    missing_docs,
    reason = "the table of rules says what each of them sees"
)]
#[serde(rename_all = "kebab-case")]
#[schemars(with = "String")]
#[strum(serialize_all = "kebab-case")]
pub enum RuleId {
    /// All rules, where none of them can be judged.
    #[default]
    #[serde(rename = "*")]
    #[strum(serialize = "*")]
    Every,
    AbnormalExit,
    AcpiPmTimer,
    AffinityDrift,
    ApicvInhibited,
    AvicInhibitedByPit,
    CpuModel,
    DeviceProperties,
    DiskErrors,
    DiskFlushes,
    DiskLatency,
    DiskQueue,
    DiskSetup,
    DiskThrottled,
    EmulatedDevice,
    EmulatorOnVcpu,
    FaultLoop,
    GuestKilled,
    GuestLimits,
    GuestMemoryShort,
    GuestStopped,
    GuestSwappedIn,
    GuestTickStorm,
    HaltPollBurn,
    HostCpusStarved,
    HostDiskSlow,
    HostFrequency,
    HostInterrupts,
    HostLinkFull,
    HostLockup,
    HostMemoryPressure,
    HostSteal,
    HostTaskHog,
    HpetClock,
    HpetIdleCost,
    HypervTscPage,
    IdleWakeups,
    IoPressureNotReal,
    IpiStorm,
    IrqfdKworker,
    IsolatedNoise,
    IsolatedPileUp,
    JobNotConverging,
    JobStalled,
    LapicMmio,
    LegacyPortPolling,
    MainLoopBusy,
    MemoryStall,
    NestedGuest,
    NicDrops,
    NoKvm,
    NumaSplit,
    Overcommit,
    PauseLoops,
    PinOverlap,
    PinnedNotIsolated,
    PitTimer,
    QuotaThrottled,
    RealtimeVcpu,
    RtcTick,
    SerialBurst,
    SiblingContention,
    SlowStorage,
    SmtMismatch,
    Stage2Faults,
    StorageFilling,
    UnhandledMsr,
    VcpuMigrating,
    VcpuWait,
    VirtioIntx,
    VirtioKicks,
    WakeupLatency,
    WindowsEnlightenments,
}

impl RuleId {
    /// The name in JSON and on the screen.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
