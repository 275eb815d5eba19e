//! The name of a stream.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::StreamSubject;

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

    /// Charges the stream to an owner, such as a caller who has streams in several scopes.
    #[must_use]
    pub fn owned_by(mut self, owner: impl Into<Arc<str>>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Sets the subject whose text the stream holds, so that the stream is erased with it.
    #[must_use]
    pub fn about(mut self, subject: StreamSubject) -> Self {
        self.subject = subject;
        self
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

impl PartialEq for StreamKey {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for StreamKey {}

impl Hash for StreamKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl PartialOrd for StreamKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StreamKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(&other.name())
    }
}
