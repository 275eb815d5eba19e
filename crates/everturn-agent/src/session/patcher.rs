//! Which patch tells a client what changed in the custom state.

use std::sync::Arc;

use serde_json::Value;

use crate::patch::JsonPatch;

/// Remembers the last value a client was told. A client's view can be wrong for a turn at most: the first patch of
/// every turn replaces the whole document.
#[derive(Debug, Default)]
pub(super) struct Patcher {
    told: Option<Arc<Value>>,
}

impl Patcher {
    /// The next patch is a whole document again.
    pub(super) fn arm(&mut self) {
        self.told = None;
    }

    /// The patch that makes the client's view `current`, or `None` if it is that already.
    pub(super) fn tell(&mut self, current: Arc<Value>) -> Option<JsonPatch> {
        let patch = match self.told.as_deref() {
            None => JsonPatch::replace_document(Value::clone(&current)),
            Some(told) => JsonPatch::diff(told, &current),
        };
        self.told = Some(current);
        (!patch.is_empty()).then_some(patch)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_patch_is_the_whole_document_even_if_nothing_changed() {
        let mut patcher = Patcher::default();
        let document = Arc::new(json!({"n": 1}));

        let first = patcher.tell(Arc::clone(&document));
        let unchanged = patcher.tell(Arc::clone(&document));
        patcher.arm();
        let rearmed = patcher.tell(document);

        assert_eq!(first, Some(JsonPatch::replace_document(json!({"n": 1}))));
        assert_eq!(unchanged, None);
        assert_eq!(rearmed, first);
    }
}
