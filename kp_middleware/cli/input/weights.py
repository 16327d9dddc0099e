"""Weights by the name of their profile: the protocol's, and the user's own."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from kp_middleware.cli.input.names import Completed
from kp_middleware.cli.input.options_of_all import file_of
from kp_middleware.cli.installation.user_settings import may_be_set, read_settings
from kp_middleware.core.formula import PROFILES, Weights


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


def profile_weights(db: Path, profile: str) -> Weights:
    """What each signal counts in a profile.

    Raises:
        click.ClickException: If a setting is wrong.
        click.UsageError: If there is none of this name; says which there are.
    """
    profiles = _profiles(db)
    if profile not in profiles:
        raise click.UsageError(f"there is no profile {profile}: there are {', '.join(profiles)}")
    return profiles[profile]


def _profiles(db: Path) -> Mapping[str, Weights]:
    own = read_settings(db).profiles if may_be_set("profiles") else {}
    return {**PROFILES, **own}
