"""Authentication between the processes of a Spark on a cluster: driver, executors, and a standalone cluster's daemons.

    master    the secret                                              who gives it to executors
    spark://  that of the cluster's daemons: the master ignores a     the worker that starts them, in their environment
              driver with another one
    yarn      drawn by Spark for each session                         YARN, with its credentials
    k8s://    drawn by Spark for each session                         Kubernetes, in their environment
    local     none is needed: there are no other processes but        -
              Python's workers, on Unix sockets of this user, and
              this process, whose calls carry the token of py4j

Covers: the properties, the secret of a standalone cluster. Does not cover: other properties of clusters (cluster.py).
Always holds: the secret is in no property that a command line, a page, a log or an error shows; a session on a
cluster without authentication starts only if the settings allow that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilth.base.logs import hide_in_lines
from tilth.base.secret_source import REFERENCE_FORM, read_secret
from tilth.warehouse.errors import SparkStartError
from tilth.warehouse.settings import is_secret_property

if TYPE_CHECKING:
    from tilth.warehouse.settings import WarehouseSettings

#: Pattern of the masters of standalone clusters; its group has the addresses.
STANDALONE = re.compile(r"spark://(.+)")
SECRET_PROPERTY = "spark.authenticate.secret"
_AUTHENTICATE = "spark.authenticate"

#: Properties of sessions with authentication and encryption: tasks carry passwords, and the driver sends its properties
#: to executors. Connections to daemons that do not encrypt use SASL with the same secret.
AUTHENTICATED = {
    _AUTHENTICATE: "true",
    "spark.network.crypto.enabled": "true",
    # The default, counter mode alone, does not detect bits that are flipped in transit.
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
}
REFUSED_HINT = (
    "check that warehouse.cluster-secret names the spark.authenticate.secret of the cluster's master and workers; "
    "where these have spark.network.crypto.enabled, its cipher and authEngineVersion must be those of this process "
    "(warehouse.spark-conf)"
)


def cluster_secret(settings: WarehouseSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the property that holds the secret; nothing where Spark draws one itself or none is used.

    Raises SparkStartError.
    """
    given = dict(settings.spark_conf)
    if given.get(SECRET_PROPERTY):
        hint = f"set warehouse.cluster-secret to {REFERENCE_FORM} instead"
        raise SparkStartError("a secret is named by where it is, not written down", property=SECRET_PROPERTY, hint=hint)
    if STANDALONE.fullmatch(settings.master) is None or not _is_authenticated(given):
        return {}
    if not settings.cluster_secret:
        hint = (
            f"set warehouse.cluster-secret to {REFERENCE_FORM} with the spark.authenticate.secret of its master and "
            "workers (docs/operate/cluster.md); where they have none, everybody who reaches their ports and those of "
            "this process can run code in it: spark.authenticate=false in warehouse.spark-conf accepts that"
        )
        raise SparkStartError("a standalone cluster needs a secret", master=settings.master, hint=hint)
    secret = read_secret(settings.cluster_secret, environment, of="the Spark cluster", error=SparkStartError)
    hide_in_lines([secret])
    return {SECRET_PROPERTY: secret}


def is_refused(settings: WarehouseSettings, reason: str) -> bool:
    """Return whether a start may have failed because the master of a standalone cluster rejects the secret.

    Spark then reports no more than a stopped context, after the master has not answered three times.
    """
    return STANDALONE.fullmatch(settings.master) is not None and "stopped SparkContext" in reason


def split_secrets(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties that the command line of the JVM may show, and those that reach it another way."""
    secret = {name: value for name, value in properties.items() if is_secret_property(name)}
    return {name: value for name, value in properties.items() if name not in secret}, secret


def _is_authenticated(given: Mapping[str, str]) -> bool:
    return given.get(_AUTHENTICATE, "true").strip().lower() != "false"
