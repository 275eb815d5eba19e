//! Checks that custom state of any JSON is read as written.

use std::sync::Arc;

use everturn_agent::store::{Precondition, SessionStore};
use everturn_core::Status;
use serde_json::{Value, json};

use super::row::{get, put, row, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "numbers are kept to the last digit" => numbers_are_kept,
    "a deep document is kept exactly or refused" => deep_documents_are_kept_or_refused,
}

/// Saves a document as custom state. Returns whether it was read again; `false` if it was rejected as an
/// invalid argument.
async fn kept_or_refused(store: &dyn SessionStore, id: &str, document: Value) -> Result<bool, String> {
    let mut written = row("s", id, 1);
    let state = written.state.as_mut().expect("snapshots here have states");
    state.custom = Some(Arc::new(document));
    let saved = store
        .save(
            &scope(),
            Some(&id.into()),
            Precondition::None,
            put(written.clone()),
        )
        .await;
    match saved {
        Ok(_) => {
            let read = get(store, id).await?;
            ensure!(
                read.as_ref() == Some(&written),
                "document '{id}' was accepted and not read back"
            );
            Ok(true)
        }
        Err(error) if error.status() == Status::InvalidArgument => Ok(false),
        Err(error) => Err(format!("document '{id}' was refused with {error:?}")),
    }
}

async fn numbers_are_kept(store: Arc<dyn SessionStore>) -> Verdict {
    let numbers = json!([
        0,
        -1,
        i64::MIN,
        u64::MAX,
        0.1,
        -0.0,
        1.5e300,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        0.1 + 0.2,
        122.416_294_033_786_58,
        9_007_199_254_740_993_u64,
        1e16,
    ]);
    let kept = kept_or_refused(&*store, "numbers", numbers).await?;
    ensure!(kept, "numbers were refused");
    Ok(())
}

async fn deep_documents_are_kept_or_refused(store: Arc<dyn SessionStore>) -> Verdict {
    for depth in [20, 60, 100].into_iter().chain(110..135).chain([500]) {
        let list = (0..depth).fold(json!("deep"), |inner, _| json!([inner]));
        let object = (0..depth).fold(json!({}), |inner, _| json!({"in": inner}));
        for (kind, document) in [("list", list), ("object", object)] {
            let kept = kept_or_refused(&*store, &format!("{kind}-{depth}"), document).await?;
            ensure!(kept || depth > 50, "a {kind} of {depth} levels was refused");
        }
    }
    Ok(())
}
