//! The manual pages and completions of `assets/packaging` are made from the command line as clap sees it. `make accept`
//! writes them. What reads them (mandoc, man, the shells) reads them here, too.

use crate::common;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/packaging").join(name)
}

/// kvmtop and each of its commands, with the names of their pages.
fn commands() -> Vec<Command> {
    let mut kvmtop = kvmtop::cli::Cli::command();
    kvmtop.build();
    let commands: Vec<_> = kvmtop.get_subcommands().filter(|c| !c.is_hide_set()).cloned().collect();
    [kvmtop].into_iter().chain(commands).collect()
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// A line as roff prints it, whatever it begins with.
fn roff(line: &str) -> String {
    let mut out = String::from("\\&");
    for c in line.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            c if c.is_ascii() => out.push(c),
            c => write!(out, "\\[u{:04X}]", u32::from(c)).expect("a string takes it"),
        }
    }
    out
}

/// The end of the help as sections: `clap_mangen` would fill lines that have to stay as they are.
fn sections_of_the_end(command: &Command) -> String {
    let end = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let mut out = String::new();
    let mut section = |title: &str, lines: &[&str]| {
        writeln!(out, ".SH \"{}\"\n.nf", title.to_uppercase()).expect("a string takes it");
        lines.iter().for_each(|line| writeln!(out, "{}", roff(line)).expect("a string takes it"));
        out.push_str(".fi\n");
    };
    for paragraph in end.split("\n\n") {
        let lines: Vec<&str> = paragraph.lines().collect();
        match lines.split_first() {
            // A heading, not a sentence.
            Some((first, rest)) if first.ends_with(':') && first.len() < 50 && !rest.is_empty() => {
                section(first.trim_end_matches(':'), rest);
            }
            Some(_) => section("notes", &lines),
            None => {}
        }
    }
    out
}

/// The day of the newest release.
fn date() -> String {
    let changes =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("CHANGELOG.md")).expect("CHANGELOG");
    let head = concat!("## [", env!("CARGO_PKG_VERSION"), "] - ");
    let date = changes.lines().find_map(|line| line.strip_prefix(head));
    date.expect("the CHANGELOG has this version with its day").to_owned()
}

fn page(command: &Command, all: &[Command]) -> String {
    let mut text = Vec::new();
    let end = sections_of_the_end(command);
    let command = command.clone().after_help(None).after_long_help(None);
    let title = name(&command).to_uppercase();
    let version = concat!("kvmtop ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(title).date(date()).source(version).manual("User Commands");
    man.render(&mut text).expect("a page");
    // Before a list of values clap_mangen breaks the line, skips one and breaks it again.
    let mut text = String::from_utf8(text).expect("UTF-8").replace(".br\n\n.br\n", ".sp\n");
    text.push_str(&end);
    text.push_str(".SH \"SEE ALSO\"\n");
    let others: Vec<_> = all.iter().filter(|c| name(c) != name(&command)).collect();
    for (i, other) in others.iter().enumerate() {
        let comma = if i + 1 < others.len() { "," } else { "" };
        writeln!(text, ".BR {} (1){comma}", name(other).replace('-', "\\-")).expect("a string takes it");
    }
    text
}

/// Compares the files of a folder with what they have to be, or writes them.
fn accept(folder: &Path, made: &BTreeMap<String, String>) {
    let kept: BTreeMap<String, String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("an entry"))
        .map(|e| (e.file_name().into_string().expect("a name"), std::fs::read_to_string(e.path()).expect("a text")))
        .collect();
    if std::env::var_os("KVMTOP_ACCEPT").is_some() {
        std::fs::create_dir_all(folder).expect("the folder");
        for name in kept.keys().filter(|name| !made.contains_key(*name)) {
            std::fs::remove_file(folder.join(name)).expect("removed");
        }
        for (name, text) in made.iter().filter(|(name, text)| kept.get(*name) != Some(text)) {
            std::fs::write(folder.join(name), text).expect("written");
        }
    } else {
        assert!(kept.keys().eq(made.keys()), "{}: run `make accept`", folder.display());
        for (name, text) in made {
            assert!(kept[name] == *text, "{name} is not what the command line makes: run `make accept`");
        }
    }
}

#[test]
fn manual_pages() {
    let all = commands();
    let made = all.iter().map(|c| (format!("{}.1", name(c)), page(c, &all))).collect();
    accept(&folder("man"), &made);
}

#[test]
fn completions() {
    for (shell, name) in [(Shell::Bash, "kvmtop"), (Shell::Zsh, "_kvmtop"), (Shell::Fish, "kvmtop.fish")] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut kvmtop::cli::Cli::command(), "kvmtop", &mut text);
        let made = [(name.to_owned(), String::from_utf8(text).expect("UTF-8"))];
        accept(&folder("completions").join(shell.to_string()), &made.into());
    }
}

/// Runs a checker over a file; `None` where it is not installed.
fn checked_by(program: &str, args: &[&str]) -> Option<std::process::Output> {
    match std::process::Command::new(program).args(args).env("LC_ALL", "C.UTF-8").output() {
        Ok(out) => Some(out),
        Err(e) => {
            common::skipped(&format!("manual, read by {program}"), &e.to_string());
            None
        }
    }
}

#[test]
fn pages_render_without_warnings() {
    for entry in std::fs::read_dir(folder("man")).expect("pages") {
        let path = entry.expect("an entry").path();
        let path = path.to_str().expect("a path");
        if let Some(out) = checked_by("mandoc", &["-T", "lint", "-W", "warning", path]) {
            let said = String::from_utf8_lossy(&out.stdout);
            assert!(said.is_empty(), "{said}");
            common::ran("manual, read by mandoc");
        }
        if let Some(out) = checked_by("man", &["--warnings", "-E", "UTF-8", "-l", "-Tutf8", path]) {
            let said = String::from_utf8_lossy(&out.stderr);
            // Without groff's macros man cannot render at all.
            assert!(said.is_empty() || said.contains("command not found"), "{path}: {said}");
        }
    }
}

#[test]
fn shells_read_the_completions() {
    for (shell, file) in [("bash", "bash/kvmtop"), ("zsh", "zsh/_kvmtop"), ("fish", "fish/kvmtop.fish")] {
        let path = folder("completions").join(file);
        if let Some(out) = checked_by(shell, &["-n", path.to_str().expect("a path")]) {
            assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
            common::ran(&format!("completions, read by {shell}"));
        }
    }
}

/// bash completes a command's name and its options.
#[test]
fn bash_completes() {
    let script = r#"source "$1"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _kvmtop kvmtop "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; echo "${COMPREPLY[@]}""#;
    let path = folder("completions").join("bash/kvmtop");
    for (line, wanted) in [("kvmtop rep", "replay report"), ("kvmtop check --dur", "--duration")] {
        let Some(out) = checked_by("bash", &["-c", script, "bash", path.to_str().expect("a path"), line]) else {
            return;
        };
        assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), wanted, "{}", String::from_utf8_lossy(&out.stderr));
    }
}
