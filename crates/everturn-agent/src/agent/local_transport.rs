//! The transport by which chats reach an agent in this process.

use std::time::Duration;

use everturn_core::{Connection, Context, Emitter, Inputs, Result};
use futures::future::BoxFuture;
use futures::stream;

use super::Agent;
use crate::runs::run_stream::RunChunks;
use crate::store::StatusStream;
use crate::{
    Abort, AgentInit, AgentInput, AgentOutput, AgentStreamChunk, AgentTransport, CustomState,
    GetSnapshotRequest, Snapshot, SnapshotId, StateManagement,
};

impl<S: CustomState, T: 'static, O: 'static> AgentTransport for Agent<S, T, O> {
    fn connect(
        &self,
        init: AgentInit,
        context: &Context,
    ) -> Connection<AgentInput, AgentOutput, AgentStreamChunk> {
        self.action().connect_in(init, &self.with_registry(context))
    }

    fn run(
        &self,
        init: AgentInit,
        input: AgentInput,
        emitter: Emitter<AgentStreamChunk>,
        context: &Context,
    ) -> BoxFuture<'static, Result<AgentOutput>> {
        let action = self.action().clone();
        let context = self.with_registry(context).child();
        Box::pin(async move {
            // Dropping the call ends the agent; cancelling reaches work that it handed to others.
            let _cancel = context.cancellation().clone().drop_guard();
            let inputs = Inputs::from_stream(stream::iter([input]));
            action.call(init, inputs, emitter, context).await
        })
    }

    fn snapshot(&self, request: GetSnapshotRequest, context: Context) -> BoxFuture<'_, Result<Snapshot>> {
        Box::pin(async move { self.definition().read_snapshot(request, &context).await })
    }

    fn abort(&self, id: SnapshotId, context: Context) -> BoxFuture<'_, Result<Option<Abort>>> {
        Box::pin(async move { self.definition().abort_run(&id, &context).await })
    }

    fn watch(&self, id: &SnapshotId, context: &Context) -> Option<StatusStream> {
        let definition = self.definition();
        definition.store.as_ref()?.watch(&definition.scope(context), id)
    }

    fn follow(&self, id: &SnapshotId, context: &Context) -> Option<RunChunks> {
        self.definition().follow(id, context).ok()
    }

    fn state_management(&self) -> Option<StateManagement> {
        Some(self.metadata().state_management)
    }

    fn takeover_patience(&self) -> Duration {
        self.definition().takeover_patience()
    }
}
