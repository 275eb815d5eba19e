//! Failures of encoding and decoding.

use everturn_agent::{SessionId, Snapshot};
use everturn_core::Error;

/// The result of encoding or decoding.
pub type Outcome<T> = Result<T, Fault>;

/// Why a value cannot be encoded or decoded.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "stores convert every fault")]
pub enum Fault {
    /// The stored data is damaged.
    Damaged(String),
    /// The value cannot be stored.
    Refused(Error),
}

impl Fault {
    /// Creates the fault of damaged data.
    pub fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// A fault of a store, which may be damage.
pub trait StoreFault: From<Fault> {
    /// Returns the description of the damage, or the fault itself if it is another one.
    ///
    /// # Errors
    /// The fault, if the data is not damaged.
    fn into_damage(self) -> Result<String, Self>;

    /// Creates the fault of damaged data.
    fn damaged(what: impl Into<String>) -> Self {
        Fault::damaged(what).into()
    }

    /// Names the snapshot that damage was found in.
    #[must_use]
    fn in_snapshot(self, snapshot: &Snapshot) -> Self {
        self.into_damage().map_or_else(
            |other| other,
            |what| {
                let session = snapshot.session_id.as_ref().map_or("", SessionId::as_str);
                Self::damaged(format!(
                    "snapshot '{}' of session '{session}': {what}",
                    snapshot.snapshot_id
                ))
            },
        )
    }
}

/// Implements [`StoreFault`] and the conversions of a store's fault, an enum with the variants of [`Fault`].
#[macro_export]
macro_rules! store_fault {
    ($fault:ident) => {
        impl $crate::StoreFault for $fault {
            fn into_damage(self) -> ::std::result::Result<String, Self> {
                match self {
                    Self::Damaged(what) => Ok(what),
                    other => Err(other),
                }
            }
        }

        impl From<$crate::Fault> for $fault {
            fn from(fault: $crate::Fault) -> Self {
                match fault {
                    $crate::Fault::Damaged(what) => Self::Damaged(what),
                    $crate::Fault::Refused(error) => Self::Refused(error),
                }
            }
        }

        impl From<::everturn_core::Error> for $fault {
            fn from(error: ::everturn_core::Error) -> Self {
                Self::Refused(error)
            }
        }
    };
}
