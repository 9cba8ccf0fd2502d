//! The programs' tables by guest: what they counted, and the processes and threads that they count
//! for.

use super::layout::{GuestKey, NO_VCPU};
use super::object::Object;
use super::refusal::Refusal;
use super::sys::{self, Record};
use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};

/// `max_entries` of the maps of [`WatchedIds`].
const MAX_WATCHED: usize = 8192;

/// A hash map whose keys begin with the guest's process.
#[derive(Debug)]
pub(super) struct GuestTable<K, V> {
    map: OwnedFd,
    size: u32,
    records: PhantomData<(K, V)>,
}

impl<K: GuestKey, V: Record> GuestTable<K, V> {
    /// Takes the map out of its object.
    pub fn take(object: &mut Object, name: &str) -> Result<Self, Refusal> {
        let (map, size) = object.take_records::<K, V>(name)?;
        Ok(Self {
            map,
            size,
            records: PhantomData,
        })
    }

    /// All records, unsorted; empty on a kernel before 5.6, which lacks the call.
    pub fn read(&self) -> Vec<(K, V)> {
        sys::lookup_all(self.map.as_fd(), self.size).unwrap_or_default()
    }

    /// Frees the records of these guests.
    pub fn forget(&self, processes: &[i32]) {
        if processes.is_empty() {
            return;
        }
        for (key, _) in self
            .read()
            .iter()
            .filter(|(key, _)| processes.contains(&key.owner()))
        {
            // Nobody else removes records.
            let _ = sys::delete(self.map.as_fd(), key);
        }
    }
}

/// A guest's process, and of a vCPU thread its number.
type Owner = (i32, Option<u32>);

/// A map from processes or threads to what each belongs to. What else is in its values is the
/// programs', zero at first.
#[derive(Debug)]
pub(super) struct WatchedIds {
    map: OwnedFd,
    value_size: usize,
    known: HashMap<i32, Owner>,
}

impl WatchedIds {
    /// Takes the map out of its object.
    pub fn take(object: &mut Object, name: &str) -> Result<Self, Refusal> {
        let value_size = object.value_size(name);
        Ok(Self {
            map: object.take_map(name)?,
            value_size,
            known: HashMap::new(),
        })
    }

    /// Sets what is watched. What is beyond the map's size is left out.
    pub fn set(&mut self, pairs: impl Iterator<Item = (i32, Owner)>) {
        let wanted: HashSet<(i32, Owner)> = pairs.take(MAX_WATCHED).collect();
        let gone: Vec<i32> = self
            .known
            .iter()
            .filter(|(id, of)| !wanted.contains(&(**id, **of)))
            .map(|p| *p.0)
            .collect();
        for id in gone {
            // It was put there.
            let _ = sys::delete(self.map.as_fd(), &id.cast_unsigned());
            self.known.remove(&id);
        }
        for (id, owner) in wanted {
            let mut value = [
                owner.0.to_ne_bytes(),
                owner.1.unwrap_or(NO_VCPU).to_ne_bytes(),
            ]
            .concat();
            value.resize(self.value_size, 0);
            if !self.known.contains_key(&id)
                && sys::update(self.map.as_fd(), Some(id.cast_unsigned()), &value).is_ok()
            {
                self.known.insert(id, owner);
            }
        }
    }

    /// The guests' processes.
    pub fn owners(&self) -> impl Iterator<Item = i32> {
        self.known.values().map(|owner| owner.0)
    }
}
