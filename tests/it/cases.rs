//! Real cases, retyped, and what a careful expert concludes from each: `report` has to say the
//! same.
//!
//! One TOML file a case under `tests/fixtures/cases`: a story, arguments, what to expect, and the
//! files by name.

use crate::common;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    story: String,
    #[serde(default)]
    args: Vec<String>,
    expect: Expect,
    files: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Expect {
    /// Of each list one rule has to be found.
    must: Vec<Vec<String>>,
    must_not: Vec<String>,
    /// The first finding is one of these.
    first_any: Vec<String>,
    /// Of each list one word has to be in the findings' texts.
    text_any: Vec<Vec<String>>,
    /// Words that are in none of them.
    text_not: Vec<String>,
    /// Each is one of the report's notes.
    notes: Vec<String>,
    max_severity: Option<String>,
    /// How sure the first finding is.
    first_confidence: Option<String>,
    exits_total: Option<Totals>,
    accesses_total: Option<Totals>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Totals {
    One(u64),
    Any(Vec<u64>),
}

impl Totals {
    fn serves(&self, n: u64) -> bool {
        match self {
            Self::One(one) => *one == n,
            Self::Any(all) => all.contains(&n),
        }
    }
}

fn cases() -> Vec<(String, Case)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases");
    let mut all: Vec<_> = std::fs::read_dir(root)
        .expect("fixtures")
        .map(|e| e.expect("entry").path())
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("case");
            let name = path
                .file_stem()
                .expect("name")
                .to_string_lossy()
                .into_owned();
            let case = toml::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            (name, case)
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(all.len() > 30, "{} cases", all.len());
    all
}

fn report(case: &Case) -> Value {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in &case.files {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    let out = common::kvmtop()
        .arg("report")
        .arg(dir.path())
        .arg("--json")
        .args(&case.args)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .output()
        .expect("kvmtop runs");
    assert!(
        out.status.success(),
        "{}: {}",
        case.story,
        String::from_utf8_lossy(&out.stderr)
    );
    serde_json::from_slice(&out.stdout).expect("one JSON object")
}

fn total(report: &Value, table: &str) -> u64 {
    let rows = report["domains"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|d| d[table].as_array().into_iter().flatten());
    rows.filter(|r| r["vcpu"].is_null())
        .filter_map(|r| r["count"].as_u64())
        .sum()
}

fn words(value: &Value, into: &mut String) {
    match value {
        Value::String(s) => {
            into.push_str(s);
            into.push('\n');
        }
        Value::Array(all) => all.iter().for_each(|v| words(v, into)),
        Value::Object(map) => map
            .iter()
            .filter(|(k, _)| {
                matches!(
                    k.as_str(),
                    "title" | "evidence" | "why" | "fix" | "text" | "undo" | "needs"
                )
            })
            .for_each(|(_, v)| words(v, into)),
        _ => {}
    }
}

fn level(severity: &str) -> usize {
    ["none", "info", "warning", "critical"]
        .iter()
        .position(|s| *s == severity)
        .expect("a severity")
}

fn judge(expect: &Expect, report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().expect("findings");
    let rules: Vec<&str> = findings.iter().filter_map(|f| f["rule"].as_str()).collect();
    let mut text = String::new();
    words(&report["findings"], &mut text);
    let text = text.to_lowercase();
    let mut wrong = Vec::new();
    for group in &expect.must {
        if !group.iter().any(|r| rules.contains(&r.as_str())) {
            wrong.push(format!("none of {group:?} in {rules:?}"));
        }
    }
    wrong.extend(
        expect
            .must_not
            .iter()
            .filter(|r| rules.contains(&r.as_str()))
            .map(|r| format!("wrong advice: {r}")),
    );
    if !expect.first_any.is_empty()
        && !rules
            .first()
            .is_some_and(|r| expect.first_any.iter().any(|f| f == r))
    {
        wrong.push(format!(
            "first of {rules:?} is none of {:?}",
            expect.first_any
        ));
    }
    if let Some(confidence) = &expect.first_confidence
        && findings
            .first()
            .is_none_or(|first| first["confidence"] != **confidence)
    {
        wrong.push(format!(
            "the first finding is not of {confidence} confidence"
        ));
    }
    let notes: Vec<&str> = report["notes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let missing = expect
        .notes
        .iter()
        .filter(|note| !notes.contains(&note.as_str()));
    wrong.extend(missing.map(|note| format!("no note {note:?} in {notes:?}")));
    for group in &expect.text_any {
        if !group.iter().any(|w| text.contains(&w.to_lowercase())) {
            wrong.push(format!("none of the words {group:?}"));
        }
    }
    let bare = findings
        .iter()
        .filter(|f| f["fix"].as_array().is_none_or(Vec::is_empty));
    wrong.extend(bare.map(|f| format!("{} offers nothing to do", f["rule"])));
    let said = expect
        .text_not
        .iter()
        .filter(|w| text.contains(&w.to_lowercase()));
    wrong.extend(said.map(|w| format!("the word {w:?}")));
    if let Some(limit) = &expect.max_severity {
        let over = |f: &&Value| level(f["severity"].as_str().unwrap_or("none")) > level(limit);
        wrong.extend(
            findings
                .iter()
                .filter(over)
                .map(|f| format!("{} is {}", f["rule"], f["severity"])),
        );
    }
    for (table, want) in [
        ("exits", &expect.exits_total),
        ("accesses", &expect.accesses_total),
    ] {
        if let Some(want) = want
            && !want.serves(total(report, table))
        {
            wrong.push(format!("{table} sum to {}", total(report, table)));
        }
    }
    wrong
}

#[test]
fn an_expert_would_say_the_same() {
    let mut failed = Vec::new();
    for (name, case) in cases() {
        let wrong = judge(&case.expect, &report(&case));
        if !wrong.is_empty() {
            failed.push(format!("{name} ({}): {}", case.story, wrong.join("; ")));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn rules_that_cases_name_exist() {
    for (name, case) in cases() {
        let e = &case.expect;
        for rule in e
            .must
            .iter()
            .flatten()
            .chain(&e.must_not)
            .chain(&e.first_any)
        {
            assert!(judge::lint::rule(rule).is_some(), "{name}: no rule {rule}");
        }
    }
}

mod fixes {
    use super::*;
    use roxmltree::{Document, Node};
    use std::fmt::Write as _;
    use std::process::{Command, Stdio};

    fn present(tool: &str, args: &[&str]) -> bool {
        let run = Command::new(tool)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        run.is_ok_and(|s| s.success())
    }

    /// What distinguishes two elements of one name.
    fn key(node: Node<'_, '_>) -> (String, Option<String>) {
        let id = ["name", "vcpu", "iothread"]
            .iter()
            .find_map(|a| node.attribute(*a))
            .map(str::to_owned);
        (node.tag_name().name().to_owned(), id)
    }

    /// The base's element with the fix's attributes and children laid over it, as an admin would
    /// paste it.
    fn merge(base: Option<Node<'_, '_>>, fix: Option<Node<'_, '_>>, out: &mut String) {
        let (Some(shape), any) = (base.or(fix), fix) else {
            return;
        };
        let _ = write!(out, "<{}", shape.tag_name().name());
        let mut attributes: BTreeMap<&str, &str> = BTreeMap::new();
        for a in base.into_iter().chain(any).flat_map(|n| n.attributes()) {
            attributes.insert(a.name(), a.value());
        }
        for (name, value) in attributes {
            let _ = write!(out, " {name}='{value}'");
        }
        out.push('>');
        let (old, new) = (children(base), children(any));
        for c in &old {
            merge(
                Some(*c),
                new.iter().copied().find(|n| key(*n) == key(*c)),
                out,
            );
        }
        for c in new
            .iter()
            .filter(|n| !old.iter().any(|o| key(*o) == key(**n)))
        {
            merge(None, Some(*c), out);
        }
        if old.is_empty() && new.is_empty() {
            out.push_str(shape.text().unwrap_or_default().trim());
        }
        let _ = write!(out, "</{}>", shape.tag_name().name());
    }

    fn children<'a, 'i>(node: Option<Node<'a, 'i>>) -> Vec<Node<'a, 'i>> {
        node.into_iter()
            .flat_map(|n| n.children())
            .filter(Node::is_element)
            .collect()
    }

    /// All domains of all cases, with the findings about them.
    fn findings() -> Vec<(String, String, Value)> {
        let mut all = Vec::new();
        for (name, case) in cases() {
            let report = report(&case);
            let xmls: Vec<&String> = case
                .files
                .iter()
                .filter(|(f, _)| Path::new(f).extension().is_some_and(|e| e == "xml"))
                .map(|(_, t)| t)
                .collect();
            for finding in report["findings"].as_array().expect("findings") {
                let domain = finding["domain"].as_str().unwrap_or_default();
                let mut needs = String::new();
                words(&finding["fix"], &mut needs);
                // A fix may be for another guest than the one that shows the trouble; it then says
                // so.
                let of = |x: &&&String| x.contains(&format!("<name>{domain}</name>"));
                let named = |x: &&&String| {
                    let doc = Document::parse(x).expect("case XML");
                    let guest = doc
                        .descendants()
                        .find(|n| n.has_tag_name("name"))
                        .and_then(|n| n.text())
                        .unwrap_or_default();
                    needs.contains(&format!("in the XML of {guest};"))
                };
                let base = xmls
                    .iter()
                    .find(named)
                    .or_else(|| xmls.iter().find(of))
                    .map_or_else(
                        || {
                            "<domain type='kvm'><name>any</name><memory \
                         unit='GiB'>1</memory><os><type arch='x86_64' \
                         machine='q35'>hvm</type></os></domain>"
                                .to_owned()
                        },
                        |x| (*x).clone(),
                    );
                all.push((name.clone(), base, finding.clone()));
            }
        }
        all
    }

    fn merged(base: &str, fix: &str) -> String {
        let wrapped = format!("<domain>{fix}</domain>");
        let fix = Document::parse(&wrapped).unwrap_or_else(|e| panic!("{e}: {fix}"));
        let base = base.replace(char::from(0), "");
        let start = base.find("  <metadata>").zip(base.find("</metadata>"));
        let plain = start.map_or(base.clone(), |(a, b)| {
            format!("{}{}", &base[..a], &base[b + "</metadata>".len()..])
        });
        let doc = Document::parse(&plain).expect("case XML");
        let mut out = String::new();
        merge(Some(doc.root_element()), Some(fix.root_element()), &mut out);
        if !out.contains("<memory ") {
            out = out.replacen("<os>", "<memory unit='GiB'>1</memory><os>", 1);
        }
        // Some cases' own XML is a part of one: without an offset, the schema refuses the clock.
        out.replace("<clock>", "<clock offset='utc'>")
    }

    #[test]
    fn every_xml_parses_and_libvirt_accepts_it() {
        let mut checked = 0;
        let schema =
            present("virt-xml-validate", &["--version"]) && present("xmllint", &["--version"]);
        let virsh = present("virsh", &["-c", "test:///default", "version"]);
        for (name, base, finding) in findings() {
            for fix in finding["fix"]
                .as_array()
                .expect("fixes")
                .iter()
                .filter(|f| f["kind"] == "libvirt-xml")
            {
                let xml = merged(&base, fix["text"].as_str().expect("text"));
                checked += 1;
                let dir = tempfile::tempdir().expect("a folder");
                let file = dir.path().join("domain.xml");
                std::fs::write(&file, &xml).expect("written");
                let path = file.to_str().expect("path");
                if schema {
                    assert!(
                        present("virt-xml-validate", &[path, "domain"]),
                        "{name}, {}: schema refuses {xml}",
                        finding["rule"]
                    );
                }
                if virsh {
                    let test = xml
                        .replace("type='kvm'", "type='test'")
                        .replace(" machine='pc-q35-6.2'", "")
                        .replace(" machine='pc-q35-7.2'", "");
                    let test = test.replace(" machine='q35'", "");
                    std::fs::write(&file, test).expect("written");
                    assert!(
                        present(
                            "virsh",
                            &["-q", "-c", "test:///default", "define", "--validate", path]
                        ),
                        "{name}, {}: virsh refuses {xml}",
                        finding["rule"]
                    );
                }
            }
        }
        assert!(checked >= 15, "{checked} fixes");
        if !schema && !virsh {
            common::skipped(
                "every_xml_parses_and_libvirt_accepts_it",
                "neither virt-xml-validate nor virsh is installed; the XML was only parsed",
            );
        } else {
            common::ran("every_xml_parses_and_libvirt_accepts_it");
        }
    }

    /// The elements of a fix without others inside that the base has already, as paths.
    fn twice(base: Node<'_, '_>, fix: Node<'_, '_>, path: &str, found: &mut Vec<String>) {
        for new in children(Some(fix)) {
            let path = format!("{path}/{}", new.tag_name().name());
            let Some(old) = children(Some(base))
                .into_iter()
                .find(|old| key(*old) == key(new))
            else {
                continue;
            };
            if children(Some(new)).is_empty() {
                found.push(path);
            } else {
                twice(old, new, &path, found);
            }
        }
    }

    /// The XML of a guest among the files of a case, or the only one where it has no name.
    fn xml_of<'a>(case: &'a Case, guest: &str) -> Option<&'a String> {
        let is_xml = |name: &str| Path::new(name).extension().is_some_and(|e| e == "xml");
        let mut xmls = case
            .files
            .iter()
            .filter(|(name, text)| is_xml(name) && Document::parse(text).is_ok());
        let is_named =
            |(_, text): &(&String, &String)| text.contains(&format!("<name>{guest}</name>"));
        xmls.clone()
            .find(is_named)
            .or_else(|| xmls.next().filter(|(_, text)| !text.contains("<name>")))
            .map(|x| x.1)
    }

    #[test]
    fn a_fix_fits_the_configuration_that_it_changes() {
        let (mut replaced, mut wrong) = (0, Vec::new());
        for (name, case) in cases() {
            let report = report(&case);
            let guests: Vec<&str> = report["domains"]
                .as_array()
                .expect("domains")
                .iter()
                .filter_map(|d| d["name"].as_str())
                .collect();
            let fixes = report["findings"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|f| f["fix"].as_array());
            for fix in fixes.flatten() {
                let (text, needs) = (
                    fix["text"].as_str().expect("text"),
                    fix["needs"].as_str().unwrap_or_default(),
                );
                let guest = fix["domain"].as_str().unwrap_or_default();
                let mut complain = |what: String| {
                    wrong.push(format!("{name}, {guest}: {what}: {text} ({needs})"));
                };
                match fix["kind"].as_str() {
                    Some("libvirt-xml") => {
                        if !guests.contains(&guest) {
                            complain("no such guest".into());
                        }
                        let Some(base) = xml_of(&case, guest) else {
                            continue;
                        };
                        let (base, wrapped) = (
                            Document::parse(base).expect("XML"),
                            format!("<domain>{text}</domain>"),
                        );
                        let fix = Document::parse(&wrapped).expect("a fix's XML");
                        let mut found = Vec::new();
                        let domain = base
                            .descendants()
                            .find(|n| n.has_tag_name("domain"))
                            .expect("a domain");
                        twice(domain, fix.root_element(), "", &mut found);
                        replaced += found.len();
                        if !found.is_empty() && !needs.contains("in place of") {
                            complain(format!("{found:?} twice"));
                        }
                        let vcpus = |doc: &Document<'_>| {
                            doc.descendants()
                                .find(|n| n.has_tag_name("vcpu"))?
                                .text()?
                                .trim()
                                .parse::<u32>()
                                .ok()
                        };
                        let pins = fix
                            .descendants()
                            .filter_map(|n| n.attribute("vcpu")?.parse::<u32>().ok())
                            .max();
                        if let (Some(last), Some(vcpus)) = (pins, vcpus(&base))
                            && last >= vcpus
                        {
                            complain(format!("a pin of vCPU {last} of {vcpus}"));
                        }
                    }
                    // Proxmox names an accelerator itself.
                    Some("qemu-option") if needs.contains("args:") && text.contains("accel") => {
                        complain("a second accelerator".into());
                    }
                    Some("command") => {
                        let pins = text.lines().filter_map(|line| line.strip_prefix("virsh "));
                        let pinned = pins.filter(|line| {
                            line.split(' ')
                                .next()
                                .is_some_and(|verb| verb.ends_with("pin"))
                        });
                        for other in pinned.filter_map(|line| line.split(' ').nth(1)) {
                            let in_files = case.files.values().any(|text| text.contains(other));
                            if other != "GUEST"
                                && other != "--domain"
                                && !guests.contains(&other)
                                && !in_files
                            {
                                complain(format!("no guest {other}"));
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(replaced > 5, "{replaced} elements in place of others");
    }

    #[test]
    fn every_virsh_command_exists() {
        if !present("virsh", &["--version"]) {
            return common::skipped("every_virsh_command_exists", "virsh is not installed");
        }
        let mut verbs = std::collections::BTreeSet::new();
        for (_, _, finding) in findings() {
            let mut text = String::new();
            words(&finding, &mut text);
            for at in text.match_indices("virsh ").map(|m| m.0) {
                let mut rest = text[at + "virsh ".len()..].split([' ', '\n', ',', ';', ')']);
                let verb = rest.next().unwrap_or_default().to_owned();
                let live = text[at..]
                    .lines()
                    .next()
                    .is_some_and(|l| l.contains("--live"));
                verbs.insert((verb, live));
            }
        }
        assert!(verbs.len() > 2, "{verbs:?}");
        for (verb, live) in verbs {
            let help = Command::new("virsh")
                .args(["help", &verb])
                .output()
                .expect("virsh");
            assert!(help.status.success(), "virsh {verb} is no command");
            assert!(
                !live || String::from_utf8_lossy(&help.stdout).contains("--live"),
                "virsh {verb} has no --live"
            );
        }
        common::ran("every_virsh_command_exists");
    }

    #[test]
    fn links_lead_to_the_documents_of_those_who_know() {
        for (name, _, finding) in findings() {
            for link in finding["see"].as_array().expect("links") {
                let link = link.as_str().unwrap_or_default();
                let known = [
                    "https://libvirt.org/",
                    "https://www.qemu.org/docs/",
                    "https://docs.kernel.org/",
                    "https://man7.org/linux/man-pages/",
                ];
                assert!(known.iter().any(|k| link.starts_with(k)), "{name}: {link}");
            }
        }
    }
}
