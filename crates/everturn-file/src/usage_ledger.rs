//! The usage of tenants and unfinished turns: a file per tenant.
//!
//! The files are at `<root>/.ledger/`, apart from the rows, and are replaced whole under their tenant's lock.
//! Each waits twice for the device, so the changes that wait for the lock are made and written together. One
//! holds the usage of the tenant and of turns, which are few: those that run, and those that
//! failed, and those of limited sessions.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_agent::store::{Expense, JournalKey, Scope, TurnAccount, TurnExpenses, UsageLedger, UsageTotal};
use everturn_agent::{SessionId, SnapshotId};
use everturn_core::{Error, Result};
use futures::future::{Either, select};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::FileStore;
use crate::checksum::Seal;
use crate::disk::Disk;
use crate::files::Lock;
use crate::layout::hashed_name;
use crate::options::FileStoreOptions;
use crate::write::{Staged, encode};

/// The content of a tenant's file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TenantUsage {
    tenant: UsageTotal,
    sessions: BTreeMap<String, BTreeMap<String, OfTurn>>,
}

impl TenantUsage {
    fn of(&mut self, key: &JournalKey) -> &mut OfTurn {
        let session = self.sessions.entry(key.session().as_str().to_owned());
        session.or_default().entry(key.turn().to_owned()).or_default()
    }

    fn used(&self, key: &JournalKey) -> UsageTotal {
        let turns = self.sessions.get(key.session().as_str());
        let turn = turns.and_then(|turns| turns.get(key.turn()));
        turn.map_or_else(UsageTotal::default, |turn| turn.used)
    }

    /// Enters an expense; changes nothing if it is refused.
    fn spend(&mut self, expense: &Expense) -> Result<()> {
        let tenant = expense.tenant_after(self.tenant)?;
        if let Some(session) = &expense.session {
            let after = session.after(self.used(&session.key))?;
            self.of(&session.key).used = after;
        }
        if let Some(after) = tenant {
            self.tenant = after;
        }
        if let Some((turn, used)) = &expense.turn {
            let of_turn = self.of(turn.key());
            of_turn.base = turn.base().cloned();
            of_turn.used += *used;
        }
        Ok(())
    }

    fn close(&mut self, keys: &[JournalKey]) {
        for key in keys {
            if let Some(turns) = self.sessions.get_mut(key.session().as_str()) {
                turns.remove(key.turn());
            }
        }
        self.sessions.retain(|_, turns| !turns.is_empty());
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OfTurn {
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<SnapshotId>,
    used: UsageTotal,
}

/// The usage of one tenant.
#[derive(Debug, Clone)]
pub(crate) struct LedgerFile {
    folder: PathBuf,
    path: PathBuf,
    disk: Arc<dyn Disk>,
}

impl LedgerFile {
    pub(crate) fn of(options: &FileStoreOptions, scope: &Scope) -> Self {
        let folder = options.root.join(".ledger");
        Self {
            path: folder.join(hashed_name([scope.as_str()]) + ".json"),
            folder,
            disk: Arc::clone(&options.disk),
        }
    }

    fn read(&self) -> Result<TenantUsage> {
        let damaged = |why: &dyn fmt::Display| {
            Error::data_loss(format!(
                "'{}' is not a ledger: {why}; restore it from a backup",
                self.path.display()
            ))
        };
        let content = self.disk.read(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => damaged(&error),
            _ => error.into(),
        })?;
        let Some(content) = content else {
            return Ok(TenantUsage::default());
        };
        if Seal::of(&content) == Seal::Broken {
            return Err(damaged(&"its content is not what its checksum says"));
        }
        serde_json::from_slice(&content).map_err(|error| damaged(&error))
    }

    /// Replaces the file. The lock is held until the new content is on the device, so that no process builds
    /// on content that may be lost.
    fn write(&self, usage: &TenantUsage, _lock: &Lock) -> Result<()> {
        self.disk.create_folder(&self.folder)?;
        Staged::beside(&self.disk, &self.path, &encode(usage)?)?.publish(&self.path)?;
        Ok(self.disk.sync_folder(&self.folder)?)
    }

    /// Makes changes, and writes the file once.
    fn change_all(&self, waiting: Vec<Waiting>, lock: &Lock) {
        let (changes, answers): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|one| (one.change, one.answer)).unzip();
        if changes.is_empty() {
            return;
        }
        let make = || {
            let mut usage = self.read()?;
            let mut outcomes = Vec::with_capacity(changes.len());
            for change in changes {
                outcomes.push(change(&mut usage).map(|()| usage.tenant));
            }
            if outcomes.iter().any(Result::is_ok) {
                self.write(&usage, lock)?;
            }
            Ok(outcomes)
        };
        let outcomes = make().unwrap_or_else(|error: Error| vec![Err(error); answers.len()]);
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // The caller may have gone.
            let _ = answer.send(outcome);
        }
    }

    /// Changes the file, if it has what `change` is about.
    fn change(&self, lock: &Lock, change: impl FnOnce(&mut TenantUsage) -> bool) -> Result<()> {
        let mut usage = self.read()?;
        if change(&mut usage) {
            self.write(&usage, lock)?;
        }
        Ok(())
    }

    pub(crate) fn close_session(&self, session: &SessionId, lock: &Lock) -> Result<()> {
        self.change(lock, |usage| usage.sessions.remove(session.as_str()).is_some())
    }

    /// Returns whether anything is entered.
    pub(crate) fn exists(&self) -> Result<bool> {
        Ok(self.disk.read(&self.path)?.is_some())
    }

    /// Removes everything of the tenant.
    pub(crate) fn delete(&self) -> Result<()> {
        if self.disk.read(&self.path)?.is_some() {
            self.disk.remove(&self.path)?;
            self.disk.sync_folder(&self.folder)?;
        }
        Ok(())
    }
}

type Change = Box<dyn FnOnce(&mut TenantUsage) -> Result<()> + Send>;

/// A change that waits for a tenant's lock.
struct Waiting {
    number: u64,
    change: Change,
    answer: oneshot::Sender<Result<UsageTotal>>,
}

/// The changes that wait for the locks of their tenants, by file. Shared by all handles of a store.
#[derive(Clone, Default)]
pub(crate) struct LedgerQueues(Arc<Mutex<Changes>>);

#[derive(Default)]
struct Changes {
    next: u64,
    waiting: HashMap<PathBuf, Vec<Waiting>>,
}

/// A change's place among those that wait. Dropping it withdraws the change.
struct Place {
    queues: LedgerQueues,
    path: PathBuf,
    number: u64,
}

impl LedgerQueues {
    fn add(&self, path: &Path, change: Change) -> (Place, oneshot::Receiver<Result<UsageTotal>>) {
        let (answer, answered) = oneshot::channel();
        let mut changes = self.0.lock();
        let number = changes.next;
        changes.next += 1;
        changes.waiting.entry(path.to_owned()).or_default().push(Waiting {
            number,
            change,
            answer,
        });
        let place = Place {
            queues: self.clone(),
            path: path.to_owned(),
            number,
        };
        (place, answered)
    }

    fn take(&self, path: &Path) -> Vec<Waiting> {
        self.0.lock().waiting.remove(path).unwrap_or_default()
    }
}

impl Place {
    /// Withdraws the change; returns `false` if it is being made.
    fn withdraw(&self) -> bool {
        let mut changes = self.queues.0.lock();
        let Some(waiting) = changes.waiting.get_mut(&self.path) else {
            return false;
        };
        let before = waiting.len();
        waiting.retain(|one| one.number != self.number);
        waiting.len() < before
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[async_trait]
impl UsageLedger for FileStore {
    async fn spend(&self, scope: &Scope, expense: &Expense) -> Result<UsageTotal> {
        let (files, expense) = (self.files(scope)?, expense.clone());
        let asked = Instant::now();
        let create = move || Ok(files.disk.create_folder(&files.folder.pointers())?);
        self.prepare(scope, asked, create).await?;
        self.change_ledger(scope, asked, Box::new(move |usage| usage.spend(&expense)))
            .await
    }

    async fn of_session(&self, scope: &Scope, session: &SessionId) -> Result<Vec<TurnExpenses>> {
        let (ledger, session) = (LedgerFile::of(&self.options, scope), session.clone());
        let read = move || {
            let of_session = ledger.read()?.sessions.remove(session.as_str());
            let expenses = |(turn, found): (String, OfTurn)| {
                let key = JournalKey::new(session.clone(), turn);
                TurnExpenses::new(TurnAccount::new(key, found.base), found.used)
            };
            Ok(of_session.into_iter().flatten().map(expenses).collect())
        };
        self.threads.read(read).await
    }

    async fn close(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        self.close_turns(scope, std::slice::from_ref(key), Instant::now())
            .await
    }

    async fn of_tenant(&self, scope: &Scope) -> Result<UsageTotal> {
        let ledger = LedgerFile::of(&self.options, scope);
        self.threads.read(move || Ok(ledger.read()?.tenant)).await
    }
}

impl FileStore {
    /// Changes a tenant's file together with all who wait for its lock, by the deadline of an operation that
    /// started at that moment. Returns what the tenant has used.
    async fn change_ledger(&self, scope: &Scope, asked: Instant, change: Change) -> Result<UsageTotal> {
        let (ledger, queues) = (LedgerFile::of(&self.options, scope), self.ledgers.clone());
        let (place, answer) = queues.add(&ledger.path, change);
        let write = self.under_lock(scope, asked, move |_, lock| {
            ledger.change_all(queues.take(&ledger.path), &lock);
            Ok(())
        });
        let answered = match select(answer, pin!(write)).await {
            Either::Left((answered, _)) => answered,
            Either::Right((Err(error), _)) if place.withdraw() => return Err(error),
            Either::Right((_, answer)) => answer.await,
        };
        answered.unwrap_or_else(|_| Err(Error::internal("writing a ledger was cut short")))
    }

    /// Drops the usage of turns that a snapshot holds, by the deadline of an operation that started at
    /// that moment.
    pub(crate) async fn close_turns(&self, scope: &Scope, keys: &[JournalKey], asked: Instant) -> Result<()> {
        let (ledger, keys) = (LedgerFile::of(&self.options, scope), keys.to_vec());
        let look = move || {
            let known = ledger.read()?.sessions;
            let has = |key: &JournalKey| {
                known
                    .get(key.session().as_str())
                    .is_some_and(|turns| turns.contains_key(key.turn()))
            };
            Ok(keys.iter().any(has).then_some(keys))
        };
        // Most turns have none, and wait for no lock.
        let Some(keys) = self.threads.read(look).await? else {
            return Ok(());
        };
        let close = move |usage: &mut TenantUsage| {
            usage.close(&keys);
            Ok(())
        };
        self.change_ledger(scope, asked, Box::new(close)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use everturn_agent::Budget;
    use everturn_agent::store::Admission;
    use everturn_ai::{NextCall, reason};

    use super::*;

    #[tokio::test]
    async fn changes_that_wait_together_are_made_in_order_and_refused_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).await.unwrap();
        let files = store.files(&Scope::default()).unwrap();
        files.disk.create_folder(&files.folder.pointers()).unwrap();
        let lock = files.lock_if_free().unwrap().unwrap();
        let ledger = LedgerFile::of(&store.options, &Scope::default());
        let mut used = UsageTotal::default();
        used.model_calls = 1;
        let call = NextCall::model("scripted", true);
        let admission = Admission::new(Budget::new().model_calls(2), &call);
        let expense = Expense::new().of_tenant(used).if_admitted(admission);
        let wait = || {
            let expense = expense.clone();
            store
                .ledgers
                .add(&ledger.path, Box::new(move |usage| usage.spend(&expense)))
        };

        let (withdrawn, waiting) = (wait(), [wait(), wait(), wait()]);
        drop(withdrawn.0);
        ledger.change_all(store.ledgers.take(&ledger.path), &lock);

        assert!(withdrawn.1.await.is_err());
        let mut outcomes = Vec::new();
        for (place, answer) in waiting {
            assert!(!place.withdraw(), "it is made");
            outcomes.push(answer.await.unwrap());
        }
        let calls: Vec<_> = outcomes
            .iter()
            .map(|outcome| outcome.as_ref().map(|total| total.model_calls).ok())
            .collect();
        assert_eq!(calls, [Some(1), Some(2), None]);
        assert!(outcomes[2].as_ref().unwrap_err().is(reason::LIMIT_REACHED));
        assert_eq!(ledger.read().unwrap().tenant.model_calls, 2);
    }
}
