//! The agents of the cases. Their names, tools and words are agreed between all implementations of the protocol.

mod custom;
mod prompted;

use everturn_core::Result;

use crate::Harness;

/// Defines all of them.
pub(crate) fn define(harness: &mut Harness) -> Result<()> {
    prompted::define(harness)?;
    custom::define(harness)
}
