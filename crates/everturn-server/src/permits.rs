//! Counting the running calls of each principal.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use everturn_core::{Error, Result};

use crate::Principal;

/// The number of running calls by principal. Principals without a running call have no entry.
#[derive(Debug)]
pub(crate) struct Permits {
    limit: usize,
    calls: Arc<Mutex<HashMap<Principal, usize>>>,
}

/// The permit for one call, returned on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    principal: Principal,
    calls: Arc<Mutex<HashMap<Principal, usize>>>,
}

impl Permits {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            calls: Arc::default(),
        }
    }

    /// Takes a permit for one more call of a principal.
    ///
    /// Fails with `RESOURCE_EXHAUSTED` if the principal has as many running calls as the limit allows.
    pub(crate) fn acquire(&self, principal: &Principal) -> Result<Permit> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = calls.get(principal).copied().unwrap_or_default();
        if under_way >= self.limit {
            let message =
                format!("{under_way} of your calls are running, which is the limit; wait for one to end");
            return Err(Error::resource_exhausted(message).with_public());
        }
        calls.insert(principal.clone(), under_way + 1);
        Ok(Permit {
            principal: principal.clone(),
            calls: Arc::clone(&self.calls),
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = calls.entry(self.principal.clone()) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;

    #[test]
    fn a_principal_over_its_limit_waits_for_its_own_calls_only() {
        let permits = Permits::new(1);
        let (alice, bob) = (Principal::new("alice"), Principal::new("bob"));

        let first = permits.acquire(&alice).unwrap();
        let refused = permits.acquire(&alice).unwrap_err();
        let other = permits.acquire(&bob);

        assert_eq!(refused.status(), Status::ResourceExhausted);
        assert!(other.is_ok());

        drop(first);
        assert!(permits.acquire(&alice).is_ok());
    }

    #[test]
    fn principals_without_calls_take_no_memory() {
        let permits = Permits::new(2);

        drop(permits.acquire(&Principal::new("alice")).unwrap());

        assert!(permits.calls.lock().unwrap().is_empty());
    }
}
