"""Our pages inside Datasette 0.65 and 1.0a: the overview of a file, one trace, the gate, a search.

They appear for files of ours alone, also where a user types ``datasette kp.db``. Of Datasette they
need no more than the hooks below, `render_template`, the names of its databases and its word on who
may see them; what the file says they read themselves, as the commands do.

Imports from `page`, `pictures` and `output`.
"""

from kp_middleware.web.plugin._addresses import Addresses
from kp_middleware.web.plugin._files import our_files
from kp_middleware.web.plugin._hooks import (
    database_actions,
    menu_links,
    register_routes,
    render_cell,
    startup,
    table_actions,
    view_actions,
)

__all__ = [
    "Addresses",
    "database_actions",
    "menu_links",
    "our_files",
    "register_routes",
    "render_cell",
    "startup",
    "table_actions",
    "view_actions",
]
