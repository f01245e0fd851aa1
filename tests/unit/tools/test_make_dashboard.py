"""Grafana's own schema reads the dashboard and loses nothing of it.

The classes of grafana-foundation-sdk are made from Grafana's schema; a key that they do not know is gone when they
write again what they have read.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tools.make_dashboard import DASHBOARD, dashboard, main


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    """Queries and options of panels are read by the classes of their kinds."""
    register_default_plugins()


# Any: JSON.
def read_and_written(board: dict[str, Any]) -> Any:
    return json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))


def missing(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Paths of values that are not in what was found; what was added to it does not count."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [path]
        return [each for key, value in wanted.items() for each in missing(value, found.get(key), f"{path}.{key}")]
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return [path]
        pairs = enumerate(zip(wanted, found, strict=True))
        return [each for index, (one, other) in pairs for each in missing(one, other, f"{path}[{index}]")]
    return [] if wanted == found else [f"{path}: {wanted!r} became {found!r}"]


def test_grafanas_schema_keeps_all_of_it() -> None:
    board = json.loads(DASHBOARD.read_text())
    assert missing(board, read_and_written(board)) == []


def test_a_key_that_grafana_does_not_know_is_found() -> None:
    board = json.loads(DASHBOARD.read_text())
    board["panels"][1]["titel"] = "wrong"
    board["panels"][1]["targets"][0]["expression"] = "up"
    found = missing(board, read_and_written(board))
    assert len(found) == 2
    assert ".panels[1].titel" in found[0] + found[1]


def test_a_stale_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any) -> None:
    monkeypatch.setattr("tools.make_dashboard.DASHBOARD", tmp_path / "tilth.json")
    assert main(["--check"]) == 1
    assert "stale" in capsys.readouterr().out
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert json.loads((tmp_path / "tilth.json").read_text()) == dashboard()
