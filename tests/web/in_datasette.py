"""Files in Datasette, in this process, and where their pages are."""

import html
import re
from functools import partial

from datasette import __version__
from datasette.app import Datasette

from kp_middleware.web.plugin import FORM_KEY

OVERVIEW = "/-/kp/kp"
RUNS = f"{OVERVIEW}/runs"


def _with(app, more, scope, *rest):
    return app({**scope, **more}, *rest)


class Shown:
    """A Datasette with these files; with a ``form_key``, it is as behind the one-time link."""

    def __init__(self, runner, *files, allow=None, form_key=None, **settings):
        permissions = {"metadata" if __version__.startswith("0.") else "config": allow or {}}
        self._runner = runner
        self._datasette = Datasette([str(file) for file in files], settings=settings, **permissions)
        runner.run(self._datasette.invoke_startup())
        app = self._datasette.app()
        self._app = partial(_with, app, {FORM_KEY: form_key}) if form_key else app

    def get(self, path, actor=None, **more):
        if actor:
            cookie = self._datasette.sign({"a": actor}, "actor")
            more = {"headers": {"cookie": f"ds_actor={cookie}"}}
        return self._runner.run(self._ask("GET", path, **more))

    def post(self, path, **form):
        return self._runner.run(self._ask("POST", path, data=form))

    async def _ask(self, method, path, **more):
        import httpx

        transport = httpx.ASGITransport(app=self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://kp") as client:
            return await client.request(method, path, **more)


def links(page):
    """All addresses on a page."""
    return [html.unescape(href) for href in re.findall(r'href="([^"]*)"', page.text)]


def our_links(page):
    return [href for href in links(page) if "/-/kp/" in href]
