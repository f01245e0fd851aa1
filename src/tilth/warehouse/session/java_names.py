"""Names of the JVM's packages and classes, each looked up once.

py4j sends each access to a name to the JVM, which searches all jars for a class before it answers that the name is a
package's: tens of milliseconds of each query. Covers: packages and classes below the view of the JVM. Does not cover:
members of classes, objects.
Always holds: what may change is looked up again, such as a class that is compiled or imported later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway


def remember_names(gateway: JavaGateway) -> None:
    """Make names of the gateway's view of the JVM known after their first use."""
    view = gateway.jvm
    gateway.jvm = _KnownView(view._gateway_client, jvm_name=view._jvm_name, id=view._id)


class _KnownView(JVMView):  # type: ignore[misc]  # py4j has no types
    # Any: py4j has no types.
    def __getattr__(self, name: str) -> Any:
        return _remembered(self, name, super().__getattr__(name))


class _KnownPackage(JavaPackage):  # type: ignore[misc]  # py4j has no types
    # Any: py4j has no types.
    def __getattr__(self, name: str) -> Any:
        return _remembered(self, name, super().__getattr__(name))


# Any: py4j has no types.
def _remembered(owner: Any, name: str, found: Any) -> Any:
    """Keep what was found as the owner's attribute: Python then does without `__getattr__`."""
    if isinstance(found, JavaPackage):
        # py4j answers with a package for what is not there; a name like that of a class may become one.
        if not found._fqn.rpartition(".")[2][:1].islower():
            return found
        found = _KnownPackage(found._fqn, found._gateway_client, jvm_id=found._jvm_id)
    elif not isinstance(found, JavaClass):
        return found
    owner.__dict__[name] = found
    return found
