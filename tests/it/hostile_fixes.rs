//! Guests with names that mean something to a shell, to virsh or in XML, through every real case
//! and the synthetic hosts: what a finding gives to paste stays one command about that guest, read
//! by a real shell, and XML that parses.

use import::ImportOptions;
use judge::lint::{Finding, FixKind, InputKind, Options, RuleMemory, is_command, run};
use judge::model::{Base, Model};
use kvm::{cmdline, sanitize_name};
use sample::{Known, Origin, Sample};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use testkit::Fixture;

const NAMES: [&str; 20] = [
    "a; destroy c #",
    "a; virsh destroy c #",
    "a; virsh destroy c; it's; virsh destroy c #",
    "it's",
    "a\"b",
    "a\nb; virsh destroy c",
    "$(virsh destroy c)",
    "`virsh destroy c`",
    "--all",
    "-c",
    "7",
    "",
    "a b",
    "x\u{202e}y",
    "]]></name><x>",
    "<!-- & --",
    "a\\",
    "'; virsh destroy c #",
    "*",
    "~root ${HOME} > /dev/null | cat & !!",
];
const UUID: &str = "5f0e1c2a-0000-4000-8000-000000000bad";
/// Separates two commands in what the shell prints.
const NEXT: &str = "== next ==";

/// All real cases and some made-up hosts, each with the length of its interval.
fn samples() -> Vec<(Sample, Option<f64>)> {
    let mut all = Vec::new();
    for entry in
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/cases")).unwrap()
    {
        let case: toml::Table = std::fs::read_to_string(entry.unwrap().path())
            .unwrap()
            .parse()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in case["files"].as_table().unwrap() {
            std::fs::write(folder.path().join(name), text.as_str().unwrap()).unwrap();
        }
        let imported = import::load(&[folder.path().to_owned()], &ImportOptions::default());
        all.push((imported.sample, imported.interval_s));
    }
    let made = [
        Fixture::busy_host(),
        Fixture::with_devices(),
        Fixture::many_vcpus(64),
    ];
    all.extend(
        made.into_iter()
            .map(|fixture| (fixture.sample(10.0), Some(10.0))),
    );
    all
}

/// Who started the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Manager {
    /// libvirt, which gave them a UUID.
    Libvirt,
    /// libvirt, of which only the name is known.
    NameAlone,
    /// Somebody, by a command line.
    Nobody,
}

/// The findings where every guest has this name.
fn findings(sample: &Sample, base: Option<f64>, name: &str, manager: Manager) -> Vec<Finding> {
    let mut sample = sample.clone();
    for domain in &mut sample.domains {
        let facts = Arc::make_mut(&mut domain.facts);
        facts.name = Known::new(name.to_owned(), Origin::Libvirt);
        facts.uuid =
            (manager == Manager::Libvirt).then(|| Known::new(UUID.into(), Origin::Libvirt));
        if manager == Manager::Nobody {
            facts.xml = None;
        }
        if manager == Manager::Nobody || facts.command.is_some() {
            let argv = [
                "qemu-system-x86_64",
                "-name",
                name,
                "-cpu",
                &format!("host,vendor={name}"),
            ]
            .map(str::to_owned);
            facts.command = Some(Arc::new(cmdline::parse_argv(&argv)));
        }
    }
    let options = Options {
        input: InputKind::File,
        ..Options::default()
    };
    let model = Model::new(&sample, Base::Whole(base));
    run(&model, &mut RuleMemory::default(), &options).findings
}

/// The words of each text as a shell splits them, where `virsh` and QEMU's options only print
/// theirs and no other program can be found.
fn words(texts: &[&str]) -> Vec<Vec<String>> {
    let mut script = "PATH=/nonexistent\nvirsh() { printf '%s\\n' \"$@\"; }\noption() { virsh \
        \"$@\"; }\n"
        .to_owned();
    for text in texts {
        script.push_str(text);
        script.push_str(&format!("\nprintf '%s\\n' '{NEXT}'\n"));
    }
    let mut shell = Command::new("sh")
        .args(["-eu", "-s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
    let out = shell.wait_with_output().unwrap();
    // A shell that stops early says why below.
    let _ = writer.join().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    let all: Vec<Vec<String>> = said
        .split_terminator(&format!("{NEXT}\n"))
        .map(|part| part.lines().map(str::to_owned).collect())
        .collect();
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && complaint.is_empty(),
        "{complaint} after {:?}",
        all.last()
    );
    assert_eq!(all.len(), texts.len());
    all
}

#[test]
fn what_is_pasted_is_about_the_guest_alone() {
    let samples = samples();
    let (mut commands, mut options, mut rules) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut elements = 0;
    for name in NAMES.map(|name| sanitize_name(name, 64)) {
        for manager in [Manager::Libvirt, Manager::NameAlone, Manager::Nobody] {
            for finding in samples
                .iter()
                .flat_map(|(sample, base)| findings(sample, *base, &name, manager))
            {
                let pasted = finding.evidence.iter().filter(|line| is_command(line));
                let pasted =
                    pasted.filter_map(|line| Some((FixKind::Command, line.split_once(": ")?.1)));
                for (kind, text) in
                    pasted.chain(finding.fix.iter().map(|fix| (fix.kind, fix.text.as_str())))
                {
                    match kind {
                        FixKind::Command if text.starts_with("virsh ") => {
                            commands.insert((name.clone(), manager, text.to_owned()));
                        }
                        FixKind::Command => assert!(!text.contains("destroy"), "{text}"),
                        FixKind::QemuOption => {
                            options.insert(format!("option {text}"));
                        }
                        FixKind::LibvirtXml => {
                            let whole = format!("<domain>{text}</domain>");
                            let parsed = roxmltree::Document::parse(&whole);
                            assert!(
                                parsed.is_ok(),
                                "{}: {whole}: {:?}",
                                finding.rule,
                                parsed.err()
                            );
                            elements += 1;
                        }
                        FixKind::KernelOption | FixKind::Advice => continue,
                    }
                    rules.insert(finding.rule);
                }
            }
        }
    }
    let texts: Vec<&str> = commands.iter().map(|(_, _, text)| text.as_str()).collect();
    for ((name, manager, text), words) in commands.iter().zip(words(&texts)) {
        // Of several commands in a line each names the guest.
        let guest = if *manager == Manager::Libvirt {
            UUID
        } else {
            name
        };
        let is_named = words.iter().any(|word| word == guest);
        assert!(
            is_named && !words.iter().any(|word| word == "destroy"),
            "{text}: {words:?}"
        );
    }
    let texts: Vec<&str> = options.iter().map(String::as_str).collect();
    for (text, words) in options.iter().zip(words(&texts)) {
        assert!(
            words.first().is_some_and(|word| word.starts_with('-')),
            "{text}: {words:?}"
        );
        assert!(
            !words.iter().any(|word| word == "destroy"),
            "{text}: {words:?}"
        );
    }
    eprintln!(
        "{} rules: {} commands, {} options, {elements} pieces of XML",
        rules.len(),
        commands.len(),
        options.len()
    );
    assert!(
        rules.len() > 11 && commands.len() > 100 && options.len() > 10 && elements > 100,
        "{rules:?}"
    );
}
