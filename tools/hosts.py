"""Hosts of their own on one machine: network namespaces on a bridge, from and to which packets can be lost.

    with Hosts(2) as hosts:
        hosts.host(0)               address of the first host, and first words of a command that runs on it
        hosts.cut(0); hosts.heal(0)

    with OwnHosts(folder, {"a": [folder / "data"], "b": []}) as hosts:
        hosts.named("a")            the same
        hosts.copy(folder / "key")  a file for all of them

Covers: making and removing hosts, losing all packets of one in both directions or in one; folders that no other host
has. Does not cover: slow links (TcpLink.delay). It needs root, iproute2 and util-linux: `why_no_hosts`.
Always holds: a lost packet is lost without an answer, as in a broken network, and not refused. On a host of `OwnHosts`
nothing can be written but its own folders and its own temporary ones; what is installed on the machine can be read.

Tests: tests/simulation/test_hosts.py.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.own_process import OwnProcess

#: Link-layer address that no interface has: packets to it are lost.
NOBODY = "02:00:00:00:00:99"
COMMAND_SECONDS_MAX = 20.0
POLL_SECONDS = 0.02
ROOT = Path(__file__).resolve().parent.parent
_READY = "ready"
_numbers = itertools.count()

#: Arguments: the host's name, the folder whose other content the host does not see, a file with names of hosts, two
#: folders of what is installed, the host's own folders. What is bound is opened before it is hidden; a binding inherits
#: `ro`, hence the last remount.
_OWN_MOUNTS = r"""
set -euo pipefail
name=$1 hidden=$2
shift 2
hostname "$name"
opened=()
for each in "$@"; do exec {fd}<"$each"; opened+=("$fd"); done
while read -r _ target kind _; do
  case $kind in
    proc|sysfs|devtmpfs|devpts|cgroup*|mqueue|securityfs|debugfs|tracefs|bpf|fusectl|pstore|configfs|hugetlbfs) ;;
    *) mount -o remount,bind,ro "$(printf '%b' "$target")" ;;
  esac
done < <(cat /proc/self/mounts)
for private in /tmp /var/tmp /run /dev/shm; do mount -t tmpfs tmpfs "$private"; done
bind() { mount --no-canonicalize --bind "/proc/self/fd/${opened[$1]}" "$2"; }
bind 0 /etc/hosts
for number in 1 2; do
  installed=${@:number+1:1}
  # It may be below a temporary folder.
  if ! [ -e "$installed" ]; then mkdir -p "$installed"; bind "$number" "$installed"; fi
done
mkdir -p "$hidden"
mount -t tmpfs tmpfs "$hidden"
for number in $(seq 3 $(($# - 1))); do
  own=${@:number+1:1}
  mkdir -p "$own"
  bind "$number" "$own"
  mount -o remount,bind,rw "$own"
done
echo ready
exec sleep infinity
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine on which a process runs."""

    name: str = "this machine"
    address: str = "127.0.0.1"
    #: First words of a command that runs on it.
    begin: tuple[str, ...] = ()


#: The machine itself, by its loopback interface.
HERE = Host()


def why_no_hosts() -> str:
    """Return the reason why this process cannot make network namespaces with private mounts; empty: it can."""
    if os.geteuid() != 0:
        return "it needs root"
    name = f"tjx{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
        _run("unshare", "--mount", "--uts", "mount", "-t", "tmpfs", "tmpfs", "/tmp")
    except FileNotFoundError as error:
        return f"there is no program {error.filename}"
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None)
        return said.decode(errors="replace").strip() if said else str(error)
    return ""


class Hosts:
    """A number of hosts, and the machine itself, at the address `here`."""

    def __init__(self, count: int) -> None:
        self._count = count
        # Names and addresses differ from those of other processes that run now.
        number = next(_numbers) % 10
        self.bridge = f"tj{os.getpid() % 100_000}{number}"
        network = (10 * os.getpid() + number) % 30_000
        self._net = f"10.{128 + network // 250}.{network % 250}"
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

    def host(self, number: int) -> Host:
        space = self._space(number)
        return Host(name=space, address=self._address(number), begin=("nsenter", f"--net=/run/netns/{space}"))

    def cut(self, host: int) -> None:
        """Lose all packets from and to the host."""
        _ip("link", "set", f"{self._space(host)}a", "down")

    def lose_sent(self, host: int) -> None:
        """Lose the packets that the host sends."""
        inside = ("-n", self._space(host))
        _ip(*inside, "neigh", "replace", self.here, "lladdr", NOBODY, "dev", self._inside(host), "nud", "permanent")

    def lose_received(self, host: int) -> None:
        """Lose the packets that are sent to the host."""
        _ip("neigh", "replace", self._address(host), "lladdr", NOBODY, "dev", self.bridge, "nud", "permanent")

    def heal(self, host: int) -> None:
        _ip("link", "set", f"{self._space(host)}a", "up")
        with suppress(subprocess.SubprocessError):
            _ip("-n", self._space(host), "neigh", "del", self.here, "dev", self._inside(host))
        with suppress(subprocess.SubprocessError):
            _ip("neigh", "del", self._address(host), "dev", self.bridge)

    def _make(self) -> None:
        _ip("link", "add", self.bridge, "type", "bridge", "forward_delay", "0")
        _ip("addr", "add", f"{self.here}/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")
        for host in range(self._count):
            space = self._space(host)
            _ip("netns", "add", space)
            _ip("link", "add", f"{space}a", "type", "veth", "peer", "name", f"{space}b")
            _ip("link", "set", f"{space}a", "master", self.bridge, "up")
            _ip("link", "set", f"{space}b", "netns", space)
            _ip("-n", space, "addr", "add", f"{self._address(host)}/24", "dev", f"{space}b")
            _ip("-n", space, "link", "set", f"{space}b", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for host in range(self._count):
            # The kernel removes what is in a namespace later.
            for words in (("link", "del", f"{self._space(host)}a"), ("netns", "del", self._space(host))):
                with suppress(subprocess.SubprocessError):
                    _ip(*words)
        with suppress(subprocess.SubprocessError):
            _ip("link", "del", self.bridge)

    def _address(self, host: int) -> str:
        return f"{self._net}.{host + 1}"

    def _space(self, host: int) -> str:
        return f"{self.bridge}h{host}"

    def _inside(self, host: int) -> str:
        return f"{self._space(host)}b"


class OwnHosts(Hosts):
    """Hosts that have a name, folders and files of their own, and share none that can be written."""

    def __init__(self, folder: Path, owned: Mapping[str, Sequence[Path]]) -> None:
        """`owned`: the hosts by name, each with its folders, which are at the same path on the host and on the machine.
        Nothing else below `folder` is on a host.
        """
        super().__init__(len(owned))
        self._folder, self._owned = folder, owned
        self._anchors = {name: OwnProcess(folder / f"host-{name}.json") for name in owned}
        self._named: dict[str, Host] = {}

    def named(self, name: str) -> Host:
        return self._named[name]

    def number(self, name: str) -> int:
        """Return the number by which it is cut off and joined again."""
        return list(self._owned).index(name)

    def copy(self, file: Path) -> None:
        """Copy a file of the machine to the same path on each host, readable for its owner alone."""
        for host in self._named.values():
            command = [*host.begin, "install", "-D", "-m", "600", "/dev/stdin", str(file)]
            _run(*command, text=file.read_bytes())

    def _make(self) -> None:
        super()._make()
        lines = ["127.0.0.1 localhost", *(f"{self._address(number)} {name}" for number, name in enumerate(self._owned))]
        names = self._folder / "hosts"
        names.write_text("\n".join([*lines, ""]))
        for number, (name, folders) in enumerate(self._owned.items()):
            for each in folders:
                each.mkdir(parents=True, exist_ok=True)
            log = self._folder / f"host-{name}.log"
            log.unlink(missing_ok=True)
            arguments = [name, *map(str, (self._folder, names, ROOT, sys.prefix, *folders))]
            command = [*self.host(number).begin, "unshare", "--mount", "--uts", "bash", "-c", _OWN_MOUNTS, "bash"]
            anchor = self._anchors[name]
            anchor.start([*command, *arguments], log)
            self._wait_ready(anchor, name, log)
            begin = ("nsenter", f"--target={int(anchor.recorded['pid'])}", "--net", "--mount", "--uts", "--wd")
            self._named[name] = Host(name=name, address=self._address(number), begin=begin)

    def _wait_ready(self, anchor: OwnProcess, name: str, log: Path) -> None:
        deadline = time.monotonic() + COMMAND_SECONDS_MAX
        while _READY not in log.read_text().split():
            if anchor.exit_code is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the host {name} cannot be made: {log.read_text().strip()}")
            time.sleep(POLL_SECONDS)

    def _remove(self) -> None:
        # A namespace of mounts ends with its last process.
        for anchor in self._anchors.values():
            anchor.kill()
        super()._remove()


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str, text: bytes = b"") -> None:
    subprocess.run([*words], check=True, capture_output=True, timeout=COMMAND_SECONDS_MAX, input=text)
