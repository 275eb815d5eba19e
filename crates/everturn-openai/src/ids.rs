//! Ids of responses and items. They contain the name of their turn, so no index is needed to find its
//! snapshot.

use everturn_core::hex;
use everturn_server::{MessagePosition, text_of_hex};

/// Returns the id of a response: `resp_`, the name of the turn, and the agent.
pub(crate) fn response_id(turn: &str, agent: &str) -> String {
    format!("resp_{turn}_{}", hex(agent.as_bytes()))
}

/// Returns the turn and the agent of a response; `None` for an id that no response has.
pub(crate) fn parse_response_id(id: &str) -> Option<(&str, String)> {
    let (turn, agent) = id.strip_prefix("resp_")?.rsplit_once('_')?;
    let agent = text_of_hex(agent)?;
    (!turn.is_empty() && !agent.is_empty()).then_some((turn, agent))
}

/// Returns the turn and the position that the id of an item names; `None` for an id that no item has.
pub(crate) fn parse_item_id(id: &str) -> Option<(&str, MessagePosition)> {
    let (_, turn, position) = MessagePosition::parse(id)?;
    Some((turn, position))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_its_turn_and_agent() {
        let id = response_id("0199-ab_c", "küche/chef");

        assert_eq!(
            parse_response_id(&id),
            Some(("0199-ab_c", "küche/chef".to_owned()))
        );
        for other in ["resp_", "resp_x", "resp__61", "msg_a_61", "resp_a_6z", "resp_a_ü"] {
            assert_eq!(parse_response_id(other), None, "{other}");
        }
    }

    #[test]
    fn items_name_their_turn_and_position() {
        let position = MessagePosition::new;

        assert_eq!(position(3, 1).id("msg", "0199"), "msg_0199_3.1");
        assert_eq!(parse_item_id("msg_0199_3.1"), Some(("0199", position(3, 1))));
        assert_eq!(parse_item_id("call_01_99_3"), Some(("01_99", position(3, 0))));
        for other in ["call_abc", "item", "msg__1", "msg_a_1.x"] {
            assert_eq!(parse_item_id(other), None, "{other}");
        }
    }
}
