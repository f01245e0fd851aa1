"""Brokers of Kafka, as this machine reaches them.

Covers: connections to the given addresses, the answer of a broker, the addresses that brokers announce. Does not cover:
topics and offsets, of which a server reports.

Tests: tests/unit/doctor/test_broken_setups.py.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing

from tilth.base.errors import TilthError
from tilth.doctor.checkup import Checkup, ok
from tilth.model.diagnosis import Diagnosis, Grade

CONNECT_SECONDS_MAX = 3.0
ANSWER_SECONDS_MAX = 5.0
_DEFAULT_PORT = 9092


def check_broker(check: Checkup, addresses: str, seconds_max: float) -> list[Diagnosis]:
    """Connect to brokers, `host:port` with commas between, and to those that they announce."""
    todo = "start the broker, or correct its address; see whether a firewall lets this machine pass"
    found = []
    for address in filter(None, (each.strip() for each in addresses.split(","))):
        why = connect_error(address)
        if why:
            found.append(check.found(Grade.ERROR, f"broker {address} cannot be reached: {why}", todo))
    return found or _ask(check, addresses, min(seconds_max, ANSWER_SECONDS_MAX))


def _ask(check: Checkup, addresses: str, seconds: float) -> list[Diagnosis]:
    from tilth.ingest import BrokerClient, KafkaConfig

    with closing(BrokerClient(KafkaConfig(table="doctor", brokers=addresses))) as client:
        try:
            cluster, announced = client.cluster(seconds)
        except TilthError as error:
            why = error.facts.get("why", error.message)
            sentence = (
                f"{addresses} accepts connections and has not answered as a broker of Kafka in {seconds:g} s: {why}"
            )
            todo = "give the port of a broker without encryption and password; a server checks others for its tables"
            return [check.found(Grade.ERROR, sentence, todo)]
    return _announced(check, cluster, announced) or [
        ok(check.name, f"{addresses} answers: cluster {cluster or 'without an id'} of {len(announced)} brokers")
    ]


def _announced(check: Checkup, cluster: str, announced: Sequence[str]) -> list[Diagnosis]:
    """Return which of the addresses that the brokers announce this machine cannot reach."""
    todo = "set advertised.listeners of the broker to an address that servers and workers reach"
    return [
        check.found(
            Grade.ERROR, f"a broker of cluster {cluster} announces {each}, which cannot be reached: {why}", todo
        )
        for each in announced
        if (why := connect_error(each))
    ]


def connect_error(address: str) -> str:
    """Return why a connection to `host:port` fails; empty: it does not."""
    host, colon, port = address.rpartition(":")
    if not colon:
        host, port = address, str(_DEFAULT_PORT)
    if not (port.isascii() and port.isdecimal()):
        return "it is not written as host:port"
    try:
        socket.create_connection((host.strip("[]"), int(port[:9])), timeout=CONNECT_SECONDS_MAX).close()
    except TimeoutError:
        return f"no answer within {CONNECT_SECONDS_MAX:g} s"
    # UnicodeError: a label of the name is empty or too long.
    except (socket.gaierror, UnicodeError):
        return f"the name {host} is not known"
    except OverflowError:
        return f"there is no port {port}"
    except OSError as error:
        return error.strerror or str(error)
    return ""
