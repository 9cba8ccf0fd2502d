//! Trace lines.
use super::Gathered;
use std::fs::File;
pub(super) fn is_event(_line: &str) -> bool {
    false
}
pub(super) fn read(_t: &str, _m: Option<&mut File>, _g: &mut Gathered) -> Result<(), String> {
    Ok(())
}
