//! Where a recording's bytes go: what each column of each kind of row would cost.

use super::SCHEMA;
use super::coder::Coder;
use super::memory::Memory;
use super::range::{Prob, Way};
use super::walk;
use crate::sample::Sample;
use std::collections::BTreeMap;

/// Writes nothing and adds up.
#[derive(Debug, Default)]
struct Meter {
    /// Bits by kind of row and column.
    bits: BTreeMap<(usize, usize), f64>,
    at: (usize, usize),
}

impl Way for Meter {
    const WRITING: bool = true;

    fn bit(&mut self, p: &mut Prob, bit: bool) -> bool {
        *self.bits.entry(self.at).or_default() += p.cost(bit);
        p.learn(bit);
        bit
    }

    fn raw16(&mut self, bits: u32, value: u32) -> u32 {
        *self.bits.entry(self.at).or_default() += f64::from(bits);
        value
    }

    fn column(&mut self, kind: usize, column: usize) {
        self.at = (kind, column);
    }
}

/// Bytes a sample by kind and column; the first `skip` samples, from which the coder learns, are left out.
pub fn bytes(samples: &[Sample], skip: usize) -> BTreeMap<(usize, usize), f64> {
    let mut memory = Memory::new(SCHEMA);
    let mut sum = BTreeMap::new();
    let counted = samples.len().saturating_sub(skip) as f64;
    for (i, sample) in samples.iter().enumerate() {
        let mut coder = Coder::new(Meter::default(), &mut memory, 1, vec![1; sample.domains.len() + 1]);
        walk::sample(&mut coder, &mut sample.clone());
        let (way, ..) = coder.finish();
        for (at, bits) in way.bits.into_iter().filter(|_| i >= skip) {
            *sum.entry(at).or_default() += bits / 8.0 / counted;
        }
    }
    sum
}

/// `KVMTOP_SESSION=FILE cargo test --release --lib session::meter -- --ignored --nocapture`; the numbers of kinds and columns are
/// those of `Kind` and of the walk.
#[test]
#[ignore = "a measurement"]
fn bytes_of_a_recording() {
    let path = std::env::var_os("KVMTOP_SESSION").expect("KVMTOP_SESSION names a recording");
    let mut cursor = super::Session::open(path.as_ref()).expect("it opens").cursor();
    let samples: Vec<Sample> = (0..cursor.len().min(600)).map(|i| (*cursor.at(i).expect("it reads")).clone()).collect();
    let bytes = bytes(&samples, samples.len() / 5);
    let mut by: Vec<_> = bytes.iter().collect();
    by.sort_by(|a, b| b.1.total_cmp(a.1));
    println!("{:.0} bytes a sample behind key and branch frames", bytes.values().sum::<f64>());
    by.iter().take(40).for_each(|((kind, column), n)| println!("kind {kind:2} column {column:3} {n:8.1}"));
}
