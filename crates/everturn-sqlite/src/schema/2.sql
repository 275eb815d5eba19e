-- Background runs that are not over: few, whatever the number of snapshots. The times of their last signs of life are in
-- the index, so that a look for silent ones reads no other row.
CREATE INDEX snapshot_pending ON snapshot (created_at, id, scope, heartbeat_at) WHERE status = 'pending';
