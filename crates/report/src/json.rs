//! Writes objects as JSON, and makes the objects of a [`View`] and of a profile.

use super::View;
use super::document::{JsonDocument, JsonProfile};
use super::profile::ProfileView;
use judge::model::{Confidence, DomainModel, GuestConfig, GuestGuess, GuestKind, call_tree};
use kvm::without_hidden;
use sample::DomainFacts;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};
use std::io::{self, Write};

/// Name and version of the program.
pub const TOOL: &str = concat!("kvmtop ", env!("CARGO_PKG_VERSION"));

/// The document as one line.
///
/// # Errors
/// Never in practice: the document holds nothing that JSON cannot.
pub fn line(view: &View<'_>) -> serde_json::Result<String> {
    text(&JsonDocument::new(view))
}

/// A value as JSON. Its strings keep line breaks and tabs; other controls and invisible characters,
/// which a terminal would act on once the JSON is decoded, are left out.
///
/// # Errors
/// If JSON cannot hold the value, such as a map whose keys are not strings.
pub fn text(value: &impl serde::Serialize) -> serde_json::Result<String> {
    let mut out = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut out,
        PlainStrings,
    ))?;
    String::from_utf8(out).map_err(serde::ser::Error::custom)
}

struct PlainStrings;

impl Formatter for PlainStrings {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        out.write_all(without_hidden(text).as_bytes())
    }

    fn write_char_escape<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match escape {
            CharEscape::AsciiControl(_)
            | CharEscape::Backspace
            | CharEscape::FormFeed
            | CharEscape::CarriageReturn => Ok(()),
            shown => CompactFormatter.write_char_escape(out, shown),
        }
    }
}

/// The samples of a guest's stacks.
pub fn profile(view: ProfileView<'_>) -> JsonProfile {
    JsonProfile::new(view, &call_tree::functions(view.profile))
}

/// The guest's operating system in a word: as it is configured, else as the guest's set-up suggests
/// with some certainty.
pub fn guest_os_of(d: &DomainModel) -> Option<String> {
    if let Some(configured) = configured_os(&d.facts) {
        return Some(configured);
    }
    let guess = GuestGuess::new(d, &GuestConfig::from_facts(&d.facts));
    if guess.sure < Confidence::Medium {
        return None;
    }
    match guess.kind {
        GuestKind::Windows => Some("windows".into()),
        GuestKind::Linux => Some("linux".into()),
        GuestKind::Other | GuestKind::Unknown => None,
    }
}

/// The operating system that the guest is configured for, in a word; the configured name where none
/// of the words fits. libosinfo ids end in `/os/version` (`http://microsoft.com/win/10`).
pub(crate) fn configured_os(facts: &DomainFacts) -> Option<String> {
    let configured = &facts.guest_os.as_ref()?.value;
    let id = configured.to_ascii_lowercase();
    for (word, signs) in OS_WORDS {
        if signs.iter().any(|sign| id.contains(sign)) {
            return Some(word.to_owned());
        }
    }
    Some(configured.clone())
}

/// Systems, and what the ids of each contain; the first that fits counts.
const OS_WORDS: [(&str, &[&str]); 4] = [
    ("windows", &["microsoft", "windows"]),
    ("bsd", &["bsd"]),
    ("macos", &["apple.com", "macos"]),
    (
        "linux",
        &[
            "linux", "debian", "ubuntu", "fedora", "redhat", "centos", "rocky", "suse", "alpine",
            "gentoo", "oracle", "nixos",
        ],
    ),
];
