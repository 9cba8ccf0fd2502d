//! What the tests of this folder share.

pub(crate) mod fake_proc;
