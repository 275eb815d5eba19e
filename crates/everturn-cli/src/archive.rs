//! The sessions of a server's agent or of a store, with their common operations.

use everturn_agent::archive::Archive;
use everturn_client::RemoteArchive;

/// An archive on a server or of a store. [`on!`] calls a method of it.
#[derive(Debug, Clone)]
pub(crate) enum AnyArchive {
    Stored(Archive),
    Remote(RemoteArchive),
}

/// Evaluates an expression for either archive; their methods have the same names and arguments.
macro_rules! on {
    ($any:expr, $archive:ident => $call:expr) => {
        match $any {
            $crate::archive::AnyArchive::Stored($archive) => $call,
            $crate::archive::AnyArchive::Remote($archive) => $call,
        }
    };
}

pub(crate) use on;
