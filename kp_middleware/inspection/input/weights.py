"""Weights by the name of their profile: the protocol's, and the user's own."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from kp_middleware.inspection.explanation.rescoring import SIGNALS
from kp_middleware.inspection.input.names import Completed, file_of
from kp_middleware.inspection.installation.user_settings import read_settings

if TYPE_CHECKING:
    from kp_middleware.scores import Weights


def complete_profile(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """The protocol's profiles and the user's own; none where the settings cannot be read."""
    with suppress(click.ClickException):
        names = _profiles(file_of(context))
        return [CompletionItem(name) for name in names if name.startswith(start)]
    return []


weights_option = click.option(
    "--weights",
    "profile",
    metavar="PROFILE",
    shell_complete=complete_profile,
    help="Score again with these weights: default, code, finance … or a profile of yours.",
)


def profile_weights(db: Path, profile: str) -> tuple[float, ...]:
    """What each signal counts in a profile, in the order of `SIGNALS`.

    Raises:
        click.UsageError: If there is none of this name; says which there are.
    """
    profiles = _profiles(db)
    if profile not in profiles:
        raise click.UsageError(f"there is no profile {profile}: there are {', '.join(profiles)}")
    return tuple(getattr(profiles[profile], name) for name in SIGNALS)


def _profiles(db: Path) -> "Mapping[str, Weights]":
    from kp_middleware.scoring import PROFILES  # here: it loads what scores

    return {**PROFILES, **read_settings(db).profiles}
