"""The broker and the bucket behind links, and the blows on them, for all subjects.

Covers: starting the broker with the topics of the workload, ends and restarts of both services. Does not cover: blows
on links (harm.py), pauses, which subjects choose for themselves.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tools.broker import Broker
from tools.jepsen.harm import Blow
from tools.jepsen.tables import OTHER_TOPIC, TOPIC
from tools.s3server import S3Server
from tools.tcp_link import TcpLink

#: Least and most seconds from the end of a process to its restart.
KILLED_SECONDS = (0.3, 3.0)


def start_broker(folder: Path, link: TcpLink, parts: ExitStack) -> Broker:
    """Return a broker behind the link, with the topics; it ends with `parts`."""
    broker = Broker(folder)
    broker.start(proxy_port=link.port, proxy_host=link.host)
    parts.callback(broker.stop)
    link.connect(broker.proxied_port)
    broker.create_topic(TOPIC, 2)
    broker.create_topic(OTHER_TOPIC, 1)
    return broker


def broker_killed(broker: Broker, link: TcpLink, *, weight: float = 1.0) -> Blow:
    def restart() -> None:
        broker.restart()
        # The broker's listener behind the link has a new port.
        link.connect(broker.proxied_port)

    return Blow(
        name="broker killed",
        target="broker",
        strike=broker.kill,
        mend=restart,
        seconds=KILLED_SECONDS,
        weight=weight,
    )


def bucket_killed(store: S3Server, target: str) -> Blow:
    mend = partial(store.start, store.port)
    return Blow(name="bucket killed", target=target, strike=store.kill, mend=mend, seconds=KILLED_SECONDS)
