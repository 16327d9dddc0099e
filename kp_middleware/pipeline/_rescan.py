"""Today's rules, applied to what has not been sent yet."""

from typing import Literal, TypeAlias

from kp_middleware.database import Connection
from kp_middleware.errors import RedactionError
from kp_middleware.pipeline._outgoing import outgoing
from kp_middleware.privacy import Policy
from kp_middleware.settings import Settings
from kp_middleware.storage import OutboxCare
from kp_middleware.traces import ReasoningTrace

Rescanned: TypeAlias = Literal["unchanged", "rewritten", "released", "blocked"]


class Rescan:
    """Makes the bodies of the outbox anew, from the local copies."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self._care = OutboxCare(connection)
        self._agent_id = settings.agent_id
        self._policy = Policy.of(settings)

    def row(self, seq: int) -> Rescanned:
        """Rewrite one row, or block it; only if it is pending or blocked."""
        entry = self._care.entry(seq)
        redactor = self._policy.redactor
        try:
            trace = ReasoningTrace.model_validate_json(entry.document)
            leaving = outgoing(
                trace, score=entry.score, agent_id=self._agent_id, policy=self._policy
            )
        except RedactionError as error:
            self._care.block(seq, str(error), redactor=redactor)
            return "blocked"
        except ValueError:
            self._care.block(seq, "its local copy cannot be read", redactor=redactor)
            return "blocked"
        return self._care.renew(
            seq,
            leaving.body,
            redactor=redactor,
            redactions=leaving.redactions,
            agent_id=self._agent_id,
        )

    def all_rows(self) -> dict[int, Rescanned]:
        """What became of each pending or blocked row, by its ``seq``."""
        return {seq: self.row(seq) for seq in self._care.seqs("pending", "blocked")}
