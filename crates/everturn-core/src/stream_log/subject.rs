//! The subject whose text a stream holds.

use std::sync::Arc;

/// The tenant, and the session if there is one, whose text a stream holds: the stream is erased with them.
///
/// ```
/// use everturn_core::Result;
/// use everturn_core::stream_log::{JsonText, MemoryStreamLog, Position, StreamKey, StreamLog, StreamSubject};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let log = MemoryStreamLog::new();
/// let key = StreamKey::new("flows", "1").about(StreamSubject::session("ann", "dinner"));
/// log.open(&key).await?.finish(Ok(JsonText::of(&"soup")?)).await?;
///
/// assert_eq!(log.erase(&StreamSubject::session("ann", "lunch")).await?, 0);
/// assert_eq!(log.erase(&StreamSubject::tenant("ann")).await?, 1);
/// assert!(log.read(&key, Position::START).await.is_err());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamSubject {
    tenant: Arc<str>,
    session: Option<Arc<str>>,
}

impl StreamSubject {
    /// Names a tenant: a stream of it that belongs to no session, or all its streams to be erased.
    pub fn tenant(tenant: impl Into<Arc<str>>) -> Self {
        Self {
            tenant: tenant.into(),
            session: None,
        }
    }

    /// Names a session of a tenant.
    pub fn session(tenant: impl Into<Arc<str>>, session: impl Into<Arc<str>>) -> Self {
        Self {
            tenant: tenant.into(),
            session: Some(session.into()),
        }
    }

    /// Returns the tenant's name.
    pub fn tenant_name(&self) -> &str {
        &self.tenant
    }

    /// Returns the session's id, if the subject is a session.
    pub fn session_id(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns whether erasing this subject erases a stream about `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.tenant == other.tenant && (self.session.is_none() || self.session == other.session)
    }
}

/// A slot in the context of a streamed call in which an agent stores the session that the stream is about,
/// once it is known.
#[derive(Debug, Default)]
pub struct SubjectNote(std::sync::OnceLock<StreamSubject>);

impl SubjectNote {
    /// Stores the subject; the first one stays.
    pub fn leave(&self, subject: StreamSubject) {
        // A call is about one session; agents that it calls store theirs later and are ignored.
        let _ = self.0.set(subject);
    }

    /// Returns the subject, once it is known.
    pub fn subject(&self) -> Option<&StreamSubject> {
        self.0.get()
    }
}
