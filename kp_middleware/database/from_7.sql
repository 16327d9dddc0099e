-- Version 8: when each step began, which call it is of and what it happened inside of; what each model call took; who says how a run went.
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
