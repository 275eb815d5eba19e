//! The usage of tenants and unfinished turns: a file per tenant.
//!
//! The files are at `<root>/.ledger/`, apart from the rows, and are replaced whole under their tenant's lock.
//! One holds the tenant's account, the accounts of turns, which are few: those that run, and those that
//! failed, and those of limited sessions.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_agent::store::{Expense, JournalKey, Scope, TurnAccount, TurnExpenses, UsageLedger, UsageTotal};
use everturn_agent::{SessionId, SnapshotId};
use everturn_core::{Error, Result};
use serde::{Deserialize, Serialize};
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
struct Accounts {
    tenant: UsageTotal,
    sessions: BTreeMap<String, BTreeMap<String, OfTurn>>,
}

impl Accounts {
    fn of(&mut self, key: &JournalKey) -> &mut OfTurn {
        let session = self.sessions.entry(key.session().as_str().to_owned());
        session.or_default().entry(key.turn().to_owned()).or_default()
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OfTurn {
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<SnapshotId>,
    used: UsageTotal,
}

/// The accounts of one tenant.
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

    fn read(&self) -> Result<Accounts> {
        let damaged = |why: &dyn std::fmt::Display| {
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
            return Ok(Accounts::default());
        };
        if Seal::of(&content) == Seal::Broken {
            return Err(damaged(&"its content is not what its checksum says"));
        }
        serde_json::from_slice(&content).map_err(|error| damaged(&error))
    }

    /// Replaces the file. The lock is held until the new content is on the device, so that no process builds
    /// on content that may be lost.
    fn write(&self, accounts: &Accounts, _lock: &Lock) -> Result<()> {
        self.disk.create_folder(&self.folder)?;
        Staged::beside(&self.disk, &self.path, &encode(accounts)?)?.publish(&self.path)?;
        Ok(self.disk.sync_folder(&self.folder)?)
    }

    fn spend(&self, expense: &Expense, lock: &Lock) -> Result<UsageTotal> {
        let mut accounts = self.read()?;
        if let Some(after) = expense.tenant_after(accounts.tenant)? {
            accounts.tenant = after;
        }
        if let Some(session) = &expense.session {
            let of_branch = accounts.of(&session.key);
            of_branch.used = session.after(of_branch.used)?;
        }
        if let Some((account, used)) = &expense.turn {
            let of_turn = accounts.of(account.key());
            of_turn.base = account.base().cloned();
            of_turn.used += *used;
        }
        self.write(&accounts, lock)?;
        Ok(accounts.tenant)
    }

    /// Changes the file, if it has what `change` is about.
    fn change(&self, lock: &Lock, change: impl FnOnce(&mut Accounts) -> bool) -> Result<()> {
        let mut accounts = self.read()?;
        if change(&mut accounts) {
            self.write(&accounts, lock)?;
        }
        Ok(())
    }

    pub(crate) fn close_session(&self, session: &SessionId, lock: &Lock) -> Result<()> {
        self.change(lock, |accounts| {
            accounts.sessions.remove(session.as_str()).is_some()
        })
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

#[async_trait]
impl UsageLedger for FileStore {
    async fn spend(&self, scope: &Scope, expense: &Expense) -> Result<UsageTotal> {
        let (ledger, expense) = (LedgerFile::of(&self.options, scope), expense.clone());
        let files = self.files(scope)?;
        let asked = Instant::now();
        self.threads
            .write(move || Ok(files.disk.create_folder(&files.folder.pointers())?))
            .await?;
        self.under_lock(scope, asked, move |_, lock| ledger.spend(&expense, &lock))
            .await
    }

    async fn of_session(&self, scope: &Scope, session: &SessionId) -> Result<Vec<TurnExpenses>> {
        let (ledger, session) = (LedgerFile::of(&self.options, scope), session.clone());
        let read = move || {
            let of_session = ledger.read()?.sessions.remove(session.as_str());
            let account = |(turn, found): (String, OfTurn)| {
                let key = JournalKey::new(session.clone(), turn);
                TurnExpenses::new(TurnAccount::new(key, found.base), found.used)
            };
            Ok(of_session.into_iter().flatten().map(account).collect())
        };
        self.threads.read(read).await
    }

    async fn close(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        self.close_accounts(scope, std::slice::from_ref(key), Instant::now())
            .await
    }

    async fn of_tenant(&self, scope: &Scope) -> Result<UsageTotal> {
        let ledger = LedgerFile::of(&self.options, scope);
        self.threads.read(move || Ok(ledger.read()?.tenant)).await
    }
}

impl FileStore {
    /// Drops the accounts of turns that a snapshot holds, by the deadline of an operation that started at
    /// that moment.
    pub(crate) async fn close_accounts(
        &self,
        scope: &Scope,
        keys: &[JournalKey],
        asked: Instant,
    ) -> Result<()> {
        let (ledger, keys) = (LedgerFile::of(&self.options, scope), keys.to_vec());
        let look = move || {
            let known = ledger.read()?.sessions;
            let has = |key: &JournalKey| {
                known
                    .get(key.session().as_str())
                    .is_some_and(|turns| turns.contains_key(key.turn()))
            };
            Ok(keys.iter().any(has).then_some((ledger, keys)))
        };
        // Most turns have none, and wait for no lock.
        let Some((ledger, keys)) = self.threads.read(look).await? else {
            return Ok(());
        };
        self.under_lock(scope, asked, move |_, lock| {
            ledger.change(&lock, |accounts| {
                for key in &keys {
                    if let Some(turns) = accounts.sessions.get_mut(key.session().as_str()) {
                        turns.remove(key.turn());
                    }
                }
                accounts.sessions.retain(|_, turns| !turns.is_empty());
                true
            })
        })
        .await
    }
}
