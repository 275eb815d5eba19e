//! A map that keeps the most recently used entries up to a total weight.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

pub(crate) struct Recency<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Keys in the order of their last use.
    order: BTreeMap<u64, K>,
    clock: u64,
    weight: usize,
    limit: usize,
}

struct Entry<V> {
    value: V,
    weight: usize,
    used: u64,
}

impl<K: Clone + Eq + Hash, V> Recency<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
            weight: 0,
            limit,
        }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let entry = self.entries.get_mut(key)?;
        self.order.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.order.insert(entry.used, key.clone());
        Some(&entry.value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.used);
        self.weight -= entry.weight;
        Some(entry.value)
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.weight = 0;
    }

    /// Inserts an entry and returns the evicted values: the replaced one and the least recently used ones.
    #[must_use = "dropping what left may take long: do it where nobody waits"]
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) -> Vec<V> {
        let mut gone: Vec<V> = self.remove(&key).into_iter().collect();
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
            gone.extend(self.remove(&oldest));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let mut recency = Recency::new(3);
        for (key, value) in [(1, 'a'), (2, 'b'), (3, 'c')] {
            assert!(recency.insert(key, value, 1).is_empty());
        }
        recency.get(&1);

        let gone = recency.insert(4, 'd', 1);

        assert_eq!(gone, ['b']);
        assert_eq!(recency.get(&1), Some(&'a'));
    }

    #[test]
    fn the_weight_stays_within_the_limit() {
        let mut recency = Recency::new(10);
        let _ = recency.insert(1, 'a', 4);
        let _ = recency.insert(1, 'b', 6);
        let _ = recency.insert(2, 'c', 4);

        let gone = recency.insert(3, 'd', 11);

        assert_eq!(gone, ['b', 'c', 'd']);
        assert_eq!(recency.weight, 0);
    }
}
