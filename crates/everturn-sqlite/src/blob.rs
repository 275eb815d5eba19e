//! Long strings, stored once by their hash.

use everturn_sql::{StoreFault, hash, splice};

use crate::body::Packed;
use crate::checksum::Checksum;
use crate::fault::{Fault, Outcome};
use crate::prepare::{Encoded, Piece, Preparing};
use crate::read::Reading;
use crate::statement::Statements;
use crate::write::Writing;

impl Reading<'_> {
    /// Returns the body of a message with its long strings put back.
    pub(crate) fn with_message_blobs(&mut self, message: i64, text: &str, cuts: i64) -> Outcome<String> {
        self.with_blobs(
            "SELECT offset, blob FROM message_blob WHERE message = ?1 ORDER BY offset",
            message,
            text,
            cuts,
        )
    }

    /// Returns the body of a document with its long strings put back.
    pub(crate) fn with_document_blobs(&mut self, document: i64, text: &str, cuts: i64) -> Outcome<String> {
        self.with_blobs(
            "SELECT offset, blob FROM document_blob WHERE document = ?1 ORDER BY offset",
            document,
            text,
            cuts,
        )
    }

    fn with_blobs(&mut self, links: &str, owner: i64, text: &str, cuts: i64) -> Outcome<String> {
        let mut statement = self.db.prepare_cached(links)?;
        let mut rows = statement.query([owner])?;
        let mut pieces = Vec::new();
        while let Some(row) = rows.next()? {
            pieces.push((row.get(0)?, self.blob(row.get(1)?)?));
        }
        if i64::try_from(pieces.len()) != Ok(cuts) {
            return Err(Fault::damaged("a long string of a body is missing"));
        }
        Ok(splice(text, &pieces)?)
    }

    fn blob(&mut self, key: i64) -> Outcome<String> {
        let mut statement = self.db.prepare_cached("SELECT body FROM blob WHERE key = ?1")?;
        let mut rows = statement.query([key])?;
        let row = rows.next()?.ok_or_else(|| Fault::damaged("a blob is missing"))?;
        Ok(self.decoder.text(row.get_ref(0)?)?.to_owned())
    }
}

const BY_HASH: &str = "SELECT key FROM blob WHERE hash = ?1";

impl Preparing<'_> {
    /// Encodes a text, without the long strings that are stored already.
    pub(crate) fn encode(&mut self, text: &str) -> Outcome<Encoded> {
        let cut = self.encoding.cut(text);
        let mut pieces = Vec::with_capacity(cut.pieces.len());
        for (offset, piece) in cut.pieces {
            let hash = hash(piece);
            let is_stored = self.reading.db.prepare_cached(BY_HASH)?.exists([hash])?;
            let body = if is_stored {
                None
            } else {
                Some(Packed::of(self.encoding, piece)?)
            };
            pieces.push(Piece { offset, hash, body });
        }
        Ok(Encoded {
            body: Packed::of(self.encoding, cut.text)?,
            pieces,
            text: Checksum::text(text),
        })
    }
}

impl Writing<'_> {
    pub(crate) fn link_message_blob(&mut self, message: i64, piece: &Piece) -> Outcome<()> {
        let blob = self.put_blob(piece)?;
        let sql = "INSERT INTO message_blob (message, offset, blob) VALUES (?1, ?2, ?3)";
        self.reading.db.run(sql, (message, piece.offset, blob))?;
        Ok(())
    }

    pub(crate) fn link_document_blob(&mut self, document: i64, piece: &Piece) -> Outcome<()> {
        let blob = self.put_blob(piece)?;
        let sql = "INSERT INTO document_blob (document, offset, blob) VALUES (?1, ?2, ?3)";
        self.reading.db.run(sql, (document, piece.offset, blob))?;
        Ok(())
    }

    fn put_blob(&mut self, piece: &Piece) -> Outcome<i64> {
        if let Some(key) = self.reading.db.find(BY_HASH, [piece.hash], |row| row.get(0))? {
            return Ok(key);
        }
        // The string was there when the save was prepared.
        let body = piece.body.as_ref().ok_or(Fault::Stale)?;
        let sql = "INSERT INTO blob (hash, body) VALUES (?1, ?2)";
        self.reading.db.insert(sql, (piece.hash, body))
    }

    /// Deletes the given blobs that are no longer referred to.
    pub(crate) fn release_blobs(&mut self, blobs: &[i64]) -> Outcome<()> {
        let mut statement = self.reading.db.prepare_cached(
            "DELETE FROM blob WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM message_blob WHERE blob = ?1) \
             AND NOT EXISTS (SELECT 1 FROM document_blob WHERE blob = ?1)",
        )?;
        for blob in blobs {
            statement.execute([blob])?;
        }
        Ok(())
    }
}
