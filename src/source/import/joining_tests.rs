//! Which domain the output of a tool belongs to, and what of it the sample holds.

use super::{ImportOptions, Imported, load};
use crate::kvm::thread_name::Role;
use crate::sample::DomainState;

const PINS: &str = " VCPU   CPU Affinity\n----------------------\n 0      2\n 1      2\n\n";

fn xml(name: &str) -> String {
    format!("<domain type='kvm'><name>{name}</name><vcpu>2</vcpu></domain>\n")
}

fn import(contents: &[(&str, &str)]) -> Imported {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in contents {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    load(&[folder.path().to_owned()], &ImportOptions::default())
}

/// Each domain with the CPUs of its threads.
fn places(imported: &Imported) -> Vec<(String, String)> {
    let domain = |d: &crate::sample::DomainSample| {
        let threads = d.threads.iter().filter_map(|t| {
            let id = t.index.map_or(String::new(), |i| i.to_string());
            Some(format!("{}{id}={}", t.role, t.place.affinity.as_ref()?))
        });
        (d.facts.name.value.clone(), threads.collect::<Vec<_>>().join(" "))
    };
    imported.sample.domains.iter().map(domain).collect()
}

fn expected(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn the_output_belongs_to_the_only_domain() {
    let imported = import(&[("a.xml", &xml("web")), ("b", PINS), ("c", " emulator   CPU Affinity\n---\n *    0-1\n")]);
    assert_eq!(imported.errors, []);
    assert_eq!(places(&imported), expected(&[("web", "vcpu0=2 vcpu1=2 emulator=0-1")]));
    let alone = import(&[("b", PINS)]);
    assert_eq!(places(&alone), expected(&[("guest", "vcpu0=2 vcpu1=2")]));
    assert_eq!(alone.sample.domains[0].facts.vcpus.as_ref().unwrap().value, 2);
}

#[test]
fn a_pasted_command_or_the_files_name_says_which_domain_it_is() {
    let both = format!("{}{}", xml("web"), xml("web-2"));
    let pasted = format!("# virsh vcpupin web-2\n{PINS}");
    assert_eq!(
        places(&import(&[("a", &both), ("b", &pasted)])),
        expected(&[("web", ""), ("web-2", "vcpu0=2 vcpu1=2")])
    );
    for name in ["vcpupin-web-2.txt", "virsh_vcpupin_web-2"] {
        assert_eq!(places(&import(&[("a", &both), (name, PINS)]))[1].1, "vcpu0=2 vcpu1=2", "{name}");
    }
    let nameless = import(&[("a", &both), ("b", PINS)]);
    assert!(nameless.errors[0].what.contains("which of 2 domains"), "{:?}", nameless.errors);
    assert!(places(&nameless).iter().all(|(_, threads)| threads.is_empty()));
}

#[test]
fn a_paused_domain_and_its_last_cpus_are_seen() {
    let text =
        "VCPU:           0\nCPU:            3\nState:          paused\nCPU time:       7.0s\nCPU Affinity:   --yy\n";
    let imported = import(&[("a", &xml("web")), ("b", text)]);
    let domain = &imported.sample.domains[0];
    assert_eq!(domain.state, DomainState::Paused);
    let thread = &domain.threads[0];
    assert_eq!((thread.role, thread.place.cpu), (Role::Vcpu, Some(3)));
}

#[test]
fn damaged_xml_is_read_and_said() {
    let imported = import(&[("cut.xml", "<domain>\n<name>web</name>\n<vcpu>4</vcpu>\n<cputune>\n<vcpupin vcpu='0' ")]);
    assert_eq!((imported.errors.len(), places(&imported)[0].0.as_str()), (0, "web"));
    assert_eq!(imported.notes, ["cut.xml:5: the XML breaks off here; what follows is missing"]);
    let escaped = xml("web").replace('<', "&lt;").replace('>', "&gt;");
    assert_eq!(places(&import(&[("a", &escaped)]))[0].0, "web");
}

#[test]
fn fragments_in_several_files_are_one_domain() {
    let (pins, clock) =
        ("<vcpupin vcpu='0' cpuset='2'/>", "<clock offset='utc'><timer name='hpet' present='no'/></clock>");
    let imported = import(&[("a", pins), ("b", clock)]);
    let [domain] = imported.sample.domains.as_slice() else { panic!("{:?}", places(&imported)) };
    let xml = &domain.facts.xml.as_ref().unwrap().value;
    assert_eq!((xml.vcpu_pins.len(), xml.clock.present("hpet")), (1, Some(false)));
}

#[test]
fn several_texts_of_one_host_complete_each_other() {
    let imported = import(&[
        ("a", "node 0 cpus: 0 2\nnode 1 cpus: 1 3\n"),
        ("b", "CPU SOCKET CORE ONLINE\n0 0 0 yes\n1 1 1 yes\n2 0 0 yes\n3 1 1 yes\n"),
    ]);
    let host = &imported.sample.host.facts.topology;
    assert_eq!((host.siblings(3).to_string(), host.node_of(2)), ("1,3".into(), Some(0)));
}
