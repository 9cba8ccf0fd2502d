//! The user and the groups of a process, from /proc/PID/status.

use super::stat::number;

/// The user and the groups as which a process opens files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessCredentials {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups; at most 65,536 (`NGROUPS_MAX`, include/uapi/linux/limits.h).
    pub groups: Vec<u32>,
}

impl ProcessCredentials {
    /// The longest status file: its longest line holds `NGROUPS_MAX` numbers.
    pub(crate) const MAX_STATUS: usize = 1 << 20;

    /// Reads the whole file. `None` if a line is missing, or if real, effective, saved and file-system ids differ: one
    /// user started such a process, and it acts as another.
    pub(crate) fn parse(status: &[u8]) -> Option<Self> {
        let numbers = |name: &[u8]| -> Option<Vec<u32>> {
            let line = status.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(name))?;
            let words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
            words.map(|w| number(w).and_then(|n| u32::try_from(n).ok())).collect()
        };
        let same = |ids: Vec<u32>| match ids.as_slice() {
            [id, rest @ ..] if rest.len() == 3 && rest.iter().all(|r| r == id) => Some(*id),
            _ => None,
        };
        Some(Self { uid: same(numbers(b"Uid:")?)?, gid: same(numbers(b"Gid:")?)?, groups: numbers(b"Groups:")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_one_user_has_an_identity() {
        let status = |uid: &str, gid: &str| {
            ProcessCredentials::parse(format!("Name:\tqemu\nUid:\t{uid}\nGid:\t{gid}\nGroups:\t36 107 \n").as_bytes())
        };
        let plain = Some(ProcessCredentials { uid: 107, gid: 36, groups: vec![36, 107] });
        assert_eq!(status("107\t107\t107\t107", "36\t36\t36\t36"), plain);
        // A program that is set-user-id takes its arguments from whoever starts it.
        assert_eq!(status("1000\t0\t0\t0", "36\t36\t36\t36"), None);
        assert_eq!(status("1000\t1000\t0\t1000", "36\t36\t36\t36"), None);
        assert_eq!(status("107\t107\t107\t107", "36\t0\t36\t36"), None);
        assert_eq!(status("107", "36\t36\t36\t36"), None);
        assert_eq!(ProcessCredentials::parse(b""), None);
    }
}
