//! Setting and removing the metadata of a message.

use everturn_ai::Message;

#[test]
fn a_message_without_its_only_metadata_entry_is_the_message_without_metadata() {
    let plain = Message::user("a");
    let named = plain.clone().with_metadata_entry("k", 1);
    let other = named.clone().with_metadata_entry("l", 2);

    assert_eq!(named.clone().without_metadata_entry("k"), plain);
    assert!(named.clone().without_metadata_entry("l").is_same(&named));
    assert_eq!(
        other.without_metadata_entry("k"),
        plain.with_metadata_entry("l", 2)
    );
}
