"""Fakes that behave as the real things do, and the suites that prove it.

Covers: a clock that a test moves, a key-value store and a bucket that fail. Does not cover: fakes that only one test
needs.
Always holds: imported by tests only. See also: STYLE.md, section 2, "Tests".
"""

from tilth.testing.bucket import BucketFault, BucketRequest, FakeBucket
from tilth.testing.check_kv import check_kv
from tilth.testing.clock import ManualClock
from tilth.testing.histories import LaggingStandbyKV
from tilth.testing.kv import Fault, FaultyKV, RetryingKV
