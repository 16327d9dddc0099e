"""The schema of the shared log: created by a person, never by a pod."""

from importlib.resources import files

from kp_middleware.sharing._link import SCHEMA, Connection, Link


def script() -> str:
    """Return the SQL that creates the schema."""
    return files("kp_middleware.sharing").joinpath("0001.sql").read_text("utf-8")


def migrate(link: Link) -> bool:
    """Create the schema, or leave a current one as it is; return whether it was created.

    Raises:
        SharedLogError: If it cannot be created.
    """
    return link.exchange(_created, needs_schema=False)


def _created(connection: Connection) -> bool:
    with connection.transaction():
        row = connection.execute("SELECT to_regclass('kp.meta') IS NOT NULL").fetchone()
        if row == (True,):
            return False
        connection.execute(script().encode())
        connection.execute("UPDATE kp.meta SET value = %s WHERE key = 'schema'", (str(SCHEMA),))
    return True
