//! Writes the manual pages (`man`) and completions (`completions/bash`, `zsh`, `fish`) into a
//! folder, from the command line as clap sees it: `cargo run --example manual -- FOLDER`. The
//! packages contain them.
#![allow(missing_docs, clippy::expect_used, clippy::missing_panics_doc)]

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    write(&PathBuf::from(
        std::env::args_os().nth(1).expect("a folder"),
    ));
}

/// Writes all of them below this folder.
pub fn write(folder: &Path) {
    let all = commands();
    let man = folder.join("man");
    std::fs::create_dir_all(&man).expect("the folder");
    for command in &all {
        std::fs::write(
            man.join(format!("{}.1", name(command))),
            page(command, &all),
        )
        .expect("written");
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let folder = folder.join("completions").join(shell.to_string());
        std::fs::create_dir_all(&folder).expect("the folder");
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut kvmtop::cli::Cli::command(), "kvmtop", &mut text);
        let name = match shell {
            Shell::Zsh => "_kvmtop",
            Shell::Fish => "kvmtop.fish",
            _ => "kvmtop",
        };
        let text = String::from_utf8(text).expect("UTF-8");
        std::fs::write(folder.join(name), completing_values(&text)).expect("written");
    }
}

/// Without these changes bash offers options, not files, where a word begins that is no option; and
/// fish offers files, not values, after an option in front of the command.
fn completing_values(script: &str) -> String {
    let all_options = "esac\n            COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
    script
        .replace(" || ${COMP_CWORD} -eq 2 ]]", " ]]")
        .replace(all_options, "esac")
        .replace(
            "2>/dev/null\n    or return\n",
            "2>/dev/null\n    or return 0\n",
        )
}

/// kvmtop and each of its commands, with the names of their pages.
fn commands() -> Vec<Command> {
    let mut kvmtop = kvmtop::cli::Cli::command();
    kvmtop.build();
    let commands: Vec<_> = kvmtop
        .get_subcommands()
        .filter(|c| c.get_name() != "help")
        .cloned()
        .collect();
    [kvmtop].into_iter().chain(commands).collect()
}

fn name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
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
    let end = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut out = String::new();
    let mut section = |title: &str, lines: &[&str]| {
        writeln!(out, ".SH \"{}\"\n.nf", title.to_uppercase()).expect("a string takes it");
        lines
            .iter()
            .for_each(|line| writeln!(out, "{}", roff(line)).expect("a string takes it"));
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
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("CHANGELOG.md"))
            .expect("CHANGELOG");
    let head = concat!("## [", env!("CARGO_PKG_VERSION"), "] - ");
    let date = changes.lines().find_map(|line| line.strip_prefix(head));
    date.expect("the CHANGELOG has this version with its day")
        .to_owned()
}

fn page(command: &Command, all: &[Command]) -> String {
    let mut text = Vec::new();
    let end = sections_of_the_end(command);
    let command = command.clone().after_help(None).after_long_help(None);
    let title = name(&command).to_uppercase();
    let version = concat!("kvmtop ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone())
        .title(title)
        .date(date())
        .source(version)
        .manual("User Commands");
    man.render(&mut text).expect("a page");
    // Before a list of values clap_mangen breaks the line, skips one and breaks it again.
    let mut text = String::from_utf8(text)
        .expect("UTF-8")
        .replace(".br\n\n.br\n", ".sp\n");
    text.push_str(&end);
    text.push_str(".SH \"SEE ALSO\"\n");
    let others: Vec<_> = all.iter().filter(|c| name(c) != name(&command)).collect();
    for (i, other) in others.iter().enumerate() {
        let comma = if i + 1 < others.len() { "," } else { "" };
        writeln!(text, ".BR {} (1){comma}", name(other).replace('-', "\\-"))
            .expect("a string takes it");
    }
    text
}
