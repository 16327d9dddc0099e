-- From version 6: reasons are codes with arguments, and no longer sentences; when each step began, which call it is of and what it
-- happened inside of; what each model call took; who says how a run went.
DROP VIEW history;
DROP INDEX traces_verdict;
ALTER TABLE traces ADD COLUMN reason_code TEXT;          -- why the gate decided so, or why there is no score
ALTER TABLE traces ADD COLUMN reason_args TEXT CHECK (reason_args IS NULL OR json_valid(reason_args));
UPDATE traces SET
  reason_code = CASE
    WHEN reason IS NULL THEN NULL
    WHEN state = 'failed' AND reason LIKE 'could not be scored: %' THEN 'not_scored'
    WHEN state = 'failed' AND reason LIKE 'its texts could not be redacted: %' THEN 'not_redacted'
    WHEN state = 'failed' AND reason LIKE 'it waited and cannot be read: %' THEN 'not_resumed'
    WHEN state = 'failed' THEN 'damaged'
    WHEN state <> 'scored' THEN 'not_continued'
    WHEN verdict = 'gate failed' THEN 'gate_failed'
    WHEN verdict = 'daily limit' THEN 'daily_limit'
    WHEN verdict = 'warming up' THEN 'warming_up'
    WHEN verdict = 'only as good' THEN 'tied_with_share'
    WHEN gate LIKE 'top %' AND decision = 'forward' AND reason LIKE '% is among %' THEN 'in_share'
    WHEN gate LIKE 'top %' AND verdict = 'below' THEN 'below_share'
    WHEN gate LIKE 'threshold %' OR gate LIKE 'top %' THEN iif(decision = 'forward', 'above_threshold', 'below_threshold')
    ELSE 'custom' END,
  reason_args = iif(reason IS NULL, NULL, json_object(
    'words', replace(replace(replace(reason, '; not queued: there is no API key', ''), '; not queued: its visibility is private', ''), '; queued when there was an API key', ''),
    'delivery', CASE WHEN reason LIKE '%; not queued: there is no API key' THEN 'no_key'
                     WHEN reason LIKE '%; not queued: its visibility is private' THEN 'private' END));
ALTER TABLE traces DROP COLUMN verdict;
ALTER TABLE traces DROP COLUMN reason;
ALTER TABLE traces ADD COLUMN verdict TEXT GENERATED ALWAYS AS (
  CASE WHEN decision IS NULL THEN NULL WHEN decision = 'forward' THEN 'forwarded' ELSE reason_code END) VIRTUAL;   -- what became of it, to count
CREATE VIEW history AS SELECT t.seq, t.id, t.started_at, t.domain, t.objective, t.score, t.margin, t.success, t.step_count, t.tool_count, coalesce(o.state, CASE WHEN t.state <> 'scored' THEN t.state WHEN t.decision = 'forward' THEN 'not queued' ELSE 'withheld' END) AS state, coalesce(o.reason, t.reason_code) AS reason FROM traces t LEFT JOIN outbox o ON o.trace_seq = t.seq;
ALTER TABLE steps ADD COLUMN started_at TEXT;            -- as traces.started_at
ALTER TABLE steps ADD COLUMN call_id TEXT;               -- fingerprint of the tool call that it makes or answers
ALTER TABLE steps ADD COLUMN parent TEXT;                -- what it happened inside of: the call_id of a tool call, else an inner agent's name
ALTER TABLE steps ADD COLUMN model TEXT;                 -- these four: of the model call that it came from, on the first step of each
ALTER TABLE steps ADD COLUMN input_tokens INTEGER;
ALTER TABLE steps ADD COLUMN output_tokens INTEGER;
ALTER TABLE steps ADD COLUMN model_latency_ms REAL;
ALTER TABLE traces ADD COLUMN confidence_source TEXT;    -- said (by the program), extracted (from its result), assumed, feedback
ALTER TABLE traces ADD COLUMN success_source TEXT;       -- the same
UPDATE traces SET
  confidence_source = CASE
    WHEN EXISTS (SELECT 1 FROM feedback f WHERE f.trace_seq = traces.seq AND f.confidence IS NOT NULL) THEN 'feedback'
    WHEN confidence = iif(success, 0.8, 0.2) THEN 'assumed' ELSE 'said' END,
  success_source = CASE
    WHEN EXISTS (SELECT 1 FROM feedback f WHERE f.trace_seq = traces.seq AND f.success IS NOT NULL) THEN 'feedback'
    WHEN error_type IS NULL THEN 'assumed' ELSE 'said' END;
-- The rank of a run in a share, with the credit; the estimate of its success.
DROP VIEW history;
DROP VIEW daily;
DROP VIEW near_misses;
DROP INDEX traces_margin;
DROP INDEX traces_gate;
ALTER TABLE traces DROP COLUMN margin;
ALTER TABLE traces DROP COLUMN above;
ALTER TABLE traces ADD COLUMN p_success REAL;            -- probability that it did its task, when it was ranked: estimated, or 1 or 0 where somebody had told; NULL: nothing was known
ALTER TABLE traces ADD COLUMN rank_key REAL;             -- what a share ranks it by, as it was ranked first
ALTER TABLE traces ADD COLUMN bar REAL;                  -- the rank key that the share asked for
ALTER TABLE traces ADD COLUMN chosen INTEGER CHECK (chosen IN (0, 1));   -- by the gate at first; by a share also where a daily limit held it back
ALTER TABLE traces ADD COLUMN credit REAL;               -- runs that the share owes after this one
ALTER TABLE traces ADD COLUMN margin REAL GENERATED ALWAYS AS (round(coalesce(score - threshold, rank_key - bar), 4)) VIRTUAL;
ALTER TABLE traces ADD COLUMN above INTEGER GENERATED ALWAYS AS (coalesce(score >= threshold, decision = 'forward')) VIRTUAL;
UPDATE traces SET
  chosen = decision = 'forward',
  threshold = iif(reason_code IN ('in_share', 'below_share', 'tied_with_share') OR reason_args ->> 'share' IS NOT NULL, NULL, threshold),
  rank_key = 0.25 * min(1, max(0.01, -complexity_weight * complexity + novelty_weight * novelty + tool_diversity_weight * tool_diversity
    + outcome_confidence_weight * iif(confidence_source = 'assumed', 0.8, confidence) - iif(tool_count = 1, 0.1, 0)))
WHERE score IS NOT NULL;
CREATE TABLE estimates (                                 -- of success: what it reads of a run, and what it said when the run was ranked
  trace_seq  INTEGER PRIMARY KEY REFERENCES traces(seq) ON DELETE CASCADE,
  features   BLOB NOT NULL,                              -- float32, little-endian
  p          REAL, base REAL,                            -- the probability of success, and the base rate; NULL: nothing was known
  known      INTEGER,                                    -- of how many runs it was told how they ended
  reasons    TEXT CHECK (reasons IS NULL OR json_valid(reasons))   -- [["steps",1.2,-0.8]]: how unusual, and what it adds to the log-odds
) STRICT;
CREATE INDEX traces_gate      ON traces(domain, seq, gate, rank_key, chosen, credit, score) WHERE score IS NOT NULL;   -- the last runs, ranked
CREATE INDEX traces_kind      ON traces(domain, framework, seq, success_source, success, score, chosen) WHERE score IS NOT NULL;   -- what was told of the last runs
CREATE VIEW history AS SELECT t.seq, t.id, t.started_at, t.domain, t.objective, t.score, t.margin, t.success, t.step_count, t.tool_count, coalesce(o.state, CASE WHEN t.state <> 'scored' THEN t.state WHEN t.decision = 'forward' THEN 'not queued' ELSE 'withheld' END) AS state, coalesce(o.reason, t.reason_code) AS reason FROM traces t LEFT JOIN outbox o ON o.trace_seq = t.seq;
CREATE VIEW daily AS SELECT day, domain, count(*) AS traces, sum(above) AS above, round(avg(score),4) AS mean_score, round(avg(novelty),4) AS mean_novelty FROM traces GROUP BY day, domain;
CREATE VIEW near_misses AS SELECT seq, id, domain, objective, score, margin FROM traces WHERE margin BETWEEN -0.05 AND 0 AND above = 0 ORDER BY margin DESC;
-- What a run is recalled by, and whose it is; words of steps are found.
ALTER TABLE traces ADD COLUMN owner TEXT;                -- fingerprint of whose it is, such as a customer's: it is recalled for nobody else
ALTER TABLE traces ADD COLUMN recalled TEXT CHECK (recalled IS NULL OR json_valid(recalled));   -- ids of the traces that it was told of: ["kp:trace:…"]
CREATE INDEX traces_owner    ON traces(owner) WHERE owner IS NOT NULL;    -- whether any run has one
CREATE INDEX traces_recalled  ON traces(seq) WHERE recalled IS NOT NULL;   -- `stats --by recalled`
CREATE INDEX traces_done      ON traces(seq, success_source, domain, owner, started_at) WHERE success = 1 AND state = 'scored';   -- those that may be recalled
CREATE TABLE asked (                                     -- what a run is recalled by
  trace_seq  INTEGER PRIMARY KEY REFERENCES traces(seq) ON DELETE CASCADE,
  embedder   TEXT,                                       -- as of vectors; NULL: no vector
  vector     BLOB,                                       -- of the beginning of what people said: int8, 127 is 1
  said       TEXT NOT NULL                               -- by people: the objective and their turns, without what was recalled
) STRICT;
INSERT INTO asked (trace_seq, said)
  SELECT seq, objective || coalesce((SELECT group_concat(char(10) || content, '') FROM (SELECT content FROM steps WHERE trace_seq = seq AND type = 'observation' AND tool IS NULL ORDER BY step_id)), '')
  FROM traces WHERE state <> 'paused';
DROP TRIGGER traces_ai;
DROP TRIGGER traces_ad;
DROP TRIGGER traces_au;
DROP TABLE traces_fts;
CREATE VIEW run_words AS SELECT t.seq, t.objective, t.result_summary, (SELECT group_concat(words, char(10)) FROM (SELECT coalesce(tool || ' ', '') || coalesce(substr(content, 1, 4000) || ' ', '') || coalesce(substr(input, 1, 4000) || ' ', '') || coalesce(substr(output_summary, 1, 4000), '') AS words FROM steps WHERE trace_seq = t.seq ORDER BY step_id)) AS steps FROM traces t JOIN documents d ON d.trace_seq = t.seq;
CREATE VIRTUAL TABLE traces_fts USING fts5(objective, result_summary, steps, content="run_words", content_rowid="seq", tokenize="porter unicode61 remove_diacritics 2" /* content="traces" */);
INSERT INTO traces_fts(traces_fts, rank) VALUES ('rank', 'bm25(4, 2, 1)');
CREATE TRIGGER documents_ai AFTER INSERT ON documents BEGIN INSERT INTO traces_fts(rowid, objective, result_summary, steps) SELECT * FROM run_words WHERE seq = new.trace_seq; END;
CREATE TRIGGER traces_bd BEFORE DELETE ON traces BEGIN INSERT INTO traces_fts(traces_fts, rowid, objective, result_summary, steps) SELECT 'delete', * FROM run_words WHERE seq = old.seq; END;
CREATE VIRTUAL TABLE asked_fts USING fts5(said, content="asked", content_rowid="trace_seq", tokenize="porter unicode61 remove_diacritics 2");
CREATE TRIGGER asked_ai AFTER INSERT ON asked BEGIN INSERT INTO asked_fts(rowid, said) VALUES (new.trace_seq, new.said); END;
CREATE TRIGGER asked_ad AFTER DELETE ON asked BEGIN INSERT INTO asked_fts(asked_fts, rowid, said) VALUES ('delete', old.trace_seq, old.said); END;
INSERT INTO traces_fts(traces_fts) VALUES ('rebuild');
INSERT INTO asked_fts(asked_fts) VALUES ('rebuild');
-- Fewer indices: each run writes all of them.
DROP INDEX traces_started;
DROP INDEX traces_score;
DROP INDEX traces_duration;
DROP INDEX traces_todo;
DROP INDEX traces_recorded;
DROP INDEX traces_paused;
DROP INDEX traces_spread;
DROP INDEX traces_day;
CREATE INDEX traces_started   ON traces(started_at);
CREATE INDEX traces_score     ON traces(score) WHERE score IS NOT NULL;
CREATE INDEX traces_margin    ON traces(margin) WHERE margin IS NOT NULL;
CREATE INDEX traces_unscored  ON traces(state) WHERE score IS NULL;      -- what waits, in the order of seq, or failed
CREATE INDEX traces_counted   ON traces(day, domain, score, visibility, decision, novelty, started_at, gate, verdict, state) WHERE score IS NOT NULL;   -- what counts all scored runs reads this alone
CREATE TRIGGER traces_ad AFTER DELETE ON traces BEGIN UPDATE traces SET nearest_seq = NULL WHERE nearest_seq = old.seq; END;
