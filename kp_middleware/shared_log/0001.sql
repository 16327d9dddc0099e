-- The shared log, version 1. Needs PostgreSQL 14 and a role that can create a schema; no extension or superuser.
-- A pod is one local file with the processes that use it.
CREATE SCHEMA kp;
CREATE TABLE kp.meta (key text PRIMARY KEY, value text NOT NULL);              -- schema; fleet, a uuid; oldest_client, the oldest schema whose clients may still write
CREATE TABLE kp.heads (stream text PRIMARY KEY, head bigint NOT NULL)          -- the lock: appending holds this row
  WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE TABLE kp.log (                                                          -- append-only, in commit order, without gaps
  seq bigint PRIMARY KEY,
  id text NOT NULL,                                                            -- of the trace
  rev smallint NOT NULL DEFAULT 0,                                             -- above 0: a later revision, also applied to the row of rev 0
  kind text NOT NULL DEFAULT 'run' CHECK (kind IN ('run', 'revision', 'gone')),   -- gone: deleted, also to delete in copies
  pod text NOT NULL, domain text NOT NULL, started_at timestamptz NOT NULL,
  decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),                   -- by the server's clock, never a pod's
  success boolean, success_source text, confidence float8,
  signals float8[], weights float8[], rules text, score float8, threshold float8,
  gate text, decision text CHECK (decision IN ('forward', 'withhold')), reason_code text, reason_args text,
  rank_key float8, bar float8, credit float8, chosen boolean,                  -- as in the local file
  scorer text, embedder text, nearest text, nearest_similarity float8,
  vector bytea CHECK (octet_length(vector) % 4 = 0),                           -- float32, little-endian, unit length
  facts text NOT NULL DEFAULT '{}',                                            -- JSON: counts and times, none of the run's texts
  UNIQUE (id, rev));
ALTER TABLE kp.log ALTER vector SET STORAGE MAIN;                              -- in its row: a scan of vectors reads no TOAST
CREATE INDEX log_rank ON kp.log (domain, seq) INCLUDE (rank_key, gate, chosen, credit) WHERE kind = 'run';
CREATE INDEX log_day ON kp.log (decided_at) WHERE decision = 'forward' AND kind = 'run';
CREATE TABLE kp.documents (id text PRIMARY KEY, body text NOT NULL, redactor text NOT NULL);   -- text: byte for byte
CREATE TABLE kp.outbox (
  seq bigint PRIMARY KEY, id text NOT NULL UNIQUE,                             -- as in the log
  registry text NOT NULL, agent text NOT NULL,                                 -- its id, or empty: any key may send it
  state text NOT NULL CHECK (state IN ('pending', 'sending', 'sent', 'rejected', 'blocked', 'cancelled')),
  reason text, attempts int NOT NULL DEFAULT 0, next_attempt_at timestamptz, last_error text, http_status int,
  sent_at timestamptz, remote_id text, claimed_by text, claimed_until timestamptz, rejections int NOT NULL DEFAULT 0,
  idempotency_key text NOT NULL, redactor text NOT NULL, redactions text NOT NULL DEFAULT '{}',
  body bytea);                                                                 -- the exact bytes to send
CREATE INDEX outbox_due ON kp.outbox (registry, agent, next_attempt_at) WHERE state IN ('pending', 'sending');
CREATE TABLE kp.paces (                                                        -- one row per agent, as in pacing.db
  registry text, agent text,
  pace text NOT NULL,                                                          -- JSON: differences from a new pace
  stops text NOT NULL DEFAULT '{}',                                            -- JSON: hash of an API key → when it was refused
  PRIMARY KEY (registry, agent)) WITH (fillfactor = 20);
CREATE TABLE kp.pods (pod text PRIMARY KEY, version text, settings text, cursor bigint, unshipped int,
  oldest_unshipped_at timestamptz, seen_at timestamptz NOT NULL DEFAULT now());
INSERT INTO kp.heads VALUES ('main', 0);
INSERT INTO kp.meta VALUES ('schema', '1'), ('fleet', gen_random_uuid()::text), ('oldest_client', '1');
