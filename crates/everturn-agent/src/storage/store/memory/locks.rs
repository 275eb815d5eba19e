//! The locks of turns in progress.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::super::{LockGrant, LockPlace, LockRequest};
use crate::{SessionId, SnapshotId};

/// How long an expired lock stays its holder's unless another turn takes it.
const KEPT: Duration = Duration::from_hours(1);

/// The locks of one tenant.
#[derive(Default)]
pub(super) struct Locks {
    held: HashMap<(SessionId, LockPlace), Ticket>,
    /// The turns that wait, in the order in which they asked.
    queue: VecDeque<Waiting>,
    /// The number of locks at which those that lapsed long ago are forgotten.
    sweep_at: usize,
}

struct Ticket {
    turn: SnapshotId,
    until: Instant,
}

struct Waiting {
    session: SessionId,
    place: LockPlace,
    ticket: Ticket,
}

impl Locks {
    pub(super) fn take(&mut self, request: &LockRequest, place: LockPlace) -> LockGrant {
        let now = Instant::now();
        self.sweep(now);
        let LockRequest { session, turn, .. } = request;
        self.queue
            .retain(|waiting| waiting.ticket.until > now || waiting.ticket.turn == *turn);
        let ticket = Ticket {
            turn: turn.clone(),
            until: now + request.lease,
        };
        let first = self
            .queue
            .iter()
            .find(|waiting| waiting.session == *session && waiting.place == place);
        let earlier = first
            .map(|first| &first.ticket.turn)
            .filter(|first| *first != turn);
        let key = (session.clone(), place);
        let holder = self
            .held
            .get(&key)
            .filter(|held| held.turn != *turn && held.until > now)
            .map(|held| &held.turn);
        let Some(by) = holder.or(earlier).cloned() else {
            self.queue.retain(|waiting| waiting.ticket.turn != *turn);
            self.held.insert(key, ticket);
            return LockGrant::Held;
        };
        if request.waits {
            let (session, place) = key;
            let waiting = Waiting {
                session,
                place,
                ticket,
            };
            match self.queue.iter_mut().find(|other| other.ticket.turn == *turn) {
                Some(own) => *own = waiting,
                None => self.queue.push_back(waiting),
            }
        }
        LockGrant::Taken { by }
    }

    pub(super) fn renew(&mut self, session: &SessionId, turn: &SnapshotId, lease: Duration) -> bool {
        let own = self
            .held
            .iter_mut()
            .find(|((of, _), held)| of == session && held.turn == *turn);
        match own {
            Some((_, held)) => {
                held.until = Instant::now() + lease;
                true
            }
            None => false,
        }
    }

    pub(super) fn release(&mut self, session: &SessionId, turn: &SnapshotId) {
        self.held
            .retain(|(of, _), held| of != session || held.turn != *turn);
        self.queue
            .retain(|waiting| waiting.session != *session || waiting.ticket.turn != *turn);
    }

    pub(super) fn is_held(&self, session: &SessionId, place: &LockPlace, turn: &SnapshotId) -> bool {
        let held = self.held.get(&(session.clone(), place.clone()));
        held.is_some_and(|held| held.turn == *turn)
    }

    /// Moves the queue, and the lock unless it is released, from one place to another.
    pub(super) fn moved(&mut self, session: &SessionId, from: &LockPlace, to: &LockPlace, releases: bool) {
        let held = self.held.remove(&(session.clone(), from.clone()));
        if let Some(held) = held.filter(|_| !releases) {
            self.held.insert((session.clone(), to.clone()), held);
        }
        for waiting in &mut self.queue {
            if waiting.session == *session && waiting.place == *from {
                waiting.place = to.clone();
            }
        }
    }

    /// Forgets the locks of holders that died, now and then.
    fn sweep(&mut self, now: Instant) {
        if self.held.len() >= self.sweep_at {
            self.held.retain(|_, held| held.until + KEPT > now);
            self.sweep_at = self.held.len() * 2 + 16;
        }
    }
}
