//! A look into the loop for whoever keeps the conversation.

use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{Context, Result};

use crate::Messages;

/// Told about the progress of the generations that run in a context. What the tools of such a generation generate is
/// another conversation, and not told.
#[async_trait]
pub trait GenerateObserver: Send + Sync + 'static {
    /// All tools that a model asked for have answered, and the model has not seen the answers yet.
    ///
    /// `messages` is the whole conversation, answers included. An error fails the generation.
    async fn round_end(&self, messages: &Messages) -> Result<()> {
        let _ = messages;
        Ok(())
    }
}

struct Observer(Option<Arc<dyn GenerateObserver>>);

/// The same context, in which `observer` is told about generations.
pub fn with_observer(context: Context, observer: Arc<dyn GenerateObserver>) -> Context {
    context.with_extension(Arc::new(Observer(Some(observer))))
}

/// The same context, in which nobody is told about generations.
pub(super) fn unobserved(context: Context) -> Context {
    match context.extension::<Observer>() {
        Some(observer) if observer.0.is_some() => context.with_extension(Arc::new(Observer(None))),
        _ => context,
    }
}

pub(super) async fn round_end(context: &Context, messages: &Messages) -> Result<()> {
    match context.extension::<Observer>().as_deref() {
        Some(Observer(Some(observer))) => observer.round_end(messages).await,
        _ => Ok(()),
    }
}
