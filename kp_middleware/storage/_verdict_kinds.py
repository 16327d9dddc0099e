"""What kind of verdict the gate gave, told from its words and numbers: a column, in SQL."""

from typing import Final

VERDICT: Final = """
    CASE WHEN decision = 'forward' THEN 'let through'
         WHEN decision IS NULL THEN NULL
         WHEN instr(reason, 'the gate failed: ') = 1 THEN 'gate failed'
         WHEN instr(reason, ' but max_per_day = ') THEN 'daily limit'
         WHEN instr(reason, ' which holds until the domain has ') THEN 'warming up'
         WHEN instr(reason, ' is only as good as ') THEN 'only as good'
         WHEN score < threshold THEN 'below'
         ELSE 'other' END
"""
"""Of a row of ``traces``: NULL where nothing was decided; ``other`` is a rule of the user's own."""

WITHHELD: Final = ("below", "warming up", "only as good", "daily limit", "gate failed", "other")
"""What `VERDICT` says of those that were not let through."""
