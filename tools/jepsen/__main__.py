"""The command line: `python -m tools.jepsen --rounds 300 [--seed 7] [--subject servers]`."""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tools.jepsen.report import Report
from tools.jepsen.run import SUBJECTS, Order, print_progress, run_jepsen

#: Share of each subject in all rounds.
SHARES = {"servers": 0.4, "servers-sync": 0.15, "rocksdb": 0.2, "s3": 0.15, "hdfs": 0.1}
#: Rounds after which a subject is started anew.
ROUNDS_EACH = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--subject", choices=["all", *SUBJECTS], default="all")
    parser.add_argument("--only", default="", help="parts of names of blows, with commas between")
    parser.add_argument("--keep", type=Path, help="a folder in which histories and logs stay")
    arguments = parser.parse_args()
    # SIGTERM as an exception runs the `finally` blocks that mend blows and end processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
    print_progress(f"seed {seed}")
    total = Report(seed)
    for number, (subject, rounds) in enumerate(_plan(arguments.subject, arguments.rounds)):
        only = [each for each in arguments.only.split(",") if each]
        order = Order(subject=subject, rounds=rounds, seed=seed + number, only=only)
        print_progress(f"{subject}: {rounds} rounds, seed {order.seed}")
        found = _one(order, arguments.keep)
        # Where the process is ended before the last run, those before it have been for something.
        print_progress(found.line())
        total.add(found)
    print(total.line(), flush=True)
    sys.exit(not total.is_right)


def _plan(subject: str, rounds: int) -> list[tuple[str, int]]:
    """Return the runs to make: subjects with their numbers of rounds."""
    shares = SHARES if subject == "all" else {subject: 1.0}
    plan = []
    for name, share in shares.items():
        left = max(1, round(rounds * share))
        while left:
            plan.append((name, min(left, ROUNDS_EACH)))
            left -= plan[-1][1]
    return plan


def _one(order: Order, keep: Path | None) -> Report:
    folder = Path(tempfile.mkdtemp(prefix=f"tilth-jepsen-{order.subject}-"))
    try:
        return run_jepsen(folder, order)
    finally:
        if keep is not None:
            kept = keep / f"{order.subject}-{order.seed}"
            kept.mkdir(parents=True, exist_ok=True)
            for path in [*folder.rglob("*.log"), *folder.rglob("history.jsonl")]:
                target = kept / str(path.relative_to(folder)).replace("/", "_")
                shutil.copyfile(path, target)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
