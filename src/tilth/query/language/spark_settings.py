"""Allow list of the settings of Spark that a statement can set.

Covers: names. Does not cover: values, which Spark checks; the operator's `warehouse.spark-conf`.
Always holds: an allowed setting changes the speed of a query, or its answer in a way that Spark documents. None loads
classes or files, starts programs, changes how stored values are read, or weakens a guarantee.

Tests: tests/unit/query/results/test_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from tilth.model.text.zones import SPARK_PREFIX
from tilth.warehouse import NotAllowedError

_NEAR_MAX = 3

#: These change answers.
_MEANING = """
ansi.enabled crossJoin.enabled cteRecursionLevelLimit cteRecursionRowLimit debug.maxToStringFields
decimalOperations.allowPrecisionLoss groupByAliases groupByOrdinal jsonGenerator.ignoreNullFields
legacy.allowParameterlessCount legacy.timeParserPolicy mapKeyDedupPolicy orderByOrdinal pivotMaxValues session.timeZone
"""
#: These change the speed.
_SPEED = """
adaptive.advisoryPartitionSizeInBytes adaptive.autoBroadcastJoinThreshold adaptive.coalescePartitions.enabled
adaptive.coalescePartitions.initialPartitionNum adaptive.coalescePartitions.minPartitionSize
adaptive.coalescePartitions.parallelismFirst adaptive.enabled adaptive.forceOptimizeSkewedJoin
adaptive.localShuffleReader.enabled adaptive.maxShuffledHashJoinLocalMapThreshold
adaptive.optimizeSkewsInRebalancePartitions.enabled adaptive.skewJoin.enabled adaptive.skewJoin.skewedPartitionFactor
adaptive.skewJoin.skewedPartitionThresholdInBytes autoBroadcastJoinThreshold broadcastTimeout cbo.enabled
cbo.joinReorder.enabled codegen.maxFields codegen.wholeStage files.maxPartitionBytes files.maxPartitionNum
files.minPartitionNum files.openCostInBytes join.preferSortMergeJoin leafNodeDefaultParallelism
optimizer.runtime.bloomFilter.enabled parquet.columnarReaderBatchSize shuffle.partitions
"""
SPARK_SETTINGS = frozenset(SPARK_PREFIX + name for name in (_MEANING + _SPEED).split())


def check_spark_settings(names: Iterable[str]) -> None:
    """Raises NotAllowedError for the first setting that a statement cannot set."""
    for name in names:
        if name in SPARK_SETTINGS:
            continue
        near = get_close_matches(name, SPARK_SETTINGS, n=_NEAR_MAX)
        meant = f"did you mean {', '.join(near)}? " if near else ""
        hint = f"{meant}docs/reference/settings.md lists those that it can set"
        raise NotAllowedError("a statement cannot set this setting of Spark", setting=name, hint=hint)
