"""Who may see our pages."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from datasette.app import Datasette

Actor: TypeAlias = dict[str, Any] | None


async def may_see(datasette: "Datasette", actor: Actor, database: str) -> bool:
    """Whether Datasette lets this actor read all that a database has: our pages show as much."""
    try:
        from datasette.resources import DatabaseResource
    except ImportError:
        return await _may_see_in_0_65(datasette, actor, database)
    resource = DatabaseResource(database)
    return bool(await datasette.allowed(action="execute-sql", resource=resource, actor=actor))


async def _may_see_in_0_65(datasette: "Datasette", actor: Actor, database: str) -> bool:
    """There the permission to use SQL does not imply that to see the database."""
    wanted = [("execute-sql", database)], [("view-database", database), "view-instance"]
    answers = [await datasette.check_visibility(actor, permissions=each) for each in wanted]
    return all(visible for visible, _ in answers)
