//! Against the running kernel, where it lets us.

use super::*;

#[test]
fn loads_here() {
    let engine = BpfEngine::new(HostTopology::default(), 1);
    eprintln!("{:?}", engine.as_ref().map(|e| e.gaps()));
    assert!(engine.is_ok());
}
