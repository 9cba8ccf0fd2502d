//! Every text of the real cases as people paste it: quoted, fenced, coloured, with other line ends and encodings. The
//! findings stay the same.

use import::ImportOptions;
use judge::lint::{Finding, InputKind, Options, RuleMemory, run};
use judge::model::{Base, Model};

/// A way of pasting: its name, and a text as it looks afterwards.
type Decoration = (&'static str, fn(&str) -> Vec<u8>);

const DECORATIONS: &[Decoration] = &[
    ("a quote", |text| each(text, |line| format!("> {line}"))),
    ("a quote's quote", |text| each(text, |line| format!("> > {line}"))),
    ("a quote of mail from Windows", |text| each(text, |line| format!("> {line}\r"))),
    ("a code block", |text| format!("```text\n{text}\n```\n").into_bytes()),
    ("a code block in a quote", |text| each(&format!("```\n{text}\n```"), |line| format!("> {line}"))),
    ("colours", |text| each(text, |line| format!("\u{1b}[0;32m{line}\u{1b}[0m\u{1b}[K"))),
    ("CRLF", |text| each(text, |line| format!("{line}\r"))),
    ("a byte order mark", |text| format!("\u{feff}{text}").into_bytes()),
    ("UTF-16", |text| format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()),
];

fn each(text: &str, change: impl Fn(&str) -> String) -> Vec<u8> {
    text.lines().map(|line| change(line) + "\n").collect::<String>().into_bytes()
}

/// The cases' names and files.
fn cases() -> Vec<(String, Vec<(String, String)>)> {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/cases")).unwrap();
    let mut all: Vec<_> = folder
        .map(|entry| {
            let path = entry.unwrap().path();
            let case: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
            let files = case["files"].as_table().unwrap().iter();
            let files = files.map(|(name, text)| (name.clone(), text.as_str().unwrap().to_owned()));
            (path.file_stem().unwrap().to_string_lossy().into_owned(), files.collect::<Vec<_>>())
        })
        .collect();
    assert!(all.len() > 100, "{} cases", all.len());
    all.sort();
    all
}

/// The findings in a case's files, each changed in a way.
fn findings(files: &[(String, String)], change: fn(&str) -> Vec<u8>) -> Result<Vec<Finding>, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), change(text)).unwrap();
    }
    let imported = import::load(&[folder.path().to_owned()], &ImportOptions::default());
    if let Some(error) = imported.errors.first() {
        return Err(error.what.clone());
    }
    let model = Model::new(&imported.sample, Base::Whole(imported.base));
    let options = Options { input: InputKind::File, ..Options::default() };
    Ok(run(&model, &mut RuleMemory::default(), &options).findings)
}

#[test]
fn findings_do_not_depend_on_how_a_text_was_pasted() {
    let cases: Vec<_> = cases();
    let plain: Vec<_> = cases.iter().map(|(_, files)| findings(files, |text| text.into())).collect();
    let mut failed = Vec::new();
    for (what, change) in DECORATIONS {
        let mut of_this = 0;
        for ((name, files), plain) in cases.iter().zip(&plain) {
            let found = findings(files, *change);
            if found != *plain {
                of_this += 1;
                let rules = |all: &Result<Vec<Finding>, String>| match all {
                    Ok(all) => format!("{:?}", all.iter().map(|f| f.rule).collect::<Vec<_>>()),
                    Err(error) => error.chars().take(60).collect(),
                };
                failed.push(format!("{what}: {name}: {} instead of {}", rules(&found), rules(plain)));
            }
        }
        eprintln!("{what}: {of_this} differ");
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
