-- What happened in turns that are not over. A session need not have a row yet, so tenant and session are named.
CREATE TABLE journal (
    key INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    session TEXT NOT NULL,
    turn TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    added_at INTEGER NOT NULL,
    body ANY NOT NULL,
    UNIQUE (scope, session, turn, sequence)
) STRICT;
CREATE INDEX journal_by_age ON journal (added_at);
