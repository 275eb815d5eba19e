//! The patches that stream changes of the custom state.

use std::sync::Arc;

use serde_json::Value;

use crate::patch::JsonPatch;

/// Remembers the document that was sent last. The first patch of every turn replaces the whole document, so a
/// client's view is wrong for one turn at most.
#[derive(Debug, Default)]
pub(super) struct Patcher {
    sent: Option<Arc<Value>>,
}

impl Patcher {
    /// Makes the next patch a whole document.
    pub(super) fn arm(&mut self) {
        self.sent = None;
    }

    /// Returns the patch that turns the client's view into `current`; `None` if the two are equal.
    pub(super) fn patch_to(&mut self, current: Arc<Value>) -> Option<JsonPatch> {
        let patch = match self.sent.as_deref() {
            None => JsonPatch::replace_document(Arc::clone(&current)),
            Some(sent) => JsonPatch::diff(sent, &current),
        };
        self.sent = Some(current);
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

        let first = patcher.patch_to(Arc::clone(&document));
        let unchanged = patcher.patch_to(Arc::clone(&document));
        patcher.arm();
        let rearmed = patcher.patch_to(document);

        assert_eq!(first, Some(JsonPatch::replace_document(json!({"n": 1}))));
        assert_eq!(unchanged, None);
        assert_eq!(rearmed, first);
    }
}
