-- The trace database, version 11. A released version needs a script that fills in new columns: see `_file.py`.
-- Needs SQLite 3.37 (STRICT). The journal is WAL; foreign keys, busy timeout and synchronous are set per connection.
PRAGMA application_id = 1263553869; -- "KPMM": identifies the file to `file` and `doctor`

CREATE TABLE traces (
  seq              INTEGER PRIMARY KEY,                 -- stable row id for FTS and paging; grows with time
  id               TEXT NOT NULL UNIQUE,                -- kp:trace:<uuid4>; seq sorts by time
  state            TEXT NOT NULL CHECK (state IN ('paused','incomplete','recorded','scored','failed')),   -- incomplete: cancelled, timed out, abandoned (error_type says); failed: could not be scored
  started_at       TEXT NOT NULL,                       -- 2026-11-01T09:14:03.120Z (always UTC, always ms, always Z)
  duration_ms      INTEGER,
  domain           TEXT NOT NULL,
  objective        TEXT NOT NULL,
  result_summary   TEXT,
  success          INTEGER NOT NULL CHECK (success IN (0, 1)),
  confidence       REAL NOT NULL,
  error_type       TEXT,
  framework        TEXT, agent_id TEXT, agent_name TEXT, model TEXT, thread_id TEXT, tags TEXT CHECK (tags IS NULL OR json_valid(tags)),
  privacy_level    TEXT NOT NULL CHECK (privacy_level IN ('aggregated','federated','private')),
  visibility       TEXT NOT NULL CHECK (visibility IN ('network','org','private')),
  step_count       INTEGER NOT NULL, tool_count INTEGER NOT NULL, recovery_count INTEGER NOT NULL,
  input_tokens     INTEGER, output_tokens INTEGER,
  -- score: NULL until scored; values and weights side by side, so that SQL needs no join and no pivot
  complexity REAL, novelty REAL, tool_diversity REAL, outcome_confidence REAL,
  complexity_weight REAL, novelty_weight REAL, tool_diversity_weight REAL, outcome_confidence_weight REAL,
  rules            TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(rules)),   -- [{"rule":"single_tool","delta":-0.1}]
  score            REAL CHECK (score BETWEEN 0 AND 1),
  threshold        REAL,                                -- in force at the time: settings never rewrite history; NULL where a share ranked the run
  gate             TEXT, decision TEXT CHECK (decision IN ('forward','withhold')),
  scorer           TEXT,                                -- name and version
  embedder         TEXT,                                -- fingerprint of model, length, windowing, precision; NULL: novelty 0.5
  nearest_seq      INTEGER,                             -- traces(seq), kept by a trigger: with a foreign key, each score would write all indices
  nearest_similarity REAL,
  scored_ms        REAL,                                -- duration of scoring
  x REAL, y REAL,                                       -- 2-D map, filled lazily
  day              TEXT    GENERATED ALWAYS AS (substr(started_at, 1, 10)) VIRTUAL,
  base_score       REAL    GENERATED ALWAYS AS (round(complexity*complexity_weight + novelty*novelty_weight + tool_diversity*tool_diversity_weight + outcome_confidence*outcome_confidence_weight, 4)) VIRTUAL,
  redactions       TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(redactions)),   -- before storage: {"api_key":1}
  decided_at       TEXT,                                -- time of the decision, for the daily limit
  reason_code      TEXT,                                -- reason for the decision or for a missing score
  reason_args      TEXT CHECK (reason_args IS NULL OR json_valid(reason_args)),
  verdict          TEXT    GENERATED ALWAYS AS (CASE WHEN decision IS NULL THEN NULL WHEN decision = 'forward' THEN 'forwarded' ELSE reason_code END) VIRTUAL,   -- the outcome, for counting
  confidence_source TEXT,                               -- said (by the program), extracted (from its result), feedback, verdict (of an import), estimated, assumed
  success_source   TEXT,                                -- the same except estimated; assumed: unknown
  p_success        REAL,                                -- probability of success when it was ranked: estimated, or 1 or 0 if reported; NULL: nothing was known
  rank_key         REAL,                                -- the key by which a share first ranked it
  bar              REAL,                                -- the rank key that the share required
  chosen           INTEGER CHECK (chosen IN (0, 1)),    -- by the gate at first; by a share even if a daily limit withheld it
  credit           REAL,                                -- runs that the share owes after this one
  margin           REAL    GENERATED ALWAYS AS (round(coalesce(score - threshold, rank_key - bar), 4)) VIRTUAL,
  above            INTEGER GENERATED ALWAYS AS (coalesce(score >= threshold, decision = 'forward')) VIRTUAL,
  owner            TEXT,                                -- fingerprint of its owner, such as a customer: it is recalled for nobody else
  recalled         TEXT CHECK (recalled IS NULL OR json_valid(recalled)),   -- ids of the traces recalled for it: ["kp:trace:…"]
  shared_seq       INTEGER,                             -- its row in the shared log; 0: stays local; -1: to be appended; -2: would clear, to be decided there; -2 - n: in row n, with newer feedback here; NULL: there was no such log
  nearest_id       TEXT,                                -- the nearest run, if another host's
  pod              TEXT                                 -- its host, in a copy of the shared log; NULL: this one
) STRICT;
CREATE INDEX traces_started   ON traces(started_at);
CREATE INDEX traces_domain    ON traces(domain, started_at);
CREATE INDEX traces_duration  ON traces(duration_ms);                    -- `list --slower`
CREATE INDEX traces_score     ON traces(score) WHERE score IS NOT NULL;
CREATE INDEX traces_margin    ON traces(margin) WHERE margin IS NOT NULL;
CREATE INDEX traces_shared    ON traces(shared_seq) WHERE shared_seq IS NOT NULL;  -- what waits for the shared log, and the last run in it
CREATE INDEX traces_unscored  ON traces(state, shared_seq) WHERE score IS NULL;   -- what waits, in the order of seq, or failed
CREATE INDEX traces_failed    ON traces(seq) WHERE success = 0 AND success_source <> 'assumed';   -- `list --failed`
CREATE INDEX traces_cleared   ON traces(seq, state, decision) WHERE decision = 'forward'; -- to find runs that passed while there was no API key, and to count them without their rows
CREATE INDEX traces_allowance ON traces(decided_at, visibility, decision) WHERE decision = 'forward';
CREATE INDEX traces_thread    ON traces(thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX traces_owner    ON traces(owner) WHERE owner IS NOT NULL;    -- whether any run has one
CREATE INDEX traces_recalled  ON traces(seq) WHERE recalled IS NOT NULL;   -- `stats --by recalled`
CREATE INDEX traces_done      ON traces(seq, success_source, domain, owner, started_at) WHERE success = 1 AND state = 'scored';   -- runs that may be recalled
CREATE INDEX traces_nearest   ON traces(nearest_seq) WHERE nearest_seq IS NOT NULL;   -- or pruning is quadratic
-- Partial, so that a run is inserted once, when scored; traces_unscored finds those without a score.
CREATE INDEX traces_ranked    ON traces(domain, seq, framework, gate, rank_key, chosen, credit, score, success_source, success, visibility) WHERE score IS NOT NULL;   -- the last runs of a domain: their ranks and reported outcomes
CREATE INDEX traces_counted   ON traces(domain, verdict, visibility, started_at, score, novelty) WHERE score IS NOT NULL;   -- covers the distribution of all scores
CREATE INDEX traces_gates     ON traces(gate, verdict) WHERE score IS NOT NULL;   -- `stats --by gate`
CREATE INDEX traces_private   ON traces(verdict) WHERE score IS NOT NULL AND visibility = 'private';   -- `stats`
CREATE INDEX traces_known     ON traces(visibility, success, chosen) WHERE score IS NOT NULL AND success_source IN ('extracted', 'feedback', 'verdict');   -- whether forwarded runs succeed
CREATE INDEX traces_labelled ON traces(domain, framework, seq, success) WHERE score IS NOT NULL AND success_source IN ('extracted', 'feedback', 'verdict');   -- what estimates learn from
CREATE INDEX traces_day      ON traces(day, verdict, score, novelty) WHERE score IS NOT NULL;   -- `stats --by day` and `--by week`

CREATE TABLE steps (
  trace_seq  INTEGER NOT NULL REFERENCES traces(seq) ON DELETE CASCADE,
  step_id    INTEGER NOT NULL,
  type       TEXT NOT NULL CHECK (type IN ('thought','tool_call','observation','error_recovery')),
  tool TEXT, mcp_server TEXT, content TEXT, input TEXT CHECK (input IS NULL OR json_valid(input)), output_summary TEXT, latency_ms REAL,
  agent      TEXT,                                       -- the inner agent that took it
  started_at TEXT,                                       -- as traces.started_at
  call_id    TEXT,                                       -- fingerprint of the tool call that it makes or answers
  parent     TEXT,                                       -- the call_id of the tool call around it, else the inner agent's name
  model      TEXT,                                       -- these four: of its model call, on the first step of each
  input_tokens INTEGER,
  output_tokens INTEGER,
  model_latency_ms REAL,
  PRIMARY KEY (trace_seq, step_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX steps_tool ON steps(tool, type, trace_seq, latency_ms) WHERE tool IS NOT NULL;   -- covering: a tool's uses in the order of traces

CREATE TABLE documents (                                 -- the ReasoningTrace as recorded, outside the hot rows
  trace_seq  INTEGER PRIMARY KEY REFERENCES traces(seq) ON DELETE CASCADE,
  body       TEXT NOT NULL CHECK (json_valid(body))
) STRICT;

CREATE TABLE vectors (
  seq         INTEGER PRIMARY KEY AUTOINCREMENT,         -- AUTOINCREMENT: never reused, or other processes would miss rows
  trace_seq   INTEGER REFERENCES traces(seq) ON DELETE CASCADE,
  key         TEXT,                                      -- the id of its trace, which need not be stored here
  embedder    TEXT NOT NULL,                             -- different fingerprints are never compared
  added_at_ms INTEGER NOT NULL,                          -- ms since the epoch, never decreasing
  vector      BLOB NOT NULL                              -- float32, little-endian, unit length
) STRICT;
CREATE INDEX vectors_embedder ON vectors(embedder);                                 -- the newest of an embedder; all embedders
CREATE INDEX vectors_trace ON vectors(trace_seq) WHERE trace_seq IS NOT NULL;       -- or pruning is quadratic

CREATE TABLE outbox (
  trace_seq       INTEGER PRIMARY KEY REFERENCES traces(seq) ON DELETE CASCADE,
  state           TEXT NOT NULL CHECK (state IN ('pending','sending','sent','rejected','blocked','cancelled')),
  reason          TEXT,                                  -- of blocked and rejected; never a redacted value
  attempts        INTEGER NOT NULL DEFAULT 0,
  next_attempt_at TEXT, last_error TEXT, http_status INTEGER, sent_at TEXT, remote_id TEXT,
  claimed_by      TEXT, claimed_until TEXT,
  rejections      INTEGER NOT NULL DEFAULT 0,            -- 4xx answers so far: each changes the idempotency key
  idempotency_key TEXT NOT NULL,
  registry        TEXT NOT NULL,
  redactor        TEXT NOT NULL,                         -- name, version and rule digest
  redactions      TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(redactions)),   -- {"email":2,"api_key":1}
  body            TEXT CHECK (body IS NULL OR json_valid(body))                -- the exact bytes to send
) STRICT;
CREATE INDEX outbox_due ON outbox(next_attempt_at) WHERE state IN ('pending','sending');
CREATE INDEX outbox_state ON outbox(state);
CREATE INDEX outbox_open ON outbox(registry) WHERE state IN ('pending','sending');       -- whether anything waits for a registry

CREATE TABLE estimates (                                 -- of success: the run's features, and the estimate when it was ranked
  trace_seq  INTEGER PRIMARY KEY REFERENCES traces(seq) ON DELETE CASCADE,
  features   BLOB NOT NULL,                              -- float32, little-endian
  p          REAL, base REAL,                            -- the probability of success, and the base rate; NULL: nothing was known
  known      INTEGER,                                    -- number of runs with a known outcome
  reasons    TEXT CHECK (reasons IS NULL OR json_valid(reasons))   -- [["steps",1.2,-0.8]]: z-score, and effect on the log-odds
) STRICT;

CREATE TABLE asked (                                     -- user texts, for recall
  trace_seq  INTEGER PRIMARY KEY REFERENCES traces(seq) ON DELETE CASCADE,
  embedder   TEXT,                                       -- as of vectors; NULL: no vector
  vector     BLOB,                                       -- of the first line of the user text, in its context: int8, 127 is 1
  said       TEXT NOT NULL                               -- the objective and the user's turns, without recalled runs or a prompt that most runs share
) STRICT;

CREATE TABLE waiting (                                   -- runs in state 'paused', waiting for a person or their thread's next turn
  trace_seq  INTEGER PRIMARY KEY REFERENCES traces(seq) ON DELETE CASCADE,
  thread     TEXT NOT NULL,                              -- fingerprint of the thread's id
  is_left    INTEGER NOT NULL DEFAULT 0,                 -- its thread got other input: only an answer to its own question resumes it
  until      TEXT NOT NULL,                              -- when it ends if nothing follows
  run        TEXT NOT NULL CHECK (json_valid(run))       -- the recorded run, without the document
) STRICT;
CREATE INDEX waiting_thread ON waiting(thread);
CREATE INDEX waiting_until ON waiting(until);

CREATE TABLE feedback (                                  -- given after the end; the trace's row and document have the latest
  seq        INTEGER PRIMARY KEY,
  trace_seq  INTEGER NOT NULL REFERENCES traces(seq) ON DELETE CASCADE,
  given_at   TEXT NOT NULL,
  success    INTEGER CHECK (success IN (0, 1)),          -- NULL: not stated
  confidence REAL CHECK (confidence BETWEEN 0 AND 1),
  success_before INTEGER NOT NULL, confidence_before REAL NOT NULL
) STRICT;
CREATE INDEX feedback_trace ON feedback(trace_seq);

CREATE TABLE aliases (                                   -- further ids of a trace: of later parts, before they were joined
  id         TEXT PRIMARY KEY,
  trace_seq  INTEGER NOT NULL REFERENCES traces(seq) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX aliases_trace ON aliases(trace_seq);

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TRIGGER feedback_ai AFTER INSERT ON feedback BEGIN UPDATE traces SET shared_seq = -2 - shared_seq WHERE seq = new.trace_seq AND shared_seq > 0; END;
CREATE TRIGGER traces_ad AFTER DELETE ON traces BEGIN UPDATE traces SET nearest_seq = NULL WHERE nearest_seq = old.seq; END;

-- full text: all words of a run, and its user text for recall. Datasette looks for content="traces"
CREATE VIEW run_words AS SELECT t.seq, t.objective, t.result_summary, (SELECT group_concat(words, char(10)) FROM (SELECT coalesce(tool || ' ', '') || coalesce(substr(content, 1, 4000) || ' ', '') || coalesce(substr(input, 1, 4000) || ' ', '') || coalesce(substr(output_summary, 1, 4000), '') AS words FROM steps WHERE trace_seq = t.seq ORDER BY step_id)) AS steps FROM traces t JOIN documents d ON d.trace_seq = t.seq;
CREATE VIRTUAL TABLE traces_fts USING fts5(objective, result_summary, steps, content="run_words", content_rowid="seq", tokenize="porter unicode61 remove_diacritics 2" /* content="traces" */);
INSERT INTO traces_fts(traces_fts, rank) VALUES ('rank', 'bm25(4, 2, 1)');
CREATE TRIGGER documents_ai AFTER INSERT ON documents BEGIN INSERT INTO traces_fts(rowid, objective, result_summary, steps) SELECT * FROM run_words WHERE seq = new.trace_seq; END;
CREATE TRIGGER traces_bd BEFORE DELETE ON traces BEGIN INSERT INTO traces_fts(traces_fts, rowid, objective, result_summary, steps) SELECT 'delete', * FROM run_words WHERE seq = old.seq; END;
CREATE VIRTUAL TABLE asked_fts USING fts5(said, content="asked", content_rowid="trace_seq", tokenize="unicode61 remove_diacritics 2");
CREATE TRIGGER asked_ai AFTER INSERT ON asked BEGIN INSERT INTO asked_fts(rowid, said) VALUES (new.trace_seq, new.said); END;
CREATE TRIGGER asked_ad AFTER DELETE ON asked BEGIN INSERT INTO asked_fts(asked_fts, rowid, said) VALUES ('delete', old.trace_seq, old.said); END;

-- views: one per question people ask
CREATE VIEW score_parts AS            -- long form, for charts
  SELECT seq AS trace_seq, 1 AS position, 'complexity' AS part, complexity AS value, complexity_weight AS weight, round(complexity*complexity_weight,4) AS contribution FROM traces
  UNION ALL SELECT seq, 2, 'novelty', novelty, novelty_weight, round(novelty*novelty_weight,4) FROM traces
  UNION ALL SELECT seq, 3, 'tool_diversity', tool_diversity, tool_diversity_weight, round(tool_diversity*tool_diversity_weight,4) FROM traces
  UNION ALL SELECT seq, 4, 'outcome_confidence', outcome_confidence, outcome_confidence_weight, round(outcome_confidence*outcome_confidence_weight,4) FROM traces
  UNION ALL SELECT t.seq, 5, json_extract(r.value,'$.rule'), NULL, NULL, json_extract(r.value,'$.delta') FROM traces t, json_each(t.rules) r;
CREATE VIEW history AS SELECT t.seq, t.id, t.started_at, t.domain, t.objective, t.score, t.margin, iif(coalesce(t.success_source, 'assumed') = 'assumed', NULL, t.success) AS success, t.step_count, t.tool_count, coalesce(o.state, CASE WHEN t.state <> 'scored' THEN t.state WHEN t.decision = 'forward' THEN 'not queued' ELSE 'withheld' END) AS state, coalesce(o.reason, t.reason_code) AS reason FROM traces t LEFT JOIN outbox o ON o.trace_seq = t.seq;
CREATE VIEW daily AS SELECT day, domain, count(*) AS traces, sum(above) AS above, round(avg(score),4) AS mean_score, round(avg(novelty),4) AS mean_novelty FROM traces GROUP BY day, domain;
CREATE VIEW tool_usage AS SELECT tool, sum(type = 'tool_call') AS calls, sum(type = 'error_recovery') AS failures, round(avg(latency_ms),1) AS mean_ms, max(latency_ms) AS max_ms FROM steps WHERE tool IS NOT NULL GROUP BY tool;
CREATE VIEW funnel AS SELECT (SELECT count(*) FROM traces) AS recorded, (SELECT count(*) FROM traces WHERE decision = 'forward') AS cleared, (SELECT count(*) FROM outbox) AS queued, (SELECT count(*) FROM outbox WHERE state='sent') AS sent, (SELECT count(*) FROM outbox WHERE state='blocked') AS blocked, (SELECT count(*) FROM outbox WHERE state='rejected') AS rejected;
CREATE VIEW near_misses AS SELECT seq, id, domain, objective, score, margin FROM traces WHERE margin BETWEEN -0.05 AND 0 AND above = 0 ORDER BY margin DESC;
