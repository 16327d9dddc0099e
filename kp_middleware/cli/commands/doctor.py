"""The command that checks whether all that we need is usable."""

import sys

import click

from kp_middleware.cli.input.options_of_all import named_file
from kp_middleware.cli.output.exit_codes import FOUND, UNREACHABLE
from kp_middleware.cli.output.rows import json_option, print_json


@click.command()
@json_option
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Check settings, file, disk, gate, model, redaction and registry, and say what to do.

    Exits with 3 if something cannot be used; with 5 if that is only the registry, because it
    cannot be reached now.

    \b
    kp-middleware doctor || kp-middleware status
    """
    from kp_middleware.cli.installation.examination import examine

    findings = [*examine(named_file(context))]
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            how = "TROUBLE" if not finding.ok else "warning" if finding.warning else "ok"
            click.echo(f"{how:<8} {finding.check:<9} {finding.detail}")
    troubles = [finding for finding in findings if not finding.ok]
    if troubles:
        sys.exit(UNREACHABLE if all(trouble.try_later for trouble in troubles) else FOUND)
