"""Messages without a broker, and shorthands for decoding them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilth.ingest import read_config
from tilth.ingest.batch import MessageBatch, Texts
from tilth.ingest.compiled import KernelLoader
from tilth.ingest.messages.decode import Decoded, Decoder
from tilth.ingest.messages.json_blocks import kernel_loader
from tilth.model.table import Column, KafkaDef, Schema
from tilth.model.types import DataType, Kind, Simple

#: Decoders with the compiled kernel from their first message on, and without it.
WITH_KERNEL, WITHOUT_KERNEL = kernel_loader(after_bytes=0), kernel_loader(after_bytes=1 << 62)
#: 2025-01-01T00:00:01.500Z
SENT_MS = 1_735_689_601_500


def batch_of(values: Sequence[bytes | None], *, key: bytes | None = None) -> MessageBatch:
    """Return messages with offsets from 0 on; `key`: that of all of them, instead of one for each."""
    count = len(values)
    return MessageBatch(
        Texts(list(values)),
        offsets=np.arange(count),
        keys=Texts([f"k{number}".encode() if key is None else key for number in range(count)]),
        times=np.full(count, SENT_MS),
        headers=[[("h", b"v"), ("n", None)]] * count,
    )


def kafka_of(columns: Mapping[str, Kind | DataType], *, required: Sequence[str] = (), **settings: str) -> KafkaDef:
    """A Kafka table, of JSON where the settings say nothing else."""
    made = [
        Column(id=i, name=name, type=Simple(kind) if isinstance(kind, Kind) else kind, nullable=name not in required)
        for i, (name, kind) in enumerate(columns.items(), start=1)
    ]
    given = {"kafka_broker_list": "h", "kafka_topic_list": "t", "kafka_format": "JSONEachRow"} | settings
    return KafkaDef(uuid="k", database="db", name="k", schema=Schema(columns=tuple(made)), settings=given)


def decoder(
    columns: Mapping[str, Kind | DataType],
    *,
    wanted: Sequence[str] | None = None,
    required: Sequence[str] = (),
    defaults: Mapping[str, object] | None = None,
    loader: KernelLoader = WITH_KERNEL,
    **settings: str,
) -> Decoder:
    kafka = kafka_of(columns, required=required, **settings)
    names = wanted or list(columns)
    return Decoder(kafka.schema, read_config(kafka), columns=names, defaults=defaults or {}, loader=loader)


def decode(
    columns: Mapping[str, Kind | DataType],
    values: Sequence[bytes | None],
    *,
    wanted: Sequence[str] | None = None,
    required: Sequence[str] = (),
    defaults: Mapping[str, object] | None = None,
    loader: KernelLoader = WITH_KERNEL,
    **settings: str,
) -> Decoded:
    made = decoder(columns, wanted=wanted, required=required, defaults=defaults, loader=loader, **settings)
    return made.decode("topic", 3, batch_of(values))
