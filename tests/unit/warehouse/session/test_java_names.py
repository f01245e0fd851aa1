"""Names of the JVM: each is looked up once, but for what may change."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from py4j.protocol import SUCCESS_CLASS, SUCCESS_PACKAGE, Py4JError

from tilth.warehouse.session.java_names import remember_names


class FakeClient:
    """Answers as a JVM with these classes does; it notes the names that it was sent."""

    def __init__(self, *classes: str) -> None:
        self.classes = {*classes}
        self.lost: set[str] = set()
        self.asked: list[str] = []
        self.gateway_property = SimpleNamespace(pool=None)
        self.converters: list[object] = []

    def send_command(self, command: str) -> str:
        name = command.splitlines()[2] if command.startswith("r\nu\n") else command[3:].splitlines()[0]
        self.asked.append(name)
        if name in self.lost:
            return "!xo1"
        return f"{SUCCESS_CLASS}{name}" if name in self.classes else SUCCESS_PACKAGE


# Any of py4j's: it has no types.
def jvm_of(client: FakeClient) -> JVMView:
    gateway = SimpleNamespace(jvm=JVMView(client, jvm_name="default", id="rj"))
    remember_names(gateway)
    return gateway.jvm


def test_a_class_and_its_packages_are_looked_up_once() -> None:
    client = FakeClient("org.apache.Path", "org.apache.Other")
    jvm = jvm_of(client)
    first = jvm.org.apache.Path
    assert isinstance(first, JavaClass)
    assert first._fqn == "org.apache.Path"
    assert jvm.org.apache.Path is first
    assert jvm.org.apache.Other._fqn == "org.apache.Other"
    assert client.asked == ["org", "org.apache", "org.apache.Path", "org.apache.Other"]


def test_a_class_that_comes_later_is_found() -> None:
    client = FakeClient()
    jvm = jvm_of(client)
    assert isinstance(jvm.org.apache.Compiled, JavaPackage)
    assert isinstance(jvm.Imported, JavaPackage)
    client.classes |= {"org.apache.Compiled", "Imported"}
    assert isinstance(jvm.org.apache.Compiled, JavaClass)
    assert isinstance(jvm.Imported, JavaClass)
    # One that was found stays.
    client.classes.clear()
    assert isinstance(jvm.org.apache.Compiled, JavaClass)


def test_a_name_that_fails_is_tried_again() -> None:
    client = FakeClient("org.Path")
    jvm = jvm_of(client)
    client.lost = {"org.Path"}
    with pytest.raises(Py4JError, match=r"org\.Path"):
        _ = jvm.org.Path
    client.lost.clear()
    assert isinstance(jvm.org.Path, JavaClass)


def test_two_jvms_share_nothing() -> None:
    one, other = FakeClient("A"), FakeClient("A")
    assert isinstance(jvm_of(one).A, JavaClass)
    assert isinstance(jvm_of(other).A, JavaClass)
    assert (one.asked, other.asked) == (["A"], ["A"])
