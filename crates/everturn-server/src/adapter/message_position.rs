//! Positions in a session, and the ids in which adapters send them to clients.

/// The position of a text, call or result in a session.
///
/// Its [id](Self::id) contains the name of its turn, so no index is needed to find the turn's snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessagePosition {
    /// The index of the message in the session.
    pub message: usize,
    /// The number of the text, call or result in the message.
    pub number: usize,
}

impl MessagePosition {
    /// Creates a position.
    pub fn new(message: usize, number: usize) -> Self {
        Self { message, number }
    }

    /// Returns the id of this position in the turn of that [name](crate::turn_name), after a prefix for its
    /// kind.
    pub fn id(self, kind: &str, turn: &str) -> String {
        let Self { message, number } = self;
        match number {
            0 => format!("{kind}_{turn}_{message}"),
            number => format!("{kind}_{turn}_{message}.{number}"),
        }
    }

    /// Returns the position at the end of an id, whatever its kind and turn.
    pub fn of_id(id: &str) -> Option<Self> {
        let (_, position) = id.rsplit_once('_')?;
        let (message, number) = position.split_once('.').unwrap_or((position, "0"));
        Some(Self::new(message.parse().ok()?, number.parse().ok()?))
    }

    /// Returns the kind, the turn and the position that an id names; `None` for an id of another form.
    pub fn parse(id: &str) -> Option<(&str, &str, Self)> {
        let (kind, rest) = id.split_once('_')?;
        let (turn, _) = rest.rsplit_once('_').filter(|(turn, _)| !turn.is_empty())?;
        Some((kind, turn, Self::of_id(id)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_its_turn_and_position() {
        for (position, id) in [
            (MessagePosition::new(0, 0), "msg_01_99_0"),
            (MessagePosition::new(12, 3), "msg_01_99_12.3"),
        ] {
            assert_eq!(position.id("msg", "01_99"), id);
            assert_eq!(MessagePosition::parse(id), Some(("msg", "01_99", position)));
        }
        for other in [
            "",
            "item",
            "call_abc",
            "msg_1",
            "msg__1",
            "msg_0199_x",
            "call_0199_1.y",
        ] {
            assert_eq!(MessagePosition::parse(other), None, "{other}");
        }
    }
}
