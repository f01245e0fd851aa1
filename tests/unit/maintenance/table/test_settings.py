"""Settings become the values of the policies; the defaults agree with those of the values themselves."""

from __future__ import annotations

import pytest

from tilth.base.settings import BadSettingError, read_settings
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.settings import NODE_SETTINGS, ManagerSettings
from tilth.maintenance.table.settings import (
    TABLE_SETTINGS,
    PartitionStrategy,
    TableSettings,
    table_settings,
)


def test_defaults_agree() -> None:
    assert table_settings({}) == TableSettings()
    assert table_settings({}).gc_partitions.rotation_interval == 600.0
    manager = read_settings(ManagerSettings, {})
    assert manager == ManagerSettings()
    assert (manager.workers, manager.polling_ms) == (4, 250)


def test_the_smaller_of_two_limits_counts_and_zero_is_none() -> None:
    given = {
        "cnch_merge_max_total_bytes_to_merge": "1 GiB",
        "max_bytes_to_merge_at_max_space_in_pool": "0",
        "cnch_merge_max_parts_to_merge": "50",
        "max_parts_to_merge_at_once": "20",
    }
    merge = table_settings(given).merge
    assert (merge.bytes_max, merge.parts_max) == (1 << 30, 20)
    assert merge.bytes_max_name == "cnch_merge_max_total_bytes_to_merge"
    pool = table_settings({"max_bytes_to_merge_at_max_space_in_pool": "1 GiB"}).merge
    assert (pool.bytes_max, pool.bytes_max_name) == (1 << 30, "max_bytes_to_merge_at_max_space_in_pool")


def test_realtime_partitions_only() -> None:
    settings = table_settings({"cnch_merge_only_realtime_partition": "1", "partition_strategy": "parts"})
    assert settings.merge_partitions.strategy is PartitionStrategy.NEWEST
    assert table_settings({"old_parts_lifetime": "2 hours"}).gc.old_parts_lifetime == 7200.0


def test_a_switch_names_the_setting_that_keeps_its_op_from_running() -> None:
    off = read_settings(ManagerSettings, {"enable_log_gc": "off"})
    assert off.switched_off_by(OpKind.LOG_GC) == "enable_log_gc"
    assert {off.switched_off_by(kind) for kind in OpKind if kind is not OpKind.LOG_GC} == {""}


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
        table_settings({name: text})


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
        table_settings({"parquet_compression_level": "3"} | given)
    table_settings(
        {"compaction_small_rowset_tradeoff": "0.0999", "compaction_minimum_improvement": "0.1", "no_such": "x"}
    )


def test_probabilities_are_checked() -> None:
    with pytest.raises(BadSettingError, match="0 to 1"):
        read_settings(ManagerSettings, {"run_non_memory_ops_prob": "1.5"})


def test_each_setting_says_what_it_does() -> None:
    for setting in (*NODE_SETTINGS.all, *TABLE_SETTINGS.all):
        assert len(setting.doc) > 40
        assert setting.allowed
        assert setting.check.holds(setting.default)


def test_kinds_name_each_metric_and_each_switch_once() -> None:
    names = [name for kind in OpKind for name in (kind.traits.running, kind.traits.duration)]
    shown = [each[0] for kind in OpKind for each in (kind.traits.waiting, kind.traits.removed) if each]
    switches = [kind.traits.switch[0] for kind in OpKind if kind.traits.switch]
    assert len({*names, *shown, *switches}) == len(names) + len(shown) + len(switches)


@pytest.mark.parametrize("kind", [kind for kind in OpKind if kind.traits.switch])
def test_a_switch_of_a_kind_turns_off_that_kind(kind: OpKind) -> None:
    assert kind.traits.switch is not None
    settings = read_settings(ManagerSettings, {kind.traits.switch[0]: "false"})
    assert [each for each in OpKind if settings.switched_off_by(each)] == [kind]
    assert settings.switched_off_by(kind) == kind.traits.switch[0]
