//! The name of a stream, and the subject whose text it holds.

use std::sync::{Arc, OnceLock};

/// The name of a stream: an id within the scope of its owner. Cloning is cheap.
///
/// A scope separates owners that must not see each other's streams, such as principals, tenants or agents. An
/// id is not a credential: without its scope it finds no stream.
///
/// Keys are equal if their scopes and ids are; the [owner](StreamKey::owner) only determines who is charged,
/// and the [subject](StreamKey::subject) with what the stream is erased.
#[derive(Debug, Clone)]
pub struct StreamKey {
    scope: Arc<str>,
    id: Arc<str>,
    owner: Arc<str>,
    subject: StreamSubject,
}

impl StreamKey {
    /// Creates the key of the stream `id` in `scope`, whose owner and tenant are the scope.
    pub fn new(scope: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        let scope = scope.into();
        Self {
            owner: Arc::clone(&scope),
            subject: StreamSubject::tenant(Arc::clone(&scope)),
            scope,
            id: id.into(),
        }
    }

    crate::setters! {
        /// Charges the stream to an owner, such as a caller who has streams in several scopes.
        #[must_use]
        pub fn owned_by(mut self, owner: impl Into<Arc<str>>) { self.owner = owner.into() }

        /// Sets the subject whose text the stream holds, so that the stream is erased with it.
        #[must_use]
        pub fn about(mut self, subject: StreamSubject) { self.subject = subject }
    }

    /// Returns the subject whose text the stream holds.
    pub fn subject(&self) -> &StreamSubject {
        &self.subject
    }

    /// Returns the scope of the stream's owner.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Returns the stream's id within its scope.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the owner against whose budget a log counts the stream.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    fn name(&self) -> (&str, &str) {
        (&self.scope, &self.id)
    }
}

crate::macros::compared_by!(StreamKey, name, ordered);

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
pub struct SubjectNote(OnceLock<StreamSubject>);

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
