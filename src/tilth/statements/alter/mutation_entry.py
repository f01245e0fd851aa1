"""The entry of an ALTER in a table's list of mutations: made, and waited for if the statement requires it.

Covers: the commit, when a wait ends and with what error. Does not cover: the checks before (alter_columns.py,
alter_rows.py), working on it (maintenance). Always holds: whatever a wait raises, the entry is committed and stays in
the list until it is done or killed; so no error of a wait invites the caller to send the statement again. See also:
docs/policies/mutations.md.

Tests: tests/unit/statements/alter/test_alter.py.
"""

from __future__ import annotations

from tilth.base.cancel import pause
from tilth.base.errors import ConflictError, TilthError
from tilth.base.units import show_time
from tilth.catalog import StartMutation, TableNotFoundError
from tilth.control.context.services import Call, Services
from tilth.maintenance import MutationProgress
from tilth.model.mutation import MutationState
from tilth.model.service import ALL_TABLES, ServiceKind, Switch, SwitchState, switches_in_force
from tilth.model.table import TableDef, full_name
from tilth.query.results.answer import Outcome, done
from tilth.statements.errors import MutationNotDoneError

#: Poll intervals of a waiting statement: of its entry, and of what delays it.
POLL_SECONDS = 0.25
CHECK_SECONDS = 1.0


def start_mutation(services: Services, call: Call, table: TableDef, update: StartMutation) -> int:
    """Commit the entry, and the new columns with it; return its number."""
    entry = services.catalog.transactions.apply(f"alter {full_name(table)} by {call.query_id}", [update])
    services.maintenance.wake(table.uuid)
    return entry


def mutation_outcome(
    services: Services, call: Call, table: TableDef, entry: int, command: str, *, is_waiting: bool
) -> Outcome:
    """Return the statement's answer: at once, or when the entry is done; raises what the wait raises."""
    if not is_waiting:
        return done(f"mutation {entry} of {full_name(table)} has begun: {command}")
    wait_for_mutation(services, table, entry, call.settings.mutations_wait_timeout_seconds)
    return done(f"mutation {entry} of {full_name(table)} is done: {command}")


def wait_for_mutation(services: Services, table: TableDef, entry: int, seconds_max: float) -> None:
    """Until no part needs the entry any more.

    Raises ConflictError when a part fails in a way that waiting does not heal, MutationNotDoneError when the
    time is over, the statement is cancelled, or mutations of the table are stopped for longer than that,
    ConflictError, TableNotFoundError.
    """
    clock = services.clock
    deadline = clock.monotonic() + seconds_max
    next_check = clock.monotonic()
    while True:
        found = services.catalog.mutations.get(table.uuid, entry)
        match found.state:
            case MutationState.DONE:
                return
            case MutationState.KILLED:
                raise ConflictError.coded(
                    "MUTATION_KILLED",
                    "the mutation was killed",
                    table=full_name(table),
                    mutation=entry,
                    why=found.reason,
                    hint=found.parts_summary,
                )
            case MutationState.PENDING:
                if services.catalog.tables.by_id(table.uuid) is None:
                    raise TableNotFoundError("the table was dropped", table=full_name(table), mutation=entry)
        left = deadline - clock.monotonic()
        if left <= 0 or clock.monotonic() >= next_check:
            next_check = clock.monotonic() + CHECK_SECONDS
            progress = services.maintenance.mutations(table.uuid)
            _check_sound(table, entry, progress)
            _check_not_stopped(services, table, entry, progress, left)
            if left <= 0:
                raise _not_done(table, entry, progress)
        try:
            pause(clock, POLL_SECONDS)
        except TilthError as cancelled:
            why = f"{cancelled.code}: {cancelled.message}"
            raise MutationNotDoneError(table=full_name(table), mutation=entry, why=why, hint=_goes_on(entry)) from None


def _check_sound(table: TableDef, entry: int, progress: list[MutationProgress]) -> None:
    mine = _of(entry, progress)
    if mine is not None and mine.lasting_failure:
        raise ConflictError.coded(
            "MUTATION_FAILED",
            "the mutation is committed, but fails on a part",
            table=full_name(table),
            mutation=entry,
            parts_done=mine.parts_done,
            parts_to_do=mine.parts_to_do,
            why=mine.lasting_failure,
            hint=f"KILL MUTATION '{entry}' ends it; until then it is retried, and later mutations of the table wait",
        )


def _check_not_stopped(
    services: Services, table: TableDef, entry: int, progress: list[MutationProgress], seconds: float
) -> None:
    """Raises MutationNotDoneError if nothing will move for so long."""
    switch = _stopped(services, table)
    # A rewrite that runs already goes on when the service is stopped.
    if switch is None or any(each.running for each in progress):
        return
    if switch.until_ms and switch.until_ms - services.clock.now_ms() < seconds * 1000:
        return
    begins = f"SYSTEM START MUTATIONS {full_name(table)}"
    facts = {"because": switch.because} if switch.because else {}
    raise MutationNotDoneError(
        "the mutation waits: mutations of the table are stopped",
        table=full_name(table),
        mutation=entry,
        stopped_until=show_time(switch.until_ms) if switch.until_ms else begins,
        **facts,
        hint=f"it is committed and runs after {begins}: do not send the statement again; KILL MUTATION '{entry}' "
        "ends it",
    )


def _stopped(services: Services, table: TableDef) -> Switch | None:
    switches = [each for each in services.catalog.services.all() if each.table in (table.uuid, ALL_TABLES)]
    switch = switches_in_force(switches, now_ms=services.clock.now_ms()).get(ServiceKind.MUTATE)
    return None if switch is None or switch.state is SwitchState.RUNNING else switch


def _not_done(table: TableDef, entry: int, progress: list[MutationProgress]) -> MutationNotDoneError:
    hint = _goes_on(entry)
    mine = _of(entry, progress)
    if mine is None:
        return MutationNotDoneError(
            table=full_name(table), mutation=entry, parts_to_do="unknown", why="nobody works on it yet", hint=hint
        )
    why = mine.state_reason
    # Mutations of one table come in the order in which they run.
    first = progress[0]
    if mine.latest_fail_reason:
        why = f"part {mine.latest_failed_part}: {mine.latest_fail_reason}"
    elif first.id != entry and first.lasting_failure:
        why = f"mutation {first.id} comes first and fails: {first.lasting_failure}"
        hint = f"KILL MUTATION '{first.id}' ends the first one; {hint}"
    return MutationNotDoneError(
        table=full_name(table), mutation=entry, parts_to_do=mine.parts_to_do, why=why, hint=hint
    )


def _goes_on(entry: int) -> str:
    return (
        "it is committed and goes on in the background: do not send the statement again; SELECT * FROM "
        f"system.mutations WHERE mutation_id = '{entry}' shows how far it is, KILL MUTATION '{entry}' ends it"
    )


def _of(entry: int, progress: list[MutationProgress]) -> MutationProgress | None:
    return next((each for each in progress if each.id == entry), None)
