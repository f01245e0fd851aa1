"""DRILL FAILOVER: an operator's rehearsal, which moves a table's services to another server and back under load.

Covers: what is moved, waiting for it, what was measured. Does not cover: who hosts what (tilth.membership). Always
holds: the placement is as before when it has ended, however it ends; where this server dies meanwhile, by itself after
the requested time.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tilth.base.errors import ConflictError, UnavailableError
from tilth.control.context.audit import audited
from tilth.control.context.names import relation_of, wrong_kind
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name
from tilth.grammar.statements import Name, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.model.server import host_of
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.query.results.answer import Outcome
from tilth.verify.ledgers import check_ledger

#: Time for which the services stay away, unless the statement sets it.
AWAY_SECONDS = 5.0
#: A move that takes longer is given up.
MOVE_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
#: A rehearsal longer than this was not meant to be one.
DRILL_SECONDS_MAX = 3600
#: A topic without a round for so long has no messages; a busy machine takes that long for the first round.
QUIET_SECONDS = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillFailover(Statement):
    """DRILL FAILOVER t [FOR SECONDS n]."""

    name: Name
    #: None: the statement does not say.
    seconds: int | None = None


@dataclass(slots=True, kw_only=True)
class _Move:
    """One of the two moves, as measured."""

    source: str
    target: str
    #: Time from the order until the target has the last service.
    seconds: float = 0.0
    #: The longest time between two commits of rounds from the order to the first commit of the target.
    gap_seconds: float = 0.0
    rounds: int = 0
    faults: str = ""


def _parse(cursor: Cursor) -> DrillFailover:
    cursor.accept("TABLE")
    name = parse_name(cursor)
    if not cursor.accept("FOR"):
        return DrillFailover(name=name)
    cursor.expect("SECONDS")
    token = cursor.peek()
    seconds = cursor.integer("a number of seconds")
    if not 1 <= seconds <= DRILL_SECONDS_MAX:
        raise cursor.error("not a useful time", at=token, hint=f"from 1 to {DRILL_SECONDS_MAX} seconds")
    return DrillFailover(name=name, seconds=seconds)


def drill(services: Services, call: Call, statement: DrillFailover) -> Outcome:
    """Move, wait, move back; a row for each move. Raises ConflictError, UnavailableError."""
    relation = relation_of(services, call, statement.name)
    if not isinstance(relation, TableDef | KafkaDef):
        raise wrong_kind(relation, what="DRILL FAILOVER", needed="a Kafka table or a table of rows")
    with audited(services, call, verb="DRILL FAILOVER", table=full_name(relation)):
        return _drill(services, call, relation, statement.seconds or AWAY_SECONDS)


def _drill(services: Services, call: Call, relation: TableDef | KafkaDef, seconds: float) -> Outcome:
    home = services.peers.hosts(relation.uuid)
    others = [each.name for each in services.peers.servers() if not each.draining and each.name != home]
    away = host_of(relation.uuid, others)
    if away is None or not home:
        hint = "start a second server over the same catalog: docs/operate/servers.md"
        raise ConflictError.coded(
            "NOWHERE_TO_GO",
            "there is no other server that could host the table",
            table=full_name(relation),
            host=home or services.server,
            hint=hint,
        )
    rehearsal = _Rehearsal(services, call, relation)
    until_ms = services.clock.now_ms() + int((seconds + 2 * MOVE_SECONDS_MAX) * 1000)
    there, back = _Move(source=home, target=away), _Move(source=away, target=home)
    try:
        services.catalog.placements.put(relation.uuid, away, until_ms=until_ms)
        rehearsal.watch(there, seconds)
    finally:
        services.catalog.placements.release(relation.uuid)
    rehearsal.watch(back, 0.0)
    return Outcome(table=_table([there, back]), message=f"{full_name(relation)} was on {away} and is on {home} again")


class _Rehearsal:
    def __init__(self, services: Services, call: Call, relation: TableDef | KafkaDef) -> None:
        self._services = services
        self._clock = services.clock
        self._relation = relation
        self._cancellation = services.running.cancellation_of(call.query_id)

    def watch(self, move: _Move, stay_seconds: float) -> None:
        """Wait until the target has the services, its first round, and for how long they stay there."""
        began = committed = self._clock.monotonic()
        rounds = self._rounds()
        is_consuming = self._is_consuming()
        has_moved = is_over = False
        while not is_over:
            self._cancellation.raise_if_cancelled()
            self._clock.sleep(POLL_SECONDS)
            now = self._clock.monotonic()
            if now - began > MOVE_SECONDS_MAX + stay_seconds:
                hint = "see system.servers and system.bg_threads; the placement is as before"
                raise UnavailableError.coded(
                    "DRILL_FAILED",
                    "the services did not move in time",
                    table=full_name(self._relation),
                    server=move.target,
                    hint=hint,
                )
            if not has_moved and self._has(move.target):
                has_moved, move.seconds = True, now - began
            found = self._rounds()
            if found > rounds:
                move.gap_seconds = max(move.gap_seconds, now - committed)
                move.rounds += found - rounds
                rounds, committed = found, now
            # A topic without new messages has no rounds to wait for; a move that takes long leaves time for the first.
            is_quiet = now - began > move.seconds + stay_seconds + QUIET_SECONDS
            has_committed = not is_consuming or committed >= began + move.seconds or is_quiet
            is_over = has_moved and has_committed and now - began >= stay_seconds
        if isinstance(self._relation, KafkaDef):
            wrong = [each for each in check_ledger(self._services.catalog, self._relation) if not each.is_ok]
            move.faults = "; ".join(f"{each.subject}: {each.check}: {each.detail}" for each in wrong)

    def _has(self, server: str) -> bool:
        """True when the server has the rights to all that ran before, and nobody else has."""
        if self._services.peers.hosts(self._relation.uuid) != server:
            return False
        names = (f"table/{self._relation.uuid}", f"consumer/{self._relation.uuid}/")
        held = [each for each in self._services.catalog.leases.list() if each.name.startswith(names)]
        is_there = all(each.holder.rpartition("#")[0] == server for each in held)
        return is_there and (bool(held) or not self._is_consuming())

    def _is_consuming(self) -> bool:
        if not isinstance(self._relation, KafkaDef):
            return False
        return bool(self._services.catalog.offsets.stored(self._relation.uuid))

    def _rounds(self) -> int:
        if not isinstance(self._relation, KafkaDef):
            return 0
        return sum(1 for _ in self._services.catalog.offsets.ledger(self._relation.uuid))


def _table(moves: list[_Move]) -> pa.Table:
    return pa.table(
        {
            "move": pa.array(["away", "back"], pa.string()),
            "from_server": pa.array([each.source for each in moves], pa.string()),
            "to_server": pa.array([each.target for each in moves], pa.string()),
            "seconds": pa.array([round(each.seconds, 3) for each in moves], pa.float64()),
            "gap_seconds": pa.array([round(each.gap_seconds, 3) for each in moves], pa.float64()),
            "rounds": pa.array([each.rounds for each in moves], pa.int64()),
            "lost": pa.array([each.faults or "nothing" for each in moves], pa.string()),
        }
    )


KINDS = (StatementKind(value=DrillFailover, forms=(Form(words="DRILL FAILOVER", parse=_parse),), perform=drill),)
