"""Batches of messages as columns: an object for each message would cost more than to fetch and decode it.

Covers: values, keys, offsets, times and headers of the messages of one topic partition. Does not cover: fetching them
(kafka/fetch.py), decoding them (messages/decode.py). Always holds: a batch is memory of its own and does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[Any]]
#: Headers of a message, in its order; a name may come again.
Headers = Sequence[tuple[str, bytes | None]]


class Texts:
    """Texts of bytes, some of which may be lacking: a list, or one buffer with a zero byte behind each text.

    Either form is made of the other when it is first needed.
    """

    __slots__ = ("_buffer", "_lacking", "_list", "_offsets")

    def __init__(
        self,
        texts: list[bytes | None] | None = None,
        *,
        buffer: bytes = b"",
        offsets: Numbers | None = None,
        lacking: Numbers | None = None,
    ) -> None:
        """`texts` or `buffer` and `offsets`: beginnings of the texts, and the end of the buffer. `lacking`: `True` for
        each text that is lacking; None: none is.
        """
        assert (texts is None) != (offsets is None)
        self._list, self._buffer, self._offsets, self._lacking = texts, buffer, offsets, lacking

    def __len__(self) -> int:
        return len(self._list) if self._offsets is None else len(self._offsets) - 1  # type: ignore[arg-type]  # one of them is there

    def __getitem__(self, index: int) -> bytes | None:
        if self._list is not None:
            return self._list[index]
        assert self._offsets is not None
        if self._lacking is not None and self._lacking[index]:
            return None
        return self._buffer[self._offsets[index] : self._offsets[index + 1] - 1]

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        return int(self.offsets[-1]) - len(self)

    @property
    def items(self) -> list[bytes | None]:
        """The texts; None: it is lacking."""
        if self._list is None:
            assert self._offsets is not None
            whole = self._buffer
            self._list = [whole[start : end - 1] for start, end in pairwise(self._offsets.tolist())]
            for index in () if self._lacking is None else np.flatnonzero(self._lacking).tolist():
                self._list[index] = None
        return self._list

    @property
    def buffer(self) -> bytes:
        """The texts end to end, a zero byte behind each; one that is lacking is empty."""
        if not self._buffer and self._list:
            self._buffer = b"\0".join([*(text or b"" for text in self._list), b""])
        return self._buffer

    @property
    def offsets(self) -> Numbers:
        """Beginnings of the texts in the buffer, and the end of the buffer."""
        if self._offsets is None:
            assert self._list is not None
            lengths = np.fromiter((len(text or b"") for text in self._list), np.int64, len(self._list))
            self._offsets = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths + 1, out=self._offsets[1:])
        return self._offsets


class MessageBatch:
    """Messages of one topic partition, in the order of their offsets."""

    __slots__ = ("_headers", "_keys", "_times", "offsets", "values")

    def __init__(
        self,
        values: Texts,
        *,
        offsets: Numbers,
        keys: Texts | None = None,
        times: Numbers | None = None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """`times`: milliseconds since 1970 by the producer or the broker, -1 for none; None: no message has one."""
        assert len(values) == len(offsets)
        self.values, self.offsets = values, offsets
        self._keys, self._times, self._headers = keys, times, headers

    def __len__(self) -> int:
        return len(self.values)

    def key(self, index: int) -> bytes | None:
        return None if self._keys is None else self._keys[index]

    def time(self, index: int) -> int:
        return -1 if self._times is None else int(self._times[index])

    @property
    def keys(self) -> Sequence[bytes | None]:
        return [None] * len(self) if self._keys is None else self._keys.items

    @property
    def times(self) -> Numbers:
        return np.full(len(self), -1) if self._times is None else self._times

    @property
    def headers(self) -> Sequence[Headers]:
        return [()] * len(self) if self._headers is None else self._headers

    def select(self, indices: Iterable[int]) -> MessageBatch:
        """Return the messages at these indices."""
        chosen = list(indices)
        return MessageBatch(
            Texts([self.values[index] for index in chosen]),
            offsets=self.offsets[chosen],
            keys=None if self._keys is None else Texts([self._keys[index] for index in chosen]),
            times=None if self._times is None else self._times[chosen],
            headers=None if self._headers is None else [self._headers[index] for index in chosen],
        )
