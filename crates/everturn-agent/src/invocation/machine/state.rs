//! The machine and its phases.

use super::attached::Attached;
use super::background::{Background, Finalizing, WindingDown};
use super::detaching::Detaching;
use super::ending::Concluding;
use super::ending::Draining;
use super::stopping::Stopping;
use super::{Cause, Command, Event};

/// One invocation, from its start to its release.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Machine<I, E> {
    phase: Phase<I, E>,
}

impl<I: Clone, E: Clone> Machine<I, E> {
    /// Creates the machine of an invocation with a client; its function is about to run.
    pub(crate) fn new(store: StoreSupport) -> Self {
        Self {
            phase: Attached::new(store).into(),
        }
    }

    /// Offers the end of the invocation to the snapshot policy.
    pub(crate) fn keeping_ends(self) -> Self {
        match self.phase {
            Phase::Attached(attached) => Self {
                phase: attached.keeping_ends().into(),
            },
            phase => Self { phase },
        }
    }

    /// The same invocation, whose failed turns are kept as snapshots if there is a store.
    pub(crate) fn keeping_failures(self) -> Self {
        match self.phase {
            Phase::Attached(attached) => Self {
                phase: attached.keeping_failures().into(),
            },
            phase => Self { phase },
        }
    }

    /// Creates the machine of a background run that this worker took over: there is no client, and `inputs`
    /// are complete. Its function is about to run on the last committed state.
    pub(crate) fn take_over(inputs: Vec<I>) -> (Self, Vec<Command<I, E>>) {
        let Step { phase, commands } = Background::take_over(inputs.into());
        (Self { phase }, commands)
    }

    /// Handles an event and returns the commands that follow. An event without meaning in the current phase
    /// changes nothing.
    pub(crate) fn handle(&mut self, event: Event<I, E>) -> Vec<Command<I, E>> {
        let step = match std::mem::replace(&mut self.phase, Phase::Released) {
            Phase::Attached(phase) => phase.handle(event),
            Phase::Concluding(phase) => phase.handle(event),
            Phase::Draining(phase) => phase.handle(event),
            Phase::Stopping(phase) => phase.handle(event),
            Phase::Detaching(phase) => phase.handle(event),
            Phase::Background(phase) => phase.handle(event),
            Phase::WindingDown(phase) => phase.handle(event),
            Phase::Finalizing(phase) => phase.handle(&event),
            Phase::Released => Step::to(Phase::Released),
        };
        self.phase = step.phase;
        step.commands
    }

    /// Returns whether the invocation has ended.
    pub(crate) fn is_released(&self) -> bool {
        matches!(self.phase, Phase::Released)
    }
}

/// The abilities of the agent's store: a detach needs one that pushes status changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StoreSupport {
    /// There is no store; the client keeps the state.
    None,
    /// Snapshots can be written, but their status changes are not pushed.
    WithoutSubscription,
    /// Snapshots can be written and watched.
    WithSubscription,
}

impl StoreSupport {
    /// Checks whether a detach can be accepted.
    pub(super) fn admit_detach<E>(self) -> Result<(), Cause<E>> {
        match self {
            Self::None => Err(Cause::DetachWithoutStore),
            Self::WithoutSubscription => Err(Cause::DetachWithoutSubscription),
            Self::WithSubscription => Ok(()),
        }
    }
}

/// The phase of an invocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase<I, E> {
    /// A client sends inputs and receives chunks.
    Attached(Attached<I, E>),
    /// The function returned normally; the end of the invocation is being saved.
    Concluding(Concluding),
    /// The function returned; the last chunks are on their way.
    Draining(Draining<E>),
    /// The work was cancelled before any detach; the function has yet to return.
    Stopping(Stopping<E>),
    /// A detach was accepted; its pending snapshot is not yet written.
    Detaching(Detaching<I, E>),
    /// The work continues without a client.
    Background(Background<I>),
    /// Background work was cancelled; the function has yet to return.
    WindingDown(WindingDown),
    /// The final write of a background run is in progress.
    Finalizing(Finalizing),
    /// The invocation has ended.
    Released,
}

macro_rules! phase_from {
    ($($phase:ident $(<$($parameter:ident),+>)?),+ $(,)?) => {
        $(impl<I, E> From<$phase $(<$($parameter),+>)?> for Phase<I, E> {
            fn from(phase: $phase $(<$($parameter),+>)?) -> Self {
                Self::$phase(phase)
            }
        })+
    };
}

phase_from!(
    Attached<I, E>,
    Concluding,
    Draining<E>,
    Stopping<E>,
    Detaching<I, E>,
    Background<I>,
    WindingDown,
    Finalizing,
);

/// The activity of the function while the machine waits for a write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Meanwhile<E> {
    /// It runs, or waits for its turn to be settled.
    Running,
    /// It waits for an input.
    Asking,
    /// It is done.
    Returned(Result<(), E>),
}

/// The outcome of one event: the new phase and the commands.
pub(super) struct Step<I, E> {
    pub(super) phase: Phase<I, E>,
    pub(super) commands: Vec<Command<I, E>>,
}

impl<I, E> Step<I, E> {
    /// Creates a step without commands; a step to the same phase is an event without effect.
    pub(super) fn to(phase: impl Into<Phase<I, E>>) -> Self {
        Self {
            phase: phase.into(),
            commands: Vec::new(),
        }
    }

    /// Appends a command.
    pub(super) fn emit(mut self, command: Command<I, E>) -> Self {
        self.commands.push(command);
        self
    }

    /// Prepends commands.
    pub(super) fn preceded_by(mut self, commands: impl IntoIterator<Item = Command<I, E>>) -> Self {
        self.commands.splice(0..0, commands);
        self
    }
}
