//! The manual pages and completions that the packages contain, read by what reads them: mandoc,
//! man, the shells.

use crate::common;

#[allow(dead_code, reason = "the program's main")]
#[path = "../../assets/packaging/manual.rs"]
mod made;

fn written() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    made::write(folder.path());
    folder
}

/// Runs a checker over a file; `None` where it is not installed.
fn checked_by(program: &str, args: &[&str]) -> Option<std::process::Output> {
    match std::process::Command::new(program)
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .output()
    {
        Ok(out) => Some(out),
        Err(e) => {
            common::skipped(&format!("manual, read by {program}"), &e.to_string());
            None
        }
    }
}

#[test]
fn pages_render_without_warnings() {
    let folder = written();
    for entry in std::fs::read_dir(folder.path().join("man")).expect("pages") {
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
            assert!(
                said.is_empty() || said.contains("command not found"),
                "{path}: {said}"
            );
        }
    }
}

#[test]
fn shells_read_the_completions() {
    let folder = written();
    for (shell, file) in [
        ("bash", "bash/kvmtop"),
        ("zsh", "zsh/_kvmtop"),
        ("fish", "fish/kvmtop.fish"),
    ] {
        let path = folder.path().join("completions").join(file);
        if let Some(out) = checked_by(shell, &["-n", path.to_str().expect("a path")]) {
            assert!(
                out.status.success() && out.stderr.is_empty(),
                "{}",
                String::from_utf8_lossy(&out.stderr)
            );
            common::ran(&format!("completions, read by {shell}"));
        }
    }
}

/// bash completes a command's name, its options and their values. Where it has nothing to offer it
/// completes files.
#[test]
fn bash_completes() {
    let script = r#"source "$1"; COMP_WORDS=(${2%_}); [[ $2 == *_ ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _kvmtop kvmtop "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; echo "${COMPREPLY[@]}""#;
    let folder = written();
    let path = folder.path().join("completions/bash/kvmtop");
    for (line, wanted) in [
        ("kvmtop rep", "replay report"),
        ("kvmtop check --dur", "--duration"),
        ("kvmtop demo --theme m", "mono"),
        ("kvmtop report _", ""),
        ("kvmtop report before.txt _", ""),
    ] {
        let Some(out) = checked_by(
            "bash",
            &["-c", script, "bash", path.to_str().expect("a path"), line],
        ) else {
            return;
        };
        assert_eq!(
            String::from_utf8_lossy(&out.stdout).trim(),
            wanted,
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

/// fish completes files and the values of options, of a command and in front of one.
#[test]
fn fish_completes() {
    let folder = written();
    let path = folder.path().join("completions/fish/kvmtop.fish");
    let script = "source $argv[1]; complete -C $argv[2]";
    for (line, wanted) in [
        ("kvmtop --theme l", "light"),
        ("kvmtop replay --theme l", "light"),
        ("kvmtop report Cargo.t", "Cargo.toml"),
    ] {
        let Some(out) = checked_by(
            "fish",
            &["-c", script, path.to_str().expect("a path"), line],
        ) else {
            return;
        };
        let said = String::from_utf8_lossy(&out.stdout);
        assert_eq!(
            said.split_whitespace().next(),
            Some(wanted),
            "{line}: {said}"
        );
    }
}
