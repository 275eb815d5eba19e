//! The page as served by a server. The tests in `tests/page` cover its behaviour in a browser; run them with
//! `./test studio`.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod serving;
