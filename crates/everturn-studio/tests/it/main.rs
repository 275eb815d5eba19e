//! The page as a server serves it. What it does in a browser is tested in `tests/page`, by `./test studio`.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod serving;
