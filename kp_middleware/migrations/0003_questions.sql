-- Version 3: indices for what is asked of a large file.
CREATE INDEX traces_recorded ON traces(seq) WHERE state = 'recorded';       -- the next to be scored: SQLite does not see
CREATE INDEX traces_paused ON traces(seq) WHERE state = 'paused';           -- that one of two states is in traces_todo
DROP INDEX traces_started;
CREATE INDEX traces_started ON traces(started_at, novelty);                 -- covering: the novelty of each day
CREATE INDEX traces_failed ON traces(seq) WHERE success = 0;                -- `list --failed`: success stands behind long texts
CREATE INDEX traces_duration ON traces(duration_ms);                        -- `list --slower 10s`

ALTER TABLE traces ADD COLUMN redactions TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(redactions));   -- before it was written: {"api_key":1}
