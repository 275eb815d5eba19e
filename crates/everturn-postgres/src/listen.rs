//! Notifications between processes, which make watching prompt.
//!
//! Notifications are sent outside of commits, because a commit that notifies waits for all others that do.
//! They are coalesced: one statement announces all changes since the last. A separate connection listens. It
//! is tested when it is opened, by a notification that this process sends. Behind a pooler in transaction
//! mode none arrives; the connection is then closed, and changes are found by polling.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everturn_sql::Key;
use futures::StreamExt;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, mpsc};
use tokio_postgres::AsyncMessage;

use crate::connection::{Address, Database, quoted};
use crate::fault::{Outcome, describe};
use crate::statement::Statement;

/// How long announcements wait for others to join them.
const GATHER: Duration = Duration::from_millis(5);

/// How many tags one notification carries: PostgreSQL allows 8,000 bytes.
const MAX_TAGS: usize = 300;

/// How long a connection may take to prove that it receives notifications.
const PROOF: Duration = Duration::from_secs(2);

/// How long to wait before listening again after a connection broke or received no notifications.
const RETRY_BROKEN: Duration = Duration::from_secs(1);
const RETRY_DEAF: Duration = Duration::from_mins(5);

/// Returns what stands for a row in notifications: a hash, so that no tenant's names are sent to all.
pub(crate) fn tag(key: &Key) -> i64 {
    let mut hash = Sha256::new();
    hash.update(key.0.as_str().len().to_le_bytes());
    hash.update(key.0.as_str());
    hash.update(key.1.as_str());
    let digest: [u8; 32] = hash.finalize().into();
    let (tag, _) = digest.split_first_chunk::<8>().expect("a digest has 32 bytes");
    i64::from_le_bytes(*tag)
}

/// Sends notifications of the rows whose status this process changed.
#[derive(Default)]
pub(crate) struct Announcer {
    tags: Mutex<BTreeSet<i64>>,
    wake: Notify,
}

impl Announcer {
    pub(crate) fn announce(&self, key: &Key) {
        self.tags.lock().insert(tag(key));
        self.wake.notify_one();
    }

    pub(crate) async fn run(&self, db: &Weak<Database>, channel: &str) {
        loop {
            self.wake.notified().await;
            tokio::time::sleep(GATHER).await;
            let Some(db) = db.upgrade() else {
                return;
            };
            let tags: Vec<i64> = {
                let mut tags = self.tags.lock();
                std::mem::take(&mut *tags).into_iter().collect()
            };
            for tags in tags.chunks(MAX_TAGS) {
                let words: Vec<String> = tags.iter().map(i64::to_string).collect();
                if let Err(fault) = notify(&db, channel, &words.join(" ")).await {
                    let error = fault.into_error(&db.place);
                    tracing::debug!(%error, "a notification was not sent; other processes poll");
                }
            }
        }
    }
}

async fn notify(db: &Database, channel: &str, payload: &str) -> Outcome<()> {
    let statement = Statement::new("SELECT pg_notify($1, $2)").with((channel.to_owned(), payload.to_owned()));
    db.run(&statement).await.map(|_| ())
}

/// The channel of a schema's notifications, and where to listen for them.
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) address: Option<Address>,
}

/// Why listening ended.
enum End {
    Broken,
    Deaf,
}

impl Channel {
    /// Listens until the store is dropped, and calls `received` with every tag.
    pub(crate) async fn listen(&self, db: &Weak<Database>, listening: &AtomicBool, changed: impl Fn(i64)) {
        let Some(address) = &self.address else {
            return;
        };
        loop {
            let end = self.listen_once(address, db, listening, &changed).await;
            listening.store(false, Ordering::Relaxed);
            let pause = match end {
                End::Broken => RETRY_BROKEN,
                End::Deaf => RETRY_DEAF,
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn listen_once(
        &self,
        address: &Address,
        db: &Weak<Database>,
        listening: &AtomicBool,
        changed: &impl Fn(i64),
    ) -> End {
        let connected = address.config.connect(address.tls.clone()).await;
        let (client, mut connection) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                tracing::debug!(error = describe(&error), "cannot listen for notifications");
                return End::Broken;
            }
        };
        let (sender, mut messages) = mpsc::unbounded_channel();
        let drive = async move {
            let mut stream = futures::stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = stream.next().await {
                if let AsyncMessage::Notification(notification) = message {
                    // The receiver lives as long as this future.
                    let _ = sender.send(notification.payload().to_owned());
                }
            }
        };
        let nonce = format!("proof {}", fastrand::u64(..));
        let hear = async {
            if client
                .batch_execute(&format!("LISTEN {}", quoted(&self.name)))
                .await
                .is_err()
            {
                return End::Broken;
            }
            let prove = async {
                if let Some(db) = db.upgrade() {
                    // A notification that is not sent is lost.
                    let _ = notify(&db, &self.name, &nonce).await;
                }
                while let Some(payload) = messages.recv().await {
                    if payload == nonce {
                        return true;
                    }
                }
                false
            };
            if !matches!(tokio::time::timeout(PROOF, prove).await, Ok(true)) {
                return End::Deaf;
            }
            listening.store(true, Ordering::Relaxed);
            while let Some(payload) = messages.recv().await {
                payload
                    .split(' ')
                    .filter_map(|word| word.parse().ok())
                    .for_each(changed);
            }
            End::Broken
        };
        tokio::select! {
            () = drive => End::Broken,
            end = hear => end,
        }
    }
}
