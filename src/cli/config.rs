//! The config file. Every key has a default. An unknown key is an error: it is probably misspelt,
//! and dropping it silently would be worse. `assets/kvmtop.toml` shows all keys, and a test checks
//! that it equals the defaults.

use super::args::{self, LimitArgs, SamplingArgs};
use super::file_values::each;
use super::values;
use crate::ui::ScreenChoices;
use anyhow::Context;
use judge::lint::{RuleId, Thresholds};
use rustix::process::geteuid;
use serde::{Deserialize, Deserializer};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The config file for all users of a host.
pub const SYSTEM: &str = "/etc/kvmtop.toml";

/// The content of a config file.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How a live host is sampled.
    pub sampling: SamplingArgs,
    /// Limits of a recording.
    pub record: LimitArgs,
    /// Which findings are reported.
    pub findings: Findings,
    /// The figures from which findings are reported.
    pub thresholds: Thresholds,
    /// How the live screen begins.
    #[serde(deserialize_with = "screen")]
    pub screen: ScreenChoices,
}

/// Which findings are reported, and when.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Findings {
    /// Rules whose findings are one severity higher.
    #[serde(deserialize_with = "rules")]
    pub warn: Vec<RuleId>,
    /// Rules whose findings are hidden.
    #[serde(deserialize_with = "rules_or_all")]
    pub allow: Vec<RuleId>,
    /// Seconds after a guest's start in which its behaviour is not judged.
    pub startup_guard: Option<f64>,
    /// Seconds after a resume or an incoming migration in which its behaviour is not judged.
    pub resume_guard: Option<f64>,
}

impl Config {
    /// Parses a config file's text; `path` is only for the error.
    ///
    /// # Errors
    /// The file, the line and what was expected there.
    pub fn parse(text: &str, path: &Path) -> anyhow::Result<Self> {
        toml::from_str(text).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))
    }
}

/// The config file to read: the one the user asked for, else the user's own, else the system's;
/// `None` if there is none.
fn find(
    asked: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
    exists: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    if let Some(asked) = asked {
        return Some(asked.to_owned());
    }
    let user = user_folder(&variable).map(|folder| folder.join("config.toml"));
    let mut usual = user.into_iter().chain([PathBuf::from(SYSTEM)]);
    usual.find(|path| exists(path))
}

/// The folder of the user's own config file; `None` if the environment names no home.
fn user_folder(variable: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = match absolute(variable("XDG_CONFIG_HOME")) {
        Some(folder) => folder,
        None => absolute(variable("HOME"))?.join(".config"),
    };
    Some(folder.join("kvmtop"))
}

/// A path from the environment, which the XDG specification wants absolute.
fn absolute(path: Option<OsString>) -> Option<PathBuf> {
    path.map(PathBuf::from).filter(|path| path.is_absolute())
}

/// A config file is no longer than this.
const MAX_BYTES: u64 = 1 << 20;

/// Writes how the live screen begins into the config file that the user named, else into the
/// user's own: in place of the section that is there, or below the rest. Answers the file.
///
/// # Errors
/// There is no folder for it, it is wrong, or it cannot be written.
pub fn write_screen(asked: Option<&Path>, choices: &ScreenChoices) -> anyhow::Result<PathBuf> {
    let path = match asked {
        Some(asked) => asked.to_owned(),
        None => user_folder(&|name| std::env::var_os(name))
            .context("nothing is written: neither HOME nor XDG_CONFIG_HOME names a folder")?
            .join("config.toml"),
    };
    let before = match read_found(&path, asked) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let text = with_screen(&before, &choices.to_toml());
    // What would not be read again is not written.
    Config::parse(&text, &path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let new = path.with_extension("toml.new");
    std::fs::create_dir_all(folder)
        .and_then(|()| replace(&path, &new, &text))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Replaces a file by way of a new one beside it, never through a link that somebody laid there
/// (`O_EXCL` follows none, open(2)): HOME may be another user's.
fn replace(path: &Path, new: &Path, text: &str) -> std::io::Result<()> {
    // Of a run that was killed.
    match std::fs::remove_file(new) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    File::create_new(new)?.write_all(text.as_bytes())?;
    std::fs::rename(new, path)
}

/// A config file's text with this section `[screen]`.
fn with_screen(before: &str, section: &str) -> String {
    let mut text = String::new();
    let mut is_kept = true;
    for line in before.lines() {
        if line.trim_start().starts_with('[') {
            let name = line.trim_start().trim_start_matches('[');
            is_kept = !name.starts_with("screen]") && !name.starts_with("screen.");
        }
        if is_kept {
            text.push_str(line);
            text.push('\n');
        }
    }
    if !text.is_empty() && !text.ends_with("\n\n") {
        text.push('\n');
    }
    text + section
}

/// Finds and reads the config file; without one, returns the defaults.
///
/// # Errors
/// When the file cannot be read or is wrong.
pub fn load(asked: Option<&Path>) -> anyhow::Result<Config> {
    let Some(path) = find(asked, |name| std::env::var_os(name), Path::exists) else {
        return Ok(Config::default());
    };
    let text = read_found(&path, asked);
    let text = text.with_context(|| format!("cannot read the config file {}", path.display()))?;
    Config::parse(&text, &path)
}

/// Reads a config file that was found, or that the user named.
fn read_found(path: &Path, asked: Option<&Path>) -> std::io::Result<String> {
    if asked.is_some() {
        File::open(path).and_then(read_text)
    } else {
        read_trusted(path)
    }
}

/// Reads a config file that nobody named. HOME may be another user's, and whoever writes the file
/// decides what root is shown and which libvirt it connects to: it has to be root's, kvmtop's
/// user's, or of the user who ran sudo.
fn read_trusted(path: &Path) -> std::io::Result<String> {
    let file = File::open(path)?;
    let owner = file.metadata()?.uid();
    let sudo = std::env::var("SUDO_UID")
        .ok()
        .and_then(|uid| uid.parse().ok());
    if ![Some(0), Some(geteuid().as_raw()), sudo].contains(&Some(owner)) {
        let why = format!(
            "it belongs to user {owner}; set HOME to your own folder, or name the file with \
            --config"
        );
        return Err(std::io::Error::other(why));
    }
    read_text(file)
}

/// The text of a config file. Fails if it cannot be read, or is too long.
fn read_text(file: File) -> std::io::Result<String> {
    let mut text = String::new();
    if file.take(MAX_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_BYTES {
        return Err(std::io::Error::other(format!(
            "it is longer than {} KiB",
            MAX_BYTES >> 10
        )));
    }
    Ok(text)
}

fn screen<'de, D: Deserializer<'de>>(d: D) -> Result<ScreenChoices, D::Error> {
    let choices = ScreenChoices::deserialize(d)?;
    if let Some(seconds) = choices.interval {
        values::interval(&seconds.to_string()).map_err(serde::de::Error::custom)?;
    }
    Ok(choices)
}

fn rules<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<RuleId>, D::Error> {
    each(d, args::rule)
}

fn rules_or_all<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<RuleId>, D::Error> {
    each(d, args::rule_or_all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Settings;
    use crate::cli::args::{ChoiceArgs, EngineChoice};
    use judge::analysis::Pattern;
    use std::time::Duration;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("kvmtop.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(parse(""), Ok(Config::default()));
    }

    #[test]
    fn the_sample_file_has_the_defaults() {
        let sample = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/kvmtop.toml"));
        let settings = |config: &Config| Settings::new(config, None, &ChoiceArgs::default(), None);
        assert_eq!(
            settings(&parse(sample).unwrap()),
            settings(&Config::default())
        );
        // Each commented-out setting is valid once the comment mark is removed.
        let all: String = sample
            .lines()
            .map(|l| l.strip_prefix("#: ").unwrap_or(l))
            .collect::<Vec<_>>()
            .join("\n");
        let set = parse(&all).expect("the commented settings");
        assert_ne!(set, Config::default());
        // Every section and key of the structs is in the sample file: nobody finds a key that is
        // missing there.
        let words = [
            "[sampling]",
            "interval",
            "engine",
            "monitor",
            "libvirt_uri",
            "domains",
            "kvm_events",
            "engine_detail",
            "[record]",
            "max_size",
            "max_age",
            "[findings]",
            "warn",
            "allow",
            "startup_guard",
            "resume_guard",
            "[thresholds",
            "[screen]",
            "lens",
            "[screen.columns]",
            "[screen.sort]",
        ];
        for word in words {
            assert!(sample.contains(word), "{word} is not in assets/kvmtop.toml");
        }
    }

    #[test]
    fn the_section_of_the_screen_is_replaced_and_the_rest_stays() {
        let before = "# mine\n[screen]\nlens = 'disks'\n[screen.sort]\ncpu = \
                      'mem'\n\n[sampling]\ninterval = 5\n";
        let after = with_screen(before, "[screen]\nlens = 'memory'\n");
        assert_eq!(
            after,
            "# mine\n[sampling]\ninterval = 5\n\n[screen]\nlens = 'memory'\n"
        );
        assert_eq!(with_screen(&after, "[screen]\nlens = 'memory'\n"), after);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/config.toml");
        let choices = parse(&after).unwrap().screen;
        write_screen(Some(&path), &choices).unwrap();
        assert_eq!(load(Some(&path)).unwrap().screen, choices);
        // A link in the place of the new file is not followed.
        let other = folder.path().join("other");
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, path.with_extension("toml.new")).unwrap();
        write_screen(Some(&path), &choices).unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
        assert_eq!(load(Some(&path)).unwrap().screen, choices);
        std::fs::write(&path, "[sampling]\nintervall = 5\n").unwrap();
        let said = write_screen(Some(&path), &choices).unwrap_err().to_string();
        assert!(said.contains("intervall"), "{said}");
    }

    #[test]
    fn the_screens_interval_has_the_bounds_of_the_other() {
        let interval = |text: &str| parse(&format!("[screen]\ninterval = {text}\n"));
        assert_eq!(interval("2").unwrap().screen.interval, Some(2.0));
        for wrong in ["0", "0.05", "61", "nan"] {
            let said = interval(wrong).unwrap_err();
            assert!(said.contains("seconds from 0.1 to 60"), "{wrong}: {said}");
        }
    }

    #[test]
    fn settings_are_read() {
        let c = parse(
            "[sampling]\ninterval = 0.5\nengine = 'perf'\nmonitor = false\ndomains = \
             ['web-*']\n[record]\nmax_size = '2G'\nmax_age = '7d'\n",
        )
        .unwrap();
        assert_eq!(c.sampling.interval, Some(Duration::from_millis(500)));
        assert_eq!(c.sampling.engine, Some(EngineChoice::Perf));
        assert_eq!(c.sampling.monitor_in_file, Some(false));
        assert_eq!(c.sampling.domains, [Pattern::new("web-*").unwrap()]);
        assert_eq!(
            c.record,
            LimitArgs {
                max_size: Some(2 << 30),
                max_age: Some(Duration::from_secs(604_800))
            }
        );
    }

    #[test]
    fn errors_name_file_line_and_remedy() {
        let rows = [
            (
                "[sampling]\nintervall = 1\n",
                (
                    "2",
                    "unknown field `intervall`, expected one of `interval`,",
                ),
            ),
            (
                "\n[sampling]\ninterval = 0\n",
                ("3", "the interval is seconds from 0.1 to 60, as in -d 0.5"),
            ),
            (
                "[sampling]\nengine = 'fast'\n",
                (
                    "2",
                    "unknown variant `fast`, expected one of `auto`, `bpf`, `perf`, `none`",
                ),
            ),
            (
                "[sampling]\ndomains = ['vm[']\n",
                (
                    "2",
                    "vm[: error parsing glob 'vm[': unclosed character class",
                ),
            ),
            (
                "[findings]\nwarn = ['rtc-tik']\n",
                (
                    "2",
                    "rtc-tik: there is no such rule; `kvmtop check --list-rules` lists them",
                ),
            ),
            (
                "[record]\nmax_size = 'big'\n",
                ("2", "a size is a number of bytes"),
            ),
            ("[nope]\n", ("1", "unknown field `nope`")),
            ("a = [\n", ("1", "")),
        ];
        for (text, (line, remedy)) in rows {
            let said = parse(text).unwrap_err();
            let begin = format!("kvmtop.toml: TOML parse error at line {line}, column ");
            assert!(
                said.starts_with(&begin) && said.contains(remedy),
                "{text:?}: {said}"
            );
        }
    }

    #[test]
    fn the_users_file_comes_before_the_systems() {
        let find = |asked: Option<&str>, vars: &[(&str, &str)], files: &[&str]| {
            find(
                asked.map(Path::new),
                |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()),
                |p| files.iter().any(|f| Path::new(f) == p),
            )
            .map(|p| p.display().to_string())
        };
        let both = [
            "/home/a/.config/kvmtop/config.toml",
            "/x/kvmtop/config.toml",
            SYSTEM,
        ];
        assert_eq!(
            find(Some("my.toml"), &[], &both).as_deref(),
            Some("my.toml")
        );
        assert_eq!(
            find(None, &[("HOME", "/home/a")], &both).as_deref(),
            Some(both[0])
        );
        assert_eq!(
            find(
                None,
                &[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/x")],
                &both
            )
            .as_deref(),
            Some(both[1])
        );
        assert_eq!(
            find(None, &[("HOME", "/root")], &both).as_deref(),
            Some(SYSTEM)
        );
        assert_eq!(find(None, &[], &[]), None);
    }
}
