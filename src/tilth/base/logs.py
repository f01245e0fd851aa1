"""One event, one line: `time level action=... cause_id=... key=value ...`.

Covers: the logger of every room and its format. Does not cover: where the lines go (node.py decides).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterable
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from tilth.base.secrets import without_secrets
from tilth.base.settings import LogSettings

_ROOT = "tilth"
#: Secrets that are replaced in log lines: those of the newest statements and consumers.
_HIDDEN_MAX = 1_000

_hidden: OrderedDict[str, None] = OrderedDict()
_hidden_lock = threading.Lock()


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
        fields = "".join(f" {name}={_field(value)}" for name, value in facts.items())
        self._logger.log(level, "action=%s cause_id=%s%s", action, cause_id, fields, exc_info=error)


def set_up(*, level: str, path: str | None, settings: LogSettings | None = None) -> None:
    """Send Tilth's lines to a file, or to standard error when there is none."""
    bounds = settings or LogSettings()
    handler: logging.Handler = logging.StreamHandler() if path is None else _File(path, bounds)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger(_ROOT)
    for before in root.handlers:
        before.close()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


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


class _Formatter(logging.Formatter):
    """Formats lines without the secrets that this process has handled."""

    def format(self, record: logging.LogRecord) -> str:
        with _hidden_lock:
            secrets = list(_hidden)
        return without_secrets(super().format(record), secrets)


def _field(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c.isspace() or c in '"=' for c in text) else text
