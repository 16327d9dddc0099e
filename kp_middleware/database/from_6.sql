-- From version 6: its rows were copied by column name; old_traces has them unchanged.
-- Reasons become codes with arguments instead of sentences; outcomes get a source.
UPDATE traces SET
  reason_code = CASE
    WHEN reason IS NULL THEN NULL
    WHEN state = 'failed' AND reason LIKE 'could not be scored: %' THEN 'not_scored'
    WHEN state = 'failed' AND reason LIKE 'its texts could not be redacted: %' THEN 'not_redacted'
    WHEN state = 'failed' AND reason LIKE 'it waited and cannot be read: %' THEN 'not_resumed'
    WHEN state = 'failed' THEN 'damaged'
    WHEN state <> 'scored' THEN 'not_continued'
    WHEN was = 'gate failed' THEN 'gate_failed'
    WHEN was = 'daily limit' THEN 'daily_limit'
    WHEN was = 'warming up' THEN 'warming_up'
    WHEN was = 'only as good' THEN 'tied_with_share'
    WHEN gate LIKE 'top %' AND decision = 'forward' AND reason LIKE '% is among %' THEN 'in_share'
    WHEN gate LIKE 'top %' AND was = 'below' THEN 'below_share'
    WHEN gate LIKE 'threshold %' OR gate LIKE 'top %' THEN iif(decision = 'forward', 'above_threshold', 'below_threshold')
    ELSE 'custom' END,
  reason_args = iif(reason IS NULL, NULL, json_object(
    'words', replace(replace(replace(reason, '; not queued: there is no API key', ''), '; not queued: its visibility is private', ''), '; queued when there was an API key', ''),
    'delivery', CASE WHEN reason LIKE '%; not queued: there is no API key' THEN 'no_key'
                     WHEN reason LIKE '%; not queued: its visibility is private' THEN 'private' END)),
  confidence_source = CASE
    WHEN EXISTS (SELECT 1 FROM feedback f WHERE f.trace_seq = traces.seq AND f.confidence IS NOT NULL) THEN 'feedback'
    WHEN confidence = iif(success, 0.8, 0.2) THEN 'assumed' ELSE 'said' END,
  success_source = CASE
    WHEN EXISTS (SELECT 1 FROM feedback f WHERE f.trace_seq = traces.seq AND f.success IS NOT NULL) THEN 'feedback'
    WHEN error_type IS NULL THEN 'assumed' ELSE 'said' END
FROM (SELECT seq AS old_seq, reason, verdict AS was FROM old_traces) WHERE old_seq = seq;
-- The rank of a run in a share.
UPDATE traces SET
  chosen = decision = 'forward',
  threshold = iif(reason_code IN ('in_share', 'below_share', 'tied_with_share') OR reason_args ->> 'share' IS NOT NULL, NULL, threshold),
  rank_key = 0.25 * min(1, max(0.01, -complexity_weight * complexity + novelty_weight * novelty + tool_diversity_weight * tool_diversity
    + outcome_confidence_weight * iif(confidence_source = 'assumed', 0.8, confidence) - iif(tool_count = 1, 0.1, 0)))
WHERE score IS NOT NULL;
-- User texts, for recall.
INSERT INTO asked (trace_seq, said)
  SELECT seq, objective || coalesce((SELECT group_concat(char(10) || content, '') FROM (SELECT content FROM steps WHERE trace_seq = seq AND type = 'observation' AND tool IS NULL ORDER BY step_id)), '')
  FROM traces WHERE state <> 'paused';
-- One spelling of a registry.
UPDATE outbox SET registry = rtrim(registry, '/');
-- Items that must not be queued again by themselves.
UPDATE outbox SET reason = 'may_have_been_sent' WHERE state = 'blocked' AND reason LIKE 'what became of it was lost in a damaged file:%';
