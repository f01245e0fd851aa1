"""Settings of librdkafka: what a Kafka table may have, which of it nobody may read, what a refused one does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.catalog_world import World
from tests.unit.ingest.consume_context import consume_context
from tilth.base.errors import TilthError
from tilth.base.settings import BadSettingError, read_settings
from tilth.ingest import KAFKA_SETTINGS, IngestSettings, read_config
from tilth.ingest.consumer.calls import ENCODER, ORDER_DECODER, ConsumeOrder
from tilth.ingest.library import ALLOWED, FILES, SECRETS, shown_pairs
from tilth.ingest.service.definitions import Definitions, check_hosts, check_library, read_definitions
from tilth.ingest.service.service import KafkaService
from tilth.ingest.service.stats import EventLog
from tilth.model.lease import Fence
from tilth.model.table import KafkaDef, Schema, Secrets
from tilth.model.task import Cost, TaskKind, TaskSpec

REQUIRED = {"kafka_broker_list": "h:9092", "kafka_topic_list": "a", "kafka_format": "JSONEachRow"}
LIBRARY = "kafka_extra_librdkafka_config"


def kafka(uuid: str = "k", **settings: str) -> KafkaDef:
    return KafkaDef(uuid=uuid, database="default", name="k", schema=Schema(columns=()), settings=REQUIRED | settings)


def refused(text: str, folder: str = "") -> BadSettingError:
    with pytest.raises(BadSettingError) as caught:
        check_library(read_config(kafka(**{LIBRARY: text})), folder)
    return caught.value


@pytest.mark.parametrize(
    "name",
    [
        "plugin.library.paths",
        "ssl.engine.location",
        "ssl.engine.id",
        "ssl.providers",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.principal",
        "sasl.kerberos.keytab",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.metadata.authentication.type",
        "debug",
        "log_level",
        "log.queue",
        "statistics.interval.ms",
        "error_cb",
        "stats_cb",
        "oauthbearer_token_refresh_cb",
        "opaque",
        "default.topic.config",
        "bootstrap.servers",
        "metadata.broker.list",
        "group.id",
        "group.protocol",
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.partition.eof",
        "isolation.level",
        "check.crcs",
        "test.mock.num.brokers",
        "internal.termination.signal",
        "Plugin.Library.Paths",
        "no.such.setting",
        "",
    ],
)
def test_what_loads_runs_reads_or_decides_is_refused_with_the_reason(name: str) -> None:
    error = refused('{"%s": "/tmp/evil.so"}' % name)  # noqa: UP031  # braces belong to JSON
    assert f"name={name}" in error.message
    assert error.hint or name.endswith("_cb")
    assert "/tmp/evil.so" not in str(error)


def test_tuning_and_security_pass() -> None:
    text = (
        '{"socket.keepalive.enable": true, "fetch.min.bytes": 1, "client.rack": "a", "security.protocol": "SASL_SSL", '
        '"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p", "ssl.ca.pem": "-----BEGIN", '
        '"ssl.ca.location": "probe", "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token"}'
    )
    check_library(read_config(kafka(**{LIBRARY: text})), "")
    assert "https" in str(refused("sasl.oauthbearer.token.endpoint.url=http://169.254.169.254/"))
    assert SECRETS < ALLOWED
    assert FILES < ALLOWED


@pytest.mark.parametrize("name", sorted(FILES))
def test_files_are_below_the_folder_of_the_operator_or_nowhere(name: str, tmp_path: Path) -> None:
    folder, outside = tmp_path / "certificates", tmp_path / "shadow"
    folder.mkdir()
    outside.write_text("secret")
    inside = folder / "ca.pem"
    inside.write_text("x")
    (folder / "link").symlink_to(outside)
    (tmp_path / "certificates-of-others").mkdir()
    assert "ingest.certificates-folder" in refused(f"{name}={inside}").hint
    check_library(read_config(kafka(**{LIBRARY: f"{name}={inside}"})), str(folder))
    check_library(read_config(kafka(**{LIBRARY: f"{name}={folder}"})), f"{folder}/")
    for path in (
        outside,
        folder / "link",
        f"{folder}/../shadow",
        "/etc/passwd",
        "relative.pem",
        f"{folder}-of-others/x",
        os.path.relpath(inside),
        "",
    ):
        assert "not below the folder" in refused(f"{name}={path}", str(folder)).message
    refused('{"%s": "%s/ca.pem\\u0000.txt"}' % (name, folder), str(folder))  # noqa: UP031  # braces belong to JSON


def test_the_folder_is_a_setting_of_the_node() -> None:
    assert (
        read_settings(IngestSettings, {"ingest.certificates-folder": "/etc/tilth"}).certificates_folder == "/etc/tilth"
    )
    with pytest.raises(BadSettingError):
        read_settings(IngestSettings, {"ingest.certificates-folder": "etc"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("linger.ms=5", "linger.ms=5"),
        ('{"fetch.min.bytes": 1}', '{"fetch.min.bytes": 1}'),
        ("sasl.username=u;sasl.password=hunter2", "sasl.username=u;sasl.password=[HIDDEN]"),
        ('{"sasl.password": "hun;ter=2", "a": 1}', '{"sasl.password": "[HIDDEN]", "a": "1"}'),
        ("ssl.key.pem=hunter2", "ssl.key.pem=[HIDDEN]"),
        ("my.secret.thing=hunter2", "my.secret.thing=[HIDDEN]"),
        ("sasl.password=", "sasl.password="),
        ("nonsense hunter2", "[HIDDEN]"),
        ('{"sasl.password": "hunter2"', "[HIDDEN]"),
    ],
)
def test_secrets_in_pairs_are_hidden(text: str, shown: str) -> None:
    assert shown_pairs(text) == shown
    assert shown_pairs(shown) == shown


def test_what_is_shown_and_what_is_secret_make_the_whole() -> None:
    given = {"kafka_sasl_password": "hunter2", LIBRARY: "sasl.username=u;ssl.key.password=s3cret"}
    shown, secrets = KAFKA_SETTINGS.split_secrets(REQUIRED | given)
    assert shown == REQUIRED | {
        "kafka_sasl_password": "[HIDDEN]",
        LIBRARY: "sasl.username=u;ssl.key.password=[HIDDEN]",
    }
    assert secrets == given
    config = read_config(kafka(**shown), secrets)
    assert sorted(config.secrets) == ["hunter2", "s3cret"]
    for told in (repr(config), repr(Secrets(settings=secrets)), str(Secrets(settings=secrets))):
        assert "hunter2" not in told
        assert "s3cret" not in told


def test_the_errors_of_settings_do_not_show_them() -> None:
    with pytest.raises(BadSettingError) as caught:
        read_config(kafka(**{LIBRARY: '{"sasl.password": "hunter2"'}))
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_definition_without_its_secrets_asks_no_broker() -> None:
    """One that was made of a backup of definitions, for instance."""
    with pytest.raises(BadSettingError) as caught:
        check_library(read_config(kafka(kafka_sasl_password="[HIDDEN]")), "")
    assert "sasl.password" in caught.value.message


def test_consumers_get_what_the_definition_hints_at() -> None:
    world = World()
    uuid = world.kafka()
    world.view("v", uuid, world.t)
    settings = REQUIRED | {"kafka_handle_error_mode": "throw", "kafka_sasl_password": "[HIDDEN]"}
    world.catalog.tables.modify_settings(uuid, settings, secrets={"kafka_sasl_password": "hunter2"})

    def seen() -> Definitions:
        return read_definitions(world.clock, world.catalog, world.new_id, uuid)

    first = seen()
    assert dict(first.config.library)["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(first)
    assert seen().fingerprint() == first.fingerprint()
    world.catalog.tables.modify_settings(uuid, settings, secrets={"kafka_sasl_password": "hunter4"})
    assert seen().fingerprint() != first.fingerprint()
    order = ConsumeOrder(
        kafka=first.kafka,
        views=first.views,
        dead_letters=None,
        consumer=0,
        fence=Fence("f", 1),
        positions=(),
        secrets=seen().secrets,
    )
    payload = ENCODER.encode(order)
    arrived = ORDER_DECODER.decode(payload)
    assert dict(read_config(arrived.kafka, arrived.secrets.settings).library)["sasl.password"] == "hunter4"
    spec = TaskSpec(id="t", kind=TaskKind.CONSUME, warehouse="w", table="k", txn=0, estimate=Cost(), payload=payload)
    assert "hunter" not in repr(order) + repr(arrived) + repr(spec)


@pytest.mark.parametrize("pairs", ["plugin.library.paths=/tmp/evil.so", "ssl.ca.location=/etc/ssl/ca.pem"])
def test_a_definition_whose_setting_is_refused_later_waits_with_the_reason(pairs: str) -> None:
    world = World()
    uuid = world.kafka()
    world.catalog.tables.modify_settings(uuid, REQUIRED | {LIBRARY: pairs})
    with pytest.raises(TilthError) as caught:
        read_definitions(world.clock, world.catalog, world.new_id, uuid)
    stored = world.catalog.tables.by_id(uuid)
    assert isinstance(stored, KafkaDef)
    service = KafkaService(consume_context(world), EventLog(events_max=10), stored)
    look = service._poll()
    assert look.is_wanted
    assert look.missing == str(caught.value)
    assert pairs.split("=")[0] in look.missing
    # Code that only reads its settings goes on.
    assert read_config(stored).dead_letter_table == "k_dead_letters"


@pytest.mark.parametrize(
    ("brokers", "library"),
    [
        ("169.254.169.254:80", ""),
        ("kafka:9092, PLAINTEXT://[fe80::1]:9092", ""),
        ("SASL_SSL://0xA9FEA9FE:1", ""),
        ("kafka:9092", "https://metadata.google.internal/token"),
        ("kafka:9092", "https://a@169.254.169.254:443/token"),
        ("kafka:9092", "https://kafka\\@169.254.169.254/token"),
        ("[kafka", ""),
    ],
)
def test_hosts_that_only_the_machine_may_ask_are_refused(brokers: str, library: str) -> None:
    settings = {LIBRARY: f"sasl.oauthbearer.token.endpoint.url={library}"} if library else {}
    config = read_config(kafka(kafka_broker_list=brokers, **settings))
    with pytest.raises(BadSettingError, match="may not name this host"):
        check_hosts(config, ())
    check_hosts(read_config(kafka(kafka_broker_list="kafka:9092,SSL://10.0.0.1:9093,b")), ())
    with pytest.raises(BadSettingError, match="host=kafka"):
        check_hosts(read_config(kafka(kafka_broker_list="a.example.com:1,kafka:9092")), ("*.example.com",))
