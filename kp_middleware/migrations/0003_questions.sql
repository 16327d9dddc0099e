-- Version 3: indices for what people ask of a large file.
DROP INDEX traces_started;
CREATE INDEX traces_started ON traces(started_at, novelty);                 -- covering: the novelty of each day
CREATE INDEX traces_failed ON traces(seq) WHERE success = 0;                -- `list --failed`: success stands behind long texts
CREATE INDEX traces_duration ON traces(duration_ms);                        -- `list --slower 10s`
