//! Custom state, artifacts and prompt inputs: JSON documents that snapshots share.
//!
//! An unchanged document is stored once. A large document that changed a little is stored as a patch on the previous one, in
//! a chain of bounded length.

use std::sync::Arc;

use everturn_agent::Artifact;
use everturn_agent::patch::JsonPatch;
use everturn_core::check_depth;
use rusqlite::OptionalExtension;
use serde_json::Value;

use crate::body;
use crate::cache::Document;
use crate::checksum::{Checksum, check};
use crate::fault::{Fault, Outcome};
use crate::read::Reading;
use crate::write::Writing;

/// The longest chain of patches between a document and a full text.
const MAX_PATCHES: i64 = 16;

/// Documents smaller than this are written in full, because a patch would save less than it costs.
const PATCH_OVER: usize = 1024;

/// How many times smaller than the document a patch must be.
const PATCH_GAIN: usize = 4;

impl Reading<'_> {
    pub(crate) fn json(&mut self, key: i64) -> Outcome<Arc<Value>> {
        if let Some(Document::Json(value)) = self.cache.document(key) {
            return Ok(value);
        }
        let text = self.document_text(key)?;
        let value: Arc<Value> = Arc::new(body::parse(&text)?);
        self.cache
            .learn_document(key, &Document::Json(Arc::clone(&value)));
        Ok(value)
    }

    pub(crate) fn artifacts(&mut self, key: i64) -> Outcome<Arc<Vec<Artifact>>> {
        if let Some(Document::Artifacts(artifacts)) = self.cache.document(key) {
            return Ok(artifacts);
        }
        let text = self.document_text(key)?;
        let artifacts: Arc<Vec<Artifact>> = Arc::new(body::parse(&text)?);
        self.cache
            .learn_document(key, &Document::Artifacts(Arc::clone(&artifacts)));
        Ok(artifacts)
    }

    /// Returns the full text of a document, with its patches applied.
    pub(crate) fn document_text(&mut self, key: i64) -> Outcome<String> {
        let (mut base, mut text, checksum) = self.document_row(key)?;
        let mut patches: Vec<JsonPatch> = Vec::new();
        while let Some(key) = base {
            if i64::try_from(patches.len()).is_ok_and(|count| count == MAX_PATCHES) {
                return Err(Fault::damaged("the patches of a document have no end"));
            }
            patches.push(body::parse(&text)?);
            (base, text, _) = self.document_row(key)?;
        }
        let text = patched(text, &patches)?;
        check("a document", checksum, || Checksum::of_text(key, &text))?;
        Ok(text)
    }

    fn document_row(&mut self, key: i64) -> Outcome<(Option<i64>, String, Option<i64>)> {
        let mut statement = self
            .db
            .prepare_cached("SELECT base, cuts, body, checksum FROM document WHERE key = ?1")?;
        let mut rows = statement.query([key])?;
        let row = rows
            .next()?
            .ok_or_else(|| Fault::damaged("a document is missing"))?;
        let text = self.decoder.text(row.get_ref(2)?)?.to_owned();
        let cuts: i64 = row.get(1)?;
        let whole = if cuts == 0 {
            text
        } else {
            self.with_document_blobs(key, &text, cuts)?
        };
        Ok((row.get(0)?, whole, row.get(3)?))
    }

    /// Returns the number of patches between a document and a full text; `None` if there is no such document.
    fn document_depth(&self, key: i64) -> Outcome<Option<i64>> {
        let mut statement = self
            .db
            .prepare_cached("SELECT depth FROM document WHERE key = ?1")?;
        Ok(statement.query_row([key], |row| row.get(0)).optional()?)
    }
}

/// Applies patches, the last one first.
fn patched(text: String, patches: &[JsonPatch]) -> Outcome<String> {
    if patches.is_empty() {
        return Ok(text);
    }
    let mut value: Value = body::parse(&text)?;
    // Collected from the newest to the base, so they apply in reverse.
    for patch in patches.iter().rev() {
        value = patch
            .apply(&value)
            .map_err(|error| Fault::damaged(format!("a patch does not apply: {error}")))?;
    }
    body::write(&value)
}

impl Writing<'_> {
    /// Stores a document, unless it is stored already, and returns its key.
    ///
    /// `own` is the document that the row referred to before, `parent` the one that the parent row refers to. A patch is made
    /// only on the parent's document: the row's own is about to be released.
    pub(crate) fn put_document(
        &mut self,
        document: &Document,
        own: Option<i64>,
        parent: Option<i64>,
    ) -> Outcome<i64> {
        // The cache may know a document that was deleted since, by this process or another.
        if let Some(key) = self.reading.cache.document_like(document)
            && self.reading.document_depth(key)?.is_some()
        {
            return Ok(key);
        }
        let text = match document {
            Document::Json(value) => {
                check_depth(value)?;
                body::write(value)?
            }
            Document::Artifacts(artifacts) => body::write(artifacts)?,
        };
        // A state that came from another process is not in the cache: its text is compared with the two likely ones.
        for key in [own, parent].into_iter().flatten() {
            if self.reading.document_text(key)? == text {
                self.reading.cache.learn_document(key, document);
                return Ok(key);
            }
        }
        let key = match parent.map(|base| self.patch(base, &text)).transpose()?.flatten() {
            Some((base, depth, patch)) => self.insert_document(Some(base), depth, &patch, &text)?,
            None => self.insert_document(None, 0, &text, &text)?,
        };
        self.reading.cache.learn_document(key, document);
        Ok(key)
    }

    /// Returns a patch from a stored document to `text`, if it is small enough and yields exactly that text.
    fn patch(&mut self, base: i64, text: &str) -> Outcome<Option<(i64, i64, String)>> {
        let depth = self.reading.document_depth(base)?.map(|depth| depth + 1);
        let Some(depth) = depth.filter(|depth| *depth <= MAX_PATCHES && text.len() > PATCH_OVER) else {
            return Ok(None);
        };
        let old: Value = body::parse(&self.reading.document_text(base)?)?;
        let patch = JsonPatch::diff(&old, &body::parse(text)?);
        let worth = body::write(&patch)?;
        if worth.len() * PATCH_GAIN > text.len() {
            return Ok(None);
        }
        // A patch may add members in another order than the text has them.
        let exact = patch
            .apply(&old)
            .is_ok_and(|value| body::write(&value).is_ok_and(|result| result == text));
        Ok(exact.then_some((base, depth, worth)))
    }

    /// Inserts a document whose body is `text`, which is a patch if there is a base, and whose content is `whole`.
    fn insert_document(&mut self, base: Option<i64>, depth: i64, text: &str, whole: &str) -> Outcome<i64> {
        let cut = self.encoder.cut(text);
        let packed = self.encoder.pack(&cut.text)?;
        let sql = "INSERT INTO document (base, depth, cuts, body) VALUES (?1, ?2, ?3, ?4)";
        let key = self
            .reading
            .db
            .prepare_cached(sql)?
            .insert((base, depth, cut.pieces.len(), packed))?;
        for (offset, piece) in &cut.pieces {
            self.link_document_blob(key, *offset, piece)?;
        }
        self.reading
            .db
            .prepare_cached("UPDATE document SET checksum = ?2 WHERE key = ?1")?
            .execute((key, Checksum::of_text(key, whole)))?;
        Ok(key)
    }

    /// Rewrites a patch as a full text, so that its base can be deleted.
    pub(crate) fn make_independent(&mut self, key: i64) -> Outcome<()> {
        let text = self.reading.document_text(key)?;
        let blobs = self.unlink_document_blobs(key)?;
        let cut = self.encoder.cut(&text);
        let packed = self.encoder.pack(&cut.text)?;
        let sql = "UPDATE document SET base = NULL, depth = 0, cuts = ?2, body = ?3 WHERE key = ?1";
        self.reading
            .db
            .prepare_cached(sql)?
            .execute((key, cut.pieces.len(), packed))?;
        for (offset, piece) in &cut.pieces {
            self.link_document_blob(key, *offset, piece)?;
        }
        self.release_blobs(&blobs)
    }

    /// Deletes a document's links to blobs and returns those blobs.
    pub(crate) fn unlink_document_blobs(&mut self, key: i64) -> Outcome<Vec<i64>> {
        let mut statement = self
            .reading
            .db
            .prepare_cached("DELETE FROM document_blob WHERE document = ?1 RETURNING blob")?;
        let blobs = statement
            .query_map([key], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(blobs)
    }
}
