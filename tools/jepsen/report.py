"""Report of a run: its numbers and sentences about faults, as one line of JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from tools.jepsen.checkers import Faults

SHOWN_MAX = 30


@dataclass(slots=True)
class Report:
    """Results of one or several runs."""

    seed: int
    rounds: int = 0
    faults: Faults = field(default_factory=Faults)
    #: Seconds from the mending of a round's blows until each workload went on.
    go_on_s: dict[str, list[float]] = field(default_factory=dict)
    #: Number of operations by kind and outcome.
    operations: Counter[str] = field(default_factory=Counter)
    #: Sentences about processes that ended by themselves.
    ended: list[str] = field(default_factory=list)
    #: Rounds by subject.
    by_subject: Counter[str] = field(default_factory=Counter)

    @property
    def is_right(self) -> bool:
        return self.faults.is_none

    def add(self, other: Report) -> None:
        self.rounds += other.rounds
        self.faults.add(other.faults)
        for kind, seconds in other.go_on_s.items():
            self.go_on_s.setdefault(kind, []).extend(seconds)
        self.operations += other.operations
        self.ended += other.ended
        self.by_subject += other.by_subject

    def line(self) -> str:
        """Return one line of JSON."""
        faults = self.faults
        return json.dumps(
            {
                "seed": self.seed,
                "rounds": self.rounds,
                "subjects": self.by_subject,
                "lost": faults.lost,
                "lost_by_failover": faults.lost_by_failover,
                "files_by_failover": faults.files_by_failover,
                "twice": faults.twice,
                "torn": faults.torn,
                "unknown_files": faults.unknown_files,
                "wrong": faults.wrong,
                "about": faults.about[:SHOWN_MAX],
                "ended_by_itself": len(self.ended),
                "ended": self.ended[:SHOWN_MAX],
                "go_on_s": {kind: _percentiles(seconds) for kind, seconds in sorted(self.go_on_s.items())},
                "operations": dict(sorted(self.operations.items())),
                "exit": int(not self.is_right),
            }
        )


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return {"p50": at(0.5), "p95": at(0.95), "max": round(ordered[-1], 2)} if ordered else {}
