use super::{DescriptionFiles, ImportError, ImportOptions, Imported, load};
use judge::model::{Base, Model};
use kvm::Space;
use proptest::prelude::*;
use sample::Origin;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TABLE: &str = "Analyze events for all VMs, all VCPUs:\n\n  VM-EXIT    Samples  Samples%     \
    Time%    Min Time    Max Time         Avg time\n\nIO_INSTRUCTION 900 90.00% 50.00% 1.00us \
    9.00us 5.00us ( +- 1.00% )\nHLT 100 10.00% 50.00% 1.00us 99.00us 45.00us ( +- 1.00% )\n\nTotal \
    Samples:1000, Total events handled time:9000.00us.\n";
const PORTS: &str = "IO Port Access    Samples  Samples%     Time%    Min Time    Max Time         \
    Avg time\n\n0x608:PIN 890 98.89% 99.00% 1.00us 2.00us 1.50us ( +- 0.28% )\n0x70:POUT 10 1.11% \
    1.00% 1.00us 2.00us 1.50us ( +- 0.28% )\n";
const XML: &str = "<domain type='kvm'>\n  <name>web</name>\n  \
    <uuid>8280445b-28ae-48ff-8f1c-ceb79b3f8858</uuid>\n  <vcpu>4</vcpu>\n<os><type arch='x86_64' \
    machine='pc-q35-7.2'>hvm</type></os>\n</domain>\n";
const MTREE: &str = "0000000000000608-000000000000060b (prio 0, i/o): acpi-tmr\n";
const COMMAND: &str = "/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on -uuid \
    8280445b-28ae-48ff-8f1c-ceb79b3f8858 -machine pc-q35-7.2 -smp 4\n";
const LOG: &str = "[ 592.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611\n";
const LSCPU: &str = "# CPU,Core,Socket,Node\n0,0,0,0\n1,0,0,0\n2,1,0,0\n3,1,0,0\n";

fn files(contents: &[(&str, &str)]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let paths = contents.iter().map(|(name, text)| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    });
    let paths = paths.collect();
    (folder, paths)
}

fn import(contents: &[(&str, &str)], options: &ImportOptions) -> Imported {
    let (_folder, paths) = files(contents);
    load(&paths, options)
}

fn names(imported: &Imported) -> Vec<&str> {
    imported
        .sample
        .domains
        .iter()
        .map(|d| d.facts.name.value.as_str())
        .collect()
}

#[test]
fn everything_of_one_domain_comes_together() {
    let all = [
        ("a", TABLE),
        ("b", PORTS),
        ("c", XML),
        ("d", MTREE),
        ("e", COMMAND),
        ("f", LOG),
        ("g", LSCPU),
    ];
    let imported = import(
        &all,
        &ImportOptions {
            duration_s: Some(10.0),
            ..ImportOptions::default()
        },
    );
    assert_eq!(
        (imported.errors.len(), imported.source, imported.interval_s),
        (0, "text", Some(10.0))
    );
    let model = Model::new(&imported.sample, Base::Whole(imported.interval_s));
    let [domain] = model.domains.as_slice() else {
        panic!("{:?}", names(&imported))
    };
    assert_eq!(
        (domain.name(), domain.exits.count, domain.vcpu_count()),
        ("web", 1000, 4)
    );
    let ports = domain
        .exits
        .rows
        .iter()
        .find(|row| row.reason == "IO_INSTRUCTION")
        .unwrap();
    assert_eq!(ports.rate, Some(90.0));
    let timer = domain
        .accesses
        .iter()
        .find(|a| a.space == Space::Pio && a.address == Some(0x608))
        .unwrap();
    let device = timer.device.as_ref().unwrap();
    assert_eq!(
        (device.name.as_str(), device.from, timer.span.count),
        ("acpi-tmr", Origin::Monitor, 890)
    );
    let facts = &domain.facts;
    assert!(facts.command.is_some() && facts.machine.as_ref().unwrap().value == "pc-q35-7.2");
    assert_eq!(imported.sample.host.kernel_log[0].msr, Some(0x611));
    assert_eq!(
        imported.sample.host.facts.topology.siblings(2).to_string(),
        "2-3"
    );
    let folder = files(&all).0;
    let options = ImportOptions {
        duration_s: Some(10.0),
        ..ImportOptions::default()
    };
    assert_eq!(
        load(&[folder.path().to_owned()], &options).sample,
        imported.sample,
        "a folder stands for its files"
    );
}

#[test]
fn two_descriptions_are_two_domains() {
    let other = XML.replace("web", "db").replace("8280445b", "9280445b");
    let imported = import(&[("a", XML), ("b", &other)], &ImportOptions::default());
    assert_eq!(
        (names(&imported), imported.source),
        (vec!["web", "db"], "xml")
    );
    let imported = import(
        &[
            ("a", XML),
            ("b", &other),
            ("c", TABLE),
            ("d", COMMAND),
            ("e", MTREE),
        ],
        &ImportOptions::default(),
    );
    assert_eq!(names(&imported), ["web", "db", "guest"]);
    assert!(
        imported.sample.domains[0].facts.command.is_some(),
        "joined by UUID"
    );
    let [ImportError { what, .. }] = imported.errors.as_slice() else {
        panic!("{:?}", imported.errors)
    };
    assert!(what.contains("does not name its guest"), "{what}");
    // The same domain twice is one.
    assert_eq!(
        names(&import(
            &[("a", XML), ("b", XML)],
            &ImportOptions::default()
        )),
        ["web"]
    );
}

#[test]
fn a_table_without_a_process_goes_with_the_only_one_that_has() {
    let live = TABLE.replace("all VMs", "pid(s) 4711");
    for contents in [
        [("a", live.as_str()), ("b", PORTS)],
        [("a", PORTS), ("b", live.as_str())],
    ] {
        let imported = import(&contents, &ImportOptions::default());
        let [domain] = imported.sample.domains.as_slice() else {
            panic!("{:?}", names(&imported))
        };
        assert_eq!(domain.facts.pid, Some(4711));
        assert!(!domain.unattributed.exits.is_empty() && !domain.unattributed.accesses.is_empty());
    }
}

#[test]
fn the_status_xml_says_which_process_a_table_is_of() {
    let status = format!(
        "<domstatus state='running' reason='booted' pid='4711'>\n<vcpus><vcpu id='0' \
        pid='4713'/></vcpus>\n{XML}</domstatus>\n"
    );
    let other = XML.replace("web", "db").replace("8280445b", "9280445b");
    let table = TABLE.replace("all VMs", "pid(s) 4711");
    let imported = import(
        &[("a", &other), ("b", &status), ("c", &table)],
        &ImportOptions::default(),
    );
    assert_eq!(
        (names(&imported), imported.notes.len()),
        (vec!["db", "web"], 0)
    );
    assert!(!imported.sample.domains[1].unattributed.exits.is_empty());
}

#[test]
fn options_supply_what_is_lacking_and_nothing_is_made_up() {
    let bare = import(&[("a", TABLE)], &ImportOptions::default());
    assert_eq!(
        (bare.interval_s, bare.sample.domains[0].facts.vcpus.clone()),
        (None, None)
    );
    let options = ImportOptions {
        duration_s: Some(5.0),
        vcpus: Some(8),
    };
    let given = import(&[("a", TABLE), ("b", XML)], &options);
    assert_eq!(
        (
            given.interval_s,
            given.sample.domains[0]
                .facts
                .vcpus
                .as_ref()
                .map(|v| v.value)
        ),
        (Some(5.0), Some(8))
    );
}

#[test]
fn a_file_that_is_none_is_said_and_the_others_are_used() {
    let (folder, mut paths) = files(&[
        ("good", TABLE),
        ("empty", ""),
        ("notes", "Buy milk.\n"),
        ("broken", "<domain><name>x</domain>"),
        ("mail", &format!("Hello,\n\nthis is slow:\n\n{TABLE}")),
    ]);
    std::fs::write(folder.path().join("zip"), b"PK\x03\x04whatever").unwrap();
    std::fs::write(folder.path().join("trace.dat"), b"\x17\x08\x44tracing6\0").unwrap();
    let pipe = std::process::Command::new("mkfifo")
        .arg(folder.path().join("pipe"))
        .status()
        .unwrap();
    assert!(pipe.success());
    paths.extend(["zip", "trace.dat", "absent", "pipe"].map(|n| folder.path().join(n)));
    let imported = load(&paths, &ImportOptions::default());
    assert_eq!(imported.sample.domains.len(), 1);
    let said = |name: &str| {
        let error = imported
            .errors
            .iter()
            .find(|e| e.path.ends_with(name))
            .unwrap_or_else(|| panic!("nothing said of {name}"));
        assert!(
            error
                .to_string()
                .starts_with(folder.path().to_str().unwrap()),
            "{error}"
        );
        error.what.clone()
    };
    assert!(said("empty").starts_with(
        "it is empty, or a pipe into which nobody writes; expected a kvmtop recording"
    ));
    assert!(said("pipe").starts_with("it is empty, or a pipe"));
    assert!(
        said("notes")
            .starts_with("not the output of a tool that kvmtop reads; expected a kvmtop recording")
    );
    assert!(said("zip").contains("unpack it first"));
    assert!(said("trace.dat").contains("trace-cmd report"));
    assert_eq!(said("absent"), "cannot open it: No such file or directory");
    assert!(said("broken").starts_with("not well-formed XML"));
    assert!(said("mail").starts_with("not the output of a tool"));
    assert_eq!(imported.errors.len(), 8);
}

#[test]
fn an_empty_folder_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let imported = load(&[folder.path().to_owned()], &ImportOptions::default());
    assert!(
        imported.errors[0]
            .what
            .starts_with("the folder holds 0 files")
    );
    assert!(imported.sample.domains.is_empty());
    std::fs::create_dir(folder.path().join("within")).unwrap();
    std::fs::write(folder.path().join(".hidden"), "x").unwrap();
    assert_eq!(
        load(&[folder.path().to_owned()], &ImportOptions::default())
            .errors
            .len(),
        1
    );
}

#[test]
fn a_perf_data_without_kvm_events_and_a_damaged_one_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let said = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let imported = load(std::slice::from_ref(&path), &ImportOptions::default());
        imported
            .errors
            .first()
            .map(|e| e.what.clone())
            .unwrap_or_default()
    };
    assert!(said(b"PERFILE2").contains("within its header"));
    assert!(
        said(&[b"PERFILE2".as_slice(), &104u64.to_le_bytes(), &[0xff; 88]].concat())
            .contains("header is damaged")
    );
    assert!(
        said(&[b"PERFILE2".as_slice(), &16u64.to_le_bytes()].concat())
            .contains("describes no event")
    );
    assert!(
        said(&[b"2ELIFREP".as_slice(), &16u64.to_be_bytes(), &[0; 64]].concat())
            .contains("big-endian")
    );
}

/// A small recording, its bytes changed here and there.
fn damaged(name: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let whole = std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/fixtures/import/perf_data")
            .join(name),
    )
    .unwrap();
    let at = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..12);
    (at, any::<proptest::sample::Index>(), any::<bool>()).prop_map(move |(changes, end, cut)| {
        let mut bytes = whole.clone();
        for (i, (index, value)) in changes.into_iter().enumerate() {
            // Half of the changes go to the header and the descriptions after it.
            let room = if i % 2 == 0 {
                bytes.len().min(2048)
            } else {
                bytes.len()
            };
            bytes[index.index(room)] = value;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_damage_to_a_perf_data_makes_it_panic(
        bytes in prop_oneof![damaged("compressed.data"), damaged("compressed-pipe.data")],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, bytes).unwrap();
        let imported = load(&[path], &ImportOptions::default());
        prop_assert!(imported.errors.len() <= 1);
    }

    #[test]
    fn no_file_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), start in prop_oneof![
        Just(""), Just("PERFILE2"), Just("2ELIFREP"), Just("<domain>"), Just("\u{feff}"), Just("VM-EXIT \
            Samples")]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, [start.as_bytes(), &bytes].concat()).unwrap();
        let _ = load(&[path], &ImportOptions::default());
    }
}

#[test]
fn files_beside_a_session_complete_what_it_tells() {
    let none = ImportOptions::default();
    let recorded = |name: &str| {
        let mut sample = import(&[("a", TABLE), ("b", PORTS)], &none).sample;
        Arc::make_mut(&mut sample.domains[0].facts).name.value = name.into();
        sample
    };
    let (files, measured) = DescriptionFiles::new(import(
        &[("c", XML), ("d", MTREE), ("f", LOG), ("g", LSCPU)],
        &none,
    ));
    assert_eq!(measured.len(), 0);
    let mut sample = recorded("web");
    files.complete(&mut sample);
    let facts = &sample.domains[0].facts;
    assert_eq!(facts.machine.as_ref().unwrap().value, "pc-q35-7.2");
    assert!(facts.xml.is_some() && facts.uuid.is_some());
    assert_eq!(facts.devices.as_ref().unwrap().from, Origin::Monitor);
    assert_eq!(sample.host.facts.topology.siblings(2).to_string(), "2-3");
    assert_eq!(sample.host.kernel_log.len(), 1);

    let mut other = recorded("db");
    files.complete(&mut other);
    assert_eq!(
        other.domains[0].facts,
        recorded("db").domains[0].facts,
        "another guest's XML"
    );

    let (files, _) = DescriptionFiles::new(import(&[("d", MTREE)], &none));
    let mut alone = recorded("db");
    files.complete(&mut alone);
    assert!(
        alone.domains[0].facts.devices.is_some(),
        "a tree that names nobody is the only guest's"
    );
    let mut two = recorded("db");
    two.domains.push(recorded("web").domains.remove(0));
    files.complete(&mut two);
    assert!(two.domains.iter().all(|d| d.facts.devices.is_none()));

    assert_eq!(
        DescriptionFiles::new(import(&[("a", TABLE), ("c", XML)], &none)).1,
        ["web"],
        "measured, not described"
    );
}

#[test]
fn a_nameless_description_is_of_the_only_guest() {
    let command = "/usr/bin/qemu-system-x86_64 -machine pc-q35-7.2 -smp 4\n";
    let imported = import(&[("a", XML), ("b", command)], &ImportOptions::default());
    assert_eq!(names(&imported), ["web"]);
    assert!(imported.sample.domains[0].facts.command.is_some());
    let other = XML.replace("web", "db").replace("8280445b", "9280445b");
    let imported = import(
        &[("a", XML), ("b", command), ("c", &other)],
        &ImportOptions::default(),
    );
    assert_eq!(names(&imported), ["web", "db", "guest"]);
}

#[test]
fn the_xml_of_a_running_guest_is_better_than_its_definition() {
    let definition = XML.replace("<vcpu>4", "<vcpu>2");
    let running = XML.replace("<domain type='kvm'>", "<domain type='kvm' id='3'>");
    for files in [
        [("a", definition.as_str()), ("b", running.as_str())],
        [("a", &running), ("b", &definition)],
    ] {
        let imported = import(&files, &ImportOptions::default());
        let [domain] = imported.sample.domains.as_slice() else {
            panic!("{:?}", names(&imported))
        };
        assert_eq!(
            domain.facts.vcpus.as_ref().map(|vcpus| vcpus.value),
            Some(4)
        );
        assert_eq!(
            domain.facts.xml.as_ref().unwrap().value.state,
            None,
            "it runs"
        );
    }
}

#[test]
fn counts_of_another_time_are_left_out() {
    let batch = "kvm_exit                                         90000      9000\n";
    let alone = import(&[("a", batch)], &ImportOptions::default());
    assert_eq!(
        (
            alone.interval_s,
            alone.sample.domains[0].kvm_events["kvm_exit"]
        ),
        (Some(1.0), 9000)
    );
    let options = ImportOptions {
        duration_s: Some(10.0),
        ..ImportOptions::default()
    };
    let both = import(&[("a", batch), ("b", TABLE)], &options);
    assert!(
        both.sample.domains[0].kvm_events.is_empty() && both.notes[0].contains("left out"),
        "{:?}",
        both.notes
    );
}
