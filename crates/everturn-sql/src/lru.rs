//! A least recently used cache.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map that keeps the most recently used entries up to a total weight.
#[derive(Debug)]
pub struct Lru<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Keys in the order of their last use.
    order: BTreeMap<u64, K>,
    clock: u64,
    weight: usize,
    limit: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    weight: usize,
    used: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    /// Creates an empty map that keeps entries of up to `limit` in total weight.
    pub fn new(limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
            weight: 0,
            limit,
        }
    }

    /// Returns an entry, which becomes the most recently used one.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        let entry = self.entries.get_mut(key)?;
        self.order.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.order.insert(entry.used, key.clone());
        Some(&entry.value)
    }

    /// Returns the weight of an entry; zero if it does not exist.
    pub fn weight_of(&self, key: &K) -> usize {
        self.entries.get(key).map_or(0, |entry| entry.weight)
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.used);
        self.weight -= entry.weight;
        Some(entry.value)
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.weight = 0;
    }

    /// Inserts an entry and returns the evicted values: the replaced one and the least recently used ones.
    #[must_use = "dropping evicted values may take long: drop them after releasing the lock"]
    pub fn insert(&mut self, key: K, value: V, weight: usize) -> Vec<V> {
        let mut evicted: Vec<V> = self.remove(&key).into_iter().collect();
        self.clock += 1;
        self.weight += weight;
        self.order.insert(self.clock, key.clone());
        self.entries.insert(
            key,
            Entry {
                value,
                weight,
                used: self.clock,
            },
        );
        while self.weight > self.limit
            && let Some(oldest) = self.order.first_key_value().map(|(_, key)| key.clone())
        {
            evicted.extend(self.remove(&oldest));
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let mut lru = Lru::new(3);
        for (key, value) in [(1, 'a'), (2, 'b'), (3, 'c')] {
            assert!(lru.insert(key, value, 1).is_empty());
        }
        lru.get(&1);

        let evicted = lru.insert(4, 'd', 1);

        assert_eq!(evicted, ['b']);
        assert_eq!(lru.get(&1), Some(&'a'));
    }

    #[test]
    fn the_weight_stays_within_the_limit() {
        let mut lru = Lru::new(10);
        let _ = lru.insert(1, 'a', 4);
        let _ = lru.insert(1, 'b', 6);
        let _ = lru.insert(2, 'c', 4);

        let evicted = lru.insert(3, 'd', 11);

        assert_eq!(evicted, ['b', 'c', 'd']);
        assert_eq!(lru.weight, 0);
    }
}
