"""The tables of the small file of paces."""

from typing import Final

_CREATE: Final = (
    """
    CREATE TABLE paces (   -- instants are seconds since the epoch, NULL: never
      registry     TEXT NOT NULL,        -- its URL
      agent        TEXT NOT NULL,        -- its id, or 'key ' and the hash of its API key
      full_at      REAL,                 -- the whole burst is there again
      paused_until REAL,                 -- no request before
      limited_at   REAL,                 -- the last 429 came
      asked_at     REAL,                 -- the request was made that has no answer yet
      lost_at      REAL,                 -- the last one was made whose answer nobody has seen
      failures     INTEGER NOT NULL,     -- in a row
      answering    INTEGER NOT NULL,     -- 1: the last request was answered sensibly
      holder       TEXT,                 -- who is sending
      held_until   REAL,                 -- then another may
      noted_at     REAL NOT NULL,        -- this row was written
      boot         TEXT NOT NULL,        -- since which start of the machine; '' where unknown
      uptime_s     REAL NOT NULL,        -- since that start, when this row was written
      PRIMARY KEY (registry, agent)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE stopped_keys (
      registry   TEXT NOT NULL,
      key_hash   TEXT NOT NULL,          -- the key itself is nowhere in this file
      stopped_at REAL NOT NULL,          -- it turned out to be dead or not allowed to write
      PRIMARY KEY (registry, key_hash)
    ) STRICT, WITHOUT ROWID
    """,
)
_STOP_UNTIL_THE_USER_ACTS: Final = (
    # 'limit', 'silence' or 'trouble': what paused_until is due to
    "ALTER TABLE paces ADD COLUMN paused_by TEXT NOT NULL DEFAULT ''",
    "DROP TABLE stopped_keys",  # it was for a day, and did not say of which agent
    """
    CREATE TABLE stops (                 -- nothing is sent until the user acts
      registry   TEXT NOT NULL,
      agent      TEXT NOT NULL,          -- as in paces
      key_hash   TEXT NOT NULL,          -- the key itself is nowhere in this file
      stopped_at REAL NOT NULL,          -- it turned out to be dead or not allowed to write
      PRIMARY KEY (registry, agent, key_hash)
    ) STRICT, WITHOUT ROWID
    """,
)
_SAY_WHAT_IT_IS: Final = (
    # the last problem, a code and a detail; '' where the last request was answered
    "ALTER TABLE paces ADD COLUMN problem TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE paces ADD COLUMN problem_since REAL",  # the first of those in a row
    "ALTER TABLE paces ADD COLUMN tries INTEGER NOT NULL DEFAULT 0",  # so many in a row
)
_LEARN_THE_RATE: Final = (
    # one more request is allowed per so many seconds; NULL: the registry did not say
    "ALTER TABLE paces ADD COLUMN interval_s REAL",
)
PACING_MIGRATIONS: Final = (
    _CREATE,
    _STOP_UNTIL_THE_USER_ACTS,
    _SAY_WHAT_IT_IS,
    _LEARN_THE_RATE,
)
"""What brings the file from each version to the next; appended to, never edited."""
