"""The ordered key-value store under the catalog: one protocol, several backends.

Covers: get, ordered scan, consistent views, atomic durable commits with preconditions. Does not cover: what keys and
values mean (records/keys.py, records/codec.py). Always holds: a commit has three outcomes, landed, conflict or unknown,
and never two; the version of a key is the sequence number of the commit that wrote it. See also:
`tilth.testing.check_kv`.
"""

from tilth.catalog.kv.incarnation import ONLY, Incarnation
from tilth.catalog.kv.protocol import (
    Absent,
    AtVersion,
    Conflict,
    KeyValue,
    KVOutcome,
    Landed,
    Pinned,
    Precondition,
    ReadView,
    TimeReached,
    Unknown,
    Versioned,
    ViewMovedError,
    ViewUse,
)
