//! Undamaged inputs: the fixtures and the demo by their paths, small made inputs, and samples of synthetic hosts.

use super::recordings::BETWEEN;
use crate::inputs;
use crate::synthetic::random::{RandomHost, storming};
use crate::synthetic::{Fixture, Host};
use kvmtop::kvm;
use kvmtop::sample::{DomainFacts, HostFacts, Sample};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// Larger files are cut here: a fuzzer makes little of them.
const LONGEST: usize = 48 << 10;

/// The repository: this is compiled in its own folder and in `fuzz/`.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    if here.join("tests/fixtures").is_dir() { here.to_owned() } else { here.join("..") }
}

/// The files of a folder of the repository and of those in it, in order of name.
pub fn files_of(folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut open = vec![root().join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if let Ok(content) = std::fs::read(&path) {
                found.push((path, content));
            }
        }
    }
    found.sort();
    found
}

/// Every text that a tool printed: of the cases, the other fixtures, the made inputs.
static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut texts: Vec<String> = Vec::new();
    for (path, content) in files_of("tests/fixtures") {
        let Ok(text) = String::from_utf8(content) else { continue };
        if path.extension().is_some_and(|e| e == "toml") {
            let case: toml::Table = text.parse().expect("a case");
            let files = case.get("files").and_then(toml::Value::as_table).expect("files of a case");
            texts.extend(files.values().filter_map(toml::Value::as_str).map(str::to_owned));
        } else {
            texts.push(text);
        }
    }
    texts.extend(inputs::ALL.iter().flat_map(|input| (input.files)(3)).map(|(_, text)| text));
    for text in &mut texts {
        let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    texts
});

#[track_caller]
fn texts(is: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    let found: Vec<_> = TEXTS.iter().filter(|text| is(text)).map(|text| text.clone().into_bytes()).collect();
    assert!(!found.is_empty(), "no text of this kind among the fixtures");
    found
}

/// Only the files of `fuzz/seeds`.
pub fn written() -> Vec<Vec<u8>> {
    Vec::new()
}

/// Any text.
pub fn inputs() -> Vec<Vec<u8>> {
    texts(|_| true)
}

pub fn perf_tables() -> Vec<Vec<u8>> {
    texts(|text| text.contains("Samples%") || text.contains("Total Samples"))
}

pub fn traces() -> Vec<Vec<u8>> {
    texts(|text| text.contains("kvm_entry"))
}

pub fn domain_xmls() -> Vec<Vec<u8>> {
    texts(kvm::domain_xml::looks_like)
}

pub fn mtrees() -> Vec<Vec<u8>> {
    texts(kvm::mtree::looks_like)
}

pub fn kernel_logs() -> Vec<Vec<u8>> {
    texts(kvm::kernel_log::looks_like)
}

pub fn process_texts() -> Vec<Vec<u8>> {
    texts(|text| kvm::process_text::looks_like(text, None))
}

pub fn time_profiles() -> Vec<Vec<u8>> {
    texts(|text| kvm::time_profile::remark(text).is_some())
}

pub fn topologies() -> Vec<Vec<u8>> {
    texts(kvm::topology_text::looks_like)
}

pub fn virsh() -> Vec<Vec<u8>> {
    texts(kvm::virsh_text::looks_like)
}

pub fn cmdlines() -> Vec<Vec<u8>> {
    texts(kvm::cmdline::looks_like)
}

pub fn domain_capabilities() -> Vec<Vec<u8>> {
    texts(|text| kvm::domain_capabilities::split(text).is_some())
}

pub fn vmm_configs() -> Vec<Vec<u8>> {
    texts(kvm::vmm_config::looks_like)
}

pub fn tracefs_formats() -> Vec<Vec<u8>> {
    texts(|text| text.contains("print fmt:"))
}

pub fn configs() -> Vec<Vec<u8>> {
    vec![std::fs::read(root().join("assets/kvmtop.toml")).expect("the example")]
}

/// The recordings of the repository, and one of these samples.
pub fn sessions() -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = files_of("tests/fixtures/session").into_iter().map(|(_, bytes)| bytes).collect();
    found.extend(samples().iter().map(|samples| super::recordings::recording(samples)));
    found
}

/// `perf.data` files, unpacked; the first part of long ones.
pub fn perf_data() -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for (path, bytes) in files_of("tests/fixtures/import/perf_data") {
        let mut plain = Vec::new();
        match path.extension().and_then(|e| e.to_str()) {
            Some("zst") => {
                let unpacked = zstd::stream::read::Decoder::new(&*bytes).expect("a fixture");
                unpacked.take(LONGEST as u64).read_to_end(&mut plain).expect("a fixture");
            }
            Some("data") => plain.extend(&bytes[..bytes.len().min(LONGEST)]),
            _ => continue,
        }
        found.push(plain);
    }
    found
}

/// A small sosreport in every compression, and as a zip archive.
pub fn archives() -> Vec<Vec<u8>> {
    let xml = "<domain type='kvm'><name>web</name><vcpu>2</vcpu></domain>\n";
    let log = "[1.654337] kvm [21715]: vcpu0, guest rIP: 0x1 Unhandled RDMSR(0x64d)\n";
    let mut tar = tar::Builder::new(Vec::new());
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in [("sos/etc/libvirt/qemu/web.xml", xml), ("sos/sos_commands/kernel/dmesg", log)] {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).expect("memory takes all");
        zip.write_all(text.as_bytes()).expect("memory takes all");
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, name, text.as_bytes()).expect("memory takes all");
    }
    let tar = tar.into_inner().expect("memory takes all");
    let mut gzip = flate2::read::GzEncoder::new(&*tar, flate2::Compression::fast());
    let mut bzip2 = bzip2::read::BzEncoder::new(&*tar, bzip2::Compression::fast());
    let (mut gz, mut bz2) = (Vec::new(), Vec::new());
    gzip.read_to_end(&mut gz).expect("memory takes all");
    bzip2.read_to_end(&mut bz2).expect("memory takes all");
    let zst = zstd::encode_all(&*tar, 1).expect("memory takes all");
    let xz =
        files_of("tests/fixtures/import").into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "xz"));
    let zip = zip.finish().expect("memory takes all").into_inner();
    [tar, gz, bz2, zst, zip].into_iter().chain(xz.map(|(_, bytes)| bytes)).collect()
}

/// Uncompressed samples of small hosts, as `recordings::recording` takes them.
pub fn samples() -> Vec<Vec<u8>> {
    let host = || Host::numa(1, 2, 2).isolated("2-3");
    let busy = Fixture { host: host(), ..Fixture::busy_host() };
    let mut random = RandomHost::new(5, 1, 1, |_, r| storming(r));
    let mut of_fixture: Vec<Sample> = (0..3).map(|second| busy.sample(f64::from(second))).collect();
    of_fixture.iter_mut().for_each(|sample| sample.domains.truncate(1));
    let of_random: Vec<Sample> = (0..3).map(|_| random.tick()).collect();
    [of_fixture, of_random].iter().map(|samples| joined(samples)).collect()
}

/// The same behind a size and keys, as `recordings::screen` takes them.
pub fn screens() -> Vec<Vec<u8>> {
    let choices = [[0, 0, 1, 9], [1, 2, 12, 11], [2, 13, 7, 8], [3, 14, 15, 10]];
    samples().iter().flat_map(|samples| choices.map(|choice| [&choice, &**samples].concat())).collect()
}

/// The values of samples as the session format has them: new facts, the place of each guest's facts, the sample.
fn joined(samples: &[Sample]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut known: BTreeMap<*const DomainFacts, u32> = BTreeMap::new();
    let mut host: Option<Arc<HostFacts>> = None;
    for sample in samples {
        let mut new: Vec<&DomainFacts> = Vec::new();
        let mut numbers = Vec::new();
        for domain in &sample.domains {
            let next = known.len() as u32;
            let number = *known.entry(Arc::as_ptr(&domain.facts)).or_insert(next);
            if number == next {
                new.push(&domain.facts);
            }
            numbers.push(number);
        }
        let new_host = (host.as_ref() != Some(&sample.host.facts)).then_some(&*sample.host.facts);
        host = Some(sample.host.facts.clone());
        if !out.is_empty() {
            out.extend(BETWEEN);
        }
        out.extend(postcard::to_stdvec(&(new_host, new, numbers, sample)).expect("memory takes all"));
    }
    out
}
