"""What was sent from a file, compared with what its registry has."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import click

from kp_middleware.cli.installation.user_settings import read_settings
from kp_middleware.database import Connection
from kp_middleware.errors import RegistryError
from kp_middleware.settings import Settings
from kp_middleware.storage import OutboxCare, Row


class Reconciliation(NamedTuple):
    """What a comparison found.

    Attributes:
        registry: Its URL.
        agent_id: Whose documents were compared.
        there: How many that were sent from the file are there.
        missing: The rows of those that are not.
        of_others: How many were sent for another agent, or for none: they are not in its export.
        unknown: How many are there that the file has not sent.
    """

    registry: str
    agent_id: str
    there: int
    missing: Sequence[int]
    of_others: int
    unknown: int

    def as_row(self) -> Row:
        """As JSON has it."""
        return self._asdict() | {"missing": len(self.missing)}

    def in_words(self) -> str:
        """In one sentence."""
        told = [f"{self.there:,} are there", f"{len(self.missing):,} are missing"]
        if self.unknown:
            told.append(f"{self.unknown:,} are there that this file has not sent")
        if self.of_others:
            told.append(f"{self.of_others:,} were sent under another agent id: not compared")
        return f"{self.registry}, agent {self.agent_id}: {', '.join(told)}"


def reconcile(db: Path, connection: Connection) -> Reconciliation:
    """Compare what was sent from a file with what its registry has of the user's agent.

    Raises:
        click.ClickException: If the registry cannot be asked, with what to do.
    """
    settings = read_settings(db)
    if settings.agent_id is None:
        raise click.ClickException("set KP_AGENT_ID to the agent whose API key it is")
    url, agent_id = settings.registry_url, settings.agent_id
    there = _ids_there(settings, agent_id)
    sent = OutboxCare(connection).sent(url)
    ours = {one.remote_id: one.seq for one in sent if one.agent_id == agent_id}
    return Reconciliation(
        url,
        agent_id,
        there=len(ours.keys() & there),
        missing=[seq for remote_id, seq in ours.items() if remote_id not in there],
        of_others=sum(one.agent_id != agent_id for one in sent),
        unknown=len(there - {one.remote_id for one in sent}),
    )


def _ids_there(settings: Settings, agent_id: str) -> frozenset[str]:
    from kp_middleware.export import Registry
    from kp_middleware.pipeline import sent_ids

    if settings.api_key is None:
        raise click.ClickException("set KP_API_KEY: the registry shows nothing without it")
    try:
        registry = Registry(settings.registry_url, settings.api_key, agent_id=agent_id)
        with closing(registry):
            return sent_ids(registry, settings.db, agent_id=agent_id)
    except (RegistryError, ValueError) as error:
        raise click.ClickException(str(error)) from error
