"""All alarms, and what they find on this server.

Covers: the list, one evaluation of all. Does not cover: what each finds (streams.py, tables.py, stores.py, servers.py),
the rows (tables/alarms.py), the metric (server/metrics.py), the rules of Prometheus (tools/make_rules.py).
Always holds: an evaluation is bounded, however much is wrong; while the catalog does not answer, the alarms that need
no catalog are found all the same, and `catalog_away` with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from tilth.base.errors import UnavailableError
from tilth.control.context.services import Services
from tilth.introspection.alarms.alarm import Alarm, AlarmFinding, Severity
from tilth.introspection.alarms.observation import Observation
from tilth.introspection.alarms.pipes import PIPE_ALARMS
from tilth.introspection.alarms.servers import SERVER_ALARMS
from tilth.introspection.alarms.stores import STORE_ALARMS
from tilth.introspection.alarms.streams import STREAM_ALARMS
from tilth.introspection.alarms.tables import TABLE_ALARMS

#: Findings of one alarm that are reported; more of them would say the same of further tables.
FINDINGS_MAX = 1_000

#: Critical ones first.
ALARMS: tuple[Alarm, ...] = tuple(
    sorted(
        (*SERVER_ALARMS, *STORE_ALARMS, *STREAM_ALARMS, *TABLE_ALARMS, *PIPE_ALARMS),
        key=lambda each: each.severity is not Severity.CRITICAL,
    )
)


def evaluate(services: Services) -> Iterator[tuple[Alarm, Sequence[AlarmFinding]]]:
    """Yield each alarm with what it finds now on this server; one that needs a catalog that is away is left out."""
    seen = Observation(services)
    for alarm in ALARMS:
        try:
            found = list(islice(alarm.find(seen), FINDINGS_MAX))
        except UnavailableError:
            # `catalog_away` reports it.
            continue
        yield alarm, found


def count_findings(services: Services) -> dict[Alarm, int]:
    """Return the number of findings of each alarm; 0: all is well."""
    return {alarm: len(found) for alarm, found in evaluate(services)}
