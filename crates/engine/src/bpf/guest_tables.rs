//! The programs' tables by guest: what they counted, and the processes and threads that they count
//! for.

use super::layout::{GuestKey, NO_VCPU};
use super::object::Object;
use super::refusal::Refusal;
use super::sys::{self, Record};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};

/// `max_entries` of the maps of [`WatchedIds`].
const MAX_WATCHED: usize = 8192;

/// A hash map whose keys begin with the guest's process.
#[derive(Debug)]
pub(super) struct GuestTable<K, V> {
    map: OwnedFd,
    max_records: u32,
    records: PhantomData<(K, V)>,
}

impl<K: GuestKey, V: Record> GuestTable<K, V> {
    /// Takes the map out of its object.
    pub fn take(object: &mut Object, name: &str) -> Result<Self, Refusal> {
        Ok(Self {
            max_records: object.max_records::<K, V>(name)?,
            map: object.take_map(name)?,
            records: PhantomData,
        })
    }

    /// All records, unsorted; empty on a kernel before 5.6, which lacks the call.
    pub fn read(&self) -> Vec<(K, V)> {
        sys::lookup_all(self.map.as_fd(), self.max_records).unwrap_or_default()
    }

    /// Frees the records of these guests.
    pub fn forget(&self, processes: &[i32]) {
        if processes.is_empty() {
            return;
        }
        for (key, _) in self.read() {
            if processes.contains(&key.guest()) {
                // The record is still there, as nobody else removes records: the call succeeds.
                let _ = sys::delete(self.map.as_fd(), &key);
            }
        }
    }
}

/// What a process or a thread belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    /// The guest's process.
    pub process: i32,
    /// The vCPU's number, if the owner is a vCPU.
    pub vcpu: Option<u32>,
}

impl Owner {
    /// The guest with this process.
    pub fn of_process(process: i32) -> Self {
        Self {
            process,
            vcpu: None,
        }
    }
}

/// A map from the ids of processes or threads to their owners. A value begins with the
/// guest's process and the vCPU's number; the bytes behind these are for the programs, and zero at
/// first.
#[derive(Debug)]
pub(super) struct WatchedIds {
    map: OwnedFd,
    value_size: usize,
    /// What is in the map, by id.
    known: HashMap<i32, Owner>,
}

impl WatchedIds {
    /// Takes the map out of its object.
    pub fn take(object: &mut Object, name: &str) -> Result<Self, Refusal> {
        Ok(Self {
            value_size: object.definition(name)?.value_size() as usize,
            map: object.take_map(name)?,
            known: HashMap::new(),
        })
    }

    /// Watches these ids, each with its owner, and no others. Ids beyond the map's size are left
    /// out.
    pub fn set(&mut self, ids: impl Iterator<Item = (i32, Owner)>) {
        let wanted: HashMap<i32, Owner> = ids.take(MAX_WATCHED).collect();
        // An id whose owner has changed is removed here, and added again below.
        let outdated = self
            .known
            .extract_if(|id, owner| wanted.get(id) != Some(owner));
        for (id, _) in outdated {
            // The id is in the map, as only this function adds and removes ids: the call succeeds.
            let _ = sys::delete(self.map.as_fd(), &id.cast_unsigned());
        }
        for (id, owner) in wanted {
            if self.known.contains_key(&id) {
                continue;
            }
            let vcpu = owner.vcpu.unwrap_or(NO_VCPU);
            let mut value = [owner.process.to_ne_bytes(), vcpu.to_ne_bytes()].concat();
            value.resize(self.value_size, 0);
            if sys::update(self.map.as_fd(), Some(id.cast_unsigned()), &value).is_ok() {
                self.known.insert(id, owner);
            }
        }
    }

    /// The guest's process of each id; a guest comes as often as it has ids.
    pub fn guests(&self) -> impl Iterator<Item = i32> {
        self.known.values().map(|owner| owner.process)
    }
}
