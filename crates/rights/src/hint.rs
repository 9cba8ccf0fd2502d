//! One hint for every source that is refused something.

use super::kept::{for_hint, named};
use kvm::shell_quoted;

/// What to run where a right is missing.
pub fn hint() -> String {
    let binary = std::env::current_exe().map_or_else(|_| "kvmtop".into(), |path| path.to_string_lossy().into_owned());
    hint_for(&binary)
}

fn hint_for(binary: &str) -> String {
    format!("run kvmtop as root, or once: setcap {}=ep {}", named(for_hint()), shell_quoted(binary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_a_command_for_this_binary() {
        let rights = named(for_hint());
        assert_eq!(
            hint_for("/usr/bin/kvmtop"),
            format!("run kvmtop as root, or once: setcap {rights}=ep /usr/bin/kvmtop")
        );
        assert!(hint_for("/opt/my tools/kvmtop").ends_with("=ep '/opt/my tools/kvmtop'"));
        assert!(hint_for("it's").ends_with(r"=ep 'it'\''s'"));
        assert!(hint().contains(&format!("setcap {rights}=ep ")));
    }

    /// One command, the same everywhere. The pages show the command for kernels since 5.8.
    #[test]
    fn the_pages_give_the_same_command() {
        let command = format!("setcap {}=ep ", named(for_hint()));
        for page in ["README.md", "docs/security.md"] {
            let page_has = std::fs::read_to_string(format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR")))
                .unwrap()
                .contains(&command);
            assert!(page_has || command.contains("cap_sys_admin"), "{page}: {command}");
        }
    }
}
