//! The compiled programs: parsing, relocating and loading them.

use super::btf;
use super::refusal::{Refusal, Stage};
use super::sys::{self, Mapping, Record, SharedMemory};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS;
use aya_obj::generated::{bpf_insn, bpf_prog_type};
use aya_obj::obj::{EbpfSectionKind, ProgramSection};
use kvm::format::EventFormat;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

/// Bytes aligned as the ELF parser needs them.
#[repr(C, align(8))]
pub(super) struct Aligned<T: ?Sized>(pub T);

/// The objects, made from `kvmtop.bpf.c`, `events.bpf.c`, `disks.bpf.c` and `interrupts.bpf.c`.
#[cfg(not(target_arch = "aarch64"))]
pub(super) static MAIN: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/kvmtop.bpf.o"));
/// The object of `kvmtop.bpf.c` with the barriers that arm64 needs.
#[cfg(target_arch = "aarch64")]
pub(super) static MAIN: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/kvmtop.arm64.bpf.o"));
pub(super) static EVENTS: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/events.bpf.o"));
pub(super) static DISKS: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/disks.bpf.o"));
pub(super) static INTERRUPTS: &Aligned<[u8]> =
    &Aligned(*include_bytes!("../../bpf/interrupts.bpf.o"));

/// A map like those that a map of maps has as its elements: the parts of `slots`.
pub(super) const PATTERN: &str = "part";

/// Settings of an object that are fixed before it is loaded.
#[derive(Debug, Default)]
pub(super) struct Choices<'a> {
    /// Number of elements by map, where it differs from the source's.
    pub sizes: HashMap<&'a str, u32>,
    /// Constants by name.
    pub constants: HashMap<&'a str, u32>,
}

/// An object whose maps exist and whose programs can be loaded.
#[derive(Debug)]
pub(super) struct Object {
    object: aya_obj::Object,
    maps: HashMap<String, OwnedFd>,
}

/// Parses an object. Fails only if the build is broken.
pub(super) fn parse(object: &Aligned<[u8]>) -> Result<aya_obj::Object, Refusal> {
    aya_obj::Object::parse(&object.0).map_err(|e| Refusal::broken(&e))
}

fn missing(what: &str, name: &str) -> Refusal {
    Refusal::broken(&format!("no {what} {name}"))
}

fn is_of_maps(map: &aya_obj::Map) -> bool {
    map.map_type() == BPF_MAP_TYPE_ARRAY_OF_MAPS as u32
}

/// Creates a map with its initial data. Constants, which are in a map as well, can then no longer
/// change.
fn create_map(
    map: &aya_obj::Map,
    name: &str,
    pattern: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let fd = sys::create_map(map, name, pattern)?;
    if !map.data().is_empty() {
        sys::update(fd.as_fd(), Some(0), map.data())?;
    }
    if map.section_kind() == EbpfSectionKind::Rodata {
        sys::freeze(fd.as_fd())?;
    }
    Ok(fd)
}

/// Creates the maps of an object, by name. A map of maps comes last: it needs the map [`PATTERN`].
fn create_maps(
    object: &mut aya_obj::Object,
    sizes: &HashMap<&str, u32>,
) -> Result<HashMap<String, OwnedFd>, Refusal> {
    let mut maps = HashMap::<String, OwnedFd>::new();
    let (outer, plain): (Vec<_>, Vec<_>) =
        object.maps.iter_mut().partition(|(_, map)| is_of_maps(map));
    for (name, map) in plain.into_iter().chain(outer) {
        if let Some(size) = sizes.get(name.as_str()) {
            map.set_max_entries(*size);
        }
        let pattern = if is_of_maps(map) {
            maps.get(PATTERN).map(AsFd::as_fd)
        } else {
            None
        };
        let fd = create_map(map, name, pattern).map_err(|e| Refusal::new(Stage::Map, name, e))?;
        maps.insert(name.clone(), fd);
    }
    Ok(maps)
}

impl Object {
    /// Creates the maps and relocates the programs for a kernel with these events.
    pub fn prepare(
        object: &Aligned<[u8]>,
        events: &[EventFormat],
        choices: &Choices<'_>,
    ) -> Result<Self, Refusal> {
        let mut object = parse(object)?;
        let values: HashMap<&str, [u8; 4]> = choices
            .constants
            .iter()
            .map(|(name, value)| (*name, value.to_ne_bytes()))
            .collect();
        let must_exist = true;
        let constants = values
            .iter()
            .map(|(name, value)| (*name, (value.as_slice(), must_exist)))
            .collect();
        object
            .patch_map_data(constants)
            .map_err(|e| Refusal::broken(&e))?;
        let btf = btf::for_object(events, &object).map_err(|e| Refusal::broken(&e))?;
        object.relocate_btf(&btf).map_err(|e| Refusal::broken(&e))?;
        let maps = create_maps(&mut object, &choices.sizes)?;
        // The sections with code.
        let text: HashSet<usize> = object
            .functions
            .keys()
            .map(|(section, _)| *section)
            .collect();
        // A copy, as the object changes while its maps are looked at.
        let definitions = object.maps.clone();
        let by_name = definitions
            .iter()
            .filter_map(|(name, map)| Some((name.as_str(), maps.get(name)?.as_raw_fd(), map)));
        object
            .relocate_maps(by_name, &text)
            .map_err(|e| Refusal::broken(&e))?;
        object
            .relocate_calls(&text)
            .map_err(|e| Refusal::broken(&e))?;
        Ok(Self { object, maps })
    }

    /// Loads one program.
    pub fn load(&self, name: &str) -> Result<OwnedFd, Refusal> {
        self.load_with(name, |_| ())
    }

    /// Loads one program after a last change to its instructions.
    pub fn load_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut [bpf_insn]),
    ) -> Result<OwnedFd, Refusal> {
        let program = self.object.programs.get(name);
        let function =
            program.and_then(|program| self.object.functions.get(&program.function_key()));
        let (Some(program), Some(function)) = (program, function) else {
            return Err(missing("program", name));
        };
        let kind = match program.section {
            ProgramSection::TracePoint => bpf_prog_type::BPF_PROG_TYPE_TRACEPOINT,
            _ => bpf_prog_type::BPF_PROG_TYPE_RAW_TRACEPOINT,
        };
        let mut instructions = function.instructions.clone();
        change(&mut instructions);
        let mut log = Vec::new();
        sys::load_program(kind, &instructions, &program.license, name, &mut log).map_err(|e| {
            let log = String::from_utf8_lossy(&log).into_owned();
            Refusal {
                log,
                ..Refusal::new(Stage::Program, name, e)
            }
        })
    }

    /// A map by its name in the source.
    pub fn map(&self, name: &str) -> Result<BorrowedFd<'_>, Refusal> {
        self.maps
            .get(name)
            .map(AsFd::as_fd)
            .ok_or_else(|| missing("map", name))
    }

    /// Takes a map out; the kernel keeps it as long as a program uses it.
    pub fn take_map(&mut self, name: &str) -> Result<OwnedFd, Refusal> {
        self.maps.remove(name).ok_or_else(|| missing("map", name))
    }

    /// A map's type, sizes and flags.
    pub fn definition(&self, name: &str) -> Result<aya_obj::Map, Refusal> {
        self.object
            .maps
            .get(name)
            .cloned()
            .ok_or_else(|| missing("map", name))
    }

    /// The most elements of a hash map with these keys and values.
    pub fn max_records<K: Record, V: Record>(&self, name: &str) -> Result<u32, Refusal> {
        let map = self.definition(name)?;
        let key_size = map.key_size() as usize;
        let value_size = map.value_size() as usize;
        if key_size == size_of::<K>() && value_size == size_of::<V>() {
            Ok(map.max_entries())
        } else {
            Err(Refusal::broken(&format!("other records in {name}")))
        }
    }

    /// The number of events that found no place in a table of the programs.
    pub fn homeless_events(&self) -> Result<Mapping, Refusal> {
        self.mapping::<AtomicU64>("homeless", 1)
    }

    /// Maps the whole of a map with this number of elements into memory.
    pub fn mapping<T: SharedMemory>(
        &self,
        name: &str,
        elements: usize,
    ) -> Result<Mapping, Refusal> {
        let len = (elements * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        Mapping::new(self.map(name)?, len).map_err(|e| Refusal::new(Stage::Map, name, e))
    }
}
