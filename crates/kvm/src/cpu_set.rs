//! Sets of CPUs in the list syntax of the kernel and of libvirt: `0-3,8`, `0-7,^2`.

use anyhow::{Result, ensure};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// CPU numbers are below this.
pub const MAX_CPUS: u32 = super::limits::HOST_CPUS;

/// A set of CPU (or NUMA node, or vCPU) numbers. Written and read as a list such as `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet {
    /// One bit for each CPU, without trailing zero words, so that equal sets are equal values.
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// All CPUs from `first` to `last`, both included; cut at [`MAX_CPUS`].
    pub fn range(first: u32, last: u32) -> Self {
        let mut set = Self::new();
        set.insert_range(first, last);
        set
    }

    /// The CPUs whose bits are set, 64 in a word; cut at [`MAX_CPUS`].
    pub fn of_words(words: &[u64]) -> Self {
        Self::trimmed(words.iter().take(MAX_CPUS as usize / 64).copied().collect())
    }

    /// Drops the zero words at the end.
    fn trimmed(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }

    /// Reads a list. Empty text (as the kernel prints for "none") is the empty set; `^N` removes
    /// CPUs.
    ///
    /// # Errors
    /// If an element is not a number or range, or is beyond [`MAX_CPUS`].
    pub fn parse(text: &str) -> Result<Self> {
        let mut set = Self::new();
        let mut removed = Self::new();
        for part in text.trim().split(',') {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            let (list, target) = match part.strip_prefix('^') {
                Some(rest) => (rest, &mut removed),
                None => (part, &mut set),
            };
            parse_part(list, target)?;
        }
        Ok(set.difference(&removed))
    }

    /// Adds one CPU; numbers at or over [`MAX_CPUS`] are ignored. Returns whether it was new.
    pub fn insert(&mut self, cpu: u32) -> bool {
        let is_new = cpu < MAX_CPUS && !self.contains(cpu);
        self.insert_range(cpu, cpu);
        is_new
    }

    /// Adds a range, a word at a time: a few bytes of a file can name all CPUs, thousands of times
    /// over.
    fn insert_range(&mut self, first: u32, last: u32) {
        let last = last.min(MAX_CPUS - 1);
        if first > last {
            return;
        }
        let first_word = first as usize / 64;
        let last_word = last as usize / 64;
        if self.words.len() <= last_word {
            self.words.resize(last_word + 1, 0);
        }
        for index in first_word..=last_word {
            let mut bits = u64::MAX;
            if index == first_word {
                bits &= u64::MAX << (first % 64);
            }
            if index == last_word {
                bits &= u64::MAX >> (63 - last % 64);
            }
            self.words[index] |= bits;
        }
    }

    /// Whether this CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.word(cpu as usize / 64) & (1 << (cpu % 64)) != 0
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The CPU of a set with exactly one.
    pub fn single(&self) -> Option<u32> {
        if self.len() == 1 { self.first() } else { None }
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let word = *word;
            (0..64u32)
                .filter(move |bit| word & (1 << bit) != 0)
                .map(move |bit| index as u32 * 64 + bit)
        })
    }

    /// The runs of consecutive CPUs, as (first, last).
    pub fn ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        ranges
    }

    /// CPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combined(other, |a, b| a & b)
    }

    /// CPUs in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combined(other, |a, b| a | b)
    }

    /// CPUs of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combined(other, |a, b| a & !b)
    }

    /// The bits of 64 CPUs.
    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    fn combined(&self, other: &Self, op: fn(u64, u64) -> u64) -> Self {
        let words = (0..self.words.len().max(other.words.len()))
            .map(|index| op(self.word(index), other.word(index)))
            .collect();
        Self::trimmed(words)
    }

    /// Whether every CPU of this set is in the other. The empty set is a subset of all.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Whether the sets share a CPU.
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// As a mask in hexadecimal, in groups of 32 CPUs
    /// (Documentation/core-api/irq/irq-affinity.rst).
    pub fn mask(&self) -> String {
        let halves = self
            .words
            .iter()
            .flat_map(|word| [*word as u32, (word >> 32) as u32]);
        let groups: Vec<u32> = halves.collect();
        let mut groups = groups.into_iter().rev().skip_while(|group| *group == 0);
        let first = format!("{:x}", groups.next().unwrap_or(0));
        groups.fold(first, |text, group| format!("{text},{group:08x}"))
    }
}

fn parse_part(part: &str, set: &mut CpuSet) -> Result<()> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let first = cpu_number(first, part)?;
    let last = cpu_number(last, part)?;
    ensure!(
        first <= last,
        "the CPU range '{}' ends before it begins",
        super::sanitize(part, 40)
    );
    set.insert_range(first, last);
    Ok(())
}

/// The number of a CPU in this part of a list.
fn cpu_number(text: &str, part: &str) -> Result<u32> {
    ensure!(
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()),
        "'{}' is not a CPU number or a range such as 0-3",
        super::sanitize(part, 40)
    );
    let value = text.parse::<u64>().unwrap_or(u64::MAX);
    let is_cpu = value < u64::from(MAX_CPUS);
    ensure!(
        is_cpu,
        "CPU {value} is beyond the largest supported number {}",
        MAX_CPUS - 1
    );
    Ok(value as u32)
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges().into_iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(iter: T) -> Self {
        let mut set = Self::new();
        set.extend(iter);
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, iter: T) {
        for cpu in iter {
            self.insert(cpu);
        }
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    #[test]
    fn lists_read_as_the_kernel_and_libvirt_write_them() {
        assert_eq!(
            set("0-3,^2,8-9").iter().collect::<Vec<_>>(),
            [0, 1, 3, 8, 9]
        );
        assert_eq!(set(" 0-3,8 \n").to_string(), "0-3,8");
        assert_eq!(set("\n"), CpuSet::new());
        assert_eq!(set("3,1,2,1").to_string(), "1-3");
        assert_eq!(set("^1,0-2").to_string(), "0,2");
    }

    #[test]
    fn words_are_64_cpus_each() {
        assert_eq!(CpuSet::of_words(&[0b1001, 1 << 6, 0, 0]), set("0,3,70"));
        assert_eq!(CpuSet::of_words(&[0, 0]), CpuSet::new());
        assert_eq!(
            CpuSet::of_words(&vec![u64::MAX; MAX_CPUS as usize]),
            CpuSet::range(0, MAX_CPUS - 1)
        );
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        assert!(CpuSet::parse("a").unwrap_err().to_string().contains("'a'"));
        assert_eq!(
            CpuSet::parse("5-2").unwrap_err().to_string(),
            "the CPU range '5-2' ends before it begins"
        );
        assert!(
            CpuSet::parse("0-99999999")
                .unwrap_err()
                .to_string()
                .starts_with("CPU 99999999 is beyond")
        );
        for bad in [
            "1-",
            "-",
            "1--2",
            "0-3:1/2",
            "+1",
            "0x1",
            "99999999999999999999999-",
        ] {
            assert!(CpuSet::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_set_travels_as_its_list() {
        let cpus = set("0-3,70");
        assert_eq!(serde_json::to_string(&cpus).unwrap(), "\"0-3,70\"");
        let bytes = rmp_serde::to_vec_named(&cpus).unwrap();
        assert_eq!(rmp_serde::from_slice::<CpuSet>(&bytes).unwrap(), cpus);
        assert!(serde_json::from_str::<CpuSet>("\"x\"").is_err());
    }

    #[test]
    fn a_mask_is_as_the_kernel_reads_it() {
        for (list, mask) in [
            ("", "0"),
            ("0-3", "f"),
            ("0-1,33", "2,00000003"),
            ("64", "1,00000000,00000000"),
        ] {
            assert_eq!(CpuSet::parse(list).unwrap().mask(), mask, "{list}");
        }
    }

    #[test]
    fn single_and_ranges() {
        assert_eq!(set("5").single(), Some(5));
        assert_eq!(set("5-6").single(), None);
        assert_eq!(CpuSet::range(2, 4).to_string(), "2-4");
        assert!(!CpuSet::new().insert(MAX_CPUS));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[-0-9,^:/ a]{0,40}") {
            if let Ok(cpus) = CpuSet::parse(&text) {
                prop_assert_eq!(CpuSet::parse(&cpus.to_string()).unwrap(), cpus);
            }
        }

        #[test]
        fn a_range_holds_its_cpus_and_no_others(first in 0u32..300, length in 0u32..300) {
            let last = first + length;
            prop_assert!(CpuSet::range(first, last).iter().eq(first..=last));
        }

        #[test]
        fn algebra_agrees_with_a_tree_set(
            a in prop::collection::btree_set(0u32..300, 0..40),
            b in prop::collection::btree_set(0u32..300, 0..40),
        ) {
            let (x, y): (CpuSet, CpuSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            let same = |set: CpuSet, tree: BTreeSet<u32>| set == tree.into_iter().collect();
            prop_assert!(same(x.union(&y), a.union(&b).copied().collect()));
            prop_assert!(same(x.intersection(&y), a.intersection(&b).copied().collect()));
            prop_assert!(same(x.difference(&y), a.difference(&b).copied().collect()));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.intersects(&y), !a.is_disjoint(&b));
            prop_assert_eq!(x.len(), a.len());
        }
    }
}
