"""The command that copies the file, whatever else is being written to it."""

from contextlib import closing
from pathlib import Path

import click

from kp_middleware.cli.output.new_file import new_file
from kp_middleware.cli.output.progress import Progress
from kp_middleware.cli.output.rows import json_option, print_json
from kp_middleware.database import connect
from kp_middleware.storage import back_up


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
@click.pass_obj
def backup(db: Path, *, file: Path, force: bool, as_json: bool) -> None:
    """Copy the file of traces to FILE, for you alone to read. Programs may go on recording.

    The copy is checked before it gets its name. To use it, name it with --db, or put it where the
    file of traces was while no program records. One that was made before an upgrade is read after
    kp-middleware migrate --db FILE.

    \b
    kp-middleware backup traces-of-november.db
    """
    with (
        closing(connect(db, read_only=True)) as connection,
        new_file(file, db=db, force=force) as unfinished,
        Progress("pages copied") as shown,
    ):
        count = back_up(connection, unfinished, tell=shown.reach)
    size_bytes = file.stat().st_size
    if as_json:
        print_json({"path": str(file), "size_bytes": size_bytes, "traces": count})
    else:
        click.echo(f"{file}  {size_bytes / 1e6:,.1f} MB, {count:,} traces")
