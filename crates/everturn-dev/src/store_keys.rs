//! The keys with which earlier designs of the tools read an agent's snapshots.
//!
//! | key | result |
//! |---|---|
//! | `/session-store/{agent}/getSnapshot`, `/snapshot-store/{agent}/getSnapshot` | the snapshot |
//! | `/session-store/{agent}/listSnapshots`, `/snapshot-store/{agent}/listSnapshots` | all snapshots |
//! | `/session-store/{agent}/getSession` | the session's id and its current state |
//!
//! Listed snapshots include their states; the newest is first.
//!
//! The tools reject lists with unknown action types, so these keys can be run but are not listed.

use everturn_core::{ActionType, ParsedKey};
use serde_json::{Value, json};

/// An action of an agent, by its earlier key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKey {
    GetSnapshot,
    ListSnapshots,
    GetSession,
}

impl StoreKey {
    /// Splits an earlier key into the action and the agent's name; `None` for any other key.
    pub(crate) fn parse(key: &str) -> Option<(Self, &str)> {
        let parsed = ParsedKey::parse(key)?;
        let (agent, call) = parsed.name.rsplit_once('/')?;
        let call = match (parsed.action_type, call) {
            ("session-store" | "snapshot-store", "getSnapshot") => Self::GetSnapshot,
            ("session-store" | "snapshot-store", "listSnapshots") => Self::ListSnapshots,
            ("session-store", "getSession") => Self::GetSession,
            _ => return None,
        };
        Some((call, agent))
    }

    /// Returns the key of the corresponding action of the agent.
    pub(crate) fn action(self, agent: &str) -> String {
        let action_type = match self {
            Self::GetSnapshot => ActionType::AGENT_SNAPSHOT,
            Self::ListSnapshots => ActionType::AGENT_SNAPSHOTS,
            Self::GetSession => ActionType::AGENT_SESSION,
        };
        action_type.key(agent)
    }

    /// Returns the input for that action.
    pub(crate) fn input(self, input: Option<Value>) -> Option<Value> {
        let mut input = input?;
        if let (Self::ListSnapshots, Some(members)) = (self, input.as_object_mut()) {
            members.entry("whole").or_insert(true.into());
        }
        Some(input)
    }

    /// Converts that action's result to the format of the earlier key.
    pub(crate) fn answer(self, mut answer: Value) -> Value {
        match self {
            Self::GetSnapshot => answer,
            Self::ListSnapshots => answer["snapshots"].take(),
            Self::GetSession => json!({
                "id": answer["sessionId"].take(),
                "snapshotId": answer["latest"]["snapshotId"].take(),
                "state": answer["latest"]["state"].take(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_the_store_are_known() {
        for key in [
            "/session-store/chef/getSnapshot",
            "/snapshot-store/chef/getSnapshot",
        ] {
            assert_eq!(
                StoreKey::parse(key),
                Some((StoreKey::GetSnapshot, "chef")),
                "{key}"
            );
        }
        assert_eq!(StoreKey::parse("/snapshot-store/chef/getSession"), None);
        assert_eq!(StoreKey::parse("/agent/chef"), None);
    }
}
