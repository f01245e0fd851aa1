"""The choice of the key_range policy among thousands of parts: how long one pass takes.

    python -m bench.bench_key_range [--parts 7000] [--passes 3]

Layouts by how much keys overlap and how large parts are; each pass is the whole policy, from the bounds of the parts to
the chosen set, with nothing remembered. The figure is the slowest layout's best pass: what an idle machine needs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from rich.table import Table

from bench.report import Figure, print_report
from tilth.base.rand import new_rng
from tilth.base.units import MIB
from tilth.maintenance.merge.policy.candidates import CandidatePart
from tilth.maintenance.merge.policy.key_range import KeyRangePolicy
from tilth.maintenance.table.settings import MergeSettings

PARTS = 7_000
TARGET_SECONDS = 1.0
#: Layouts by name: the share of all keys that a part covers, and its megabytes, from a draw of 0 to 1.
LAYOUTS: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "every part has all keys": (lambda _: 1.0, lambda _: 32),
    "every part has all keys, small": (lambda _: 1.0, lambda draw: 0.1 + 2 * draw),
    "any share of the keys": (lambda draw: draw, lambda draw: 1 + 63 * draw),
    "a hundredth of the keys": (lambda draw: 0.01 * draw, lambda draw: 1 + 63 * draw),
    "a thousandth of the keys, small": (lambda draw: 0.001 * draw, lambda _: 0.5),
    "twenty neighbours overlap": (lambda _: 20 / PARTS, lambda draw: 16 + 16 * draw),
    "two neighbours overlap": (lambda _: 2 / PARTS, lambda _: 32),
    "nothing overlaps": (lambda _: 0.0, lambda _: 32),
}


def layout(name: str, count: int, *, seed: int = 1) -> list[CandidatePart]:
    """Parts with bounds and sizes at random."""
    width_of, size_of = LAYOUTS[name]
    rng = new_rng(seed)
    parts = []
    for number in range(count):
        width = width_of(rng.random())
        low = number / count if width == 0 else rng.random() * (1 - width)
        high = low + (width or 0.9 / count)
        parts.append(
            CandidatePart(
                name=f"all_{number + 1}_{number + 1}_0_{number + 1}",
                partition="all",
                size=int(size_of(rng.random()) * MIB),
                rows=1_000,
                age=60.0,
                columns_commit_time=1,
                low=int(low * 2**60).to_bytes(8, "big"),
                high=int(high * 2**60).to_bytes(8, "big"),
            )
        )
    return parts


def measure(parts: list[CandidatePart], *, passes: int) -> tuple[float, float]:
    """Seconds of the best pass, and what the chosen set gains."""
    best, gain = float("inf"), 0.0
    for _ in range(passes):
        begin = time.perf_counter()
        specs = KeyRangePolicy().select(parts, being_merged=(), settings=MergeSettings()).specs
        best = min(best, time.perf_counter() - begin)
        gain = -specs[0].score if specs else 0.0
    return best, gain


def run(*, parts: int = PARTS, passes: int = 3) -> dict[str, float]:
    """The figure `key_range_7000_s`, and the seconds of each layout by its name."""
    seconds = {name: measure(layout(name, parts), passes=passes)[0] for name in LAYOUTS}
    return {"key_range_7000_s": max(seconds.values()), **seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description="The choice of the key_range policy among thousands of parts.")
    parser.add_argument("--parts", type=int, default=PARTS)
    parser.add_argument("--passes", type=int, default=3)
    arguments = parser.parse_args()
    table = Table("layout", "seconds", "gain", title=f"{arguments.parts} parts")
    slowest = 0.0
    for name in LAYOUTS:
        seconds, gain = measure(layout(name, arguments.parts), passes=arguments.passes)
        slowest = max(slowest, seconds)
        table.add_row(name, f"{seconds:.3f}", f"{gain:.4f}")
    figure = Figure(name="key_range_7000_s", value=slowest, unit="s", target=TARGET_SECONDS, higher_is_better=False)
    print_report("key_range", [figure], [table])


if __name__ == "__main__":
    main()
