//! Custom state, artifacts and prompt inputs: JSON documents that the snapshots of a session share.
//!
//! An unchanged document is stored once. A large document that changed a little is stored as a patch on the previous one, in
//! a chain of bounded length.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_agent::Artifact;
use everturn_agent::patch::JsonPatch;
use everturn_agent::store::Checksum;
use everturn_core::check_depth;
use serde_json::Value;
use tokio_postgres::types::Type;

use crate::blob::Pieces;
use crate::body;
use crate::cache::Document;
use crate::change::{Cut, NewDocument, Plan, Remember};
use crate::connection::{Statement, column};
use crate::fault::{Fault, Outcome};
use crate::position::{SessionKey, column as number_column};
use crate::read::Reading;
use crate::row::StoredState;

/// The longest chain of patches between a document and a full text.
pub(crate) const MAX_PATCHES: i32 = 16;

/// Documents smaller than this are written in full, because a patch would save less than it costs.
const PATCH_OVER: usize = 1024;

/// How many times smaller than the document a patch must be.
const PATCH_GAIN: usize = 4;

/// The text of a document, and the number of patches between it and a full text.
pub(crate) type Text = (String, i32);

impl Document {
    fn text(&self) -> Outcome<String> {
        match self {
            Self::Json(value) => body::write(value),
            Self::Artifacts(artifacts) => body::write(artifacts),
        }
    }
}

impl Reading<'_> {
    pub(crate) async fn json(&self, session: SessionKey, number: Option<i64>) -> Outcome<Option<Arc<Value>>> {
        let Some(number) = number else {
            return Ok(None);
        };
        if let Some((Document::Json(value), _)) = self.store.cache.document((session, number)) {
            return Ok(Some(value));
        }
        let (text, depth) = self.document_text(session, number).await?;
        let value: Arc<Value> = Arc::new(body::parse(&text)?);
        let document = Document::Json(Arc::clone(&value));
        self.store
            .cache
            .learn_document((session, number), &document, depth, text.len());
        Ok(Some(value))
    }

    pub(crate) async fn artifacts(
        &self,
        session: SessionKey,
        number: Option<i64>,
    ) -> Outcome<Arc<Vec<Artifact>>> {
        let Some(number) = number else {
            return Ok(Arc::default());
        };
        if let Some((Document::Artifacts(artifacts), _)) = self.store.cache.document((session, number)) {
            return Ok(artifacts);
        }
        let (text, depth) = self.document_text(session, number).await?;
        let artifacts: Arc<Vec<Artifact>> = Arc::new(body::parse(&text)?);
        let document = Document::Artifacts(Arc::clone(&artifacts));
        self.store
            .cache
            .learn_document((session, number), &document, depth, text.len());
        Ok(artifacts)
    }

    /// Reads the documents of a state that are not in memory, all at once.
    pub(crate) async fn load_documents(&self, session: SessionKey, state: &StoredState) -> Outcome<()> {
        let cache = &self.store.cache;
        let missing: Vec<i64> = state
            .documents()
            .filter(|number| cache.document((session, *number)).is_none())
            .collect();
        // A single one is read where it is used.
        if missing.len() < 2 {
            return Ok(());
        }
        for (number, (text, depth)) in self.document_texts(session, &missing).await? {
            let document = if Some(number) == state.artifacts {
                Document::Artifacts(Arc::new(body::parse(&text)?))
            } else {
                Document::Json(Arc::new(body::parse(&text)?))
            };
            cache.learn_document((session, number), &document, depth, text.len());
        }
        Ok(())
    }

    pub(crate) async fn document_text(&self, session: SessionKey, number: i64) -> Outcome<Text> {
        let mut texts = self.document_texts(session, &[number]).await?;
        texts
            .remove(&number)
            .ok_or_else(|| Fault::damaged("a document is missing"))
    }

    /// Returns the full texts of documents, with their patches applied. Documents that do not exist are left out.
    pub(crate) async fn document_texts(
        &self,
        session: SessionKey,
        numbers: &[i64],
    ) -> Outcome<HashMap<i64, Text>> {
        // Depths shrink along the way, so that even a damaged database ends it.
        let statement = Statement::new(
            "WITH RECURSIVE part AS ( \
               SELECT d.number AS root, d.number, d.base, d.depth, d.cuts, d.body, d.checksum FROM @document d \
                 WHERE d.tenant = $1 AND d.session = $2 AND d.number = ANY ($3) \
               UNION ALL \
               SELECT part.root, d.number, d.base, d.depth, d.cuts, d.body, d.checksum FROM part \
                 JOIN @document d ON d.tenant = $1 AND d.session = $2 AND d.number = part.base AND d.depth < part.depth \
             ) SELECT root, number, base, depth, cuts, body, checksum FROM part ORDER BY root, depth",
        )
        .with(session.tenant, Type::INT4)
        .with(session.id, Type::UUID)
        .with(numbers.to_vec(), Type::INT8_ARRAY);
        let rows = self.rows(&statement).await?;
        let mut cut = Vec::new();
        for row in &rows {
            if column::<i32>(row, 4)? != 0 {
                cut.push(column::<i64>(row, 1)?);
            }
        }
        let pieces = if cut.is_empty() {
            Pieces::default()
        } else {
            let links = Statement::new(
                "SELECT b.number, b.place, t.body FROM @document_blob b \
                 LEFT JOIN @blob t ON t.tenant = $1 AND t.session = $2 AND t.hash = b.hash \
                 WHERE b.tenant = $1 AND b.session = $2 AND b.number = ANY ($3) ORDER BY b.number, b.place",
            )
            .with(session.tenant, Type::INT4)
            .with(session.id, Type::UUID)
            .with(cut, Type::INT8_ARRAY);
            self.pieces(&links).await?
        };
        let mut texts: HashMap<i64, Text> = HashMap::new();
        let mut value: Option<Value> = None;
        for (index, row) in rows.iter().enumerate() {
            let (root, number): (i64, i64) = (column(row, 0)?, column(row, 1)?);
            let text = pieces.whole(number, column(row, 4)?, column(row, 5)?)?;
            let is_patch = column::<Option<i64>>(row, 2)?.is_some();
            let is_last = rows
                .get(index + 1)
                .is_none_or(|next| column::<i64>(next, 0).ok() != Some(root));
            let whole = match (is_patch, value.take()) {
                (false, None) if is_last => text,
                (false, None) => {
                    value = Some(body::parse(&text)?);
                    continue;
                }
                (true, Some(base)) => {
                    let patch: JsonPatch = body::parse(&text)?;
                    let patched = patch
                        .apply(&base)
                        .map_err(|error| Fault::damaged(format!("a patch does not apply: {error}")))?;
                    if !is_last {
                        value = Some(patched);
                        continue;
                    }
                    body::write(&patched)?
                }
                _ => {
                    return Err(Fault::damaged(
                        "the patches of a document do not lead to a full text",
                    ));
                }
            };
            if column::<i64>(row, 6)? != document_checksum(session, root, &whole) {
                return Err(Fault::damaged("a document is not what its checksum says"));
            }
            texts.insert(root, (whole, column(row, 3)?));
        }
        Ok(texts)
    }

    /// Returns a document that a row refers to, and the number of patches between it and a full text.
    async fn document(&self, session: SessionKey, number: i64, like: &Document) -> Outcome<(Document, i32)> {
        if let Some(known) = self.store.cache.document((session, number)) {
            return Ok(known);
        }
        match like {
            Document::Json(_) => {
                self.json(session, Some(number)).await?;
            }
            Document::Artifacts(_) => {
                self.artifacts(session, Some(number)).await?;
            }
        }
        if let Some(known) = self.store.cache.document((session, number)) {
            return Ok(known);
        }
        // It is too large for the cache.
        let (text, depth) = self.document_text(session, number).await?;
        Ok((Document::Json(Arc::new(body::parse(&text)?)), depth))
    }
}

impl Plan<'_> {
    /// Plans to store a document, unless it is stored already, and returns its number.
    ///
    /// `own` is the document that the row referred to before, `parent` the one that the parent row refers to. A patch is made
    /// only on the parent's document: the row's own is about to be released.
    pub(crate) async fn put_document(
        &mut self,
        document: &Document,
        own: Option<i64>,
        parent: Option<i64>,
    ) -> Outcome<i64> {
        let candidates = [own, parent];
        if let Some((session, number)) = self.store.cache.document_like(document)
            && session == self.session
            && candidates.contains(&Some(number))
        {
            return Ok(number);
        }
        if let Document::Json(value) = document {
            check_depth(value)?;
        }
        let text = document.text()?;
        let mut base = None;
        for number in candidates.into_iter().flatten() {
            let (old, depth) = self.reading.document(self.session, number, document).await?;
            let old_text = old.text()?;
            if old_text == text {
                self.store
                    .cache
                    .learn_document((self.session, number), document, depth, text.len());
                return Ok(number);
            }
            if Some(number) == parent {
                base = Some((number, old_text, depth + 1));
            }
        }
        let patch = base
            .map(|(base, old, depth)| patch(base, &old, depth, &text))
            .transpose()?
            .flatten();
        let (base, depth, stored) = match patch {
            Some((base, depth, patch)) => (Some(base), depth, patch),
            None => (None, 0, text.clone()),
        };
        let number = self.next_document();
        let checksum = document_checksum(self.session, number, &text);
        self.insert_document(number, base, depth, &stored, checksum)?;
        self.remember.push(Remember::Document {
            number,
            document: document.clone(),
            depth,
            bytes: text.len(),
        });
        Ok(number)
    }

    fn insert_document(
        &mut self,
        number: i64,
        base: Option<i64>,
        depth: i32,
        text: &str,
        checksum: i64,
    ) -> Outcome<()> {
        let cut = self.store.encoder.cut(text);
        self.change.documents.push(NewDocument {
            number,
            base,
            depth,
            cuts: number_column(cut.pieces.len())?,
            body: self.store.encoder.pack(&cut.text)?,
            checksum,
        });
        for (offset, piece) in &cut.pieces {
            let hash = self.put_blob(piece)?;
            self.change.document_pieces.push(Cut {
                number,
                place: number_column(*offset)?,
                hash,
            });
        }
        Ok(())
    }
}

/// Returns the checksum of a document's row: of its full text, with all patches applied.
fn document_checksum(session: SessionKey, number: i64, text: &str) -> i64 {
    let identity = Checksum::default().bytes(session.id).integer(number);
    identity.text(text).finish()
}

/// Returns a patch from a stored document to `text`, if it is small enough and yields exactly that text.
fn patch(base: i64, old: &str, depth: i32, text: &str) -> Outcome<Option<(i64, i32, String)>> {
    if depth > MAX_PATCHES || text.len() <= PATCH_OVER {
        return Ok(None);
    }
    let old: Value = body::parse(old)?;
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
