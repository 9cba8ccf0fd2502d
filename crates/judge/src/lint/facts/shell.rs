//! Words for a shell.

pub(crate) use kvm::shell_quoted as quoted;

/// The argument by which `virsh` finds a guest: its name, its UUID where the name is not plain, and
/// without a UUID the name as a word that `virsh` never reads as an option.
pub(crate) fn domain_argument(name: &str, uuid: Option<&str>) -> String {
    match uuid.filter(|u| is_uuid(u)) {
        _ if is_plain_name(name) => name.to_owned(),
        Some(uuid) => uuid.to_owned(),
        None => format!("--domain {}", quoted(name)),
    }
}

/// A unit of systemd as a word that is never read as an option: the root slice is `-.slice`.
pub(crate) fn unit_argument(unit: &str) -> String {
    let end_of_options = if unit.starts_with('-') { "-- " } else { "" };
    format!("{end_of_options}{}", quoted(unit))
}

/// Whether a guest's name means nothing else to the shell or to `virsh`, which takes digits for an
/// id, a UUID for that of a guest and a leading `-` for an option.
pub fn is_plain_name(name: &str) -> bool {
    let is_id = name.chars().all(|c| c.is_ascii_digit());
    let mut chars = name.chars();
    let is_plain = chars.all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    !is_id && !name.starts_with('-') && is_plain && !is_uuid(name)
}

fn is_uuid(word: &str) -> bool {
    let mut parts = word.split('-');
    let mut lengths = [8, 4, 4, 4, 12].into_iter();
    let is_hex = lengths.all(|length| {
        let part = parts.next().unwrap_or_default();
        part.len() == length && part.bytes().all(|b| b.is_ascii_hexdigit())
    });
    is_hex && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hostile_name_stays_one_word() {
        assert_eq!(quoted("win10-2"), "win10-2");
        assert_eq!(quoted("a b; rm -rf /"), "'a b; rm -rf /'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("--all"), "'--all'");
    }

    const UUID: &str = "a5884a23-73f0-44d2-8ca9-45872223f844";

    #[test]
    fn a_name_that_is_not_plain_gives_way_to_the_uuid() {
        assert_eq!(domain_argument("win10-2", Some(UUID)), "win10-2");
        let hostile = [
            "--all",
            "-x",
            "7",
            "a b",
            "$(reboot)",
            "it's",
            "we\u{fffd}b",
            "\u{430}b",
            UUID,
            "",
            "a\nb",
        ];
        for name in hostile {
            assert_eq!(domain_argument(name, Some(UUID)), UUID, "{name}");
        }
        assert_eq!(domain_argument("--all", None), "--domain '--all'");
        assert_eq!(domain_argument("a b", Some("; reboot")), "--domain 'a b'");
    }

    proptest! {
        #[test]
        fn any_name_and_uuid_stay_one_word(name in any::<String>(), uuid in proptest::option::of(any::<String>())) {
            let name = kvm::sanitize_name(&name, 64);
            let argument = domain_argument(&name, uuid.as_deref());
            let word = argument.strip_prefix("--domain ").unwrap_or(&argument);
            let bare = |c: char| c.is_ascii_alphanumeric() || "-_.:/@%+,".contains(c);
            let inside = word.strip_prefix('\'').and_then(|w| w.strip_suffix('\''));
            prop_assert!(match inside {
                Some(inside) => !inside.replace(r"'\''", "").contains('\''),
                None => !word.is_empty() && word.chars().all(bare),
            }, "{}", argument);
        }
    }
}
