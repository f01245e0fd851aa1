"""Files of the console, and the headers that they are sent with.

Covers: the files in `static/`. Does not cover: what pages show.
Always holds: pages load nothing from elsewhere, and no script that is written in a page runs (Content-Security-Policy);
src/tilth/console/static/vendor/README.md names the sources of the files of others.
"""

from __future__ import annotations

from pathlib import Path

from starlette.responses import FileResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parent / "static"
#: Path below which the files are.
PATH = "/console"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    # Browsers check at each use that a file has not changed: after an upgrade nobody sees the former pages.
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        return _protected(await super().get_response(path, scope))


def console_files() -> Mount:
    """Return the route of the files."""
    return Mount(PATH, _Files(directory=FOLDER))


def console_page() -> Response:
    """Return the page that loads all others."""
    return _protected(FileResponse(FOLDER / "index.html", headers={"Vary": "Accept"}))


def _protected(response: Response) -> Response:
    response.headers.update(_HEADERS)
    return response
