-- Version 4: gates that look back, and what is learned of a run after its end.
ALTER TABLE traces ADD COLUMN decided_at TEXT;           -- when the gate said so: the day's allowance counts from it
UPDATE traces SET decided_at = started_at WHERE decision = 'forward';
CREATE INDEX traces_gate ON traces(domain, seq, started_at, score, decision) WHERE score IS NOT NULL;   -- covering: the best of the last runs
CREATE INDEX traces_allowance ON traces(decided_at, visibility, decision) WHERE decision = 'forward';

CREATE TABLE feedback (                                  -- told after the end; the row of the trace and its document say the latest
  seq        INTEGER PRIMARY KEY,
  trace_seq  INTEGER NOT NULL REFERENCES traces(seq) ON DELETE CASCADE,
  given_at   TEXT NOT NULL,
  success    INTEGER CHECK (success IN (0, 1)),          -- NULL: nothing was said of it
  confidence REAL CHECK (confidence BETWEEN 0 AND 1),
  success_before INTEGER NOT NULL, confidence_before REAL NOT NULL
) STRICT;
CREATE INDEX feedback_trace ON feedback(trace_seq);

CREATE TABLE aliases (                                   -- ids that lead to a trace beside its own: of later parts, told before they were joined
  id         TEXT PRIMARY KEY,
  trace_seq  INTEGER NOT NULL REFERENCES traces(seq) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX aliases_trace ON aliases(trace_seq);

CREATE INDEX vectors_embedder ON vectors(embedder);      -- the newest of one embedder; which there are
CREATE INDEX outbox_open ON outbox(registry) WHERE state IN ('pending','sending');   -- whether anything waits for a registry
