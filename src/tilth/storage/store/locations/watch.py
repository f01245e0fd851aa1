"""States of locations: probed in the background, known at once.

Covers: one probe at a time for each location, its last outcome, since when. Does not cover: the probe
(location.py).
Always holds: a location that hangs costs one waiting thread and holds up nobody for longer than some seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilth.base.clock import Clock
from tilth.storage.store.locations.location import location_trouble
from tilth.storage.store.root import StoreRoot

#: A healthy answer is reused for this many seconds.
FRESH_SECONDS = 1.0
#: A location that has not answered after this time is unavailable.
PROBE_TIMEOUT_SECONDS = 5.0
#: Maximum wait for a newer answer if there is an older one.
_WAIT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LocationState:
    #: Reason why it cannot be used; empty: it can.
    trouble: str
    #: Start of this state in milliseconds since 1970, as observed.
    since_ms: int


@dataclass(slots=True)
class _Known:
    root: StoreRoot
    state: LocationState | None = None
    answered: float = 0.0
    #: Monotonic time at which the pending probe began; None: none is pending.
    began: float | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)


class LocationWatch:
    """The states of some locations. For any thread."""

    def __init__(
        self,
        clock: Clock,
        locations: Callable[[], Mapping[str, StoreRoot]],
        *,
        probe: Callable[[StoreRoot], str] = location_trouble,
        timeout_seconds: float = PROBE_TIMEOUT_SECONDS,
    ) -> None:
        """`probe`: returns why a location cannot be used."""
        self._clock = clock
        self._locations = locations
        self._probe = probe
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def states(self) -> dict[str, LocationState]:
        """Return the state of each location, by its name."""
        return {name: self._state(known) for name, known in self._begun().items()}

    def last_states(self) -> dict[str, LocationState]:
        """Return the last known state of each location and wait for none; one that was never probed is left out."""
        return {name: state for name, known in self._begun().items() if (state := self._last_state(known)) is not None}

    def _begun(self) -> dict[str, _Known]:
        """Begin a probe of each location whose state is not fresh."""
        locations = self._locations()
        with self._lock:
            self._known = {
                name: known if (known := self._known.get(name)) is not None and known.root == root else _Known(root)
                for name, root in locations.items()
            }
            current = dict(self._known)
        for known in current.values():
            self._start_probe(known)
        return current

    def _start_probe(self, known: _Known) -> None:
        now = self._clock.monotonic()
        with known.changed:
            # One that is back is known to be back at the next probe.
            is_well = known.state is not None and not known.state.trouble
            is_fresh = is_well and now - known.answered < FRESH_SECONDS
            if known.began is not None or is_fresh:
                return
            known.began = now
        # A process that ends does not wait for it.
        threading.Thread(target=self._run_probe, args=(known,), name="tilth-location", daemon=True).start()

    def _run_probe(self, known: _Known) -> None:
        trouble = self._probe(known.root)
        with known.changed:
            known.began, known.answered = None, self._clock.monotonic()
            self._note(known, trouble)
            known.changed.notify_all()

    def _state(self, known: _Known) -> LocationState:
        with known.changed:
            seconds = self._timeout_seconds if known.state is None else min(_WAIT_SECONDS, self._timeout_seconds)
            known.changed.wait_for(lambda: known.began is None, timeout=seconds)
            if self._is_silent(known) or known.state is None:
                self._note(known, f"no answer in {self._timeout_seconds:g} seconds")
            assert known.state is not None
            return known.state

    def _last_state(self, known: _Known) -> LocationState | None:
        with known.changed:
            if self._is_silent(known):
                self._note(known, f"no answer in {self._timeout_seconds:g} seconds")
            return known.state

    def _is_silent(self, known: _Known) -> bool:
        return known.began is not None and self._clock.monotonic() - known.began >= self._timeout_seconds

    def _note(self, known: _Known, trouble: str) -> None:
        if known.state is None or known.state.trouble != trouble:
            known.state = LocationState(trouble, self._clock.now_ms())
