"""Weights by the name of their profile: the protocol's, and the user's own."""

from pathlib import Path

import click

from kp_middleware.inspection._rescoring import SIGNALS
from kp_middleware.inspection._user_settings import read_settings

weights_option = click.option(
    "--weights",
    "profile",
    metavar="PROFILE",
    help="Score again with these weights: default, code, finance … or a profile of yours.",
)


def profile_weights(db: Path, profile: str) -> tuple[float, ...]:
    """What each signal counts in a profile, in the order of `SIGNALS`.

    Raises:
        click.UsageError: If there is none of this name; says which there are.
    """
    from kp_middleware.scoring import PROFILES  # here: it loads what scores

    profiles = {**PROFILES, **read_settings(db).profiles}
    if profile not in profiles:
        raise click.UsageError(f"there is no profile {profile}: there are {', '.join(profiles)}")
    return tuple(getattr(profiles[profile], name) for name in SIGNALS)
