//! Text files: decodes one, and reads every type of input that it contains.

use super::gathered::Gathered;
use super::imported::io_message;
use super::text_readers::{self, TextFile};
use super::{plain_text, trace};
use kvm::time_profile;
use sample::SourceId;
use std::io::Read;
use std::path::Path;

/// Only the beginning of a larger text file is used, except for traces, which are read line by line.
const MAX_TEXT: u64 = 32 * 1024 * 1024;

/// Reads a text whose first bytes are `head`. False if kvmtop reads no such text.
pub(super) fn read(path: &Path, head: Vec<u8>, rest: &mut dyn Read, gathered: &mut Gathered) -> Result<bool, String> {
    let (text, is_whole) = decoded(head, rest)?;
    gathered.text_bytes += text.len() as u64;
    let mut file = TextFile::new(path, &text);
    let readers = text_readers::detect(&text);
    if let Some(remark) = time_profile::remark(&text) {
        gathered.notes.push(file.note(&format!("not used: {remark}")));
    }
    let is_trace = readers.iter().all(|reader| reader.source == SourceId::Trace);
    if !is_whole && !is_trace {
        let limit = MAX_TEXT >> 20;
        let what = format!("larger than {limit} MiB, the limit for files of this type; its beginning is used");
        gathered.notes.push(file.note(&what));
    }
    if readers.iter().any(|reader| reader.source == SourceId::Text) && trace::looks_like(&text) {
        let what = "its trace lines are not counted beside its table; put them into a file of their own and report it";
        gathered.notes.push(file.note(what));
    }
    file.rest = (!is_whole).then_some(rest);
    for reader in &readers {
        (reader.read)(&mut file, gathered)?;
        gathered.types.insert(reader.source);
    }
    Ok(!readers.is_empty())
}

/// The text of a file, and whether that is all of it.
fn decoded(head: Vec<u8>, rest: &mut dyn Read) -> Result<(String, bool), String> {
    let mut bytes = head;
    let left = MAX_TEXT + 1 - bytes.len() as u64;
    rest.take(left).read_to_end(&mut bytes).map_err(|e| format!("cannot read it: {}", io_message(&e)))?;
    Ok((plain_text::plain(&bytes), bytes.len() as u64 <= MAX_TEXT))
}
