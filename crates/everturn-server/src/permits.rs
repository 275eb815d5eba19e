//! Counting the running calls of each caller, and the bytes that are held for them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_core::{Error, Principal, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Limits;

/// How many stored values one caller may have read at once. A value may be large, and its size is known only when it is read;
/// further readings of the caller wait.
const READINGS: usize = 2;

/// How many stored values all callers together may have read at once.
const ALL_READINGS: usize = 4;

/// The caller of a request, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Principal(Principal),
    /// Nobody in particular, from this address.
    Address(IpAddr),
    /// Nobody in particular, through a server that does not tell addresses.
    Anonymous,
}

/// The running calls and the bytes in flight, by caller. Callers without any have no entry.
#[derive(Debug)]
pub(crate) struct Permits {
    allowed: Allowed,
    used: Arc<Mutex<Used>>,
    readings: Arc<Semaphore>,
}

/// The place of a caller that has a stored value read.
#[derive(Debug)]
pub(crate) struct ReadingPlace {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

#[derive(Debug, Clone, Copy)]
struct Allowed {
    calls_per_principal: usize,
    bytes_per_caller: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Used {
    callers: HashMap<Caller, Use>,
    bytes: usize,
}

#[derive(Debug)]
struct Use {
    calls: usize,
    bytes: usize,
    /// The places for reading what is stored.
    readings: Arc<Semaphore>,
}

impl Default for Use {
    fn default() -> Self {
        Self {
            calls: 0,
            bytes: 0,
            readings: Arc::new(Semaphore::new(READINGS)),
        }
    }
}

/// The permit for one call and the bytes that are held for it, returned on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    /// `None` until the caller is known.
    caller: Option<Caller>,
    bytes: usize,
    /// Those of the bytes that stand for the values of the parsed request.
    parsed: usize,
    allowed: Allowed,
    used: Arc<Mutex<Used>>,
    readings: Arc<Semaphore>,
}

impl Permits {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            allowed: Allowed {
                calls_per_principal: limits.calls_per_principal,
                bytes_per_caller: limits.bytes_per_caller,
                bytes: limits.bytes_in_flight,
            },
            used: Arc::default(),
            readings: Arc::new(Semaphore::new(ALL_READINGS)),
        }
    }

    /// Returns the permit of a request whose caller is yet to be found out.
    pub(crate) fn enter(&self) -> Permit {
        Permit {
            caller: None,
            bytes: 0,
            parsed: 0,
            allowed: self.allowed,
            used: Arc::clone(&self.used),
            readings: Arc::clone(&self.readings),
        }
    }
}

impl Permit {
    fn used(&self) -> MutexGuard<'_, Used> {
        // Every change is an addition or a subtraction of a number, so a panic leaves the table whole.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the call, and the bytes held so far, as its caller's.
    ///
    /// Fails with `RESOURCE_EXHAUSTED` if the caller has as many running calls or bytes in flight as it may.
    pub(crate) fn assign(&mut self, caller: Caller) -> Result<()> {
        let mut used = self.used();
        let running = used.callers.entry(caller.clone()).or_default();
        // Nothing tells the anonymous callers behind a proxy apart, so their number is not limited.
        let is_counted = matches!(caller, Caller::Principal(_));
        let checked = self
            .allowed
            .check_calls(running, is_counted)
            .and_then(|()| self.allowed.check_bytes(running, self.bytes));
        if checked.is_err() {
            used.forget_idle(&caller);
            return checked;
        }
        running.calls += 1;
        running.bytes += self.bytes;
        drop(used);
        self.caller = Some(caller);
        Ok(())
    }

    /// Counts more bytes that are held for the call.
    ///
    /// Fails with `RESOURCE_EXHAUSTED` if the caller or the server has as many bytes in flight as it may.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<()> {
        let mut used = self.used();
        if used.bytes > 0 && used.bytes.saturating_add(bytes) > self.allowed.bytes {
            let message = format!(
                "the server has {} bytes of requests and answers in flight, and may have {}: try again (the server can allow more with Limits::bytes_in_flight)",
                used.bytes, self.allowed.bytes
            );
            return Err(Error::resource_exhausted(message).with_public());
        }
        if let Some(caller) = &self.caller {
            let running = used.callers.entry(caller.clone()).or_default();
            self.allowed.check_bytes(running, bytes)?;
            running.bytes += bytes;
        }
        used.bytes += bytes;
        drop(used);
        self.bytes += bytes;
        Ok(())
    }

    /// Ceases to count bytes that are no longer held.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        let mut used = self.used();
        used.bytes -= bytes;
        if let Some(running) = self
            .caller
            .as_ref()
            .and_then(|caller| used.callers.get_mut(caller))
        {
            running.bytes -= bytes;
        }
        drop(used);
        self.bytes -= bytes;
    }

    /// Returns a name for the caller, which no other caller has.
    pub(crate) fn owner(&self) -> String {
        match &self.caller {
            Some(Caller::Principal(principal)) => principal.scope().as_str().to_owned(),
            Some(Caller::Address(address)) => address.to_string(),
            Some(Caller::Anonymous) | None => String::new(),
        }
    }

    /// Waits until the caller may have one more stored value read.
    pub(crate) async fn reading(&self) -> Option<ReadingPlace> {
        let caller = self.caller.as_ref()?;
        let own = Arc::clone(&self.used().callers.get(caller)?.readings);
        Some(ReadingPlace {
            _own: own.acquire_owned().await.ok()?,
            _of_all: Arc::clone(&self.readings).acquire_owned().await.ok()?,
        })
    }

    /// Counts the values of the request, which take more memory than its text.
    ///
    /// # Errors
    /// As [`Permit::take`].
    pub(crate) fn take_parsed(&mut self, bytes: usize) -> Result<()> {
        self.take(bytes)?;
        self.parsed += bytes;
        Ok(())
    }

    /// Ceases to count the values of the request: the work on them has begun, and they are gone.
    pub(crate) fn give_back_parsed(&mut self) {
        let parsed = std::mem::take(&mut self.parsed);
        self.give_back(parsed);
    }

    /// Counts these bytes instead of those counted so far.
    ///
    /// # Errors
    /// As [`Permit::take`].
    pub(crate) fn take_instead(&mut self, bytes: usize) -> Result<()> {
        self.parsed = 0;
        self.give_back(self.bytes);
        self.take(bytes)
    }
}

impl Allowed {
    fn check_calls(&self, running: &Use, is_counted: bool) -> Result<()> {
        if !is_counted || running.calls < self.calls_per_principal {
            return Ok(());
        }
        let message = format!(
            "{} of your calls are running, which is the limit; wait for one to end",
            running.calls
        );
        Err(Error::resource_exhausted(message).with_public())
    }

    /// A caller with nothing in flight may have one thing of any size: otherwise it could never have it.
    fn check_bytes(&self, running: &Use, bytes: usize) -> Result<()> {
        if running.bytes == 0 || running.bytes.saturating_add(bytes) <= self.bytes_per_caller {
            return Ok(());
        }
        let message = format!(
            "you have {} bytes of requests and answers in flight, and may have {}: read your answers (the server can allow more with Limits::bytes_per_caller)",
            running.bytes, self.bytes_per_caller
        );
        Err(Error::resource_exhausted(message).with_public())
    }
}

impl Used {
    fn forget_idle(&mut self, caller: &Caller) {
        if self.callers.get(caller).is_some_and(|running| running.calls == 0) {
            self.callers.remove(caller);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give_back(self.bytes);
        if let Some(caller) = &self.caller {
            let mut used = self.used();
            if let Some(running) = used.callers.get_mut(caller) {
                running.calls -= 1;
            }
            used.forget_idle(caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;

    fn caller(name: &'static str) -> Caller {
        Caller::Principal(Principal::new(name))
    }

    fn permit(permits: &Permits, name: &'static str) -> Result<Permit> {
        let mut permit = permits.enter();
        permit.assign(caller(name))?;
        Ok(permit)
    }

    #[test]
    fn a_principal_over_its_limit_waits_for_its_own_calls_only() {
        let permits = Permits::new(&Limits::default().calls_per_principal(1));

        let first = permit(&permits, "alice").unwrap();
        let refused = permit(&permits, "alice").unwrap_err();
        let other = permit(&permits, "bob");

        assert_eq!(refused.status(), Status::ResourceExhausted);
        assert!(other.is_ok());

        drop(first);
        assert!(permit(&permits, "alice").is_ok());
    }

    #[test]
    fn bytes_are_counted_by_caller_until_they_are_given_back() {
        let permits = Permits::new(&Limits::default().bytes_per_caller(100));
        let mut first = permit(&permits, "alice").unwrap();
        let mut second = permit(&permits, "alice").unwrap();

        first.take(70).unwrap();
        let refused = second.take(40).unwrap_err();
        permit(&permits, "bob").unwrap().take(100).unwrap();

        assert_eq!(refused.status(), Status::ResourceExhausted);
        assert!(refused.message().contains("bytes_per_caller"), "{refused}");
        first.give_back(20);
        second.take(40).unwrap();
        drop((first, second));
        permit(&permits, "alice").unwrap().take(1_000).unwrap();
    }

    #[test]
    fn all_bytes_together_are_bounded_too() {
        let permits = Permits::new(&Limits::default().bytes_in_flight(100));
        let mut unknown = permits.enter();

        unknown.take(70).unwrap();
        let refused = permit(&permits, "alice").unwrap().take(40).unwrap_err();

        assert!(refused.message().contains("bytes_in_flight"), "{refused}");
        unknown.assign(caller("bob")).unwrap();
        unknown.take_instead(10).unwrap();
        permit(&permits, "alice").unwrap().take(40).unwrap();
    }

    #[test]
    fn nothing_is_kept_for_callers_that_are_gone() {
        let permits = Permits::new(&Limits::default());

        let mut gone = permit(&permits, "alice").unwrap();
        gone.take(10).unwrap();
        drop(gone);

        let used = permits.used.lock().unwrap();
        assert!(used.callers.is_empty());
        assert_eq!(used.bytes, 0);
    }
}
