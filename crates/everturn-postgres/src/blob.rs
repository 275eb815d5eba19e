//! Long strings, stored once per session by their hash.

use std::collections::HashMap;

use everturn_sql::{StoreFault, hash, splice};

use crate::body::{pack, unpack};
use crate::change::Plan;
use crate::fault::{Fault, Outcome};
use crate::position::length;
use crate::read::Reading;
use crate::statement::{Statement, column};

/// The strings that were cut out of bodies, by the numbers of the bodies.
#[derive(Default)]
pub(crate) struct Pieces(HashMap<i64, Vec<(usize, String)>>);

impl Pieces {
    /// Returns the text of a body with its long strings put back.
    pub(crate) fn whole(&self, number: i64, cuts: i32, stored: &[u8]) -> Outcome<String> {
        let text = unpack(stored)?;
        if cuts == 0 {
            return Ok(text);
        }
        let pieces = self.0.get(&number).map_or(&[][..], Vec::as_slice);
        if pieces.len() != length(cuts) {
            return Err(Fault::damaged("a blob is missing"));
        }
        Ok(splice(&text, pieces)?)
    }
}

impl Reading<'_> {
    /// Reads the pieces that a statement selects: the body's number, the offset in it, the string.
    pub(crate) async fn pieces(&self, statement: &Statement<'_>) -> Outcome<Pieces> {
        let mut pieces = Pieces::default();
        for row in self.rows(statement).await? {
            let body: Option<&[u8]> = column(&row, 2)?;
            let text = unpack(body.ok_or_else(|| Fault::damaged("a blob is missing"))?)?;
            pieces
                .0
                .entry(column(&row, 0)?)
                .or_default()
                .push((length(column(&row, 1)?), text));
        }
        Ok(pieces)
    }
}

impl Plan<'_> {
    /// Plans to store a string, unless it is stored already, and returns its hash.
    pub(crate) fn put_blob(&mut self, piece: &str) -> Outcome<[u8; 32]> {
        let hash = hash(piece);
        if !self.change.blobs.iter().any(|(known, _)| *known == hash) {
            self.change.blobs.push((hash, pack(self.store.encoding, piece)?));
        }
        Ok(hash)
    }
}
