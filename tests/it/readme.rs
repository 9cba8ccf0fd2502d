//! The README's commands run, and do what it says.

use crate::common;
use std::path::Path;
use std::process::Output;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).expect("README.md")
}

fn run(args: &[&str]) -> Output {
    common::kvmtop().args(args).output().expect("kvmtop runs")
}

fn status(out: &Output) -> i32 {
    out.status.code().expect("a status")
}

/// Every command of the README's table, with what stands for its files and a shorter duration.
#[test]
fn commands_of_the_table() {
    let text = readme();
    let commands: Vec<_> = text
        .lines()
        .filter_map(|l| l.strip_prefix("| `kvmtop"))
        .map(|l| l.split('`').next().expect("a command").trim())
        .collect();
    assert!(commands.len() >= 8, "{commands:?}");
    let table = root().join("tests/fixtures/readme/vmexit.txt");
    let table = table.to_str().expect("path");
    let dir = tempfile::tempdir().expect("folder");
    let session = dir.path().join("night.kvmtop");
    let session = session.to_str().expect("path");
    for command in commands {
        match command {
            "" => {
                let out = run(&[]);
                let said = String::from_utf8_lossy(&out.stderr);
                assert!(
                    status(&out) == 1 && said.contains("kvmtop --batch"),
                    "not a terminal: {said}"
                );
            }
            "--batch -n 1" => assert_eq!(status(&run(&["--batch", "-n", "1", "-d", "0.2"])), 0),
            "check --duration 10s" => {
                assert!((0..=3).contains(&status(&run(&["check", "--duration", "1s"]))));
            }
            "record FILE" => assert_eq!(
                status(&run(&["record", session, "--duration", "1s", "-d", "0.3"])),
                0
            ),
            "replay FILE" => {
                assert_eq!(status(&run(&["replay", session, "--batch", "-n", "1"])), 0);
            }
            "demo" => assert_eq!(status(&run(&["demo", "--batch", "-n", "1"])), 0),
            "report FILE..." => {
                let out = run(&["report", table]);
                assert!(
                    status(&out) == 0
                        && String::from_utf8_lossy(&out.stdout).contains("IO_INSTRUCTION")
                );
            }
            "report --html PAGE FILE..." => {
                let page = dir.path().join("page.html");
                assert_eq!(
                    status(&run(&[
                        "report",
                        "--html",
                        page.to_str().expect("path"),
                        session
                    ])),
                    0
                );
                let page = std::fs::read_to_string(page).expect("the page");
                assert!(
                    page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>")
                );
            }
            "diff BEFORE AFTER" => assert_eq!(status(&run(&["diff", table, table])), 0),
            "plan" => assert_eq!(status(&run(&["plan"])), 0),
            // tests/guests/profile.rs samples a real guest.
            "profile GUEST" => assert_eq!(
                status(&run(&["profile", "no-such-guest", "--duration", "1s"])),
                1
            ),
            "doctor" => assert!((0..=1).contains(&status(&run(&["doctor"])))),
            "export" => {
                let exporter = common::exporter::Exporter::start(&["-d", "0.2"]);
                assert!(exporter.metrics().contains("kvmtop_build_info{"));
            }
            other => panic!("the README names `kvmtop {other}`, which this test does not run"),
        }
    }
}

/// Checks that a test runs each command that installs or removes: `make packages-test` runs these
/// commands, and it finds the files under the names that the README gives.
#[test]
fn commands_of_installing() {
    let text = readme();
    let section = text
        .split("## Installing")
        .nth(1)
        .and_then(|s| s.split("\n## ").next())
        .expect("the section");
    let build =
        std::fs::read_to_string(root().join("assets/packaging/build.sh")).expect("build.sh");
    let table = section
        .lines()
        .filter(|l| l.starts_with("| ") && l.contains('`'));
    let commands: Vec<_> = table
        .flat_map(|l| l.split('`').skip(1).step_by(2))
        .collect();
    assert!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        match command {
            "apt install ./target/packages/kvmtop_*.deb" => assert!(build.contains("cargo-deb")),
            "dnf install ./target/packages/kvmtop-*.rpm" => {
                assert!(build.contains("cargo-generate-rpm"));
            }
            "tar -xzf target/packages/kvmtop-*-static.tar.gz" => {
                assert!(build.contains("-linux-static"));
            }
            // tests/it/packages.rs; the rest is plain.
            "apt purge kvmtop"
            | "dnf remove kvmtop"
            | "cargo install --path . --locked"
            | "cargo uninstall kvmtop" => {}
            "make build" | "target/release/kvmtop" => {}
            other => panic!("the README says `{other}`, which no test runs"),
        }
    }
    assert!(section.contains("systemctl enable --now kvmtop-record"));
    assert!(
        root()
            .join("assets/packaging/kvmtop-record.service")
            .exists()
    );
}

/// A reader learns from the first lines what it is, how to try it, and that it wants root.
#[test]
fn the_first_lines_say_what_it_is() {
    let text = readme();
    let first: Vec<&str> = text.lines().filter(|l| !l.is_empty()).take(10).collect();
    assert!(
        first[1].starts_with("![") && first[1].ends_with("(assets/screen.svg)"),
        "{}",
        first[1]
    );
    let first = first.join("\n");
    for word in ["KVM host", "make run", "kvmtop demo", "as root"] {
        assert!(first.contains(word), "'{word}' is not in:\n{first}");
    }
}

/// Every `make` command is a target of the Makefile, the two that do it all are named, and all
/// links lead somewhere.
#[test]
fn make_and_links() {
    let (text, make) = (
        readme(),
        std::fs::read_to_string(root().join("Makefile")).expect("Makefile"),
    );
    let of_name = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
    let word = |rest: &str| rest.chars().take_while(of_name).collect::<String>();
    let targets: Vec<String> = text.split("make ").skip(1).map(word).collect();
    for target in &targets {
        assert!(
            make.lines().any(|l| l.starts_with(&format!("{target}:"))),
            "make {target}"
        );
    }
    for target in ["run", "test"] {
        assert!(
            targets.iter().any(|t| t == target),
            "the README does not name `make {target}`"
        );
    }
    for link in text
        .split("](")
        .skip(1)
        .filter_map(|l| l.split(')').next())
        .filter(|l| !l.contains("://"))
    {
        assert!(root().join(link).exists(), "{link}");
    }
}
