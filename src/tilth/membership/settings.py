"""Settings of a server among others."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilth.base.settings import SettingCheck, SettingGroup, node_setting, settings_of, within
from tilth.base.units import parse_seconds
from tilth.membership.member import Bounds
from tilth.model.server import SERVERS_BOUND, SERVERS_MAX

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """Settings of the node."""

    name: str = node_setting(
        "server.name",
        "",
        SettingCheck(
            str, "letters, digits, `.`, `_` and `-`, 100 at most", lambda name: not name or bool(_NAME.fullmatch(name))
        ),
        "The server's name among those of its catalog; no two that live have the same. It stays the same over "
        "restarts, so that the server gets its tables back. Empty: the name of the machine.",
    )
    url: str = node_setting(
        "server.url",
        "",
        SettingCheck(str, "http://host:port", lambda url: not url or url.startswith(("http://", "https://"))),
        "Where other servers of the catalog, and clients that they name it to, reach this server. Empty: the address "
        "of `--listen`, with the name of the machine instead of `0.0.0.0` and `::`.",
    )
    gone_seconds: float = node_setting(
        "server.gone-bound",
        3.0,
        within(parse_seconds, 1.0, 600, "1 s to 10 min"),
        "A server without a heartbeat for this long counts as gone, and others host its tables. One whose process has "
        "ended is found sooner. Shorter: its tables move sooner. Longer: a slow network or a "
        "crowded machine moves fewer tables in vain.",
        unit="seconds",
    )
    skew_seconds: float = node_setting(
        "server.clock-bound",
        0.5,
        within(parse_seconds, 0.05, 60, "50 ms to 60 s"),
        "A server whose clock is further from the clock of the catalog's database hosts nothing and commits nothing "
        "until it is right again. The same on all servers. Larger: machines without NTP can serve. Smaller: times of "
        "commits, and `AS OF`, are closer to the truth.",
        unit="seconds",
    )

    servers_max: int = node_setting(
        "server.servers-max",
        SERVERS_MAX,
        within(int, 1, SERVERS_BOUND),
        "Servers of one catalog that may live at once; a server that joins reads its own setting. More: more of them "
        "share the tables; each polls the others and holds connections to the database. Fewer: one that was started "
        "by mistake is refused.",
        unit="servers",
    )

    @property
    def bounds(self) -> Bounds:
        return Bounds(gone_seconds=self.gone_seconds, skew_seconds=self.skew_seconds)


SETTINGS = SettingGroup(settings_of(MembershipSettings))
