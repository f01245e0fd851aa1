"""`tilth serve --config` and the environment as a user meets them: what is wrong is said before anything is started.

That an address is taken shows which one was read, without a node.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tilth.client.cli.main import app


@pytest.fixture(autouse=True)
def _log_stays() -> Iterator[None]:
    """The command sets up the log of its process, which is that of the tests."""
    log = logging.getLogger("tilth")
    before = list(log.handlers), log.level, log.propagate
    yield
    log.handlers[:], level, log.propagate = before
    log.setLevel(level)


@pytest.fixture
def taken() -> Iterator[list[str]]:
    """Three addresses that are in use."""
    with ExitStack() as stack:
        found = []
        for _ in range(3):
            door = stack.enter_context(socket.socket())
            door.bind(("127.0.0.1", 0))
            door.listen()
            found.append(f"127.0.0.1:{door.getsockname()[1]}")
        yield found


def serve(*arguments: str, exit_code: int = 1, **environment: str) -> Result:
    done = CliRunner(env=environment).invoke(app, ["serve", *arguments])
    assert done.exit_code == exit_code, done.output
    return done


def words(done: Result) -> str:
    """Without the line breaks of a terminal."""
    return " ".join(done.output.split())


def test_options_come_from_flag_environment_and_file_in_this_order(tmp_path: Path, taken: list[str]) -> None:
    data, config = tmp_path / "data", tmp_path / "tilth.toml"
    config.write_text(f'data = "{data}"\nlisten = "{taken[0]}"\n')
    assert taken[0] in serve("--config", str(config)).output
    assert taken[0] in serve(TILTH_CONFIG=str(config)).output
    assert taken[1] in serve("--config", str(config), TILTH_LISTEN=taken[1]).output
    assert taken[2] in serve("--config", str(config), "--listen", taken[2], TILTH_LISTEN=taken[1]).output
    assert taken[1] in serve(TILTH_DATA=str(data), TILTH_LISTEN=taken[1]).output
    assert not data.exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("listen = 7411", ["BAD_SETTING", "listen", "quotes", "tilth.toml"]),
        ('log-level = "loud"', ["BAD_SETTING", "log-level", "debug, info, warning, error", "tilth.toml"]),
        ("[server]\nlisten = '127.0.0.1:0'", ["UNKNOWN_SETTING", "above the first [section]"]),
        ("[warehouse]\nquery-slot = 3", ["UNKNOWN_SETTING", "warehouse.query-slots", "tilth.toml"]),
        ("[warehouse]\nquery-slots = 'x'", ["BAD_SETTING", "1 to 1024", "tilth.toml"]),
        ("old_parts_lifetime = 3", ["UNKNOWN_SETTING", "old_parts_lifetime"]),
        ("[warehouse\n", ["BAD_CONFIG_FILE", "line 1", "tilth.toml"]),
    ],
)
def test_what_is_wrong_in_the_file_is_said(tmp_path: Path, text: str, told: list[str]) -> None:
    config = tmp_path / "tilth.toml"
    config.write_text(text)
    output = words(serve("--config", str(config)))
    assert [word for word in told if word not in output.replace(" ", "") and word not in output] == []


def test_a_node_without_a_folder_is_a_wrong_command_line(tmp_path: Path) -> None:
    config = tmp_path / "tilth.toml"
    config.write_text("listen = '127.0.0.1:0'\n")
    output = words(serve("--config", str(config), exit_code=2))
    assert "no folder" in output
    assert "TILTH_DATA" in output


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "BAD_CONFIG_FILE" in serve("--config", str(tmp_path / "none.toml"), "--data", str(tmp_path)).output
    assert "BAD_CONFIG_FILE" in serve("--config", str(tmp_path), "--data", str(tmp_path)).output


def test_an_option_is_no_node_setting(tmp_path: Path) -> None:
    output = words(serve("--data", str(tmp_path / "data"), "--set", "listen=127.0.0.1:0"))
    assert "UNKNOWN_SETTING" in output


def test_a_variable_that_is_no_setting_is_refused(tmp_path: Path) -> None:
    output = words(serve("--data", str(tmp_path / "data"), TILTH_WAREHOUSE_QUERY_SLOTS="3"))
    assert "UNKNOWN_SETTING" in output
    assert "TILTH_WAREHOUSE__QUERY_SLOTS" in output.replace(" ", "")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "command", [("serve", "--data", "d"), ("worker", "--server", "http://h:1", "--warehouse", "w")]
)
def test_the_format_of_the_log_is_an_option_of_servers_and_workers(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*command, "--log-format", "xml"])
    assert done.exit_code == 1
    output = words(done)
    assert "BAD_SETTING" in output
    assert "log.format" in output
    assert "text, json" in output
