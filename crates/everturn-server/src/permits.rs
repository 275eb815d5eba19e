//! Counting the running calls of each caller, and the bytes that are held for them.
//!
//! A request is counted from the first byte of its body to the last byte of its answer. Calls whose answers
//! are not read therefore count too.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use everturn_core::{Error, Principal, Result};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Limits;

/// The maximum number of concurrent reads of stored values per caller. A value may be large, and its size is
/// known only after the read. Further reads of the caller wait.
const READINGS: usize = 1;

/// The maximum number of concurrent reads of stored values of all callers: each may need three times the
/// memory of the largest session.
const ALL_READINGS: usize = 2;

/// The caller to whom a request is attributed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Principal(Principal),
    /// An anonymous caller at this address.
    Address(IpAddr),
    /// An anonymous caller whose address is unknown.
    Anonymous,
}

/// The running calls and the bytes in flight, by caller. Callers without any have no entry. Cloning gives
/// another handle.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    allowed: Allowed,
    used: Arc<Mutex<Used>>,
    readings: Arc<Semaphore>,
}

/// The slot of a read of stored values.
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
    /// The slots for reads of stored values.
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

/// The permit for one call and the bytes that are held for it, or for bytes alone; returned on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    /// `None` until the caller is known.
    caller: Option<Caller>,
    is_call: bool,
    bytes: usize,
    /// The bytes that are counted for the values of the parsed request.
    parsed: usize,
    permits: Permits,
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

    /// Returns the permit of a request whose caller is not identified yet.
    pub(crate) fn enter(&self) -> Permit {
        self.for_bytes_of(None)
    }

    fn for_bytes_of(&self, caller: Option<Caller>) -> Permit {
        Permit {
            caller,
            is_call: false,
            bytes: 0,
            parsed: 0,
            permits: self.clone(),
        }
    }
}

impl Permit {
    fn used(&self) -> MutexGuard<'_, Used> {
        // Every change is an addition or a subtraction of a number, so a panic leaves the table whole.
        self.permits.used.lock()
    }

    /// Counts the call, and the bytes held so far, as its caller's.
    ///
    /// Fails with `RESOURCE_EXHAUSTED` if the caller has as many running calls or bytes in flight as it may.
    pub(crate) fn assign(&mut self, caller: Caller) -> Result<()> {
        let mut used = self.used();
        let running = used.callers.entry(caller.clone()).or_default();
        // Anonymous callers behind a proxy cannot be distinguished, so their number is not limited.
        let is_counted = matches!(caller, Caller::Principal(_));
        let checked = self
            .permits
            .allowed
            .check_calls(running, is_counted)
            .and_then(|()| self.permits.allowed.check_bytes(running, self.bytes));
        if checked.is_err() {
            used.forget_idle(&caller);
            return checked;
        }
        running.calls += 1;
        running.bytes += self.bytes;
        drop(used);
        self.caller = Some(caller);
        self.is_call = true;
        Ok(())
    }

    /// Counts more bytes that are held for the call.
    ///
    /// Fails with `RESOURCE_EXHAUSTED` if the caller or the server has as many bytes in flight as it may.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<()> {
        let mut used = self.used();
        if used.bytes > 0 && used.bytes.saturating_add(bytes) > self.permits.allowed.bytes {
            let message = format!(
                "the server has {} bytes of requests and answers in flight, and may have {}: try again (the server can allow more with Limits::bytes_in_flight)",
                used.bytes, self.permits.allowed.bytes
            );
            return Err(Error::resource_exhausted(message).with_public());
        }
        if let Some(caller) = &self.caller {
            let running = used.callers.entry(caller.clone()).or_default();
            self.permits.allowed.check_bytes(running, bytes)?;
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
            _of_all: Arc::clone(&self.permits.readings).acquire_owned().await.ok()?,
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

    /// Returns a separate permit for the values of the request; `None` if they are small. They are counted
    /// until it is dropped.
    pub(crate) fn split_parsed(&mut self) -> Option<Self> {
        if self.parsed == 0 {
            return None;
        }
        let mut values = self.permits.for_bytes_of(self.caller.clone());
        values.bytes = std::mem::take(&mut self.parsed);
        self.bytes -= values.bytes;
        Some(values)
    }

    /// Counts bytes that are held for the same caller until the returned permit is dropped.
    ///
    /// # Errors
    /// As [`Permit::take`].
    pub(crate) fn hold(&self, bytes: usize) -> Result<Self> {
        let mut held = self.permits.for_bytes_of(self.caller.clone());
        held.take(bytes)?;
        Ok(held)
    }

    /// Returns how many bytes are counted.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
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
        let is_idle = |running: &Use| running.calls == 0 && running.bytes == 0;
        if self.callers.get(caller).is_some_and(is_idle) {
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
                running.calls -= usize::from(self.is_call);
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
    fn bytes_of_their_own_are_counted_until_they_are_dropped() {
        let permits = Permits::new(&Limits::default().bytes_per_caller(100));
        let mut call = permits.enter();
        call.take_parsed(60).unwrap();
        call.assign(caller("alice")).unwrap();

        let values = call.split_parsed();
        let frame = call.hold(30).unwrap();
        drop(call);

        let again = || permit(&permits, "alice").unwrap().take(20);
        assert!(again().is_err());
        drop(values);
        again().unwrap();
        drop(frame);
        assert!(permits.used.lock().callers.is_empty());
    }

    #[test]
    fn nothing_is_held_for_disconnected_callers() {
        let permits = Permits::new(&Limits::default());

        let mut gone = permit(&permits, "alice").unwrap();
        gone.take(10).unwrap();
        drop(gone);

        let used = permits.used.lock();
        assert!(used.callers.is_empty());
        assert_eq!(used.bytes, 0);
    }
}
