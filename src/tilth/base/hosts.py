"""Hosts that a statement may name: which ones an operator's list allows. Pure.

Covers: the list, addresses however they are written, what is refused without a list: link-local addresses and those of
the metadata services of clouds, which give the machine's own credentials to any client. Does not cover: names that
resolve to such addresses (nothing is resolved), what a host then answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from tilth.base.settings import SettingCheck

#: Addresses of metadata services that are not link-local.
_METADATA = frozenset(map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")))
_METADATA_NAMES = ("metadata", "metadata.*", "instance-data", "instance-data.*")
#: NAT64 writes an IPv4 address into the end of an IPv6 one.
_NAT64 = ip_network("64:ff9b::/96")
_NUMBER = re.compile(r"0x(?P<hex>[0-9a-f]{1,16})|(?P<octal>0[0-7]{1,16})|(?P<decimal>[0-9]{1,16})")
_NUMBERS_MAX, _BYTE_MAX = 4, 255
_PATTERN = re.compile(r"[A-Za-z0-9_.*:/\-]+")


def hosts_of(text: str) -> tuple[str, ...]:
    """Parse a list of names with `*`, addresses and networks, with commas between. Raises ValueError."""
    patterns = tuple(item.strip().lower() for item in text.split(",") if item.strip())
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise ValueError(pattern)
        if "/" in pattern:
            ip_network(pattern)
    return patterns


#: Check of a setting with such a list.
HOSTS = SettingCheck(hosts_of, "names with *, addresses and networks, with commas between", separator=",")


def is_host_allowed(host: str, allowed: Sequence[str]) -> bool:
    """Return whether a statement may name the host: a name or an address, without a port.

    `allowed`: patterns as `hosts_of` returns them; empty: all hosts except link-local addresses and
    metadata services.
    """
    name = host.strip().strip("[]").partition("%")[0].rstrip(".").lower()
    address = _address(name)
    if allowed:
        return any(_matches(name, address, pattern) for pattern in allowed)
    if address is None:
        return not any(fnmatchcase(name, pattern) for pattern in _METADATA_NAMES)
    return not (address.is_link_local or address in _METADATA)


def _matches(name: str, address: IPv4Address | IPv6Address | None, pattern: str) -> bool:
    if address is None:
        return "/" not in pattern and fnmatchcase(name, pattern)
    with suppress(ValueError):
        return address in ip_network(pattern)
    return pattern == "*"


def _address(name: str) -> IPv4Address | IPv6Address | None:
    """Return the address that the system parses from the text, as from 0x7f000001 and 127.1; None: a name."""
    with suppress(ValueError):
        found = ip_address(name)
        if isinstance(found, IPv6Address):
            inner = found.ipv4_mapped or found.sixtofour
            if inner is None and found in _NAT64:
                inner = IPv4Address(int(found) & 0xFFFFFFFF)
            return inner or found
        return found
    return _old_address(name)


def _old_address(name: str) -> IPv4Address | None:
    """Return the address of one to four numbers, each decimal, octal or hexadecimal, as inet_aton reads them."""
    numbers = [_NUMBER.fullmatch(part) for part in name.split(".")]
    if not all(numbers) or len(numbers) > _NUMBERS_MAX:
        return None
    *first, last = [
        int(found["hex"], 16) if found["hex"] else int(found["octal"] or found["decimal"], 8 if found["octal"] else 10)
        for found in numbers
        if found is not None
    ]
    if any(number > _BYTE_MAX for number in first) or last >= 256 ** (_NUMBERS_MAX - len(first)):
        return None
    # The last number fills the bytes that the others leave.
    return IPv4Address(int.from_bytes(bytes(first).ljust(_NUMBERS_MAX, b"\0"), "big") + last)
