//! The files that a process runs code of: for unwinding its stacks and naming its functions.
//!
//! A process that holds a VM may be any user's, and so may the files that it maps. kvmtop reads a
//! file only if root or kvmtop's own user owns it and nobody else can write to it. For the
//! functions of other files it shows offsets.

use framehop::ExplicitModuleSectionInfo;
use kvm::sanitize;
use object::elf::{PF_X, PT_LOAD};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ReadCache};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most bytes of /proc/PID/maps: 65,530 mappings, the default of `vm.max_map_count`, with
/// paths.
const MAX_MAPS_BYTES: u64 = 16 << 20;
/// The most mappings of code that are looked at.
const MAX_MAPPINGS: usize = 4096;
/// Pages of 64 KiB are the largest that a program's segments are aligned to.
const MAX_PAGE_BYTES: u64 = 0x1_0000;
/// The most bytes that one section with unwind information may have; QEMU's has 4 MB.
const MAX_UNWIND_BYTES: u64 = 256 << 20;
/// Where distributions install symbols.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// A mapping of executable code.
pub(super) struct Module {
    pub addresses: Range<u64>,
    /// The file's name without its path, or the kernel's name for the mapping, such as `[vdso]`.
    pub name: String,
    /// What to subtract from an address in memory. The result is the address that the file's
    /// symbols and tables use, or the offset in the file if the file could not be read.
    pub bias: u64,
    /// The file, if it may be read.
    pub file: Option<ModuleFile>,
}

/// A file of code.
pub(super) struct ModuleFile {
    /// Keeps the path below /proc/self/fd valid.
    _open: File,
    /// The address that the file states for the mapping's first byte.
    stated_start: u64,
    /// Where symbols are: the file itself, or the separate one of its debug package.
    pub symbols: PathBuf,
    /// What unwinding needs.
    pub sections: ExplicitModuleSectionInfo<Vec<u8>>,
}

/// The executable mappings of a process, in order of address.
///
/// # Errors
/// When they cannot be read.
pub(super) fn of_process(pid: i32) -> Result<Vec<Module>, String> {
    let mut maps = Vec::new();
    File::open(format!("/proc/{pid}/maps"))
        .and_then(|file| file.take(MAX_MAPS_BYTES).read_to_end(&mut maps))
        .map_err(|e| format!("/proc/{pid}/maps cannot be read ({e})"))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty())
        .map_err(|e| format!("/proc/{pid}/root cannot be opened ({e})"))?;
    let mappings = maps
        .split(|byte| *byte == b'\n')
        .filter_map(CodeMapping::parse)
        .take(MAX_MAPPINGS);
    Ok(mappings
        .map(|mapping| mapping.module(|path, inode| open_trusted(&root, path, inode)))
        .collect())
}

/// A line of `/proc/PID/maps` for executable code (`proc_pid_maps(5)`).
#[derive(Debug, PartialEq, Eq)]
struct CodeMapping<'a> {
    addresses: Range<u64>,
    offset: u64,
    inode: u64,
    /// Empty for anonymous memory; in brackets for the kernel's mappings, such as `[vdso]`.
    name: &'a [u8],
}

impl<'a> CodeMapping<'a> {
    /// `None` for a mapping without code, and for a line that is no mapping.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let (start, end) = str::from_utf8(words.next()?).ok()?.split_once('-')?;
        if words.next()?.get(2) != Some(&b'x') {
            return None;
        }
        let offset = str::from_utf8(words.next()?).ok()?;
        let _device = words.next()?;
        let inode = str::from_utf8(words.next()?).ok()?;
        Some(Self {
            addresses: hex(start)?..hex(end)?,
            offset: hex(offset)?,
            inode: inode.parse().ok()?,
            name: words.next().unwrap_or_default().trim_ascii_start(),
        })
    }

    fn module(self, open: impl Fn(&Path, u64) -> Option<File>) -> Module {
        let Self {
            addresses,
            offset,
            inode,
            name: path,
        } = self;
        let bias_of_offsets = addresses.start.wrapping_sub(offset);
        if path.first() != Some(&b'/') {
            // The kernel's vDSO, or code that the process generated, as TCG does.
            let name = if path.is_empty() {
                "[anonymous]".into()
            } else {
                clean(path)
            };
            return Module {
                addresses,
                name,
                bias: bias_of_offsets,
                file: None,
            };
        }
        let file = open(Path::new(OsStr::from_bytes(path)), inode)
            .and_then(|file| ModuleFile::read(file, offset));
        let bias = match &file {
            Some(file) => addresses.start.wrapping_sub(file.stated_start),
            None => bias_of_offsets,
        };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        Module {
            addresses,
            name: clean(name.strip_suffix(b" (deleted)").unwrap_or(name)),
            bias,
            file,
        }
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn clean(name: &[u8]) -> String {
    sanitize(&String::from_utf8_lossy(name), 64)
}

/// Opens a file of the process's own view of the file system, if it is what is mapped and nobody
/// else can change it.
fn open_trusted(root: impl AsFd, path: &Path, inode: u64) -> Option<File> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // Opened as a path first: what it leads to is then checked and opened, whatever the path leads
    // to later.
    let opened_path = rustix::fs::openat2(
        &root,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    )
    .ok()?;
    let stat = rustix::fs::fstat(&opened_path).ok()?;
    let own_user = rustix::process::geteuid().as_raw();
    let is_mapped_one = stat.st_ino == inode;
    let is_ours = stat.st_uid == 0 || stat.st_uid == own_user;
    let others_can_write = stat.st_mode & 0o022 != 0;
    if !is_mapped_one || !is_ours || others_can_write {
        return None;
    }
    let path = format!("/proc/self/fd/{}", opened_path.as_raw_fd());
    rights::open_regular(Path::new(&path)).ok()
}

impl ModuleFile {
    /// Reads what unwinding needs. `offset`: where the mapping begins in the file.
    fn read(file: File, offset: u64) -> Option<Self> {
        let bytes = ReadCache::new(file.try_clone().ok()?);
        let elf = ElfFile64::<Endianness, _>::parse(&bytes).ok()?;
        let endian = elf.endian();
        let stated_start = elf.elf_program_headers().iter().find_map(|header| {
            let is_code = header.p_type(endian) == PT_LOAD && header.p_flags(endian) & PF_X != 0;
            let start = header.p_offset(endian);
            // A mapping begins at a whole page, which may be in front of the segment.
            let end = start.checked_add(header.p_filesz(endian))?;
            let is_here = (start & !(MAX_PAGE_BYTES - 1)..end).contains(&offset);
            if !is_code || !is_here {
                return None;
            }
            let address = header.p_vaddr(endian);
            Some(address.wrapping_sub(start).wrapping_add(offset))
        })?;
        Some(Self {
            stated_start,
            symbols: elf
                .build_id()
                .ok()
                .flatten()
                .and_then(debug_file)
                .unwrap_or_else(|| format!("/proc/self/fd/{}", file.as_raw_fd()).into()),
            sections: ExplicitModuleSectionInfo {
                text_svma: section_range(&elf, ".text"),
                got_svma: section_range(&elf, ".got"),
                eh_frame_svma: section_range(&elf, ".eh_frame"),
                eh_frame: section_data(&elf, ".eh_frame"),
                eh_frame_hdr_svma: section_range(&elf, ".eh_frame_hdr"),
                eh_frame_hdr: section_data(&elf, ".eh_frame_hdr"),
                ..ExplicitModuleSectionInfo::default()
            },
            _open: file,
        })
    }
}

fn section_range<'data>(elf: &impl Object<'data>, name: &str) -> Option<Range<u64>> {
    let section = elf.section_by_name(name)?;
    Some(section.address()..section.address().checked_add(section.size())?)
}

fn section_data<'data>(elf: &impl Object<'data>, name: &str) -> Option<Vec<u8>> {
    let section = elf.section_by_name(name)?;
    if section.size() > MAX_UNWIND_BYTES {
        return None;
    }
    section.data().ok().map(<[u8]>::to_vec)
}

/// The file that a debug package has installed for a build.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (folder, name) = build_id.split_first()?;
    if name.is_empty() {
        return None;
    }
    let name: Vec<_> = name.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = Path::new(DEBUG_FILES)
        .join(format!("{folder:02x}"))
        .join(name.concat() + ".debug");
    Some(path).filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let parse = |line: &'static str| CodeMapping::parse(line.as_bytes());
        let qemu =
            parse("55d0c9a4b000-55d0ca07e000 r-xp 00307000 fe:00 1573 /usr/bin/qemu-system-x86_64")
                .unwrap();
        assert_eq!(
            (qemu.addresses, qemu.offset),
            (0x55d0_c9a4_b000..0x55d0_ca07_e000, 0x30_7000)
        );
        assert_eq!(
            (qemu.inode, qemu.name),
            (1573, &b"/usr/bin/qemu-system-x86_64"[..])
        );
        let spaces =
            parse("1000-2000 r-xp 0 fe:00 9                          /a b (deleted)").unwrap();
        assert_eq!(spaces.module(|_, _| None).name, "a b");
        assert_eq!(
            parse("1000-2000 rwxp 0 00:00 0 ")
                .unwrap()
                .module(|_, _| None)
                .name,
            "[anonymous]"
        );
        let vdso = parse("7ffc1000-7ffc2000 r-xp 0 00:00 0                  [vdso]").unwrap();
        assert_eq!(vdso.module(|_, _| None).name, "[vdso]");
        for other in [
            "1000-2000 r--p 0 fe:00 9 /data",
            "1000 r-xp 0 0 0",
            "x-y r-xp 0 fe:00 9 /a",
            "",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn only_a_file_that_nobody_else_can_change_is_opened() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let root = || {
            rustix::fs::open(
                folder.path(),
                OFlags::PATH | OFlags::DIRECTORY,
                Mode::empty(),
            )
            .unwrap()
        };
        let path = folder.path().join("lib");
        std::fs::write(&path, "x").unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        let mode =
            |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let opens = |name: &str, inode| open_trusted(root(), Path::new(name), inode).is_some();
        mode(0o644);
        assert!(opens("/lib", inode));
        // A file that took the place of the one that is mapped.
        assert!(!opens("/lib", inode + 1));
        mode(0o666);
        assert!(!opens("/lib", inode));
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            folder.path().join("pipe"),
            Mode::from_raw_mode(0o600),
        )
        .unwrap();
        let pipe = std::fs::metadata(folder.path().join("pipe")).unwrap().ino();
        assert!(!opens("/pipe", pipe));
        // A link leads within the process's own view.
        symlink("/etc/passwd", folder.path().join("link")).unwrap();
        assert!(!opens(
            "/link",
            std::fs::metadata("/etc/passwd").unwrap().ino()
        ));
    }
}
