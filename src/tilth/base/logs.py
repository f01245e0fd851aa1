"""One event, one line: `time level action=... cause_id=... key=value ...`.

Covers: the logger of every room and its format. Does not cover: where the lines go (node.py decides).
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from tilth.base.secrets import without_secrets

_ROOT = "tilth"
#: Secrets that lines are searched for: those of the newest statements and consumers.
_HIDDEN_MAX = 1_000

_hidden: OrderedDict[str, None] = OrderedDict()
_hidden_lock = threading.Lock()


class Log:
    """A room's logger. The action says what happened; facts are fields, never part of a sentence."""

    def __init__(self, room: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{room}")

    def info(self, action: str, *, cause_id: str = "-", **facts: object) -> None:
        self._write(logging.INFO, action, cause_id, facts)

    def warning(self, action: str, *, cause_id: str = "-", **facts: object) -> None:
        self._write(logging.WARNING, action, cause_id, facts)

    def error(self, action: str, *, cause_id: str = "-", error: BaseException | None = None, **facts: object) -> None:
        """With the error's traceback, when there is one."""
        self._write(logging.ERROR, action, cause_id, facts, error)

    def debug(self, action: str, *, cause_id: str = "-", **facts: object) -> None:
        self._write(logging.DEBUG, action, cause_id, facts)

    def _write(
        self, level: int, action: str, cause_id: str, facts: dict[str, Any], error: BaseException | None = None
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        told = "".join(f" {name}={_field(value)}" for name, value in facts.items())
        self._logger.log(level, "action=%s cause_id=%s%s", action, cause_id, told, exc_info=error)


def set_up(*, level: str, path: str | None) -> None:
    """Sends Tilth's lines to a file, or to standard error when there is none."""
    handler: logging.Handler = logging.StreamHandler() if path is None else logging.FileHandler(path)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def hide_in_lines(secrets: Iterable[str]) -> None:
    """From now on no line shows them: a traceback, for instance, may quote what nobody has looked at."""
    with _hidden_lock:
        for secret in secrets:
            _hidden[secret] = None
            _hidden.move_to_end(secret)
        while len(_hidden) > _HIDDEN_MAX:
            _hidden.popitem(last=False)


class _Formatter(logging.Formatter):
    """Lines without the secrets that went through this process."""

    def format(self, record: logging.LogRecord) -> str:
        with _hidden_lock:
            secrets = list(_hidden)
        return without_secrets(super().format(record), secrets)


def _field(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c.isspace() or c in '"=' for c in text) else text
