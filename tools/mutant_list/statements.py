"""Mutants of statements on their way: HTTP, queues, batches of INSERTs, answers."""

from __future__ import annotations

from tools.mutant_list.mutant import Mutant

STATEMENTS: tuple[Mutant, ...] = (
    Mutant(
        name="sent-again-and-again",
        breaks="a query that ends Spark is sent again each time, and ends the queries of others with it",
        path="src/tilth/control/resends.py",
        old="                if statement.sent_again:\n                    raise error\n",
        new="",
        tests=(
            "tests/unit/control/test_resends.py::test_a_query_that_was_sent_again_is_not_sent_a_third_time_as_a_stream",
        ),
    ),
    Mutant(
        name="sent-again-though-cancelled",
        breaks="a query whose cancelled work was the reason to kill Spark is sent there again",
        path="src/tilth/control/resends.py",
        old="            statement.origin.cancellation.raise_if_cancelled()\n",
        new="            pass\n",
        tests=("tests/unit/control/test_resends.py::test_a_query_that_was_cancelled_is_not_sent_again",),
    ),
    Mutant(
        name="slot-released-twice",
        breaks="the late end of a lost task takes the slot of the query that was sent again",
        path="src/tilth/statements/rows/select.py",
        old="            if not self._is_released:\n",
        new="            if True:\n",
        tests=("tests/unit/control/test_resends.py::test_the_late_end_of_the_lost_task_leaves_the_new_slot",),
    ),
    Mutant(
        name="answers-unpacked-unmeasured",
        breaks="a few kilobytes of another process become any number when they are unpacked",
        path="src/tilth/query/language/unpacked.py",
        old="        if size > bytes_max:\n            raise error(size)\n",
        new="        pass\n",
        tests=(
            "tests/unit/query/results/test_spark.py::test_a_result_that_is_larger_than_allowed_is_not_unpacked",
            "tests/unit/membership/test_peers.py"
            "::test_rows_of_another_server_are_unpacked_up_to_the_limit_of_the_statement",
        ),
    ),
    Mutant(
        name="calls-act-twice",
        breaks="a call between processes that is sent again for its answer was lost acts again",
        path="src/tilth/server/calls.py",
        old='return calls.answers.once(f"{name} {caller} {call_id}", lambda: act(caller, body))',
        new="return act(caller, body)",
        tests=("tests/unit/warehouse/remote/test_channel.py::test_a_call_is_sent_again_under_its_id_and_acts_once",),
    ),
    Mutant(
        name="bound-of-one-buffer",
        breaks="rows whose columns are the same bytes of a stream count once against max_insert_bytes",
        path="src/tilth/query/language/unpacked.py",
        old="    return int(max(3 * table.num_columns * size, table.num_rows))",
        new="    return int(max(size, table.num_rows))",
        tests=("tests/unit/statements/inserts/test_arrow_streams.py::test_columns_that_are_the_same_bytes_count_each",),
    ),
    Mutant(
        name="head-without-bound",
        breaks="a client fills the server's memory by a head that does not end",
        path="src/tilth/server/protocol.py",
        old="        if self._unfinished > HEAD_BYTES_MAX and",
        new="        if False and",
        tests=("tests/acceptance/test_http_protocol.py::test_what_does_not_end_is_cut_off",),
    ),
    Mutant(
        name="trailer-becomes-header",
        breaks="a trailer becomes a header of its request after the request was judged",
        path="src/tilth/server/protocol.py",
        old="        if not self._is_head_over:\n            super().on_header(name, value)\n",
        new="        super().on_header(name, value)\n",
        tests=("tests/acceptance/test_http_protocol.py::test_a_trailer_is_no_header_of_its_request",),
    ),
    Mutant(
        name="short-job-holds-up-others",
        breaks="an INSERT that waits holds up all small INSERTs behind it",
        path="src/tilth/base/threads.py",
        old="            if not is_late or self._is_starting:\n",
        new="            if True:\n",
        tests=("tests/unit/server/test_threads.py::test_short_calls_that_wait_for_each_other_all_end",),
    ),
    Mutant(
        name="cancelled-insert-is-stored",
        breaks="an INSERT that was cancelled before its batch is stored all the same",
        path="src/tilth/control/insert_batches.py",
        old="                self._tables[table].waiting.remove(ticket.insert)\n"
        "                del self._tickets[ticket.insert.id]\n",
        new="                pass\n",
        tests=(
            "tests/unit/control/test_insert_batches.py::"
            "test_an_insert_that_is_cancelled_before_its_batch_is_at_work_is_not_stored",
        ),
    ),
    Mutant(
        name="insert-alone-in-turn",
        breaks="an INSERT that shares no commit holds up all small INSERTs behind it until it is stored",
        path="src/tilth/statements/inserts/insert.py",
        old="        if on_complete is None:\n            return store_alone()\n",
        new="        if True:\n            return store_alone()\n",
        tests=(
            "tests/unit/statements/test_async_inserts.py::"
            "test_inserts_that_share_no_commit_are_stored_at_once_and_hold_up_nobody",
        ),
    ),
)
