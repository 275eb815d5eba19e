//! Checksums of messages.
//!
//! Each covers its message, the message's place and, by way of the checksum before it, all messages before.
//! So the checksum of the last message stands for a whole history: a snapshot records it, and a history in
//! memory is used only if it has the same.
//!
//! One half is random for each commit. After the database was restored to an earlier point, messages in the
//! places of lost ones have other checksums, whatever they say.

use everturn_agent::store::Checksum;

/// The checksum of the last message of a history.
pub(crate) type Tail = i64;

/// Returns the checksum of a message that follows one with the checksum `before`.
pub(crate) fn tail(before: Option<Tail>, number: i32, text: &str, random: i32) -> Tail {
    let sum = Checksum::default()
        .optional(before, Checksum::integer)
        .integer(number.into())
        .integer(random.into())
        .text(text);
    (i64::from(random) << 32) | sum.finish()
}

/// Returns whether a message with this checksum follows one with the checksum `before`.
pub(crate) fn follows(stored: Tail, before: Option<Tail>, number: i32, text: &str) -> bool {
    let random = i32::try_from(stored >> 32).expect("the upper half has 32 bits");
    stored == tail(before, number, text, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_covers_the_message_its_place_and_those_before() {
        for random in [7, -7] {
            let first = tail(None, 0, "leeks", random);
            let second = tail(Some(first), 1, "potatoes", random);

            assert!(follows(first, None, 0, "leeks") && follows(second, Some(first), 1, "potatoes"));
            assert!(!follows(second, Some(first), 1, "potato"));
            assert!(!follows(second, Some(first), 2, "potatoes"));
            assert!(!follows(second, None, 1, "potatoes"));
            assert!(!follows(second, Some(first + 1), 1, "potatoes"));
        }
        assert_ne!(tail(None, 0, "leeks", 1), tail(None, 0, "leeks", 2));
    }
}
