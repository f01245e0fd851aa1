"""Authentication with a Spark cluster: the secret of a session, and the places where it must not appear."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilth.base.settings import BadSettingError
from tilth.warehouse import SETTINGS, SparkStartError, WarehouseSettings, warehouse_settings
from tilth.warehouse.session.cluster import cluster_conf
from tilth.warehouse.session.cluster_auth import cluster_secret, is_refused, split_secrets
from tilth.warehouse.session.conf import spark_conf

MASTER = "spark://a:7077,b:7077"
SECRET = "s3cret-of-the-cluster"


def settings(master: str = MASTER, *, conf: str = "", secret: str = "env:S") -> WarehouseSettings:
    given = {"warehouse.master": master, "warehouse.spark-conf": conf, "warehouse.cluster-secret": secret}
    return warehouse_settings(given)


def properties(given: WarehouseSettings) -> dict[str, str]:
    package = Path("/run/tilth.zip")
    cluster = cluster_conf(given.master, package=package, python="python", driver_host="h", end_seconds=2.5)
    return spark_conf(given, folder="/d", socket_folder="/s", package_folder="/p", further=cluster)


@pytest.mark.parametrize("master", [MASTER, "yarn", "k8s://https://10.0.0.1:6443"])
def test_a_session_on_a_cluster_hears_only_who_has_its_secret_and_encrypts(master: str) -> None:
    conf = properties(settings(master))
    assert conf["spark.authenticate"] == "true"
    assert conf["spark.network.crypto.enabled"] == "true"
    assert conf["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert SECRET not in str(conf)


@pytest.mark.parametrize("master", ["auto", "local", "local[*]", "local[3]"])
def test_a_local_spark_needs_no_secret(master: str) -> None:
    assert not [
        name for name in properties(settings(master)) if name.startswith(("spark.authenticate", "spark.network"))
    ]
    assert cluster_secret(settings(master), {}) == {}


def test_a_standalone_cluster_gets_the_secret_from_where_the_setting_says(tmp_path: Path) -> None:
    assert cluster_secret(settings(), {"S": f" {SECRET}\n"}) == {"spark.authenticate.secret": SECRET}
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    assert cluster_secret(settings(secret=f"file:{file}"), {}) == {"spark.authenticate.secret": SECRET}
    for given, words in ((settings(), "variable=S"), (settings(secret=f"file:{file}.none"), f"file={file}.none")):
        with pytest.raises(SparkStartError, match=words):
            cluster_secret(given, {"OTHER": SECRET})


@pytest.mark.parametrize("master", ["yarn", "k8s://https://10.0.0.1:6443"])
def test_spark_draws_the_secret_where_it_can(master: str) -> None:
    assert cluster_secret(settings(master, secret=""), {}) == {}


def test_without_authentication_a_session_starts_only_where_somebody_has_said_so() -> None:
    with pytest.raises(SparkStartError, match="needs a secret") as refused:
        cluster_secret(settings(secret=""), {})
    assert "spark.authenticate=false" in refused.value.hint
    accepted = settings(secret="", conf="spark.authenticate=false")
    assert cluster_secret(accepted, {}) == {}
    assert properties(accepted)["spark.authenticate"] == "false"


@pytest.mark.parametrize("master", [MASTER, "yarn", "auto"])
def test_a_secret_that_is_written_down_is_refused(master: str) -> None:
    with pytest.raises(SparkStartError, match="where it is, not written down") as refused:
        cluster_secret(settings(master, conf=f"spark.authenticate.secret={SECRET}"), {})
    assert SECRET not in str(refused.value)
    with pytest.raises(BadSettingError) as bad:
        settings(secret=SECRET)
    assert SECRET not in str(bad.value)


def test_no_property_that_looks_like_a_secret_is_on_the_command_line_of_the_jvm() -> None:
    conf = (
        "spark.ssl.keyPassword=p1 spark.hadoop.fs.s3a.secret.key=p2 spark.hadoop.fs.s3a.access.key=p3 spark.cores.max=4"
    )
    given = settings(conf=conf)
    whole = properties(given) | cluster_secret(given, {"S": SECRET})
    shown, hidden = split_secrets(whole)
    assert shown | hidden == whole
    assert {*hidden.values()} == {"p1", "p2", "p3", SECRET}
    assert shown["spark.cores.max"] == "4"


@pytest.mark.parametrize(
    "name",
    [
        "spark.authenticate.secret",
        "spark.ssl.rpc.keyStorePassword",
        "spark.ssl.rpc.privateKeyPassword",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.box.me.blob.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.hadoop.google.cloud.auth.access.token",
        "spark.kafka.clusters.a.sasl.jaas.config",
    ],
)
def test_what_spark_and_hadoop_call_a_secret_is_shown_nowhere(name: str) -> None:
    given = settings(conf=f"{name}=hidden-value") if name != "spark.authenticate.secret" else settings()
    shown, _ = split_secrets(properties(given) | {name: "hidden-value"})
    assert "hidden-value" not in str(shown)
    assert re.search(properties(given)["spark.redaction.regex"], name)
    setting = SETTINGS.find("warehouse.spark-conf")
    assert "hidden-value" not in setting.shown(f"spark.cores.max=4 {name}=hidden-value")


def test_what_the_jvm_needs_at_its_start_is_on_its_command_line() -> None:
    shown, hidden = split_secrets(properties(settings("auto")))
    assert hidden == {}
    assert {"spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions"} <= shown.keys()


def test_the_setting_shows_the_reference_and_nothing_else() -> None:
    setting = SETTINGS.find("warehouse.cluster-secret")
    assert setting.shown("file:/etc/secret") == "file:/etc/secret"
    assert SECRET not in setting.shown(SECRET)


def test_a_master_that_does_not_take_the_secret_is_told_from_other_failures() -> None:
    stopped = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    assert is_refused(settings(), stopped)
    assert not is_refused(settings(), "no space left on device")
    assert not is_refused(settings("yarn"), stopped)
