//! What a command runs with: options win over the config file, which wins over the defaults.

use super::args::{ChoiceArgs, EngineChoice, SamplingArgs, ScreenArgs};
use super::config::Config;
use crate::ui::EngineDetail;
use crate::ui::ScreenSettings;
use ::live::MonitorUse;
use judge::analysis::DomainFilter;
use judge::lint;
use session::Limits;
use std::path::PathBuf;
use std::time::Duration;

/// What a command runs with.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Time between two samples.
    pub interval: Duration,
    /// How exits are counted.
    pub engine: EngineChoice,
    /// The QEMU monitors that kvmtop may ask.
    pub monitor: MonitorUse,
    /// The libvirt connection to use; `None`: libvirt's own choice.
    pub libvirt_uri: Option<String>,
    /// Whether every kvm tracepoint is counted.
    pub kvm_events: bool,
    /// What is traced beyond exits and the scheduler.
    pub engine_detail: Vec<EngineDetail>,
    /// Which guests are selected.
    pub domains: DomainFilter,
    /// Which findings are reported, and from which figures on.
    pub findings: lint::Options,
    /// What the screen begins with.
    pub screen: ScreenSettings,
    /// The config file that the user named.
    pub config_file: Option<PathBuf>,
    /// Limits of a recording.
    pub limits: Limits,
}

/// The values of an option, or those of the config file where it was not given.
fn given_or<T: Clone>(given: &[T], file: &[T]) -> Vec<T> {
    if given.is_empty() { file } else { given }.to_vec()
}

impl Settings {
    /// Merges options and config file; a command without an option uses the config file's value.
    pub fn new(
        config: &Config,
        sampling: Option<&SamplingArgs>,
        choice: &ChoiceArgs,
        screen: Option<&ScreenArgs>,
    ) -> Self {
        let none = SamplingArgs::default();
        let of_screen = match screen {
            Some(_) => config.screen.interval.map(Duration::from_secs_f64),
            None => None,
        };
        let given = sampling.unwrap_or(&none);
        let file = &config.sampling;
        let warn = given_or(&choice.warn, &config.findings.warn);
        let allow = given_or(&choice.allow, &config.findings.allow);
        let rules = lint::Options::default();
        Self {
            interval: given
                .interval
                .or(of_screen)
                .or(file.interval)
                .unwrap_or(Duration::from_secs(1)),
            engine: given.engine.or(file.engine).unwrap_or_default(),
            monitor: monitor_use(given, file),
            libvirt_uri: given
                .libvirt_uri
                .clone()
                .or_else(|| file.libvirt_uri.clone()),
            kvm_events: file.kvm_events || given.kvm_events,
            engine_detail: [&file.engine_detail[..], &given.engine_detail].concat(),
            domains: DomainFilter {
                patterns: given_or(&choice.domains, &file.domains),
            },
            findings: lint::Options {
                thresholds: config.thresholds,
                warn: warn.into_iter().collect(),
                allow: allow.into_iter().collect(),
                startup_guard_s: config
                    .findings
                    .startup_guard
                    .unwrap_or(rules.startup_guard_s),
                resume_guard_s: config.findings.resume_guard.unwrap_or(rules.resume_guard_s),
                ..rules
            },
            screen: ScreenSettings {
                ascii: screen.is_some_and(|screen| screen.ascii),
                theme: screen.and_then(|screen| screen.theme).unwrap_or_default(),
                choices: config.screen.clone(),
            },
            config_file: choice.config.clone(),
            limits: Limits {
                size: config.record.max_size,
                age: config.record.max_age,
            },
        }
    }
}

/// The monitors that the options, else the config file, let kvmtop ask.
fn monitor_use(given: &SamplingArgs, file: &SamplingArgs) -> MonitorUse {
    if given.no_monitor {
        return MonitorUse::Never;
    }
    if given.monitor {
        return MonitorUse::ThroughLibvirt;
    }
    match file.monitor_in_file {
        Some(true) => MonitorUse::ThroughLibvirt,
        Some(false) => MonitorUse::Never,
        None => MonitorUse::OwnSocket,
    }
}
