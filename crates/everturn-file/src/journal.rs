//! Journals of turns that are not over: a folder per turn, a file per record.
//!
//! Journals are at `<root>/.journals/`, apart from the rows. A record gets its name under its tenant's lock,
//! so a number is written once. The device is waited for outside the lock, so that turns do not wait for each
//! other: a record is on the device before it has its name, and its name is on the device before `append`
//! returns.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use everturn_agent::SessionId;
use everturn_agent::store::{
    Detail, Journal, JournalGuard, JournalKey, JournalPage, JournalQuery, JournalRecord, KEPT, Precondition,
    Scope, UnfinishedTurn, has_unknown_outcome, record_taken,
};
use everturn_core::{Error, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use crate::FileStore;
use crate::checksum::Seal;
use crate::disk::Disk;
use crate::files::{Files, Lock};
use crate::layout::hashed_name;
use crate::options::FileStoreOptions;
use crate::write::{Staged, encode, temporary_name};

/// The content of a record's file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    session_id: SessionId,
    added_at: Timestamp,
    body: Value,
    /// The tenant and the journal's name, of which the folder's name is a hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<String>,
}

/// The journals of one tenant.
#[derive(Debug, Clone)]
pub(crate) struct Journals {
    folder: PathBuf,
    scope: Scope,
    disk: Arc<dyn Disk>,
}

impl Journals {
    pub(crate) fn of(options: &FileStoreOptions, scope: &Scope) -> Self {
        Self {
            folder: options.root.join(".journals"),
            scope: scope.clone(),
            disk: Arc::clone(&options.disk),
        }
    }

    /// Returns the prefix of the names of a session's journal folders. It is a hash, because the names of a
    /// tenant and a session together may be too long for a file name.
    fn prefix(&self, session: &SessionId) -> String {
        hashed_name([self.scope.as_str(), session.as_str()]) + "-"
    }

    fn of_turn(&self, key: &JournalKey) -> PathBuf {
        // The folder's name has a prefix if the journal is kept, because the rest of it is hashed.
        let kept = if key.is_kept() { KEPT } else { "" };
        self.folder
            .join(self.prefix(key.session()) + kept + &hashed_name([key.turn()]))
    }

    /// Writes a record to the device under a temporary name, and creates the journal's folder.
    fn stage(&self, files: &Files, key: &JournalKey, record: &JournalRecord) -> Result<Staged> {
        self.disk.create_folder(files.folder.path())?;
        self.disk.create_folder(&self.folder)?;
        let written = Written {
            session_id: key.session().clone(),
            added_at: Timestamp::now(),
            body: record.body.clone(),
            tenant: Some(self.scope.as_str().to_owned()),
            turn: Some(key.turn().to_owned()),
        };
        let folder = self.of_turn(key);
        if self.disk.list(&folder)?.is_empty() {
            self.create(&folder)?;
        }
        // Staged next to the journal's folder, which is renamed when the journal is dropped.
        Staged::beside(
            &self.disk,
            &folder.with_extension(name_of(record)),
            &encode(&written)?,
        )
    }

    /// Creates the folder of a journal, whose name is then on the device.
    fn create(&self, folder: &Path) -> Result<()> {
        self.disk.create_folder(folder)?;
        if let Some(root) = self.folder.parent() {
            self.disk.sync_folder(root)?;
        }
        Ok(self.disk.sync_folder(&self.folder)?)
    }

    /// Gives a staged record its name.
    fn append(
        &self,
        files: &Files,
        key: &JournalKey,
        record: &JournalRecord,
        staged: Staged,
        guard: Option<&JournalGuard>,
        lock: Lock,
    ) -> Result<()> {
        let folder = self.of_turn(key);
        let path = folder.join(name_of(record));
        if let Some(guard) = guard {
            let reserved = files.read(&guard.reserved, Detail::Metadata)?;
            let found = match &guard.precondition {
                Precondition::None => None,
                _ if reserved.is_some() => None,
                precondition => {
                    let tip = files.tip(key.session(), &lock)?;
                    files.found(key.session(), precondition, &guard.reserved, tip.as_deref())?
                }
            };
            if let Err(refusal) = guard.check(key.session(), reserved.as_ref(), found.as_ref()) {
                // Removed only if no record is in it.
                let _ = self.disk.remove_folder(&folder);
                return Err(refusal);
            }
        }
        if self.disk.list(&folder)?.is_empty() {
            // The journal may have been dropped since its folder was created.
            self.disk.create_folder(&folder)?;
        }
        if self.disk.read(&path)?.is_some() {
            return Err(record_taken(key, record.sequence));
        }
        staged.publish(&path)?;
        drop(lock);

        match self.disk.sync_folder(&folder) {
            // The journal was dropped meanwhile, and the record with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => Ok(synced?),
        }
    }

    fn read(&self, folder: &Path) -> Result<Vec<JournalRecord>> {
        let mut records = Vec::new();
        for (sequence, path) in self.files(folder)? {
            // A listed file that no longer exists was cleared meanwhile.
            if let Some(Written { body, .. }) = self.record(&path)? {
                records.push(JournalRecord { sequence, body });
            }
        }
        Ok(records)
    }

    /// Reads the journals that a query selects. `prefix` begins the names of their folders.
    fn unfinished(&self, query: &JournalQuery, prefix: &str) -> Result<JournalPage> {
        let mut turns = Vec::new();
        for folder in self.disk.folders(&self.folder)? {
            if !name_begins(&folder, prefix) || is_dropped(&folder) || is_kept(&folder) {
                continue;
            }
            let Some(last) = self.last(&folder)? else { continue };
            // A record of an earlier version does not name its turn.
            if let (Some(tenant), Some(turn)) = (last.tenant, last.turn) {
                let (scope, key) = (Scope::new(tenant), JournalKey::new(last.session_id, turn));
                if query.wants(&scope, &key, last.added_at) {
                    turns.push(UnfinishedTurn {
                        scope,
                        key,
                        added_at: last.added_at,
                        records: Vec::new(),
                    });
                }
            }
        }
        let mut page = query.page(turns);
        for turn in &mut page.items {
            let journals = Self {
                scope: turn.scope.clone(),
                ..self.clone()
            };
            turn.records = self.read(&journals.of_turn(&turn.key))?;
        }
        Ok(page)
    }

    /// Reads the last record of a journal.
    fn last(&self, folder: &Path) -> Result<Option<Written>> {
        let last = self.files(folder)?.pop();
        Ok(last.map(|(_, path)| self.record(&path)).transpose()?.flatten())
    }

    fn record(&self, path: &Path) -> Result<Option<Written>> {
        let damaged = |why: &dyn std::fmt::Display| {
            Error::data_loss(format!(
                "'{}' is not a record of a journal: {why}; restore it from a backup",
                path.display()
            ))
        };
        let content = self.disk.read(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => damaged(&error),
            _ => error.into(),
        })?;
        let Some(content) = content else {
            return Ok(None);
        };
        if Seal::of(&content) == Seal::Broken {
            return Err(damaged(&"its content is not what its checksum says"));
        }
        let record = serde_json::from_slice(&content).map_err(|error| damaged(&error))?;
        Ok(Some(record))
    }

    /// Lists the record files of a journal with their numbers, in order.
    fn files(&self, folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
        let number = |path: PathBuf| {
            // Staged files have another extension.
            let named = path.extension().is_some_and(|extension| extension == "json");
            let sequence = path.file_stem()?.to_str()?.parse().ok()?;
            named.then_some((sequence, path))
        };
        let mut files: Vec<_> = self.disk.list(folder)?.into_iter().filter_map(number).collect();
        files.sort_unstable();
        Ok(files)
    }

    /// Drops a journal by renaming its folder. Returns the renamed folder, whose files are yet to be removed.
    fn drop_journal(&self, folder: &Path) -> Result<PathBuf> {
        let dropped = temporary_name(folder);
        match self.disk.rename(folder, &dropped) {
            // It was dropped already.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(dropped),
        }
    }

    /// Removes the files of a dropped journal; needs no lock.
    fn remove(&self, dropped: &Path) -> Result<()> {
        for path in self.disk.list(dropped)? {
            self.disk.remove(&path)?;
        }
        Ok(self.disk.remove_folder(dropped)?)
    }

    /// Deletes the journals of a session.
    pub(crate) fn delete_session(&self, session: &SessionId, lock: Lock) -> Result<()> {
        let prefix = self.prefix(session);
        let is_own = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&prefix))
        };
        for staged in self.disk.list(&self.folder)?.iter().filter(|path| is_own(path)) {
            self.disk.remove(staged)?;
        }
        let mut own = self.disk.folders(&self.folder)?;
        own.retain(is_own);
        let dropped = own.iter().map(|folder| self.drop_journal(folder));
        let dropped = dropped.collect::<Result<Vec<_>>>()?;
        drop(lock);
        dropped.iter().try_for_each(|dropped| self.remove(dropped))
    }

    /// Deletes all journals of the tenant.
    pub(crate) fn delete_all(&self, lock: Lock) -> Result<()> {
        let mut own = Vec::new();
        for folder in self.disk.folders(&self.folder)? {
            if self.is_own(&folder)? {
                own.push(self.drop_journal(&folder)?);
            }
        }
        for staged in self.disk.list(&self.folder)? {
            // One that cannot be parsed is being written, or a sweep removes it.
            let session = self
                .record(&staged)
                .ok()
                .flatten()
                .map(|record| record.session_id);
            if session.is_some_and(|session| name_begins(&staged, &self.prefix(&session))) {
                self.disk.remove(&staged)?;
            }
        }
        drop(lock);
        own.iter().try_for_each(|dropped| self.remove(dropped))
    }

    /// Returns whether a journal is this tenant's. Its name is a hash, so the session that its records name
    /// is tried.
    pub(crate) fn is_own(&self, folder: &Path) -> Result<bool> {
        for (_, path) in self.files(folder)? {
            if let Ok(Some(record)) = self.record(&path) {
                return Ok(name_begins(folder, &self.prefix(&record.session_id)));
            }
        }
        Ok(false)
    }

    /// Returns whether the tenant has journals.
    pub(crate) fn has_any(&self) -> Result<bool> {
        for folder in self.disk.folders(&self.folder)? {
            if !is_dropped(&folder) && self.is_own(&folder)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Drops the journals of all tenants whose last record is old, and whose outcomes are known.
    fn sweep(&self, before: Timestamp) -> Result<u64> {
        let is_old = |record: Option<Written>| record.is_some_and(|record| record.added_at < before);
        for staged in self.disk.list(&self.folder)? {
            // A staged record that a crash left behind. One that cannot be parsed may be being written right
            // now.
            if self.record(&staged).is_ok_and(is_old) {
                self.disk.remove(&staged)?;
            }
        }
        let mut swept = 0;
        for folder in self.disk.folders(&self.folder)? {
            if is_dropped(&folder) {
                self.remove(&folder)?;
                continue;
            }
            if is_kept(&folder) {
                continue;
            }
            if is_old(self.last(&folder)?) && !has_unknown_outcome(&self.read(&folder)?) {
                self.remove(&self.drop_journal(&folder)?)?;
                swept += 1;
            }
        }
        Ok(swept)
    }
}

fn name_begins(path: &Path, prefix: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(prefix))
}

/// Returns the name of a record's file.
fn name_of(record: &JournalRecord) -> String {
    format!("{:012}.json", record.sequence)
}

/// Returns whether a folder is a journal that is kept as long as its session.
fn is_kept(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    // The rest of the name is hexadecimal.
    name.is_some_and(|name| name.contains(KEPT))
}

/// Returns whether a folder is a dropped journal whose removal a crash interrupted.
fn is_dropped(folder: &Path) -> bool {
    folder.extension().is_some_and(|extension| extension == "tmp")
}

#[async_trait]
impl Journal for FileStore {
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Result<()> {
        let asked = Instant::now();
        let (journals, key, guard) = (Journals::of(&self.options, scope), key.clone(), guard.cloned());
        let files = self.files(scope)?;
        let work = move || {
            let staged = journals.stage(&files, &key, &record)?;
            Ok((journals, key, record, staged))
        };
        let (journals, key, record, staged) = self.prepare(scope, asked, work).await?;
        self.under_lock(scope, asked, move |files, lock| {
            journals.append(files, &key, &record, staged, guard.as_ref(), lock)
        })
        .await
    }

    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>> {
        let (journals, key) = (Journals::of(&self.options, scope), key.clone());
        let read = move || journals.read(&journals.of_turn(&key));
        self.threads.read(read).await
    }

    async fn unfinished(&self, query: &JournalQuery) -> Result<JournalPage> {
        let scope = query.scope.clone().unwrap_or_default();
        let (journals, query) = (Journals::of(&self.options, &scope), query.clone());
        let read = move || {
            let session = query.session.as_ref().filter(|_| query.scope.is_some());
            let prefix = session.map(|session| journals.prefix(session));
            journals.unfinished(&query, &prefix.unwrap_or_default())
        };
        self.threads.read(read).await
    }

    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        self.clear_journal(scope, key, Instant::now()).await
    }

    async fn sweep(&self, before: Timestamp) -> Result<u64> {
        let journals = Journals::of(&self.options, &Scope::default());
        self.threads.write(move || journals.sweep(before)).await
    }
}

impl FileStore {
    /// Drops a journal, by the deadline of an operation that started at that moment.
    pub(crate) async fn clear_journal(&self, scope: &Scope, key: &JournalKey, asked: Instant) -> Result<()> {
        let (journals, key) = (Journals::of(&self.options, scope), key.clone());
        let look = move || {
            let is_empty = journals.disk.list(&journals.of_turn(&key))?.is_empty();
            Ok((!is_empty).then_some((journals, key)))
        };
        let Some((journals, key)) = self.threads.read(look).await? else {
            return Ok(());
        };
        self.under_lock(scope, asked, move |_, lock| {
            let dropped = journals.drop_journal(&journals.of_turn(&key))?;
            drop(lock);
            journals.remove(&dropped)
        })
        .await
    }
}
