-- Version 2: runs that wait, for a person or for the next turn of their thread, and agents inside an agent.
CREATE TABLE waiting (                                   -- beside traces in state 'paused'
  trace_seq  INTEGER PRIMARY KEY REFERENCES traces(seq) ON DELETE CASCADE,
  thread     TEXT NOT NULL,                              -- fingerprint of the thread's id
  is_left    INTEGER NOT NULL DEFAULT 0,                 -- its thread was given something else: only an answer to its own question resumes it
  until      TEXT NOT NULL,                              -- when it is ended if nothing follows
  run        TEXT NOT NULL CHECK (json_valid(run))       -- what was recorded, without the document
) STRICT;
CREATE INDEX waiting_thread ON waiting(thread);
CREATE INDEX waiting_until ON waiting(until);

ALTER TABLE steps ADD COLUMN agent TEXT;                 -- the agent inside the run's own that took it
