//! The tables of streams, versioned as the session store's are.

use crate::schema::Schema;

pub(super) const STREAMS: Schema<'_> = Schema {
    // `EvSt` in ASCII.
    application: 0x4576_5374,
    migrations: &[include_str!("schema/1.sql")],
    name: "stream",
    if_foreign: "this database is not one of streams: a stream log needs a file of its own, beside the session store's",
    if_newer: "choose another path",
};
