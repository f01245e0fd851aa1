"""Output of a benchmark: tables for people, and one last line of JSON for programs.

Covers: printing, what machine it was. Does not cover: measuring.
Always holds: the last line of a benchmark's output is one JSON object `{"bench", "figures", "machine"}`.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.table import Table

_PACKAGES = ("pyspark", "pyarrow", "polars", "rocksdict", "confluent-kafka")
_WIDTH = 140


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number that a benchmark is about."""

    name: str
    value: float
    unit: str
    #: Target of the value; None: there is none.
    target: float | None
    higher_is_better: bool

    @property
    def is_met(self) -> bool:
        """Return whether the target is reached; without a target always."""
        if self.target is None:
            return True
        return self.value >= self.target if self.higher_is_better else self.value <= self.target


def more(name: str, value: float, unit: str, target: float | None = None) -> Figure:
    """Return a figure that is better the higher it is."""
    return Figure(name=name, value=value, unit=unit, target=target, higher_is_better=True)


def less(name: str, value: float, unit: str, target: float | None = None) -> Figure:
    """Return a figure that is better the lower it is."""
    return Figure(name=name, value=value, unit=unit, target=target, higher_is_better=False)


def print_report(bench: str, figures: Sequence[Figure], tables: Sequence[Table] = ()) -> None:
    """Prints the tables, the figures beside their targets, and the line of JSON."""
    console = Console(width=_WIDTH)
    for table in tables:
        console.print(table)
    summary = Table("figure", "value", "unit", "target", "met", title=bench)
    for figure in figures:
        sign = ">=" if figure.higher_is_better else "<="
        target = "-" if figure.target is None else f"{sign} {figure.target:g}"
        met = "-" if figure.target is None else ("yes" if figure.is_met else "NO")
        summary.add_row(figure.name, f"{figure.value:.3f}", figure.unit, target, met)
    console.print(summary)
    record = {"bench": bench, "figures": [asdict(figure) for figure in figures], "machine": machine()}
    print(json.dumps(record), flush=True)


def machine() -> dict[str, object]:
    """The machine and the versions that the figures belong to."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
