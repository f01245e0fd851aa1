"""`tilth serve --listen`: what is no address is said before anything is started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.codes import WithCode
from tilth.base.clock import SystemClock
from tilth.base.errors import InvalidInputError, UnavailableError
from tilth.client.cli.serve import address
from tilth.server import bind


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "127.0.0.1:65536", "[::1]:99999", f"h:{'9' * 5000}"])
def test_a_port_that_is_too_large_is_named_with_the_range(listen: str) -> None:
    with pytest.raises(InvalidInputError, match="the port is out of range") as refused:
        address(listen)
    assert "0 to 65535" in refused.value.hint


@pytest.mark.parametrize("listen", ["127.0.0.1", "7411", "h:", "h:x", "h:-1", "h:²"])
def test_what_is_no_address_is_shown_one(listen: str) -> None:
    with pytest.raises(InvalidInputError, match="not an address to listen on") as refused:
        address(listen)
    assert "127.0.0.1:7411" in refused.value.hint


def test_anaddress_in_use_is_refused_by_bind_alone() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, check=WithCode("ADDRESS_IN_USE"), match=f"127.0.0.1:{port}"):
            bind("127.0.0.1", port)


def test_a_port_in_use_is_said_before_the_folder_is_made(tmp_path: Path) -> None:
    """Nothing is started for nothing: neither catalog nor Spark."""
    from typer.testing import CliRunner

    from tilth.client.cli.main import app

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        started = SystemClock().monotonic()
        done = CliRunner().invoke(app, ["serve", "--data", str(tmp_path / "data"), "--listen", listen])
    assert done.exit_code == 1
    assert "ADDRESS_IN_USE" in done.output
    assert not (tmp_path / "data").exists()
    assert SystemClock().monotonic() - started < 5
