//! What kvmtop has to be allowed to do: one hint for every source that is refused something.

/// The capabilities of all sources together: `setcap` replaces what a binary has, so a hint for one source alone would
/// take away what another needs. In order: BPF programs; tracing with BPF and perf; tracefs and other users' files in
/// /proc; other users' open files and KVM's statistics files; the kernel's log.
const CAPABILITIES: &str = "cap_bpf,cap_perfmon,cap_dac_read_search,cap_sys_ptrace,cap_syslog";

/// What to run where a right is missing.
pub fn hint() -> String {
    let binary = std::env::current_exe().map_or_else(|_| "kvmtop".into(), |path| path.to_string_lossy().into_owned());
    hint_for(&binary)
}

fn hint_for(binary: &str) -> String {
    let plain = binary.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
    let binary = if plain { binary.to_owned() } else { format!("'{}'", binary.replace('\'', "'\\''")) };
    format!("run kvmtop as root, or once: setcap {CAPABILITIES}=ep {binary}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_a_command_for_this_binary() {
        let caps = "cap_bpf,cap_perfmon,cap_dac_read_search,cap_sys_ptrace,cap_syslog";
        assert_eq!(
            hint_for("/usr/bin/kvmtop"),
            format!("run kvmtop as root, or once: setcap {caps}=ep /usr/bin/kvmtop")
        );
        assert!(hint_for("/opt/my tools/kvmtop").ends_with("=ep '/opt/my tools/kvmtop'"));
        assert!(hint().contains(&format!("setcap {caps}=ep ")));
    }
}
