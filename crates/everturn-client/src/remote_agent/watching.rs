//! Watching the background runs of a remote agent.

use std::sync::Arc;

use everturn_agent::{RunChunks, SnapshotId, WatchRequest};
use everturn_core::{Context, Result};
use futures::StreamExt;

use super::Routes;
use crate::event_stream::EventStream;
use crate::events::Event;
use crate::request::decoded;

/// The state of a watch.
enum Watch {
    /// The request has not been sent.
    Planned(Arc<Routes>, SnapshotId),
    Open(Box<EventStream>),
    Over,
}

/// Returns the chunks of a run from its beginning to its end. The request is sent when the first chunk is
/// awaited, and cancelled when the stream is dropped. If the connection breaks, the watch ends with
/// [`STREAM_BROKEN`](crate::STREAM_BROKEN); a new watch starts from the beginning.
pub(super) fn chunks(routes: Arc<Routes>, id: SnapshotId, context: Context) -> RunChunks {
    let planned = (Watch::Planned(routes, id), context);
    futures::stream::unfold(planned, |(watch, context)| async move {
        let outcome = match watch {
            Watch::Planned(routes, id) => {
                let request = WatchRequest { snapshot_id: id };
                let opening = routes.start_repeatable("watch", &request, &context);
                match context.guard(opening).await {
                    Ok(events) => next(Box::new(events), &context).await,
                    Err(error) => Err(error),
                }
            }
            Watch::Open(events) => next(events, &context).await,
            Watch::Over => return None,
        };
        let shown = match outcome {
            Ok((Event::Chunk(chunk), events)) => decoded(chunk).map(|chunk| (chunk, events)),
            Ok((Event::Output(_), _)) => return None,
            Ok((Event::Failure(error), _)) | Err(error) => Err(error),
        };
        Some(match shown {
            Ok((chunk, events)) => (Ok(chunk), (Watch::Open(events), context)),
            Err(error) => (Err(error), (Watch::Over, context)),
        })
    })
    .boxed()
}

async fn next(mut events: Box<EventStream>, context: &Context) -> Result<(Event, Box<EventStream>)> {
    let event = context.guard(events.next()).await?;
    Ok((event, events))
}
