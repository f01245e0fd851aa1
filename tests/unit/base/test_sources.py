"""Settings of a node from flags, environment and config file: who wins, and what is refused, by name and source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilth.base.settings import BadSettingError, UnknownSettingError
from tilth.base.sources import (
    CONFIG_BYTES_MAX,
    ConfigFileError,
    GivenSettings,
    SettingSource,
    gather,
    variable_of,
)
from tilth.begin import NODE_SETTINGS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tilth.toml"


def given(file: Path, text: str, *, environment: dict[str, str] | None = None, **flags: str) -> GivenSettings:
    file.write_text(text)
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in flags.items()}
    return gather(NODE_SETTINGS, flags=named, environment=environment or {}, file=file)


def test_a_flag_wins_over_the_environment_and_that_over_the_file(file: Path) -> None:
    text = """
        maintenance_manager_num_threads = 3
        [warehouse]
        query-slots = 5
        write-slots = 6
        [catalog]
        cache-bytes = "128 MiB"
    """
    environment = {
        "TILTH_WAREHOUSE__QUERY_SLOTS": "7",
        "TILTH_WAREHOUSE__WRITE_SLOTS": "8",
        "HOME": "/root",
    }
    found = given(file, text, environment=environment, warehouse__query_slots="9")
    assert found.texts == {
        "maintenance_manager_num_threads": "3",
        "warehouse.query-slots": "9",
        "warehouse.write-slots": "8",
        "catalog.cache-bytes": "128 MiB",
    }
    assert found.source("warehouse.query-slots") is SettingSource.FLAG
    assert found.source("warehouse.write-slots") is SettingSource.ENVIRONMENT
    assert found.source("catalog.cache-bytes") is SettingSource.FILE
    assert found.source("warehouse.memory") is SettingSource.DEFAULT


def test_every_value_of_toml_that_a_flag_could_have_is_taken(file: Path) -> None:
    text = """
        enable_log_gc = false
        memory_pressure_percentage = 55
        data_gc_prioritization_prob = 0.25
        "warehouse.driver-memory" = "3g"
        ingest.manager-interval = "2 s"
        [server]
        allowed-hosts = ["a.example", "b.example"]
        allowed-origins = []
        [warehouse]
        spark-conf = ["spark.a=1", "spark.b=2"]
    """
    assert given(file, text).texts == {
        "enable_log_gc": "false",
        "memory_pressure_percentage": "55",
        "data_gc_prioritization_prob": "0.25",
        "warehouse.driver-memory": "3g",
        "ingest.manager-interval": "2 s",
        "server.allowed-hosts": "a.example,b.example",
        "server.allowed-origins": "",
        "warehouse.spark-conf": "spark.a=1 spark.b=2",
    }


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[warehouse]\nquery-slotz = 3", "did you mean: warehouse.query-slots"),
        ("warehouse-query-slots = 3", "did you mean: warehouse.query-slots"),
        ("[maintenance]\nflush_threshold_mb = 3", "flush_threshold_mb belongs to no section"),
        ("xyzzy = 3", "SHOW SETTINGS lists all settings"),
        ("[warehouse.query-slots]\na = 3", "did you mean: warehouse.query-slots"),
    ],
)
def test_a_name_that_is_not_known_is_refused_with_the_nearest_and_the_file(file: Path, text: str, hint: str) -> None:
    with pytest.raises(UnknownSettingError) as refused:
        given(file, text)
    assert hint in refused.value.hint
    assert refused.value.facts["file"] == str(file)


@pytest.mark.parametrize(
    "text",
    [
        '[warehouse]\nquery-slots = "many"',
        "[warehouse]\nquery-slots = true",
        "[warehouse]\nquery-slots = 4.0",
        "[warehouse]\nquery-slots = 0",
        "[warehouse]\nquery-slots = [4]",
        "[warehouse]\nquery-slots = 2026-11-22",
        "[warehouse]\nquery-slots = 12:00:00",
        "[[warehouse]]\nquery-slots = 4",
        "[warehouse]\ndriver-memory = 2",
        "[warehouse]\nmaster = true",
        "[server]\nallowed-hosts = [1]",
        '[server]\nallowed-hosts = ["a,b"]',
        "data_gc_prioritization_prob = nan",
        "data_gc_prioritization_prob = inf",
        'enable_log_gc = "perhaps"',
        "enable_log_gc = {}",
    ],
)
def test_a_value_of_another_type_is_refused_with_the_file(file: Path, text: str) -> None:
    if text == "enable_log_gc = {}":
        assert given(file, text).texts == {}
        return
    with pytest.raises((BadSettingError, UnknownSettingError)) as refused:
        given(file, text)
    assert refused.value.facts["file"] == str(file)
    assert refused.value.hint


@pytest.mark.parametrize(
    "text",
    [
        '"warehouse.query-slots" = 3\n[warehouse]\nquery-slots = 4',
        "kafka_manager_interval = 3\n[ingest]\nmanager-interval = 4",
    ],
)
def test_a_setting_is_given_once_in_a_file(file: Path, text: str) -> None:
    with pytest.raises(BadSettingError, match="given twice"):
        given(file, text)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"[warehouse\nquery-slots = 3", "line 1"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"\xff\xfe", "UTF-8"),
        (b"#" * (CONFIG_BYTES_MAX + 1), "more than"),
        (b"a = " + b"[" * 100_000, "reason="),
    ],
)
def test_a_file_that_is_no_toml_is_named_with_the_line(file: Path, content: bytes, hint: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigFileError, match=hint) as refused:
        gather(NODE_SETTINGS, flags={}, environment={}, file=file)
    assert refused.value.facts["file"] == str(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigFileError, match=str(path)) as refused:
            gather(NODE_SETTINGS, flags={}, environment={}, file=path)
        assert "--config" in refused.value.hint


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("TILTH_WAREHOUSE_QUERY_SLOTS", "TILTH_WAREHOUSE__QUERY_SLOTS"),
        ("TILTH_FLUSH_TRESHOLD_MB", "TILTH_FLUSH_THRESHOLD_MB"),
        ("TILTH_XYZZY", "no setting"),
        ("TILTH_", "no setting"),
    ],
)
def test_a_variable_that_is_not_known_is_refused_with_the_nearest(variable: str, near: str) -> None:
    with pytest.raises(UnknownSettingError, match=f"variable={variable}") as refused:
        gather(NODE_SETTINGS, flags={}, environment={variable: "s3cret"}, file=None)
    assert near in refused.value.hint
    assert "s3cret" not in str(refused.value)


def test_a_bad_value_of_a_variable_is_refused_with_its_name() -> None:
    with pytest.raises(BadSettingError, match="variable=TILTH_WAREHOUSE__QUERY_SLOTS"):
        gather(NODE_SETTINGS, flags={}, environment={"TILTH_WAREHOUSE__QUERY_SLOTS": "x"}, file=None)


def test_variables_of_others_are_left_alone() -> None:
    """Kubernetes sets such variables for a service of this name; an empty one is not given."""
    others = (
        "TILTH_URL TILTH_CONFIG TILTH_FAILPOINTS TILTH_TEST_SESSION TILTH_PORT TILTH_SERVICE_HOST TILTH_SERVICE_PORT "
        "TILTH_PORT_7411_TCP TILTH_PORT_7411_TCP_ADDR TILTH_SERVICE_PORT_HTTP TILTH_NODE_SERVICE_HOST TILTH_NODE_PORT"
    ).split()
    environment = dict.fromkeys(others, "tcp://10.0.0.1:7411") | {"TILTH_WAREHOUSE__QUERY_SLOTS": ""}
    assert gather(NODE_SETTINGS, flags={}, environment=environment, file=None).texts == {}


def test_each_setting_has_a_variable_of_its_own() -> None:
    names = [name for setting in NODE_SETTINGS.all for name in (setting.name, *setting.aliases)]
    variables = [variable_of(name) for name in names]
    assert len(set(variables)) == len(names)
    environment = {
        variable_of(setting.name): setting.default_text for setting in NODE_SETTINGS.all if setting.default_text
    }
    found = gather(NODE_SETTINGS, flags={}, environment=environment, file=None)
    assert found.texts == {setting.name: setting.default_text for setting in NODE_SETTINGS.all if setting.default_text}


@pytest.mark.parametrize("conf", ["spark.my.password=hunter2 nonsense", "spark.my.password = hunter2"])
def test_no_error_shows_a_secret(file: Path, conf: str) -> None:
    variable = {"TILTH_WAREHOUSE__SPARK_CONF": conf}
    for text, environment in (
        (f"[warehouse]\nspark-conf = '{conf}'", {}),
        (f"[warehouse]\nspark-conf = ['{conf}']", {}),
        (f"[warehouse]\nspark-conf = '{conf}", {}),
        ("", variable),
    ):
        with pytest.raises((BadSettingError, ConfigFileError)) as refused:
            given(file, text, environment=environment)
        assert "hunter2" not in f"{refused.value} {refused.value.__cause__}"
    shown = repr(given(file, "[warehouse]\nspark-conf = 'spark.my.password=hunter2'"))
    assert "hunter2" not in shown
