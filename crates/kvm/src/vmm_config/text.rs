//! What the options of these VMMs have in common: `key=value` parts between commas, brackets, sizes.

/// Parts between commas outside of brackets: `boot=4,affinity=[0@[0,2],1@[1]]` has two.
pub(super) fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// The value of a key among such parts.
pub(super) fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    parts(text).into_iter().find_map(|part| part.split_once('=').filter(|(name, _)| *name == key).map(|(_, v)| v))
}

/// The inside of `[…]`.
pub(super) fn inside(text: &str) -> &str {
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text)
}

/// Bytes of `512M`, `4G` or a bare number of `unit` bytes.
pub(super) fn size(text: &str, unit: u64) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" => unit,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// The value of an option: `--cpus 4`, `--cpus=4`. Removes nothing; the first one counts.
pub(crate) fn option<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    args.iter().enumerate().find_map(|(at, arg)| {
        if names.contains(&arg.as_str()) {
            return args.get(at + 1).map(String::as_str);
        }
        arg.split_once('=').filter(|(name, _)| name.starts_with("--") && names.contains(name)).map(|(_, value)| value)
    })
}

/// All values of an option that may be repeated or followed by several values.
pub(super) fn values<'a>(args: &'a [String], names: &[&str]) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut taking = false;
    for arg in args {
        if names.contains(&arg.as_str()) {
            taking = true;
        } else if let Some((_, value)) = arg.split_once('=').filter(|(name, _)| names.contains(name)) {
            found.push(value);
            taking = false;
        } else if arg.starts_with('-') {
            taking = false;
        } else if taking {
            found.push(arg);
        }
    }
    found
}
