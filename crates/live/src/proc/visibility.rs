//! Whether /proc shows the processes of other users.
//!
//! The mount option `hidepid` hides them from everyone but a group and those who may trace them
//! (Documentation/filesystems/proc.rst; fs/proc/base.c, `has_pid_permissions`).

use super::file;
use super::paths::SystemPaths;
use super::stat::value;

/// `CAP_SYS_PTRACE` (include/uapi/linux/capability.h).
const CAP_SYS_PTRACE: u64 = 1 << 19;
/// `CAP_DAC_READ_SEARCH`: /proc/PID/fd is a folder that only its user may open (fs/proc/base.c, `tgid_base_stuff`).
const CAP_DAC_READ_SEARCH: u64 = 1 << 2;

/// The option of /proc that hides processes from kvmtop, such as `hidepid=invisible`; `None` where all are listed.
/// Processes that are listed but not readable (`hidepid=noaccess`) are counted elsewhere.
pub(crate) fn hiding_option(paths: &SystemPaths) -> Option<String> {
    let own = paths.proc.join("self");
    let mounts = file::read_text(&own.join("mountinfo"), 1 << 20).ok()?;
    hiding(&mounts, &own_status(paths).ok()?)
}

/// Whether kvmtop has the right to look into every process: what is refused then, a security module refuses.
pub(crate) fn may_trace_all(paths: &SystemPaths) -> bool {
    own_status(paths).is_ok_and(|status| has_all(&status, CAP_SYS_PTRACE | CAP_DAC_READ_SEARCH))
}

/// Of the calling thread: the first one may have given its rights up.
fn own_status(paths: &SystemPaths) -> Result<String, file::FileError> {
    file::read_text(&paths.proc.join("thread-self/status"), 64 * 1024)
}

fn has_all(status: &str, wanted: u64) -> bool {
    let capabilities = value(status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    capabilities.is_some_and(|capabilities| capabilities & wanted == wanted)
}

fn hiding(mounts: &str, status: &str) -> Option<String> {
    if has_all(status, CAP_SYS_PTRACE) {
        return None;
    }
    // The mount that came last covers those before it. The options of the file system itself come last in its line.
    let of_proc = |line: &&str| line.split(' ').nth(4) == Some("/proc") && line.contains(" - proc ");
    let options = mounts.lines().rfind(of_proc)?.rsplit(' ').next()?;
    let option = |name: &str| options.split(',').find_map(|option| option.strip_prefix(name));
    let hidden = option("hidepid=").filter(|by| matches!(*by, "2" | "invisible" | "4" | "ptraceable"))?;
    // A group may be let see them; it does not change what only tracing shows.
    let mine = || value(status, "Gid").into_iter().chain(value(status, "Groups")).flat_map(str::split_whitespace);
    let shown = matches!(hidden, "2" | "invisible") && option("gid=").is_some_and(|gid| mine().any(|own| own == gid));
    (!shown).then(|| format!("hidepid={hidden}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "Name:\tkvmtop\nGid:\t1000\t1000\t1000\t1000\nGroups:\t20 64055 \nCapEff:\t0000000000000000\n";

    fn mounted(options: &str) -> String {
        format!(
            "21 27 0:20 / /proc rw,relatime - proc proc rw\n\
             22 27 0:21 / /proc rw,nosuid shared:5 - proc proc {options}\n\
             23 27 0:22 / /sys rw - sysfs sysfs rw\n"
        )
    }

    #[test]
    fn what_hides_processes_from_whom() {
        for (options, expected) in [
            ("rw", None),
            ("rw,hidepid=off", None),
            ("rw,hidepid=1", None),
            ("rw,hidepid=2", Some("hidepid=2")),
            ("rw,hidepid=invisible", Some("hidepid=invisible")),
            ("rw,gid=7,hidepid=invisible", Some("hidepid=invisible")),
            ("rw,gid=64055,hidepid=invisible", None),
            ("rw,gid=64055,hidepid=ptraceable", Some("hidepid=ptraceable")),
        ] {
            assert_eq!(hiding(&mounted(options), USER).as_deref(), expected, "{options}");
            let root = USER.replace("0000000000000000", "000001ffffffffff");
            assert_eq!(hiding(&mounted(options), &root), None, "{options}");
            let bounded = USER.replace("0000000000000000", "000001fffff7ffff");
            assert_eq!(hiding(&mounted(options), &bounded).as_deref(), expected, "root without CAP_SYS_PTRACE");
        }
        assert_eq!(hiding("", ""), None);
    }
}
