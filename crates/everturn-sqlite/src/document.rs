//! Custom state, artifacts and prompt inputs: JSON documents that snapshots share.
//!
//! An unchanged document is stored once. A large document that changed a little is stored as a patch on the
//! previous one, in a chain of bounded length.

use std::sync::Arc;

use everturn_agent::Artifact;
use everturn_agent::patch::JsonPatch;
use everturn_core::{Error, check_depth};
use everturn_sql::{Document, MAX_PATCHES, StoreFault, is_same_text, parse, patch_to, patched, write};
use serde_json::Value;

use crate::checksum::{Checksum, check};
use crate::fault::{Fault, Outcome};
use crate::prepare::{Base, Encoded, PreparedDocument, Preparing};
use crate::read::Reading;
use crate::statement::Statements;
use crate::write::Writing;

impl Reading<'_> {
    pub(crate) fn json(&mut self, key: i64) -> Outcome<Arc<Value>> {
        if let Some(Document::Json(value)) = self.cache.document(key) {
            return Ok(value);
        }
        let text = self.document_text(key)?;
        let value: Arc<Value> = Arc::new(parse(&text)?);
        self.cache
            .learn_document(key, &Document::Json(Arc::clone(&value)));
        Ok(value)
    }

    pub(crate) fn artifacts(&mut self, key: i64) -> Outcome<Arc<Vec<Artifact>>> {
        if let Some(Document::Artifacts(artifacts)) = self.cache.document(key) {
            return Ok(artifacts);
        }
        let text = self.document_text(key)?;
        let artifacts: Arc<Vec<Artifact>> = Arc::new(parse(&text)?);
        self.cache
            .learn_document(key, &Document::Artifacts(Arc::clone(&artifacts)));
        Ok(artifacts)
    }

    /// Returns the full text of a document, with its patches applied.
    pub(crate) fn document_text(&mut self, key: i64) -> Outcome<String> {
        let (mut base, mut text, checksum) = self.document_row(key)?;
        let mut patches: Vec<JsonPatch> = Vec::new();
        while let Some(key) = base {
            if i64::try_from(patches.len()).is_ok_and(|count| count == i64::from(MAX_PATCHES)) {
                return Err(Fault::damaged("the patches of a document have no end"));
            }
            patches.push(parse(&text)?);
            (base, text, _) = self.document_row(key)?;
        }
        // Collected from the newest to the base.
        patches.reverse();
        let text = patched(text, patches)?;
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
    pub(crate) fn document_depth(&self, key: i64) -> Outcome<Option<i64>> {
        let sql = "SELECT depth FROM document WHERE key = ?1";
        self.db.find(sql, [key], |row| row.get(0))
    }

    pub(crate) fn has_document(&self, key: i64) -> Outcome<bool> {
        Ok(self.document_depth(key)?.is_some())
    }
}

impl Preparing<'_> {
    /// Encodes a document, unless it is stored already.
    ///
    /// `own` is the document that the row referred to before, `parent` the one that the parent row refers to.
    /// A patch is made only on the parent's document: the row's own is about to be released.
    pub(crate) fn document(
        &mut self,
        document: Document,
        own: Option<i64>,
        parent: Option<i64>,
    ) -> Outcome<PreparedDocument> {
        if let Some(key) = self.reading.cache.document_like(&document) {
            return Ok(PreparedDocument::Known { key, document });
        }
        let text = match &document {
            Document::Json(value) => {
                // A shallower limit than the one that `write` checks.
                check_depth(value)?;
                serde_json::to_string(value).map_err(Error::from)?
            }
            Document::Artifacts(artifacts) => write(artifacts)?,
        };
        // A state that came from another process is not in the cache: its text is compared with the two
        // likely ones.
        for key in [own, parent].into_iter().flatten() {
            if self.is_stored_as(key, &document, &text)? {
                self.reading.cache.learn_document(key, &document);
                return Ok(PreparedDocument::Known { key, document });
            }
        }
        let patch = parent
            .map(|base| self.patch(base, &document, &text))
            .transpose()?
            .flatten();
        let (base, body) = match &patch {
            Some((base, patch)) => (Some(*base), self.encode(patch)?),
            None => (None, self.encode(&text)?),
        };
        Ok(PreparedDocument::New {
            document,
            base,
            body,
            text: Checksum::text(&text),
        })
    }

    /// Returns whether a stored document has this text.
    fn is_stored_as(&mut self, key: i64, document: &Document, text: &str) -> Outcome<bool> {
        match (self.reading.cache.document(key), document) {
            (Some(Document::Json(stored)), Document::Json(value)) => Ok(is_same_text(&stored, value)),
            _ => Ok(self.reading.document_text(key)? == text),
        }
    }

    /// Returns a patch from a stored document to another, if it is small enough and yields exactly the
    /// other's text.
    fn patch(&mut self, key: i64, document: &Document, text: &str) -> Outcome<Option<(Base, String)>> {
        let depth = self.reading.document_depth(key)?;
        let Some(depth) = depth.filter(|depth| *depth < i64::from(MAX_PATCHES)) else {
            return Ok(None);
        };
        let old = match self.reading.cache.document(key) {
            Some(Document::Json(value)) => value,
            _ => Arc::new(parse(&self.reading.document_text(key)?)?),
        };
        let new = match document {
            Document::Json(value) => Arc::clone(value),
            Document::Artifacts(_) => Arc::new(parse(text)?),
        };
        let patch = patch_to(&old, &new, text.len())?;
        Ok(patch.map(|patch| (Base { key, depth }, patch)))
    }
}

impl Writing<'_> {
    /// Stores a document, unless it is stored already, and returns its key.
    pub(crate) fn put_document(&mut self, prepared: &PreparedDocument) -> Outcome<i64> {
        match prepared {
            PreparedDocument::Known { key, document } => {
                // It may have been deleted since, by this process or another.
                if !self.reading.has_document(*key)? {
                    self.reading.cache.forget_document(document);
                    return Err(Fault::Stale);
                }
                Ok(*key)
            }
            PreparedDocument::New {
                document,
                base,
                body,
                text,
            } => {
                if let Some(base) = base
                    && self.reading.document_depth(base.key)? != Some(base.depth)
                {
                    return Err(Fault::Stale);
                }
                let key = self.insert_document(*base, body, text)?;
                self.reading.cache.learn_document(key, document);
                Ok(key)
            }
        }
    }

    fn insert_document(&mut self, base: Option<Base>, body: &Encoded, text: &Checksum) -> Outcome<i64> {
        let sql = "INSERT INTO document (base, depth, cuts, body, checksum) VALUES (?1, ?2, ?3, ?4, 0)";
        let depth = base.map_or(0, |base| base.depth + 1);
        let base = base.map(|base| base.key);
        let key = self
            .reading
            .db
            .insert(sql, (base, depth, body.pieces.len(), &body.body))?;
        for piece in &body.pieces {
            self.link_document_blob(key, piece)?;
        }
        let sql = "UPDATE document SET checksum = ?2 WHERE key = ?1";
        self.reading.db.run(sql, (key, Checksum::under(key, text)))?;
        Ok(key)
    }

    /// Rewrites a patch as a full text, so that its base can be deleted. If the text is not ready, notes that
    /// it is wanted.
    pub(crate) fn make_independent(&mut self, key: i64) -> Outcome<()> {
        let Some(whole) = self.rewrites.ready.remove(&key) else {
            self.rewrites.wanted.push(key);
            // This attempt is undone, and meanwhile finds out what else is wanted.
            self.reading
                .db
                .run("UPDATE document SET base = NULL WHERE key = ?1", [key])?;
            return Ok(());
        };
        let blobs = self.unlink_document_blobs(key)?;
        let sql = "UPDATE document SET base = NULL, depth = 0, cuts = ?2, body = ?3 WHERE key = ?1";
        self.reading.db.run(sql, (key, whole.pieces.len(), &whole.body))?;
        for piece in &whole.pieces {
            self.link_document_blob(key, piece)?;
        }
        self.rewrites.ready.insert(key, whole);
        self.release_blobs(&blobs)
    }

    /// Deletes a document's links to blobs and returns those blobs.
    pub(crate) fn unlink_document_blobs(&mut self, key: i64) -> Outcome<Vec<i64>> {
        let sql = "DELETE FROM document_blob WHERE document = ?1 RETURNING blob";
        let blobs = self.reading.db.all(sql, [key], |row| row.get(0))?;
        Ok(blobs)
    }
}
