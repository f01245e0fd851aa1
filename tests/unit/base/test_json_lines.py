"""Lines of the log as JSON: each one is an object for a strict parser, whatever is in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tilth.base import logs
from tilth.base.errors import InvalidInputError
from tilth.base.json_lines import CHARACTERS_MAX, DEPTH_MAX, ITEMS_MAX, as_json, json_line, rfc3339
from tilth.base.logs import Log, hide_in_lines, log_context
from tilth.base.secrets import HIDDEN
from tilth.base.settings import BadSettingError, LogFormat, LogSettings, read_settings

AS_JSON = LogSettings(format=LogFormat.JSON)


class Unshowable:
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "node.log"
    # Secrets of other tests may be single letters.
    others = logs._hidden.copy()
    logs._hidden.clear()
    logs.set_up(level="info", path=str(path), settings=AS_JSON)
    yield path
    logs.set_up(level="info", path=None)
    logs._process.clear()
    logs._hidden.update(others)


def lines(path: Path) -> list[dict[str, Any]]:
    """Each line by two parsers, one of which refuses halves of surrogate pairs and NaN."""
    raw = path.read_bytes()
    assert raw.isascii()
    assert raw.endswith(b"\n")
    found = [msgspec.json.decode(line) for line in raw.splitlines()]
    assert found == [json.loads(line) for line in raw.decode().splitlines()]
    return found


def test_a_line_has_its_event_and_facts(file: Path) -> None:
    logs.name_process(server="a")
    with log_context(query_id="q1"), log_context(trace_id="t1"):
        Log("ingest").info("round_committed", cause_id="shop.events:0", rows=100, share=0.5, is_last=True, none=None)
    Log("ingest").warning("slow")
    first, second = lines(file)
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "tilth.ingest",
        "message": "round_committed",
        "cause_id": "shop.events:0",
        "server": "a",
        "query_id": "q1",
        "trace_id": "t1",
        "rows": 100,
        "share": 0.5,
        "is_last": True,
        "none": None,
    }
    assert second.keys() == {"time", "level", "logger", "message", "server"}


def test_times_are_those_of_rfc_3339() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000000Z"
    assert rfc3339(1795774096.123456) == "2026-11-27T10:08:16.123456Z"


def test_an_error_is_an_object(file: Path) -> None:
    try:
        raise InvalidInputError("not a number", hint="write digits", given="x\ny")
    except InvalidInputError as error:
        Log("sql").error("refused", error=error)
    try:
        raise ValueError("odd")
    except ValueError as error:
        Log("sql").error("broke", error=error, error_code="E")
    refused, broke = lines(file)
    assert refused["error"].pop("trace").startswith("Traceback")
    assert refused["error"] == {
        "kind": "invalid",
        "code": "INVALID_INPUT",
        "message": "not a number: given=x\ny",
        "hint": "write digits",
    }
    assert broke["error"]["code"] == "ValueError"
    assert broke["error_code"] == "E"


HOSTILE: dict[str, tuple[object, object]] = {
    "newline": ("a\nb\r\u2028\x85c", "a\nb\r\u2028\x85c"),
    "terminal": ("\x1b[31mred\x00", "\x1b[31mred\x00"),
    "quote": ('"}{', '"}{'),
    "surrogate": ("\ud800x", "\\ud800x"),
    "bytes": (b"\xff\x00a", "\\xff\x00a"),
    "nan": (float("nan"), "nan"),
    "infinite": (float("-inf"), "-inf"),
    "large": (2**80, str(2**80)),
    "huge": (10**5000, "a int that cannot be shown"),
    "unshowable": (Unshowable(), "a Unshowable that cannot be shown"),
    "nested": ({"a": [1, {"b": (2, b"c")}]}, {"a": [1, {"b": [2, "c"]}]}),
    "path": (Path("/x"), "/x"),
    "set": (frozenset({1}), [1]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_values_that_break_other_logs(file: Path, name: str) -> None:
    value, wanted = HOSTILE[name]
    facts: dict[str, Any] = {name: value}
    Log("test").info("something", **facts)
    [line] = lines(file)
    assert line[name] == wanted


def test_bounds_of_values() -> None:
    circular: list[object] = []
    circular.append(circular)
    deep: Any = as_json(circular, str)
    for _ in range(DEPTH_MAX):
        deep = deep[0]
    assert isinstance(deep, str)
    assert len(json.dumps(as_json("x" * 1_000_000, str))) < CHARACTERS_MAX + 100
    assert len(json.dumps(as_json(list(range(100_000)), str))) < ITEMS_MAX * 8


def test_a_fact_does_not_hide_a_field(file: Path) -> None:
    logs.name_process(worker="w")
    Log("test").info("something", time="noon", level=3, message="m", worker="w", logger=None, time_="later")
    Log("test").info("something", worker="another")
    first, second = lines(file)
    assert (first["time_"], first["level_"], first["message_"], first["logger_"]) == ("noon", 3, "m", None)
    assert (first["time__"], first["worker"]) == ("later", "w")
    assert "worker_" not in first
    assert (second["worker"], second["worker_"]) == ("w", "another")


def test_secrets_are_hidden_before_they_are_escaped(file: Path) -> None:
    secret = 'pass"word\n-1234567'
    hide_in_lines([secret, "987654321"])
    try:
        raise ValueError(f"with {secret} in it")
    except ValueError as error:
        Log("test").error("broke", error=error, fact=[{secret: secret}], number=987654321)
    [line] = lines(file)
    assert line["fact"] == [{HIDDEN: HIDDEN}]
    assert line["number"] == HIDDEN
    assert "1234567" not in json.dumps(line)


def test_warnings_of_libraries_are_objects_too(file: Path) -> None:
    logging.getLogger("uvicorn.error").warning("odd %s", "request")
    # Not by its logger: the handler of pytest would fail, too.
    odd = logging.LogRecord("uvicorn.error", logging.WARNING, __file__, 1, "%d", ("no number",), None)
    logging.getLogger("tilth").handlers[0].handle(odd)
    first, second = lines(file)
    assert (first["logger"], first["message"]) == ("uvicorn.error", "odd request")
    assert second["message"] == "%d"


def test_text_is_the_default_and_comes_back(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.log"
    logs.set_up(level="info", path=str(path))
    assert logging.getLogger().handlers.count(logging.getLogger("tilth").handlers[0]) == 0
    with log_context(query_id="q1"):
        Log("test").info("something", cause_id="c", fact="two words", none="", half="\ud800", odd=Unshowable())
    assert path.read_text().endswith(
        'INFO tilth.test action=something cause_id=c fact="two words" none="" half=\\ud800 '
        'odd="a Unshowable that cannot be shown"\n'
    )


def test_the_format_is_a_setting() -> None:
    assert read_settings(LogSettings, {}).format is LogFormat.TEXT
    assert read_settings(LogSettings, {"log.format": " JSON"}).format is LogFormat.JSON
    with pytest.raises(BadSettingError, match=r"log\.format.*text, json"):
        read_settings(LogSettings, {"log.format": "xml"})


#: With halves of surrogate pairs.
TEXTS = st.text(st.characters())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS | st.integers(), inner),
    max_leaves=20,
)


@settings(max_examples=examples(200))
@given(facts=st.dictionaries(TEXTS, VALUES))
def test_any_facts_make_an_object(facts: dict[str, object]) -> None:
    line = json_line({"time": "now"}, facts, ValueError("\ud800"), lambda text: text)
    assert "\n" not in line
    assert msgspec.json.decode(line)["time"] == "now"
