-- The locks of turns under way, one for each place: a branch of the session, or all of it. The database's clock decides when
-- a lock has lapsed. Taking one over from another turn changes the session's version, so that whatever the other turn has
-- under way is checked anew.
CREATE TABLE turn_lock (
    tenant integer NOT NULL,
    session uuid NOT NULL,
    until bigint NOT NULL,
    place bytea NOT NULL,
    turn bytea NOT NULL,
    PRIMARY KEY (tenant, session, place)
) WITH (fillfactor = 70);

-- The turns that wait for a lock, in the order of their numbers.
CREATE TABLE turn_queue (
    tenant integer NOT NULL,
    session uuid NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    until bigint NOT NULL,
    turn bytea NOT NULL,
    place bytea NOT NULL,
    PRIMARY KEY (tenant, session, turn)
) WITH (fillfactor = 70);
