//! Providers made of others: alternatives, sequences, and callers that act for a tenant.

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::{HeaderName, header};
use everturn_core::{Context, Error, HandlerResult, Status};
use serde_json::Value;

use super::{CallRequest, ContextProvider, Provided};

/// The first provider that identifies the caller; see [`ContextProvider::or`].
pub(super) struct AnyOf<A, B>(pub(super) A, pub(super) B);

#[async_trait]
impl<A: ContextProvider, B: ContextProvider> ContextProvider for AnyOf<A, B> {
    async fn provide(&self, request: &CallRequest<'_>) -> HandlerResult<Provided> {
        let refused = match self.0.provide(request).await.map_err(Error::from) {
            Ok(provided) if provided.has_tenant() => return Ok(provided),
            Ok(_) => None,
            Err(error) if error.status() == Status::Unauthenticated => Some(error),
            Err(error) => return Err(error.into()),
        };
        let other = self.1.provide(request).await.map_err(Error::from);
        Ok(match (refused, other) {
            (Some(first), Err(second)) if second.status() == Status::Unauthenticated => {
                return Err(neither(&first, &second).into());
            }
            (Some(first), Ok(other))
                if other.principal.is_none() && request.headers.contains_key(header::AUTHORIZATION) =>
            {
                return Err(first.into());
            }
            (_, other) => other?,
        })
    }

    fn security(&self) -> Vec<Vec<(&'static str, Value)>> {
        self.0.security().into_iter().chain(self.1.security()).collect()
    }
}

/// Returns the error for a caller whom neither provider identifies.
fn neither(first: &Error, second: &Error) -> Error {
    let error = Error::unauthenticated(format!("{}; or: {}", first.message(), second.message()));
    match (first.public_message(), second.public_message()) {
        (Some(first), Some(second)) if first == second => error.with_public_message(first),
        (Some(first), Some(second)) => error.with_public_message(format!("{first}; or: {second}")),
        (Some(one), None) | (None, Some(one)) => error.with_public_message(one),
        (None, None) => error,
    }
}

/// Both providers, one after the other; see [`ContextProvider::and`].
pub(super) struct All<A, B>(pub(super) A, pub(super) B);

#[async_trait]
impl<A: ContextProvider, B: ContextProvider> ContextProvider for All<A, B> {
    async fn provide(&self, request: &CallRequest<'_>) -> HandlerResult<Provided> {
        let mut provided = self.0.provide(request).await?;
        provided.merge(self.1.provide(request).await?);
        Ok(provided)
    }

    fn security(&self) -> Vec<Vec<(&'static str, Value)>> {
        let (first, second) = (self.0.security(), self.1.security());
        let both = |one: &Vec<_>| {
            second
                .iter()
                .map(|other| [one.as_slice(), other].concat())
                .collect::<Vec<_>>()
        };
        first.iter().flat_map(both).collect()
    }
}

/// Callers that may act in another tenant; see [`ContextProvider::acting_for`].
pub(super) struct ActingFor<P> {
    pub(super) provider: P,
    pub(super) role: String,
    pub(super) header: HeaderName,
}

#[async_trait]
impl<P: ContextProvider> ContextProvider for ActingFor<P> {
    async fn provide(&self, request: &CallRequest<'_>) -> HandlerResult<Provided> {
        let mut provided = self.provider.provide(request).await?;
        if !request.headers.contains_key(&self.header) {
            return Ok(provided);
        }
        let (header, role) = (&self.header, &self.role);
        let context = Context::new().with_values(provided.values.clone());
        let context = provided
            .principal
            .iter()
            .fold(context, |context, caller| caller.enter(context));
        let Some(caller) = provided.principal.take().filter(|_| context.has_role(role)) else {
            let message =
                format!("only callers with the role '{role}' may name a tenant in the header '{header}'");
            return Err(Error::permission_denied(message).with_public().into());
        };
        // A header that is sent twice or is not text names no tenant.
        let tenant = request
            .header(header.as_str())
            .map(str::trim)
            .filter(|tenant| !tenant.is_empty());
        let tenant = tenant.ok_or_else(|| {
            Error::invalid_argument(format!("the header '{header}' must name one tenant")).with_public()
        })?;
        provided.given.push(Arc::new(Context::with_named_tenant));
        Ok(provided.with_principal(caller.in_tenant(tenant)))
    }

    fn security(&self) -> Vec<Vec<(&'static str, Value)>> {
        self.provider.security()
    }
}
