//! Observing the generate loop, for the owner of the conversation.
//!
//! The loop does not depend on sessions: it finds the observer in its context, and waits for it at the end of
//! a round. A snapshot that the observer takes there is durable before the model sees the answers of the
//! tools.

use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{Context, Result};

use crate::Messages;

/// Observes the progress of generations that run in a context. Generations inside tools are other
/// conversations and are not observed.
#[async_trait]
pub trait GenerateObserver: Send + Sync + 'static {
    /// Called whenever the conversation can be continued from here: before each model call, and when all
    /// tools of a round have answered. `messages` is the whole conversation, without the requested answer.
    fn reached(&self, messages: &Messages) {
        let _ = messages;
    }

    /// Called when all tools of a round have answered, before the model sees the answers.
    ///
    /// `messages` is the whole conversation, answers included. An error fails the generation.
    async fn round_end(&self, messages: &Messages) -> Result<()> {
        let _ = messages;
        Ok(())
    }
}

struct Observer(Option<Arc<dyn GenerateObserver>>);

/// Returns the context with `observer`, which observes the generations that run in it.
pub fn with_observer(context: Context, observer: Arc<dyn GenerateObserver>) -> Context {
    context.with_extension(Arc::new(Observer(Some(observer))))
}

/// Returns the context without an observer.
pub(super) fn unobserved(context: Context) -> Context {
    match context.extension::<Observer>() {
        Some(observer) if observer.0.is_some() => context.with_extension(Arc::new(Observer(None))),
        _ => context,
    }
}

pub(super) fn reached(context: &Context, messages: &Messages) {
    if let Some(Observer(Some(observer))) = context.extension::<Observer>().as_deref() {
        observer.reached(messages);
    }
}

pub(super) async fn round_end(context: &Context, messages: &Messages) -> Result<()> {
    match context.extension::<Observer>().as_deref() {
        Some(Observer(Some(observer))) => observer.round_end(messages).await,
        _ => Ok(()),
    }
}
