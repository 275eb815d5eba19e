//! The session's turn lock, and the turns that wait for it.

use super::*;

impl World {
    pub(super) fn take_lock(&mut self) -> Objection {
        ensure!(
            self.has_store && !self.lock_asked,
            "the lock is asked for in vain"
        );
        ensure!(
            !self.write_in_flight() && !self.cancelled,
            "the lock is asked for too early"
        );
        if self.let_go {
            ensure!(
                self.pending == Write::Unwritten && !self.is_in_turn(),
                "a second lock for a run"
            );
        } else {
            ensure!(
                self.function == Function::Asking || self.asked_in_vain,
                "a lock for no turn"
            );
            ensure!(!self.lock_held, "a turn kept the lock");
        }
        self.lock_asked = true;
        self.reserved = true;
        Ok(())
    }

    pub(super) fn leave_queue(&mut self) -> Objection {
        ensure!(self.lock_asked, "left a queue in which nobody was");
        self.lock_asked = false;
        self.reserved = self.lock_held;
        Ok(())
    }

    pub(super) fn release_lock(&mut self) -> Objection {
        ensure!(
            !self.is_in_turn() && !self.write_in_flight(),
            "a turn without its lock"
        );
        let may_detach = self.input == Input::Detached && self.result().is_none();
        ensure!(!may_detach || self.cancelled, "a run without its lock");
        self.lock_held = false;
        self.reserved = false;
        Ok(())
    }

    pub(super) fn fail_turn(&mut self) -> Objection {
        ensure!(
            (self.function == Function::Asking || self.asked_in_vain) && self.offer.is_none(),
            "no turn to be refused"
        );
        ensure!(!self.lock_held, "refused a turn that has the session");
        self.leave_loop();
        self.run += 1;
        Ok(())
    }

    /// The turn loop that waits, if one does, is answered and ends.
    pub(super) fn leave_loop(&mut self) {
        if self.function == Function::Asking {
            self.function = Function::Running;
        }
        self.asked_in_vain = false;
    }

    pub(super) fn is_in_turn(&self) -> bool {
        self.function == Function::InTurn || self.offer.is_some()
    }
}
