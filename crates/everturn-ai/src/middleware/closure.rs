//! Middleware made from closures.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::HandlerResult;
use futures::future::BoxFuture;

use super::{GenerateRound, Middleware, ModelCall, NextModel, NextRound, NextTool, ToolCall};
use crate::{ModelResponse, MultipartToolResponse};

type Function<C, N, O> = dyn Fn(C, N) -> BoxFuture<'static, HandlerResult<O>> + Send + Sync;

macro_rules! closure_hook {
    ($name:ident, $constructor:ident, $method:ident, $call:ty, $next:ty, $output:ty, $doc:literal, $example:literal) => {
        #[doc = concat!("A closure around ", $doc, ".")]
        #[derive(Clone)]
        pub struct $name(Arc<Function<$call, $next, $output>>);

        #[doc = concat!("Makes a middleware of a closure around ", $doc, ".")]
        #[doc = $example]
        pub fn $constructor<F, Fut>(function: F) -> $name
        where
            F: Fn($call, $next) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = HandlerResult<$output>> + Send + 'static,
        {
            $name(Arc::new(move |call, next| Box::pin(function(call, next))))
        }

        #[async_trait]
        impl Middleware for $name {
            async fn $method(&self, call: $call, next: $next) -> HandlerResult<$output> {
                (self.0)(call, next).await
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(stringify!($name))
            }
        }
    };
}

closure_hook!(
    ModelHook,
    model_hook,
    model,
    ModelCall,
    NextModel,
    ModelResponse,
    "every model call",
    "\n```\nuse everturn_ai::model_hook;\n\nlet cold = model_hook(|mut call, next| async move {\n    \
     call.request.config = Some(serde_json::json!({ \"temperature\": 0 }));\n    Ok(next.run(call).await?)\n});\n```"
);
closure_hook!(
    GenerateHook,
    generate_hook,
    generate,
    GenerateRound,
    NextRound,
    ModelResponse,
    "every round",
    ""
);
closure_hook!(
    ToolHook,
    tool_hook,
    tool,
    ToolCall,
    NextTool,
    MultipartToolResponse,
    "every tool call",
    ""
);
