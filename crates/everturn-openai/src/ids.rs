//! Ids of responses, items and calls. They contain the snapshot they are in, so no index is needed to find it.

use std::fmt::Write;

use everturn_agent::SnapshotId;

/// The id of a response: `resp_`, the snapshot that holds the turn, and the agent.
pub(crate) fn response_id(snapshot: &SnapshotId, agent: &str) -> String {
    format!("resp_{snapshot}_{}", hex(agent.as_bytes()))
}

/// Returns bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the snapshot and the agent of a response; `None` for an id that no response has.
pub(crate) fn parse_response_id(id: &str) -> Option<(SnapshotId, String)> {
    let (snapshot, agent) = id.strip_prefix("resp_")?.rsplit_once('_')?;
    let bytes: Option<Vec<u8>> = agent
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    let agent = String::from_utf8(bytes?).ok()?;
    (!snapshot.is_empty() && !agent.is_empty()).then(|| (SnapshotId::from(snapshot), agent))
}

/// The place of an item: the message's place in its session, and the item's number in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ItemKey {
    pub(crate) message: usize,
    pub(crate) number: usize,
}

impl ItemKey {
    /// Returns the item's id, under the name of its snapshot.
    pub(crate) fn id(self, kind: &str, snapshot: &str) -> String {
        let Self { message, number } = self;
        match number {
            0 => format!("{kind}_{snapshot}_{message}"),
            number => format!("{kind}_{snapshot}_{message}.{number}"),
        }
    }
}

/// Returns the place that the id of an item names.
pub(crate) fn place_of_item(id: &str) -> Option<ItemKey> {
    let (_, place) = id.rsplit_once('_')?;
    let (message, number) = place.split_once('.').unwrap_or((place, "0"));
    Some(ItemKey {
        message: message.parse().ok()?,
        number: number.parse().ok()?,
    })
}

/// Returns the snapshot that the id of an item names; `None` for an id that no item of ours has.
pub(crate) fn snapshot_of_item(id: &str) -> Option<SnapshotId> {
    let (_, rest) = id.split_once('_')?;
    let (snapshot, place) = rest.rsplit_once('_')?;
    let is_place = place.split('.').all(|number| number.parse::<usize>().is_ok());
    (is_place && !snapshot.is_empty()).then(|| SnapshotId::from(snapshot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_its_snapshot_and_agent() {
        let snapshot = SnapshotId::from("0199-ab_c");

        let id = response_id(&snapshot, "küche/chef");

        assert_eq!(parse_response_id(&id), Some((snapshot, "küche/chef".to_owned())));
        for other in ["resp_", "resp_x", "resp__61", "msg_a_61", "resp_a_6z", "resp_a_ü"] {
            assert_eq!(parse_response_id(other), None, "{other}");
        }
    }

    #[test]
    fn items_name_their_snapshot() {
        let key = ItemKey {
            message: 3,
            number: 1,
        };

        assert_eq!(key.id("msg", "0199"), "msg_0199_3.1");
        assert_eq!(snapshot_of_item("msg_0199_3.1"), Some("0199".into()));
        assert_eq!(snapshot_of_item("call_01_99_3"), Some("01_99".into()));
        assert_eq!(snapshot_of_item("call_abc"), None);
        assert_eq!(snapshot_of_item("item"), None);
    }
}
