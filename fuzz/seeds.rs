//! Undamaged inputs: what real tools printed, from the fixtures and the cases, and the files of
//! `fuzz/seeds`.

use super::readers::Reader;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Longer files are cut here: a fuzzer makes little of them.
const MAX_LENGTH: usize = 48 << 10;

/// Where a reader's seeds are, besides `fuzz/seeds/NAME`.
pub enum Source {
    /// Texts of the fixtures that the reader takes.
    Texts(fn(&str) -> bool),
    /// Files below this folder of the repository, or this file; zstd is unpacked.
    Files(&'static str),
    /// `fuzz/seeds` alone.
    Written,
}

impl Reader {
    /// Undamaged inputs of this reader.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        let mut seeds = match self.source {
            Source::Texts(is_read) => TEXTS
                .iter()
                .filter(|text| is_read(text))
                .map(|text| text.clone().into_bytes())
                .collect(),
            Source::Files(path) => files(path).into_iter().map(|(_, bytes)| bytes).collect(),
            Source::Written => Vec::new(),
        };
        seeds.extend(
            files(&format!("fuzz/seeds/{}", self.name))
                .into_iter()
                .map(|(_, bytes)| bytes),
        );
        assert!(!seeds.is_empty(), "{} has no seeds", self.name);
        seeds
    }
}

/// The texts of all fixtures, with those within the cases.
static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut texts: Vec<String> = Vec::new();
    for (path, content) in files("tests/fixtures") {
        let Ok(text) = String::from_utf8(content) else {
            continue;
        };
        if path.extension().is_some_and(|e| e == "toml") {
            let case: toml::Table = text.parse().expect("a case");
            let files = case
                .get("files")
                .and_then(toml::Value::as_table)
                .expect("files of a case");
            texts.extend(
                files
                    .values()
                    .filter_map(toml::Value::as_str)
                    .map(str::to_owned),
            );
        } else {
            texts.push(text);
        }
    }
    texts.retain(|text| text.len() <= MAX_LENGTH);
    texts
});

/// A file of the repository, or all files below a folder, in order of name.
fn files(path: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = if here.join("fuzz").is_dir() {
        here
    } else {
        here.parent().expect("the repository")
    };
    let mut open = vec![root.join(path)];
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                std::fs::read_dir(&path)
                    .expect("a folder")
                    .flatten()
                    .map(|entry| entry.path()),
            );
            continue;
        }
        let Ok(bytes) = std::fs::read(&path) else {
            continue;
        };
        if path.extension().is_some_and(|e| e == "zst") && !path.starts_with(root.join("fuzz")) {
            let mut start = Vec::new();
            let unpacked = zstd::stream::read::Decoder::new(&*bytes).expect("a fixture");
            unpacked
                .take(MAX_LENGTH as u64)
                .read_to_end(&mut start)
                .expect("a fixture");
            found.push((path, start));
        } else if path.extension().is_some_and(|e| e == "toml") {
            found.push((path, bytes));
        } else {
            found.push((path, bytes.into_iter().take(MAX_LENGTH).collect()));
        }
    }
    found.sort();
    found
}
