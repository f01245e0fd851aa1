"""Hosts of their own on one machine: network namespaces on a bridge, from and to which packets can be lost.

    with Hosts(2) as hosts:
        hosts.address(0)            address of the first host
        hosts.command(0)            first words of a command that runs on it
        hosts.cut(0); hosts.heal(0)

Covers: making and removing hosts, losing all packets of one in both directions or in one. Does not cover: slow links
(TcpLink.delay). It needs root and iproute2: `can_make_hosts`.
Always holds: a lost packet is lost without an answer, as in a broken network, and not refused.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from tools.jepsen.harm import Blow

#: Link-layer address that no interface has: packets to it are lost.
NOBODY = "02:00:00:00:00:99"
COMMAND_SECONDS_MAX = 20.0
_numbers = itertools.count()


def can_make_hosts() -> bool:
    """Return whether this process may make network namespaces."""
    if os.geteuid() != 0:
        return False
    name = f"tjx{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


class Hosts:
    """A number of hosts, and the machine itself, at the address `here`."""

    def __init__(self, count: int) -> None:
        self._count = count
        # Names and addresses are different in runs at the same time.
        self._name = f"tj{os.getpid() % 100_000}{next(_numbers) % 10}"
        self._net = f"10.{128 + os.getpid() % 120}.{next(_numbers) % 250}"
        self.here = f"{self._net}.254"

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._remove()

    def address(self, host: int) -> str:
        return f"{self._net}.{host + 1}"

    def command(self, host: int) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self._space(host)}"]

    def cut(self, host: int) -> None:
        """Lose all packets from and to the host."""
        _ip("link", "set", f"{self._space(host)}a", "down")

    def lose_sent(self, host: int) -> None:
        """Lose the packets that the host sends."""
        inside = ("-n", self._space(host))
        _ip(*inside, "neigh", "replace", self.here, "lladdr", NOBODY, "dev", self._inside(host), "nud", "permanent")

    def lose_received(self, host: int) -> None:
        """Lose the packets that are sent to the host."""
        _ip("neigh", "replace", self.address(host), "lladdr", NOBODY, "dev", self._name, "nud", "permanent")

    def heal(self, host: int) -> None:
        _ip("link", "set", f"{self._space(host)}a", "up")
        with suppress(subprocess.SubprocessError):
            _ip("-n", self._space(host), "neigh", "del", self.here, "dev", self._inside(host))
        with suppress(subprocess.SubprocessError):
            _ip("neigh", "del", self.address(host), "dev", self._name)

    def blows(self, host: int, name: str) -> list[Blow]:
        target, heal = f"host of {name}", partial(self.heal, host)
        return [
            Blow(name=f"{target} cut off", target=target, strike=partial(self.cut, host), mend=heal, may_last=True),
            Blow(name=f"{target} cannot send", target=target, strike=partial(self.lose_sent, host), mend=heal),
            Blow(name=f"{target} cannot receive", target=target, strike=partial(self.lose_received, host), mend=heal),
        ]

    def _make(self) -> None:
        _ip("link", "add", self._name, "type", "bridge", "forward_delay", "0")
        _ip("addr", "add", f"{self.here}/24", "dev", self._name)
        _ip("link", "set", self._name, "up")
        for host in range(self._count):
            space = self._space(host)
            _ip("netns", "add", space)
            _ip("link", "add", f"{space}a", "type", "veth", "peer", "name", f"{space}b")
            _ip("link", "set", f"{space}a", "master", self._name, "up")
            _ip("link", "set", f"{space}b", "netns", space)
            _ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", f"{space}b")
            _ip("-n", space, "link", "set", f"{space}b", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for host in range(self._count):
            with suppress(subprocess.SubprocessError):
                _ip("netns", "del", self._space(host))
        with suppress(subprocess.SubprocessError):
            _ip("link", "del", self._name)

    def _space(self, host: int) -> str:
        return f"{self._name}h{host}"

    def _inside(self, host: int) -> str:
        return f"{self._space(host)}b"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=COMMAND_SECONDS_MAX)
