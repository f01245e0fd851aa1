"""Allow list of the settings of librdkafka that a Kafka table can have. Pure.

Covers: names, which of them are secrets, which are files and where these may be. Does not cover: values, which
librdkafka checks. Always holds: no allowed setting loads a library, runs a command, reads a file outside of the
operator's folder, or changes which messages are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from tilth.base.secrets import HIDDEN
from tilth.base.settings import BadSettingError

SETTING = "kafka_extra_librdkafka_config"
#: Property with the URL from which librdkafka gets tokens.
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_NEAR_MAX = 3

_TUNING = """
api.version.fallback.ms api.version.request api.version.request.timeout.ms broker.address.family broker.address.ttl
broker.version.fallback client.dns.lookup client.id client.rack connections.max.idle.ms fetch.error.backoff.ms
fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms heartbeat.interval.ms
max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
message.copy.max.bytes message.max.bytes metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy queued.max.messages.kbytes queued.min.messages receive.message.max.bytes
reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms session.timeout.ms
socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms topic.metadata.propagation.max.ms
topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
"""
_SECURITY = """
enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.pem sasl.kerberos.service.name
sasl.mechanism sasl.mechanisms sasl.oauthbearer.client.id sasl.oauthbearer.extensions sasl.oauthbearer.method
sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url sasl.username security.protocol ssl.ca.pem
ssl.certificate.pem ssl.cipher.suites ssl.curves.list ssl.endpoint.identification.algorithm ssl.sigalgs.list
"""
#: Never shown.
SECRETS = frozenset(
    "sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.password ssl.key.password ssl.key.pem "
    "ssl.keystore.password".split()
)
#: Their values are paths.
FILES = frozenset(
    "https.ca.location ssl.ca.location ssl.certificate.location ssl.crl.location ssl.key.location "
    "ssl.keystore.location".split()
)
ALLOWED = frozenset((_TUNING + _SECURITY).split()) | SECRETS | FILES
#: Value of `ssl.ca.location` for the certificates of the system.
_PROBE = "probe"

_DECIDED = "the catalog decides what is read"
_LOGS = "it logs requests with their secrets, or needs a callback"
_SHELL = "librdkafka runs a shell command with it"
_LOADS = "it loads a library into the node"
#: Prefix of the name, the reason for the refusal, what to do instead.
REASONS: tuple[tuple[str, str, str], ...] = (
    ("plugin.", _LOADS, "leave it out"),
    ("ssl.engine", _LOADS, "give certificates and keys as PEM"),
    ("ssl.providers", _LOADS, "ask the operator to configure OpenSSL"),
    ("sasl.kerberos.", _SHELL, "renew the ticket outside of the node"),
    ("sasl.oauthbearer.assertion", "it reads key files of the node", "use sasl.oauthbearer.client.secret"),
    (
        "sasl.oauthbearer.metadata",
        "it uses the cloud account of the node's machine",
        "use sasl.oauthbearer.client.secret",
    ),
    ("bootstrap.servers", "a setting of its own exists", "set kafka_broker_list"),
    ("metadata.broker.list", "a setting of its own exists", "set kafka_broker_list"),
    ("group.", _DECIDED, "set kafka_group_name"),
    ("auto.offset.reset", _DECIDED, "set kafka_auto_offset_reset"),
    ("isolation.level", _DECIDED, "set kafka_isolation_level"),
    ("enable.auto.", _DECIDED, "leave it out"),
    ("auto.commit.", _DECIDED, "leave it out"),
    ("enable.partition.eof", _DECIDED, "leave it out"),
    ("partition.assignment.strategy", _DECIDED, "set kafka_num_consumers"),
    ("check.crcs", "messages must arrive as they were sent", "leave it out"),
    ("debug", _LOGS, "leave it out; system.kafka_log shows what a consumer does"),
    ("log", _LOGS, "leave it out; system.kafka_log shows what a consumer does"),
    ("statistics.", _LOGS, "leave it out; system.kafka_tables has the numbers"),
)


def read_pairs(text: str) -> dict[str, str]:
    """Parse `{"a": 1}` or `a=1;b=2`. Raises ValueError."""
    if text.strip().startswith("{"):
        given = json.loads(text)
        return {
            str(name).strip(): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in given.items()
        }
    pairs = [item.partition("=") for item in text.split(";") if item.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise ValueError(text)
    return {name.strip(): value.strip() for name, _, value in pairs}


def shown_pairs(text: str) -> str:
    """Return the text with its secrets redacted; a text that cannot be parsed is redacted as a whole."""
    try:
        pairs = read_pairs(text)
    except ValueError:
        return HIDDEN
    if not any(is_secret(name) and value for name, value in pairs.items()):
        return text
    shown = {name: HIDDEN if is_secret(name) and value else value for name, value in pairs.items()}
    if text.strip().startswith("{"):
        return json.dumps(shown)
    return ";".join(f"{name}={value}" for name, value in shown.items())


def secrets_in(text: str) -> list[str]:
    """Return the secrets in the text; a text that cannot be parsed is one."""
    try:
        pairs = read_pairs(text)
    except ValueError:
        return [text]
    return [value for name, value in pairs.items() if is_secret(name) and value]


def is_secret(name: str) -> bool:
    """Return whether the setting is a secret; an unknown one is if its name contains a typical word."""
    lowered = name.lower()
    words = ("password", "passphrase", "secret", "token", "private.key", "key.pem", "credential")
    return lowered in SECRETS or (lowered not in ALLOWED and any(word in lowered for word in words))


def check_pairs(pairs: Mapping[str, str], folder: str, real_path: Callable[[str], str]) -> None:
    """Raises BadSettingError for a setting that a Kafka table cannot have.

    `folder`: files must be below it; empty: no files. `real_path` resolves symbolic links.
    """
    for name, value in pairs.items():
        if name in FILES:
            _check_file(name, value, folder, real_path)
        elif name not in ALLOWED:
            raise _refused(name)
        elif name == TOKEN_URL and not value.startswith("https://"):
            raise BadSettingError("the token endpoint must use https", setting=SETTING, name=name)
        elif HIDDEN in value and name in SECRETS:
            hint = "ALTER TABLE .. MODIFY SETTING with the secret itself"
            raise BadSettingError("the secret of this setting is missing", setting=SETTING, name=name, hint=hint)


def _check_file(name: str, value: str, folder: str, real_path: Callable[[str], str]) -> None:
    if value == _PROBE:
        return
    pem = name.replace(".location", ".pem")
    instead = f"write the certificate itself into {pem}, or " if pem in ALLOWED else ""
    if not folder:
        hint = f"{instead}ask the operator to name a folder by the node's setting ingest.certificates-folder"
        raise BadSettingError("files cannot be named by path", setting=SETTING, name=name, hint=hint)
    allowed = real_path(folder).rstrip("/") + "/"
    if not value.startswith("/") or "\0" in value or not f"{real_path(value)}/".startswith(allowed):
        hint = f"{instead}put it below the folder of the node's setting ingest.certificates-folder"
        raise BadSettingError(
            "the file is not below the folder for certificates", setting=SETTING, name=name, hint=hint
        )


def _refused(name: str) -> BadSettingError:
    for beginning, why, instead in REASONS:
        if name.startswith(beginning):
            message = f"this setting of librdkafka is not allowed: {why}"
            return BadSettingError(message, setting=SETTING, name=name, hint=instead)
    if name.endswith("_cb"):
        return BadSettingError(f"this setting of librdkafka is not allowed: {_LOGS}", setting=SETTING, name=name)
    near = get_close_matches(name, ALLOWED, n=_NEAR_MAX)
    meant = f"did you mean {', '.join(near)}? " if near else ""
    hint = f"{meant}docs/reference/settings.md lists those that a Kafka table can have"
    return BadSettingError(
        "a Kafka table cannot have this setting of librdkafka", setting=SETTING, name=name, hint=hint
    )
