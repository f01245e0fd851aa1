"""Answers of tasks in the middle of a plan, beside their rows: as accumulated values of Spark, on its own connection.

Covers: functions over batches of a frame, whose rows go on to other tasks and whose answers go to the driver. Does not
cover: answers of tasks whose rows nobody reads (spark.py), errors of tasks that fail (base/mailbox.py).
Always holds: answers come from tasks that ended well, with their last row; no folder that driver and executors share
is needed; reading what comes back runs no code.

pyspark has one accumulator for all functions of a context, and unpickles what arrives there. So a function here has one
of its own in the JVM, which nobody but `AnswersBeside` reads. A Python worker pickles each value that it sends: what is
sent here is one value of bytes, which a pickle has in it as they are, behind a mark and their length.

Tests: tests/integration/warehouse/test_tasks_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from tilth.base.errors import TilthError
from tilth.base.mailbox import AnswerUnreadableError
from tilth.base.units import MIB
from tilth.model.answer import answers_of, pack

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Upper bound for the answers of a task, which has only facts about files and ranges of offsets.
ANSWER_BYTES_MAX = 256 * MIB
#: The accumulator's name among those of a Python worker.
_NAME = "tilth"
#: Begins the bytes of a task; the length of the others follows, in so many bytes.
_MARK = b"tilth-letters:"
_LENGTH_BYTES = 8

T = TypeVar("T")
#: Gives an answer, or the error instead of it, under the key of what was done.
Send = Callable[[int, object], None]


class OverBatches(Protocol):
    """Function that runs in a Spark task over the batches of its partition; its batches go on to other tasks."""

    def __call__(self, batches: Iterator[pa.RecordBatch], send: Send, /) -> Iterator[pa.RecordBatch]: ...


class AnswersBeside(Generic[T]):
    """The answers of the tasks of one frame."""

    # Any: a handle of the JVM.
    def __init__(self, accumulator: Any, answer: type[T]) -> None:
        self._accumulator = accumulator
        self._answer = answer

    def all(self) -> list[T]:
        """Return the last answer for each key, in the order of the keys. Raises the TilthError of a task, and
        AnswerUnreadableError.
        """
        updates = self._accumulator.value()
        letters = (letter for update in updates for letter in _letters_in(bytes(update)))
        return answers_of(letters, self._answer)


@contextmanager
def mapped_beside(
    frame: DataFrame, function: OverBatches, ddl: str, answer: type[T]
) -> Iterator[tuple[DataFrame, AnswersBeside[T]]]:
    """Yield the frame that the function makes of its batches, in the columns of `ddl`, and the answers that it has sent
    when a job over that frame is over. The function must pickle: it goes to the tasks.

    `answer`: the type of an answer, one that msgspec reads.
    """
    from pyspark.sql import DataFrame as Frame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    # Any, here and below: pyspark ships no types for objects of the JVM.
    context: Any = frame.sparkSession.sparkContext
    accumulator = context._jsc.sc().collectionAccumulator()
    try:
        udf = UserDefinedFunction(
            _InTask(function), returnType=ddl, name="beside", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        )
        udf._judf_placeholder = _with_accumulator(udf._judf, accumulator)
        columns = udf(*(frame[name] for name in frame.columns))
        made = Frame(frame._jdf.mapInArrow(columns._jc, False, None), frame.sparkSession)
        yield made, AnswersBeside(accumulator, answer)
    finally:
        # The JVM may be gone.
        with suppress(Exception):
            context._jvm.org.apache.spark.util.AccumulatorContext.remove(accumulator.id())


# Any: handles of the JVM, of Scala's case classes.
def _with_accumulator(judf: Any, accumulator: Any) -> Any:
    """Return the function with this accumulator instead of that of the context; it is the last field of its code."""
    code = judf.func()
    ours = code.copy(*(code.productElement(index) for index in range(code.productArity() - 1)), accumulator)
    others = (judf.productElement(index) for index in range(2, judf.productArity()))
    return judf.copy(judf.name(), ours, *others)


class _InTask:
    """Runs in Spark's tasks."""

    def __init__(self, function: OverBatches) -> None:
        self._function = function

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark.accumulators import _accumulatorRegistry

        sent = _Sent()
        # The worker empties it before each task, and sends what is there at its end.
        _accumulatorRegistry[_NAME] = sent  # type: ignore[index,assignment]  # a name as good as a number
        yield from self._function(batches, sent.send)


class _Sent:
    """The letters of a task, in the form in which a Python worker reads the values of accumulators."""

    def __init__(self) -> None:
        self._letters: list[tuple[int, bytes]] = []
        self._bytes = 0

    def send(self, key: int, answer: object) -> None:
        packed = pack(answer)
        self._bytes += len(packed)
        if self._bytes > ANSWER_BYTES_MAX:
            packed = pack(
                TilthError("the answer of a task is too large", bytes=self._bytes, bytes_max=ANSWER_BYTES_MAX)
            )
        self._letters.append((key, packed))

    @property
    def _value(self) -> bytes:
        content = msgspec.msgpack.encode(self._letters)
        return _MARK + len(content).to_bytes(_LENGTH_BYTES) + content


def _letters_in(update: bytes) -> list[tuple[int, bytes]]:
    """Return the letters of one task; none: it is another accumulator's value. Raises AnswerUnreadableError."""
    found = update.find(_MARK)
    if found < 0:
        return []
    begin = found + len(_MARK) + _LENGTH_BYTES
    size = int.from_bytes(update[begin - _LENGTH_BYTES : begin])
    try:
        return msgspec.msgpack.decode(update[begin : begin + size], type=list[tuple[int, bytes]])
    # Errors of an answer that is damaged, as model/answer.py has them.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerUnreadableError("what a task has sent cannot be read", reason=error) from None
