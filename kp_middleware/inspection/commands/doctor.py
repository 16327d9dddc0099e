"""The command that checks whether all that we need is usable."""

import sys
from pathlib import Path

import click

from kp_middleware.inspection.output.exit_codes import FOUND, UNREACHABLE
from kp_middleware.inspection.output.rows import json_option, print_json


@click.command()
@json_option
@click.pass_obj
def doctor(db: Path, *, as_json: bool) -> None:
    """Check the file, the disk, the model, redaction and the registry, and say what to do.

    Exits with 3 if something cannot be used; with 5 if that is only the registry, because it
    cannot be reached now.

    \b
    kp-middleware doctor || kp-middleware status
    """
    from kp_middleware.inspection.installation.examination import examine
    from kp_middleware.scoring import DEFAULT_EMBEDDER

    findings = [*examine(db, DEFAULT_EMBEDDER)]
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            click.echo(
                f"{'ok' if finding.ok else 'TROUBLE':<8} {finding.check:<9} {finding.detail}"
            )
    troubles = [finding for finding in findings if not finding.ok]
    if troubles:
        sys.exit(UNREACHABLE if all(trouble.passing for trouble in troubles) else FOUND)
