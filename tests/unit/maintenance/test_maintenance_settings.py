"""Settings become the values of the policies; the defaults agree with those of the values themselves."""

from __future__ import annotations

import pytest

from tilth.base.settings import BadSettingError
from tilth.maintenance.knobs import (
    check_table_settings,
    gc_partition_settings,
    gc_settings,
    manager_settings,
    merge_partition_settings,
    merge_settings,
)
from tilth.maintenance.manager.scheduler import SchedulerSettings
from tilth.maintenance.policy.candidates import MergeSettings
from tilth.maintenance.policy.gc import GcSettings
from tilth.maintenance.policy.partitions import PartitionSettings, PartitionStrategy
from tilth.maintenance.policy.settings import TABLE_SETTINGS
from tilth.maintenance.settings import NODE_SETTINGS


def test_defaults_agree() -> None:
    values = TABLE_SETTINGS.read({})
    assert merge_settings(values) == MergeSettings()
    assert gc_settings(values) == GcSettings()
    assert merge_partition_settings(values) == PartitionSettings()
    assert gc_partition_settings(values) == PartitionSettings(rotation_interval=600.0)
    manager = manager_settings(NODE_SETTINGS.read({}))
    assert manager.scheduler == SchedulerSettings()
    assert (manager.workers, manager.polling_interval) == (4, 0.25)


def test_the_smaller_of_two_limits_counts_and_zero_is_none() -> None:
    given = {
        "cnch_merge_max_total_bytes_to_merge": "1 GiB",
        "max_bytes_to_merge_at_max_space_in_pool": "0",
        "cnch_merge_max_parts_to_merge": "50",
        "max_parts_to_merge_at_once": "20",
    }
    settings = merge_settings(TABLE_SETTINGS.read(given))
    assert (settings.bytes_max, settings.parts_max) == (1 << 30, 20)


def test_realtime_partitions_only() -> None:
    values = TABLE_SETTINGS.read({"cnch_merge_only_realtime_partition": "1", "partition_strategy": "parts"})
    assert merge_partition_settings(values).strategy is PartitionStrategy.NEWEST
    assert gc_settings(TABLE_SETTINGS.read({"old_parts_lifetime": "2 hours"})).old_parts_lifetime == 7200.0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("partition_strategy", "sideways"),
        ("max_parts_to_merge_at_once", "1"),
        ("cnch_merge_expected_parts_number", "-2"),
        ("merge_policy", "astrology"),
        ("old_parts_lifetime", "soon"),
    ],
)
def test_bad_values_are_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(BadSettingError, match=name):
        TABLE_SETTINGS.read({name: text})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"compaction_small_rowset_tradeoff": "0.01"}, "must be less than compaction_minimum_improvement"),
        ({"compaction_minimum_improvement": "0.009"}, "compaction_small_rowset_tradeoff=0.009"),
        ({"merge_selector_size_log_max": "13"}, "must be more than merge_selector_size_log_min"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, str], told: str) -> None:
    """Or merging never ends: docs/policies/key-range.md#settings."""
    with pytest.raises(BadSettingError, match=told):
        check_table_settings({"parquet_compression_level": "3"} | given)
    with pytest.raises(BadSettingError, match=told):
        merge_settings(TABLE_SETTINGS.read(given))
    check_table_settings(
        {"compaction_small_rowset_tradeoff": "0.0999", "compaction_minimum_improvement": "0.1", "no_such": "x"}
    )


def test_probabilities_are_checked() -> None:
    with pytest.raises(BadSettingError, match="0 to 1"):
        NODE_SETTINGS.read({"run_non_memory_ops_prob": "1.5"})


def test_each_setting_says_what_it_does() -> None:
    for setting in (*NODE_SETTINGS.all, *TABLE_SETTINGS.all):
        assert len(setting.doc) > 40
        assert setting.allowed
        assert setting.check(setting.default)
