//! The `format` file of a tracepoint: offsets of its fields and names of its values.
//!
//! Kernels add, reorder and backport fields, so offsets are always read from here (tracefs
//! `events/*/*/format`, or the copies that a `perf.data` carries), never assumed from a version.

mod symbols;

pub use symbols::SymbolList;

use super::exit_reason::{ARM64_RET, ReasonNames, guess_isa};
use super::isa::Isa;
use super::pattern::{Pattern, group, number};
use super::sanitize;
use anyhow::{Context as _, Result, ensure};

/// Largest accepted text; no kernel's file comes near it.
const MAX_TEXT: usize = 512 * 1024;
const MAX_FIELDS: usize = 256;
const MAX_NAME: usize = 128;

/// One field of an event's raw record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Field {
    /// Name, without array brackets.
    pub name: String,
    /// Offset in bytes from the start of the record.
    pub offset: usize,
    /// Size in bytes; of the 4-byte locator for a dynamic array.
    pub size: usize,
    /// Whether the value is signed.
    pub signed: bool,
    /// Whether the field is a locator (`__data_loc`) of data further on in the record.
    pub is_data_loc: bool,
    /// The C type, with array brackets: `unsigned int`, `char[16]`.
    pub ty: String,
}

/// A parsed `format` file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventFormat {
    /// Event name, such as `kvm_exit`.
    pub name: String,
    /// Event id: `common_type` of a record, `config` of `perf_event_open`. Differs per boot.
    pub id: u64,
    /// Fields in file order, the `common_` ones included.
    pub fields: Vec<Field>,
    /// The lists of value names in the `print fmt`, in file order.
    pub symbols: Vec<SymbolList>,
}

/// Parses the text of a `format` file. Names in the result contain no control characters.
///
/// # Errors
/// When the name, the id or a field line is missing or malformed.
pub fn parse(text: &str) -> Result<EventFormat> {
    let is_too_large = text.len() > MAX_TEXT || text.matches("field:").count() > MAX_FIELDS;
    ensure!(
        !is_too_large,
        "too large for the format file of a tracepoint"
    );
    let mut format = EventFormat::default();
    let mut id = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("field:") {
            let field = parse_field(rest);
            format.fields.push(
                field.with_context(|| {
                    format!("cannot read the field line '{}'", sanitize(line, 80))
                })?,
            );
        } else if let Some(rest) = line.strip_prefix("name:") {
            format.name = sanitize(rest.trim(), MAX_NAME);
        } else if let Some(rest) = line.strip_prefix("ID:") {
            id = rest.trim().parse().ok();
        } else if let Some(rest) = line.strip_prefix("print fmt:") {
            format.symbols = symbols::parse(rest);
        }
    }
    ensure!(
        !format.name.is_empty(),
        "no 'name:' line: this is not the format file of a tracepoint"
    );
    format.id = id.context("no 'ID:' line with a number")?;
    Ok(format)
}

/// `unsigned int vcpu_id; offset:8; size:4; signed:0;`, with brackets behind the name (`char
/// comm[16]`) or before it (`__data_loc char[] comm`).
static FIELD: Pattern = Pattern::new(concat!(
    r"^(?P<type>.*?) *[ *](?P<name>[^ *\[\];]+)(?P<brackets>\[[^\]]*\])?;",
    r"[ \t]*offset:(?P<offset>[0-9]+);",
    r"[ \t]*size:(?P<size>[0-9]+);(?:[ \t]*signed:(?P<signed>[0-9]))?",
));

fn parse_field(text: &str) -> Option<Field> {
    let found = FIELD.captures(text.trim())?;
    let ty = found["type"].trim();
    let brackets = group(&found, "brackets").unwrap_or_default();
    // Kernels before 2.6.33 do not state whether a field is signed.
    let is_signed_type = matches!(
        ty,
        "int" | "long" | "short" | "s32" | "s64" | "pid_t" | "long long"
    );
    Some(Field {
        name: sanitize(&found["name"], MAX_NAME),
        offset: number::<u32>(&found, "offset")? as usize,
        size: number::<u32>(&found, "size")? as usize,
        signed: group(&found, "signed").map_or(is_signed_type, |signed| signed == "1"),
        is_data_loc: ty.starts_with("__data_loc"),
        ty: sanitize(&format!("{ty}{brackets}"), MAX_NAME),
    })
}

impl EventFormat {
    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The exit reason names of `kvm_exit` (or `kvm_nested_vmexit`): on x86 one list for VMX and
    /// one for SVM, distinguished by their names; on arm64 one for `ret` and one for `esr_ec`.
    /// Empty for other events.
    pub fn reason_names(&self) -> ReasonNames {
        let mut names = ReasonNames::new();
        for list in self.symbols.iter().filter(|list| !list.flags) {
            let isa = guess_isa(list.names.iter().map(|(_, name)| name.as_str()));
            let base = match isa {
                Isa::Vmx | Isa::Svm
                    if list.mentions("exit_reason") || list.mentions("exit_code") =>
                {
                    0
                }
                Isa::Arm64 if list.mentions("esr_ec") => 0,
                Isa::Arm64 if list.mentions("ret") => ARM64_RET,
                _ => continue,
            };
            for (value, name) in &list.names {
                // Codes are 32 bits wide in the record; -1 is written as a 64-bit value here.
                // The first name of a code wins, as in the kernel's own lookup.
                names
                    .entry((isa, (*value as u32).wrapping_add(base)))
                    .or_insert_with(|| name.clone());
            }
        }
        names
    }
}

#[cfg(test)]
mod tests;
