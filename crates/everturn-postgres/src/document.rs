//! Custom state, artifacts and prompt inputs: JSON documents that the snapshots of a session share.
//!
//! An unchanged document is stored once. A large document that changed a little is stored as a patch on the
//! previous one, in a chain of bounded length.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_agent::Artifact;
use everturn_agent::patch::JsonPatch;
use everturn_agent::store::Checksum;
use everturn_core::check_depth;
use everturn_sql::{Document, MAX_PATCHES, StoreFault, parse, patch_to, patched};
use serde_json::Value;
use tokio_postgres::Row;

use crate::blob::Pieces;
use crate::body::pack;
use crate::change::{Cut, NewDocument, Plan, Remember};
use crate::fault::{Fault, Outcome};
use crate::position::{SessionKey, column as number_column};
use crate::read::Reading;
use crate::row::StoredState;
use crate::statement::{Statement, column};

/// The text of a document, and the number of patches between it and a full text.
pub(crate) type Text = (String, i32);

impl Reading<'_> {
    pub(crate) async fn json(&self, session: SessionKey, number: Option<i64>) -> Outcome<Option<Arc<Value>>> {
        let Some(number) = number else {
            return Ok(None);
        };
        if let Some((Document::Json(value), _)) = self.store.cache.document((session, number)) {
            return Ok(Some(value));
        }
        let (text, depth) = self.document_text(session, number).await?;
        let value: Arc<Value> = Arc::new(parse(&text)?);
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
        let artifacts: Arc<Vec<Artifact>> = Arc::new(parse(&text)?);
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
                Document::Artifacts(Arc::new(parse(&text)?))
            } else {
                Document::Json(Arc::new(parse(&text)?))
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

    /// Returns the full texts of documents, with their patches applied. Documents that do not exist are left
    /// out.
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
        ).with((session, numbers.to_vec()));
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
            let sql = "SELECT b.number, b.place, t.body FROM @document_blob b \
                LEFT JOIN @blob t ON t.tenant = $1 AND t.session = $2 AND t.hash = b.hash \
                WHERE b.tenant = $1 AND b.session = $2 AND b.number = ANY ($3) ORDER BY b.number, b.place";
            let links = Statement::new(sql).with((session, cut));
            self.pieces(&links).await?
        };
        let mut texts: HashMap<i64, Text> = HashMap::new();
        let root_of = |row: &Row| column::<i64>(row, 0).ok();
        for chain in rows.chunk_by(|row, next| root_of(row) == root_of(next)) {
            let incomplete = || Fault::damaged("the patches of a document do not lead to a full text");
            let (base, patches) = chain.split_first().ok_or_else(incomplete)?;
            let last = patches.last().unwrap_or(base);
            let part = |row: &Row| pieces.whole(column(row, 1)?, column(row, 4)?, column(row, 5)?);
            let is_patch = |row: &Row| Ok::<_, Fault>(column::<Option<i64>>(row, 2)?.is_some());
            if is_patch(base)? {
                return Err(incomplete());
            }
            let mut parsed: Vec<JsonPatch> = Vec::with_capacity(patches.len());
            for patch in patches {
                if !is_patch(patch)? {
                    return Err(incomplete());
                }
                parsed.push(parse(&part(patch)?)?);
            }
            let (root, whole) = (column(last, 0)?, patched(part(base)?, parsed)?);
            if column::<i64>(last, 6)? != document_checksum(session, root, &whole) {
                return Err(Fault::damaged("a document does not match its checksum"));
            }
            texts.insert(root, (whole, column(last, 3)?));
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
        Ok((Document::Json(Arc::new(parse(&text)?)), depth))
    }
}

impl Plan<'_> {
    /// Plans to store a document, unless it is stored already, and returns its number.
    ///
    /// `own` is the document that the row referred to before, `parent` the one that the parent row refers to.
    /// A patch is made only on the parent's document: the row's own is about to be released.
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
        let cut = self.store.encoding.cut(text);
        self.change.documents.push(NewDocument {
            number,
            base,
            depth,
            cuts: number_column(cut.pieces.len())?,
            body: pack(self.store.encoding, &cut.text)?,
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
    if depth > MAX_PATCHES {
        return Ok(None);
    }
    let (old, new): (Value, Value) = (parse(old)?, parse(text)?);
    Ok(patch_to(&old, &new, text.len())?.map(|patch| (base, depth, patch)))
}
