//! Ids of messages and calls. They contain the name of their turn, so no index is needed to find its snapshot.

/// A place in a session: the message, and the number of the text, call or result in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) message: usize,
    pub(crate) number: usize,
}

impl Place {
    pub(crate) fn new(message: usize, number: usize) -> Self {
        Self { message, number }
    }

    /// Returns the id of a message at this place, under the name of its turn.
    pub(crate) fn message_id(self, turn: &str) -> String {
        self.id("msg", turn)
    }

    /// Returns the id of reasoning at this place.
    pub(crate) fn reasoning_id(self, turn: &str) -> String {
        self.id("rsn", turn)
    }

    /// Returns the id of a call at this place.
    pub(crate) fn call_id(self, turn: &str) -> String {
        self.id("call", turn)
    }

    fn id(self, kind: &str, turn: &str) -> String {
        let Self { message, number } = self;
        match number {
            0 => format!("{kind}_{turn}_{message}"),
            number => format!("{kind}_{turn}_{message}.{number}"),
        }
    }
}

/// Returns the turn and the place that an id names; `None` for an id that is not made here.
pub(crate) fn parse(id: &str) -> Option<(String, Place)> {
    let (kind, rest) = id.split_once('_')?;
    let (turn, place) = rest.rsplit_once('_')?;
    let (message, number) = place.split_once('.').unwrap_or((place, "0"));
    let place = Place::new(message.parse().ok()?, number.parse().ok()?);
    let is_own = matches!(kind, "msg" | "rsn" | "call") && !turn.is_empty();
    is_own.then(|| (turn.to_owned(), place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_its_snapshot_and_place() {
        for place in [Place::new(0, 0), Place::new(12, 3)] {
            for id in [
                place.message_id("01_99"),
                place.call_id("01_99"),
                place.reasoning_id("01_99"),
            ] {
                assert_eq!(parse(&id), Some(("01_99".to_owned(), place)), "{id}");
            }
        }
        for other in [
            "",
            "msg",
            "msg_1",
            "msg__1",
            "user_0199_1",
            "msg_0199_x",
            "call_0199_1.y",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
