"""The page on this machine: Datasette with our pages, and who may open it.

Imports from `datasette_plugin`; needs the extra ``ui``, so a command imports it late.
"""

from kp_middleware.web.server._page_server import serve

__all__ = ["serve"]
