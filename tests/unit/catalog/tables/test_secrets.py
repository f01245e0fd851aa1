"""Secrets beside definitions: one commit with them, through drops; lines of the audit log without them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tests.catalog_world import SCHEMA, World
from tilth.catalog.records.keys import Space, span
from tilth.model.service import AuditEvent
from tilth.model.table import KafkaDef

SECRET = "hunter2-hunter2"


def parted(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    secrets = {name: text for name, text in settings.items() if "password" in name and text != "[HIDDEN]"}
    return {name: "[HIDDEN]" if name in secrets else text for name, text in settings.items()}, secrets


def made(world: World, name: str = "k2", **settings: str) -> KafkaDef:
    shown, secrets = parted(settings)
    new = KafkaDef(uuid="", database="default", name=name, schema=SCHEMA, settings=shown)
    kafka = world.catalog.tables.create(new, secrets=secrets)
    assert isinstance(kafka, KafkaDef)
    return kafka


def spaces_with(world: World, text: str) -> set[str]:
    """The kinds of keys whose values hold the text."""
    with world.kv.view() as view:
        return {space.name for space in Space for _, found in view.scan(*span(space)) if text.encode() in found.value}


def test_a_definition_never_holds_its_secrets() -> None:
    world = World()
    kafka = made(world, password=SECRET, other="o")
    assert kafka.settings == {"password": "[HIDDEN]", "other": "o"}
    assert world.catalog.secrets.of(kafka.uuid).settings == {"password": SECRET}
    assert spaces_with(world, SECRET) == {"SECRET"}


def test_settings_replace_and_reset_them() -> None:
    world = World()
    kafka = made(world, password=SECRET, key_password="k1")
    change = world.catalog.tables.modify_settings
    change(kafka.uuid, {"password": "[HIDDEN]"}, secrets={"password": "new"})
    assert world.catalog.secrets.of(kafka.uuid).settings == {"password": "new", "key_password": "k1"}
    change(kafka.uuid, {"other": "o"})
    assert world.catalog.secrets.of(kafka.uuid).settings == {"password": "new", "key_password": "k1"}
    # The old value of a setting that is no secret any more is removed.
    change(kafka.uuid, {"key_password": "open"})
    assert world.catalog.secrets.of(kafka.uuid).settings == {"password": "new"}
    change(kafka.uuid, {}, ["password"])
    assert world.catalog.secrets.of(kafka.uuid).settings == {}
    assert spaces_with(world, "new") == set()


def test_they_come_back_with_undrop_and_go_when_the_table_is_forgotten() -> None:
    world = World()
    kafka = made(world, password=SECRET)
    world.catalog.tables.drop(kafka.uuid)
    assert spaces_with(world, SECRET) == {"SECRET"}
    assert world.catalog.tables.undrop("default", "k2").uuid == kafka.uuid
    assert world.catalog.secrets.of(kafka.uuid).settings == {"password": SECRET}
    renamed = world.catalog.tables.rename(kafka.uuid, "default", "k3")
    assert world.catalog.secrets.of(renamed.uuid).settings == {"password": SECRET}
    world.catalog.tables.drop(kafka.uuid)
    world.catalog.tables.forget(kafka.uuid)
    assert spaces_with(world, SECRET) == set()


def test_lines_of_the_audit_log_are_rewritten() -> None:
    world = World()
    for number in range(5):
        event = AuditEvent(at_ms=number, verb="v", table="t", statement=f"a {SECRET} {number}", outcome=f"no {SECRET}")
        world.catalog.audit.record(event)

    def changed(event: AuditEvent) -> AuditEvent:
        statement, outcome = (text.replace(SECRET, "[HIDDEN]") for text in (event.statement, event.outcome))
        return replace(event, statement=statement, outcome=outcome)

    assert world.catalog.audit.rewrite(changed, since_ms=0, before_ms=0) == 0
    assert world.catalog.audit.rewrite(changed, since_ms=0, before_ms=5) == 5
    assert [each.statement for each in world.catalog.audit.recent(9)] == [f"a [HIDDEN] {n}" for n in range(4, -1, -1)]
    assert spaces_with(world, SECRET) == set()
    assert world.catalog.audit.rewrite(lambda event: event, since_ms=0, before_ms=5) == 0
