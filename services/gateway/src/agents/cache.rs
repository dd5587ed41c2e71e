//! Shared things by key, bounded by their weight; what was not used for longest goes first.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A cache that many sessions share.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    kept: Mutex<Kept<K, V>>,
    weight_max: usize,
}

#[derive(Debug)]
struct Kept<K, V> {
    entries: HashMap<K, Entry<V>>,
    weight: usize,
    tick: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    weight: usize,
    used: u64,
}

impl<K: Copy + Eq + Hash, V: Clone> Cache<K, V> {
    pub(super) fn new(weight_max: usize) -> Self {
        Self { kept: Mutex::new(Kept { entries: HashMap::new(), weight: 0, tick: 0 }), weight_max }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K, V>> {
        // Nothing that can panic runs under this lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, key: K) -> Option<V> {
        let mut kept = self.kept();
        kept.tick += 1;
        let tick = kept.tick;
        let entry = kept.entries.get_mut(&key)?;
        entry.used = tick;
        Some(entry.value.clone())
    }

    /// Keeps a value. One that is heavier than the whole cache is kept alone, until the next one comes.
    pub(super) fn put(&self, key: K, value: V, weight: usize) {
        let mut kept = self.kept();
        kept.tick += 1;
        let used = kept.tick;
        if let Some(old) = kept.entries.insert(key, Entry { value, weight, used }) {
            kept.weight -= old.weight;
        }
        kept.weight += weight;
        if kept.weight > self.weight_max {
            kept.evict(self.weight_max / 8 * 7, key);
        }
    }
}

impl<K: Copy + Eq + Hash, V> Kept<K, V> {
    /// Drops the longest unused down to a weight, so that the search for them is paid once in a while.
    fn evict(&mut self, weight_max: usize, except: K) {
        let mut ages: Vec<(u64, K)> = self.entries.iter().map(|(key, entry)| (entry.used, *key)).collect();
        ages.sort_unstable_by_key(|(used, _)| *used);
        for (_, key) in ages.into_iter().filter(|(_, key)| *key != except) {
            if self.weight <= weight_max {
                return;
            }
            if let Some(entry) = self.entries.remove(&key) {
                self.weight -= entry.weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_go_first_and_weight_stays_below_the_cap() {
        let cache = Cache::new(80);
        for key in 0..8 {
            cache.put(key, key, 10);
        }
        assert_eq!(cache.find(0), Some(0), "used just now");
        cache.put(8, 8, 10);
        assert_eq!((cache.find(0), cache.find(8)), (Some(0), Some(8)));
        assert_eq!((cache.find(1), cache.find(2)), (None, None));
        assert_eq!(cache.kept().weight, 70);
        cache.put(9, 9, 1_000);
        assert_eq!((cache.find(9), cache.find(8)), (Some(9), None));
    }
}
