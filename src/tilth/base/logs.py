"""One event, one line: `time level action=... cause_id=... key=value ...`, or an object of JSON.

Covers: the logger of every room, its formats, what all lines of a process or of a statement say. Does not cover: where
the lines go (the commands decide), values as JSON (json_lines.py).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from tilth.base.json_lines import json_line, rfc3339, shown_text, unicode_text
from tilth.base.secrets import without_secrets
from tilth.base.settings import LogFormat, LogSettings

_ROOT = "tilth"
#: Secrets that are replaced in log lines: those of the newest statements and consumers.
_HIDDEN_MAX = 1_000

#: Attribute of a record with its event.
_EVENT = "tilth_event"
#: Cause of an event that has none.
_NO_CAUSE = "-"

_hidden: OrderedDict[str, None] = OrderedDict()
_hidden_lock = threading.Lock()
#: Facts of every line of this process, and of every line of what this thread works for; in JSON only.
_process: dict[str, str] = {}
_context: ContextVar[Mapping[str, str] | None] = ContextVar("tilth_log_context", default=None)


@dataclass(frozen=True, slots=True)
class _Event:
    """An event before it is a line."""

    action: str
    cause_id: str
    facts: Mapping[str, object]

    def __str__(self) -> str:
        fields = "".join(f" {name}={_field(value)}" for name, value in self.facts.items())
        return f"action={self.action} cause_id={self.cause_id}{fields}"


class Log:
    """A room's logger. The action is the event; facts are fields, never part of a sentence."""

    def __init__(self, room: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{room}")

    def info(self, action: str, *, cause_id: str = "-", **facts: object) -> None:
        self._write(logging.INFO, action, cause_id, facts)

    def warning(self, action: str, *, cause_id: str = "-", **facts: object) -> None:
        self._write(logging.WARNING, action, cause_id, facts)

    def error(self, action: str, *, cause_id: str = "-", error: BaseException | None = None, **facts: object) -> None:
        """Log an error, with its traceback if there is one."""
        self._write(logging.ERROR, action, cause_id, facts, error)

    def debug(self, action: str, *, cause_id: str = "-", **facts: object) -> None:
        self._write(logging.DEBUG, action, cause_id, facts)

    def _write(
        self, level: int, action: str, cause_id: str, facts: dict[str, Any], error: BaseException | None = None
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        event = _Event(action, cause_id, facts)
        self._logger.log(level, "%s", event, exc_info=error, extra={_EVENT: event})


def set_up(*, level: str, path: str | None, settings: LogSettings | None = None) -> None:
    """Send Tilth's lines to a file, or to standard error when there is none."""
    bounds = settings or LogSettings()
    handler: logging.Handler = logging.StreamHandler() if path is None else _File(path, bounds)
    handler.setFormatter(_FORMATTERS[bounds.format]())
    root = logging.getLogger(_ROOT)
    others = logging.getLogger()
    for before in root.handlers:
        before.close()
        if before in others.handlers:
            others.removeHandler(before)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
    if bounds.format is LogFormat.JSON:
        # Warnings of libraries, which Python writes as text otherwise.
        others.addHandler(handler)


def name_process(**names: str) -> None:
    """Add facts to every line of this process in JSON: which server or worker it is."""
    _process.update(names)


@contextmanager
def log_context(**facts: str) -> Iterator[None]:
    """Add facts to the lines in JSON that this thread writes meanwhile: which statement or task it works for."""
    token = _context.set({**(_context.get() or {}), **facts})
    try:
        yield
    finally:
        _context.reset(token)


class _File(RotatingFileHandler):
    """A log file of bounded size with older ones beside it, readable by its owner only."""

    def __init__(self, path: str, bounds: LogSettings) -> None:
        super().__init__(path, maxBytes=bounds.size_max, backupCount=bounds.files_max - 1, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        os.close(os.open(self.baseFilename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        return super()._open()


def rotate_appended(path: Path, bounds: LogSettings) -> bool:
    """Rotate a file to which another process appends, if it is too large; return whether it was.

    Lines that are written between the copy and the truncation are lost.
    """
    try:
        if path.stat().st_size <= bounds.size_max:
            return False
    except FileNotFoundError:
        return False
    for number in range(bounds.files_max - 2, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    # Only the end of a file that grew while nobody rotated it.
    with path.open("rb") as whole, path.with_name(f"{path.name}.1").open("wb") as aside:
        whole.seek(-bounds.size_max, os.SEEK_END)
        shutil.copyfileobj(whole, aside)
    os.truncate(path, 0)
    return True


def hide_in_lines(secrets: Iterable[str]) -> None:
    """Replace these secrets in all later lines; a traceback, for example, may quote one."""
    with _hidden_lock:
        for secret in secrets:
            _hidden[secret] = None
            _hidden.move_to_end(secret)
        while len(_hidden) > _HIDDEN_MAX:
            _hidden.popitem(last=False)


class _TextFormatter(logging.Formatter):
    """Formats lines without the secrets that this process has handled."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(unicode_text(super().format(record)), _secrets())


class _JsonFormatter(logging.Formatter):
    """Formats lines as objects, without secrets either."""

    def format(self, record: logging.LogRecord) -> str:
        event: _Event | None = getattr(record, _EVENT, None)
        fields = {"time": rfc3339(record.created), "level": record.levelname.lower(), "logger": record.name}
        fields["message"] = _message(record) if event is None else event.action
        facts: Mapping[str, object] = {} if event is None else event.facts
        if event is not None and event.cause_id != _NO_CAUSE:
            fields["cause_id"] = event.cause_id
        fields |= _process | {name: text for name, text in (_context.get() or {}).items() if name not in facts}
        error = record.exc_info[1] if record.exc_info else None
        return json_line(fields, facts, error, partial(without_secrets, secrets=_secrets()))


_FORMATTERS: Mapping[LogFormat, type[_TextFormatter] | type[_JsonFormatter]] = {
    LogFormat.TEXT: _TextFormatter,
    LogFormat.JSON: _JsonFormatter,
}


def _message(record: logging.LogRecord) -> str:
    """Return the message of a library's record, whose arguments may not fit."""
    try:
        return record.getMessage()
    except Exception:
        return str(record.msg)


def _secrets() -> list[str]:
    with _hidden_lock:
        return list(_hidden)


def _field(value: object) -> str:
    text = shown_text(value)
    return json.dumps(text) if not text or any(c.isspace() or c in '"=' for c in text) else text
