//! The readers of what others wrote: each takes any bytes and must not panic. `cargo test --test it
//! fuzz` and `make fuzz` run them.

use super::seeds::Source;
use import::{ImportOptions, Imported};
use judge::analysis::{DomainFilter, Pattern, Pipeline};
use judge::lint::{InputKind, Options};
use judge::model::Base;
use kvm::{
    CpuSet, Space, cmdline, device_map, domain_xml as xml, format, guest_name, kernel_log as log,
    mtree as tree, sanitize, sanitize_name, thread_name,
};
use kvmtop::cli::args::ChoiceArgs;
use kvmtop::cli::{Settings, config::Config};
use kvmtop::ui::{AppState, ScreenSession, key};
use ratatui::crossterm::event::KeyCode;
use report::table::COLUMNS;
use report::{View, json, text};
use session::Session;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A reader, or the way from any file to the report.
pub struct Reader {
    /// Its name; `fuzz/seeds` has a folder of the same name.
    pub name: &'static str,
    /// Reads an input.
    pub read: fn(&[u8]),
    pub(super) source: Source,
}

const fn reader(name: &'static str, read: fn(&[u8]), source: Source) -> Reader {
    Reader { name, read, source }
}

/// All readers.
pub const READERS: &[Reader] = &[
    reader("cmdline", cmdline, Source::Texts(cmdline::looks_like)),
    reader("config", config, Source::Files("assets/kvmtop.toml")),
    reader("cpu_list", cpu_list, Source::Written),
    reader(
        "domain_xml",
        domain_xml,
        Source::Texts(|text| text.contains("<domain")),
    ),
    reader("filter", filter, Source::Written),
    reader(
        "kernel_log",
        kernel_log,
        Source::Texts(|text| text.contains("kvm [")),
    ),
    reader("kvm_stat", input, Source::Written),
    reader("mtree", mtree, Source::Texts(tree::looks_like)),
    reader("names", names, Source::Written),
    reader(
        "perf_data",
        perf_data,
        Source::Files("tests/fixtures/import/perf_data"),
    ),
    reader(
        "perf_tables",
        input,
        Source::Texts(|text| text.contains("Samples%") || text.contains("Total Samples")),
    ),
    reader(
        "proxmox",
        input,
        Source::Texts(|text| text.contains("ostype: ")),
    ),
    reader("qmp", qmp, Source::Written),
    reader("report", report, Source::Texts(|_| true)),
    reader("session", session, Source::Files("tests/fixtures/session")),
    reader(
        "topology",
        input,
        Source::Texts(|text| text.starts_with("Architecture:") || text.contains("CPU,")),
    ),
    reader(
        "trace",
        input,
        Source::Texts(|text| text.contains("kvm_entry")),
    ),
    reader(
        "tracefs_format",
        tracefs_format,
        Source::Texts(|text| text.contains("print fmt:")),
    ),
];

fn text_of(input: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(input)
}

/// Calls `read` with a file of this content, in memory where there is a `/dev/shm`.
///
/// # Panics
/// If no file can be written.
fn with_file<T>(input: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static FILE: RefCell<Option<NamedTempFile>> = const { RefCell::new(None) };
    }
    FILE.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| {
            let memory = Path::new("/dev/shm");
            let folder = if memory.is_dir() {
                memory.into()
            } else {
                std::env::temp_dir()
            };
            NamedTempFile::new_in(folder).expect("a temporary file")
        });
        let open: &mut File = file.as_file_mut();
        open.set_len(0)
            .and_then(|()| open.rewind())
            .and_then(|()| open.write_all(input))
            .expect("the file is written");
        read(file.path())
    })
}

fn import(path: PathBuf) -> Imported {
    let imported = import::load(&[path], &ImportOptions::default());
    for error in &imported.errors {
        assert!(!error.what.is_empty());
    }
    imported
}

/// A file of any type that `report` takes, as one sample.
fn input(input: &[u8]) {
    with_file(input, |path| import(path.to_owned()));
}

/// A file of any type: imported, judged, as text and as JSON.
fn report(input: &[u8]) {
    let imported = with_file(input, |path| import(path.to_owned()));
    let options = Options {
        input: InputKind::File,
        ..Options::default()
    };
    let judged = Pipeline::new(options).judge(&imported.sample, Base::Whole(imported.interval_s));
    let domains = DomainFilter::default();
    let view = View {
        model: &judged.model,
        findings: &judged.report,
        source: imported.source,
        filter: &domains,
    };
    text::report(&view, COLUMNS);
    json::line(&view).expect("JSON");
}

/// A recording: every sample, and every way to look for one.
fn session(input: &[u8]) {
    let open = |path: &Path| {
        Some(
            Session::from_file(File::open(path).ok()?, path)
                .ok()?
                .cursor(),
        )
    };
    let Some(mut cursor) = with_file(input, open) else {
        return;
    };
    for time in [i64::MIN, 0, i64::MAX] {
        let _ = (
            cursor.index_at(time),
            cursor.index_from(time),
            cursor.begins_run(0),
            cursor.session().damage(),
        );
    }
    let mut next = 0;
    while let Some((index, _)) = cursor.readable_from(next) {
        next = index + 1;
    }
}

fn perf_data(input: &[u8]) {
    with_file(input, |path| {
        drop(import::load(&[path.to_owned()], &ImportOptions::default()));
    });
}

/// A command line as tools print it, and one as `/proc` has it.
fn cmdline(input: &[u8]) {
    let text = text_of(input);
    if cmdline::looks_like(&text) {
        let _ = cmdline::parse_text(&text);
    }
    let argv: Vec<String> = text.split(['\0', '\n']).map(str::to_owned).collect();
    cmdline::parse_argv(&argv);
    cmdline::parse_options(&argv);
}

/// kvmtop's own config file, read and saved again.
fn config(input: &[u8]) {
    let text = text_of(input);
    if let Ok(config) = Config::parse(&text, Path::new("config.toml")) {
        let _ = Settings::new(&config, None, &ChoiceArgs::default(), None);
    }
}

/// A list of CPUs as the kernel and libvirt write it.
fn cpu_list(input: &[u8]) {
    if let Ok(set) = CpuSet::parse(&text_of(input)) {
        assert_eq!(CpuSet::parse(&set.to_string()).ok(), Some(set));
    }
}

/// A domain's XML.
fn domain_xml(input: &[u8]) {
    let _ = xml::parse(&text_of(input));
}

/// A filter of the table of guests, typed on the screen, and one of `--domain`.
fn filter(input: &[u8]) {
    let text = text_of(input);
    let text: String = text.chars().filter(|c| !c.is_control()).take(300).collect();
    let _ = Pattern::new(&text);
    let mut state = AppState::new(ScreenSession::default(), (80, 24));
    let keys = std::iter::once('/')
        .chain(text.chars())
        .map(KeyCode::Char)
        .chain([KeyCode::Enter]);
    keys.for_each(|code| drop(key(&mut state, code.into())));
}

/// Lines of the kernel's log.
fn kernel_log(input: &[u8]) {
    log::parse(&text_of(input));
}

/// QEMU's `info mtree`, flat or not.
fn mtree(input: &[u8]) {
    let text = text_of(input);
    if tree::looks_like(&text)
        && let Ok(map) = tree::parse(&text)
    {
        for region in [Space::Pio, Space::Mmio]
            .into_iter()
            .flat_map(|space| map.regions(space))
        {
            device_map::friendly(&region.name);
        }
    }
}

/// Names of guests, threads, cgroups and devices, which a process chooses itself.
fn names(input: &[u8]) {
    let text = text_of(input);
    let argv: Vec<String> = text.split(['\0', '\n']).map(str::to_owned).collect();
    guest_name::of_command(&argv);
    guest_name::of_disk(&argv);
    guest_name::of_socket(&text);
    guest_name::of_cgroup(&text);
    device_map::friendly(&text);
    for main in [false, true] {
        thread_name::classify(&text, main);
    }
    thread_name::owner(&text);
    assert!(sanitize(&text, 64).chars().count() <= 64);
    sanitize_name(&text, 64);
}

/// The answers of a QEMU monitor.
fn qmp(input: &[u8]) {
    let (near, mut far) = UnixStream::pair().expect("a pair of sockets");
    far.set_nonblocking(true)
        .expect("a socket that does not wait");
    // What the socket does not take is not sent: such a monitor closes early.
    let _ = far.write_all(input);
    far.shutdown(Shutdown::Write)
        .expect("an end of what is sent");
    let _ = live::ask_all(near);
}

/// A `format` file of tracefs.
fn tracefs_format(input: &[u8]) {
    if let Ok(format) = format::parse(&text_of(input)) {
        format.reason_names();
        format.field("exit_reason");
    }
}
