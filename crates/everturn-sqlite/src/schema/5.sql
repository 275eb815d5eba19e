-- The locks of turns under way, and the turns that wait for them, in the order of their numbers. A place is a branch of the
-- session, or all of it. Times are nanoseconds since 1970.
CREATE TABLE turn_lock (
    scope TEXT NOT NULL,
    session TEXT NOT NULL,
    place TEXT NOT NULL,
    turn TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (scope, session, place)
) STRICT, WITHOUT ROWID;
CREATE TABLE turn_queue (
    number INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    session TEXT NOT NULL,
    turn TEXT NOT NULL,
    place TEXT NOT NULL,
    until INTEGER NOT NULL,
    UNIQUE (scope, session, turn)
) STRICT;
