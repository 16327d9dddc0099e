-- Version 5: what counts all traces reads an index alone, in its order: nothing is looked up, nothing sorted.
ALTER TABLE traces ADD COLUMN verdict TEXT GENERATED ALWAYS AS (
  CASE WHEN decision = 'forward' THEN 'let through'
       WHEN decision IS NULL THEN NULL
       WHEN instr(reason, 'the gate failed: ') = 1 THEN 'gate failed'
       WHEN instr(reason, ' but max_per_day = ') THEN 'daily limit'
       WHEN instr(reason, ' which holds until the domain has ') THEN 'warming up'
       WHEN instr(reason, ' is only as good as ') THEN 'only as good'
       WHEN score < threshold THEN 'below'
       ELSE 'other' END) VIRTUAL;                        -- what the gate said, and why it withheld; other: a rule of the user's own
-- Partial, so that a run is entered once, when it is scored; those without a score are found by traces_score.
CREATE INDEX traces_verdict ON traces(gate, verdict, state) WHERE score IS NOT NULL;         -- `stats --by gate`, `--by state`
CREATE INDEX traces_spread ON traces(domain, score, visibility, decision, novelty, started_at) WHERE score IS NOT NULL;   -- `what-if`, `stats --by domain`
DROP INDEX traces_day;
CREATE INDEX traces_day ON traces(day, domain, decision, score, novelty);                    -- `stats --by day`, `--by week`; the view daily
