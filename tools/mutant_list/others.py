"""Mutants of the other rooms: ingest, warehouse and what they stand on."""

from __future__ import annotations

from tools.mutant_list.mutant import Mutant

OTHERS: tuple[Mutant, ...] = (
    Mutant(
        name="records-under-another-name",
        breaks="records of parts that a release has written are read no more",
        path="src/tilth/model/part.py",
        old='class Part(msgspec.Struct, frozen=True, kw_only=True, tag="p"):',
        new='class Part(msgspec.Struct, frozen=True, kw_only=True, tag="part"):',
        tests=("tests/unit/recovery/test_released_data.py::test_rows_and_definitions_are_those_of_the_release",),
    ),
    Mutant(
        name="aborted-work-is-rebuilt",
        breaks="a catalog made of files takes rows of transactions that were aborted",
        path="src/tilth/recovery/txn_notes.py",
        old="        if txn in self._aborted:\n            return TxnVerdict.ABORTED\n",
        new="",
        tests=("tests/unit/recovery/test_files_alone.py::test_rows_of_failed_work_are_not_taken_however_old_they_are",),
    ),
    Mutant(
        name="long-work-is-rebuilt",
        breaks="a catalog made of files takes rows of a long INSERT that ran when its server was lost",
        path="src/tilth/recovery/txn_notes.py",
        old="        if last is not None and settled_before <= last.as_of and txn in last.running:\n"
        "            return TxnVerdict.UNKNOWN\n",
        new="",
        tests=(
            "tests/unit/recovery/test_files_alone.py::test_long_work_that_ran_at_the_end_is_not_taken_for_committed",
        ),
    ),
    Mutant(
        name="attempt-with-most-files",
        breaks="a catalog made of files takes the attempt with more files instead of the one that others read",
        path="src/tilth/recovery/attach.py",
        old="    return most | {(by.txn, by.task): by.attempt for by in shown}\n",
        new="    return most\n",
        tests=(
            "tests/unit/recovery/test_files_alone.py"
            "::test_the_attempt_of_which_others_read_files_is_the_one_that_was_committed",
        ),
    ),
    Mutant(
        name="own-deletes-show-a-commit",
        breaks="a catalog made of files takes uncommitted rows because their own work has deleted some of them",
        path="src/tilth/recovery/attach.py",
        old="if txn_of(target) != txn_of(name)\n",
        new="\n",
        tests=("tests/unit/recovery/test_files_alone.py::test_rows_that_work_deletes_of_its_own_files_show_no_commit",),
    ),
    Mutant(
        name="repair-of-what-landed",
        breaks="SYSTEM CHECK FILES REPAIR removes what a commit has named since the catalog was read",
        path="src/tilth/verify/stored.py",
        old="                if owner < 0 and self._may_go(each.row.txn, name):\n",
        new="                if self._may_go(each.row.txn, name):\n",
        tests=(
            "tests/unit/statements/operate/test_check_files.py::test_what_the_catalog_names_when_it_comes_to_removing_stays",
        ),
    ),
    Mutant(
        name="landing-taken-for-an-orphan",
        breaks="SYSTEM CHECK FILES takes a file for an orphan whose transaction is committed while the store is listed",
        path="src/tilth/verify/stored.py",
        old="    if finished is not None and finished.commit_ts > settled_ts:",
        new="    if finished is not None and finished.commit_ts > began_ts + (1 << 62):",
        tests=(
            "tests/unit/statements/operate/test_check_files.py::test_a_file_that_lands_while_the_store_is_listed_is_no_orphan",
        ),
    ),
    Mutant(
        name="repair-of-a-young-transaction",
        breaks="REPAIR removes a file by its own time alone, which is that of another clock",
        path="src/tilth/verify/stored.py",
        old="        newest_ms = max(row.modified_ms, milliseconds(row.txn))\n",
        new="        newest_ms = row.modified_ms\n",
        tests=(
            "tests/unit/statements/operate/test_check_files.py::"
            "test_repair_removes_old_orphans_of_transactions_that_can_never_commit_and_nothing_else",
        ),
    ),
    Mutant(
        name="rows-of-two-sendings",
        breaks="rows of a query that was sent again follow columns of the first sending that were other ones",
        path="src/tilth/query/results/stream.py",
        old="            is_refused = is_other or self._is_closed\n",
        new="            is_refused = self._is_closed\n",
        tests=("tests/unit/control/test_resends.py::test_a_stream_with_other_columns_does_not_take_its_place",),
    ),
    Mutant(
        name="compressed-answers",
        breaks="the body of an answer is unpacked by the client of HTTP, without a limit",
        path="src/tilth/warehouse/remote/channel.py",
        old="    if encoding := _encoding(answer):\n",
        new="    if encoding := '':\n",
        tests=("tests/unit/membership/test_peers.py::test_a_compressed_answer_names_the_server_and_what_to_do",),
    ),
    Mutant(
        name="late-begin",
        breaks="a consumer that was replaced begins, and its successor's round ends",
        path="src/tilth/ingest/service/consumers.py",
        old="        current = self._current(call.consumer, call.fence)",
        new="        current = self._of(call.consumer)",
        tests=(
            "tests/unit/ingest/service/test_consumers.py::test_a_late_begin_leaves_the_round_of_its_successor_alone",
        ),
    ),
    Mutant(
        name="late-commit",
        breaks="a consumer that was replaced is let through to the catalog",
        path="src/tilth/ingest/service/consumers.py",
        old="        known = self._current(call.consumer, call.fence)\n        txn",
        new="        known = self._of(call.consumer)\n        txn",
        tests=(
            "tests/unit/ingest/service/test_consumers.py::test_a_late_commit_is_refused_before_anybody_hears_of_it",
        ),
    ),
    Mutant(
        name="late-look",
        breaks="a consumer that was replaced looks for rows",
        path="src/tilth/ingest/service/consumers.py",
        old="        known = self._current(call.consumer, call.fence)\n        if known.txn is",
        new="        known = self._of(call.consumer)\n        if known.txn is",
        tests=("tests/unit/ingest/service/test_consumers.py::test_late_questions_and_news_are_refused_too",),
    ),
    Mutant(
        name="late-news",
        breaks="a consumer that was replaced says how far topics reach",
        path="src/tilth/ingest/service/consumers.py",
        old="        known = self._current(call.consumer, call.fence)\n        with self._lock:\n            ends",
        new="        known = self._of(call.consumer)\n        with self._lock:\n            ends",
        tests=("tests/unit/ingest/service/test_consumers.py::test_late_questions_and_news_are_refused_too",),
    ),
    Mutant(
        name="rounds-without-a-fence",
        breaks="rounds begin and commit without their consumer's epoch",
        path="src/tilth/ingest/service/consumers.py",
        old="            fences=[call.fence],\n",
        new="",
        tests=(
            "tests/unit/ingest/service/test_consumers.py::test_no_round_begins_under_an_epoch_that_is_over",
            "tests/unit/ingest/service/test_consumers.py::test_no_round_commits_under_an_epoch_that_is_over",
        ),
    ),
    Mutant(
        name="round-of-a-replaced-consumer",
        breaks="the round of a replaced consumer stays open",
        path="src/tilth/ingest/service/consumers.py",
        old='        self.settle(index, "its consumer was replaced")\n',
        new="",
        tests=(
            "tests/unit/ingest/service/test_consumers.py::test_the_round_of_a_replaced_consumer_is_settled_at_once",
        ),
    ),
    Mutant(
        name="round-begun-again",
        breaks="a round that is begun again leaves the one before open",
        path="src/tilth/ingest/service/consumers.py",
        old='        self.settle(call.consumer, "its round is done again in another way")\n',
        new="",
        tests=("tests/unit/ingest/service/test_consumers.py::test_a_round_that_is_begun_again_settles_the_one_before",),
    ),
    Mutant(
        name="round-begun-while-replaced",
        breaks="a round stays open whose consumer is replaced while it begins",
        path="src/tilth/ingest/service/consumers.py",
        old='            txn.settle("its consumer was replaced")\n',
        new="",
        tests=(
            "tests/unit/ingest/service/test_consumers.py::test_a_round_whose_consumer_is_replaced_while_it_begins_is_settled",
        ),
    ),
    Mutant(
        name="attempt-forgotten",
        breaks="an error of one attempt of a task is forgotten when another attempt answers",
        path="src/tilth/model/answer.py",
        old="for key, packed in letters}",
        new="for key, packed in dict(letters).items()}",
        tests=("tests/unit/model/test_answer.py::test_an_error_of_any_answer_is_not_forgotten",),
    ),
    Mutant(
        name="answer-of-another-type",
        breaks="the driver takes whatever a task, or somebody in its place, has sent",
        path="src/tilth/model/answer.py",
        old="_Value[answer] | _Error",
        new="_Value[Any] | _Error",
        tests=("tests/unit/model/test_answer.py::test_hostile_bytes_are_an_error_of_their_task",),
    ),
    Mutant(
        name="letters-with-any-mark",
        breaks="a value of a row makes the driver raise an error of a file that no task has raised",
        path="src/tilth/base/mailbox.py",
        old="mark=re.escape(self.mark), letter",
        new='mark=".*?", letter',
        tests=("tests/unit/base/test_mailbox.py::test_a_value_of_a_row_that_looks_like_a_letter_is_none",),
    ),
    Mutant(
        name="letters-cut-off-read",
        breaks="what an executor sends beside its rows is read beyond its end",
        path="src/tilth/warehouse/session/beside_spark.py",
        old="update[begin : begin + size], type",
        new="update[begin:], type",
        tests=("tests/unit/warehouse/session/test_beside_spark.py::test_answers_of_any_size_come_back",),
    ),
    Mutant(
        name="strangers-heard",
        breaks="everybody who reaches a port of a Spark on a cluster runs code there",
        path="src/tilth/warehouse/session/cluster.py",
        old="return AUTHENTICATED | {",
        new="return {",
        tests=(
            "tests/unit/warehouse/session/test_cluster_auth.py"
            "::test_a_session_on_a_cluster_hears_only_who_has_its_secret_and_encrypts",
        ),
    ),
    Mutant(
        name="no-secret-no-error",
        breaks="a session on a cluster without authentication starts although nobody has said so",
        path="src/tilth/warehouse/session/cluster_auth.py",
        old="    if not settings.cluster_secret:\n",
        new="    if not settings.cluster_secret:\n        return {}\n    if False:\n",
        tests=(
            "tests/unit/warehouse/session/test_cluster_auth.py"
            "::test_without_authentication_a_session_starts_only_where_somebody_has_said_so",
        ),
    ),
    Mutant(
        name="secret-on-the-command-line",
        breaks="the list of processes shows secrets among the properties of Spark",
        path="src/tilth/warehouse/session/cluster_auth.py",
        old="if is_secret_property(name)}",
        new="if name == SECRET_PROPERTY}",
        tests=(
            "tests/unit/warehouse/session/test_cluster_auth.py"
            "::test_no_property_that_looks_like_a_secret_is_on_the_command_line_of_the_jvm",
        ),
    ),
    Mutant(
        name="failed-client-retained",
        breaks="a client of brokers that lost them all is used again",
        path="src/tilth/ingest/service/service.py",
        old="            self._close_broker()\n            self._reporter.record_failure(error)\n",
        new="            self._reporter.record_failure(error)\n",
        tests=("tests/unit/ingest/service/test_service.py::test_a_client_that_failed_is_replaced_at_the_next_poll",),
    ),
    Mutant(
        name="client-in-doubt-stays-open",
        breaks="a consumer's client whose last round failed or was cancelled reads the next one",
        path="src/tilth/ingest/kafka/open_client.py",
        old="        if not has_read_all or not _open",
        new="        if not _open",
        tests=(
            "tests/unit/ingest/kafka/test_open_client.py::test_a_client_whose_round_was_not_read_to_its_end_is_in_doubt",
            "tests/unit/ingest/kafka/test_open_client.py::test_a_cancelled_round_ends_between_two_polls",
        ),
    ),
    Mutant(
        name="open-client-fetches-on",
        breaks="the client of a consumer holds its topic partitions, and requests messages, while no round runs",
        path="src/tilth/ingest/kafka/open_client.py",
        old="            consumer.assign([])\n",
        new="            pass\n",
        tests=(
            "tests/unit/ingest/kafka/test_open_client.py"
            "::test_rounds_in_turn_have_one_client_that_has_no_partitions_between_them",
        ),
    ),
    Mutant(
        name="large-round-here-and-there",
        breaks="a round is given up to Spark after it has written a file under the name that Spark's task will use",
        path="src/tilth/ingest/rounds/inline.py",
        old=" and may_end():",
        new=":",
        tests=("tests/integration/ingest/test_small_rounds.py::test_a_round_that_has_written_a_file_stays_here",),
    ),
    Mutant(
        name="answers-of-cut-off-rows",
        breaks="a task whose rows broke off answers as if they had ended there",
        path="src/tilth/warehouse/session/spark.py",
        old="        if not is_ours():\n",
        new="        if False:\n",
        tests=("tests/unit/warehouse/session/test_spark.py::test_what_fails_before_the_function_is_for_spark_to_tell",),
    ),
    Mutant(
        name="round-of-nobody",
        breaks="a round that a replaced consumer began counts as its successor's",
        path="src/tilth/ingest/service/consumers.py",
        old="            is_current = known.fence == call.fence\n",
        new="            is_current = True\n",
        tests=(
            "tests/unit/ingest/service/test_consumers.py::test_a_round_whose_consumer_is_replaced_while_it_begins_is_settled",
        ),
    ),
    Mutant(
        name="folder-of-a-node",
        breaks="the folders of a new node are not waited for",
        path="src/tilth/begin.py",
        old="                sync_local_folder(str(each))\n",
        new="                pass\n",
        tests=("tests/integration/test_durable_commits.py::test_a_node_waits_for_the_names_of_its_folders",),
    ),
    Mutant(
        name="calls-of-the-gone",
        breaks="what runners of a worker that is gone ask is answered",
        path="src/tilth/warehouse/remote/workers.py",
        old="            self._of(caller)\n            return act(caller, body)",
        new="            return act(caller, body)",
        tests=(
            "tests/unit/warehouse/remote/test_workers.py::"
            "test_who_is_silent_is_gone_and_nothing_of_what_it_says_counts",
        ),
    ),
    Mutant(
        name="two-workers-of-one-name",
        breaks="two workers of one name that register at once are both taken",
        path="src/tilth/warehouse/remote/workers.py",
        old="            self._check(registration)\n            if registration.instance",
        new="            if registration.instance",
        tests=(
            "tests/unit/warehouse/remote/test_workers.py::"
            "test_of_two_workers_of_one_name_that_register_at_once_one_is_taken",
        ),
    ),
    Mutant(
        name="successor-of-a-lost-worker",
        breaks="the loss of a worker takes its successor",
        path="src/tilth/warehouse/remote/workers.py",
        old="                if not is_replaced:\n",
        new="                if True:\n",
        tests=(
            "tests/unit/warehouse/remote/test_workers.py::"
            "test_the_loss_of_a_worker_that_was_replaced_meanwhile_leaves_its_successor",
        ),
    ),
    Mutant(
        name="unsettled-tasks",
        breaks="a task whose arrival is unknown counts as lost, and is given to another worker",
        path="src/tilth/warehouse/remote/workers.py",
        old="return set(known) | self._unsettled",
        new="return set(known)",
        tests=(
            "tests/unit/warehouse/remote/test_workers.py::"
            "test_a_task_whose_arrival_is_unknown_counts_as_being_there_until_it_is_known",
        ),
    ),
    Mutant(
        name="rows-since-a-round-looked",
        breaks="a round commits although rows came since it looked for older ones",
        path="src/tilth/ingest/service/consumers.py",
        old="requirements.append(NoRowsSince(table=scope.table, ts=change.ts, partitions=scope.partitions))",
        new="pass",
        tests=(
            "tests/unit/ingest/test_round_commits.py::"
            "test_rows_that_came_since_a_round_looked_for_older_ones_refuse_its_commit",
        ),
    ),
    Mutant(
        name="running-consumers-released",
        breaks="a server that hosts a table no more releases consumers that still run",
        path="src/tilth/ingest/service/consumers.py",
        old=" if known.handle is None and known.fence is not None]",
        new=" if known.fence is not None]",
        tests=("tests/unit/ingest/test_round_commits.py::test_a_consumer_that_runs_is_not_released",),
    ),
    Mutant(
        name="offsets-without-epochs",
        breaks="a round's offsets are stored without topic and leader epoch",
        path="src/tilth/ingest/service/consumers.py",
        old="msgspec.structs.replace(known[TopicPartition(each.topic, each.partition)], "
        "start=each.start, end=each.end)",
        new="OffsetRange(topic=each.topic, partition=each.partition, start=each.start, end=each.end)",
        tests=(
            "tests/unit/ingest/test_round_commits.py::"
            "test_the_stored_offset_has_the_topic_and_the_leader_epoch_that_the_round_ended_in",
        ),
    ),
    Mutant(
        name="changes-without-what-was-seen",
        breaks="a round says nothing of the changes that it knew",
        path="src/tilth/ingest/service/consumers.py",
        old="written=delta, seen=change.seen)",
        new="written=delta)",
        tests=(
            "tests/unit/ingest/test_round_commits.py::"
            "test_rows_of_a_part_that_changed_before_a_round_looked_can_be_replaced",
        ),
    ),
    Mutant(
        name="altered-between-names-and-files",
        breaks="a query reads files by the columns that the table had before an ALTER",
        path="src/tilth/query/snapshots/snapshots.py",
        old="            check_same_columns(found.table, snapshots[key].table)\n",
        new="            pass\n",
        tests=(
            "tests/unit/query/snapshots/test_snapshots.py::"
            "test_a_query_whose_columns_were_altered_before_its_files_were_found_is_refused",
        ),
    ),
    Mutant(
        name="refused-table-functions",
        breaks="a table function that is refused is called unknown",
        path="src/tilth/warehouse/allowed/allow_list.py",
        old="in_from, allowed.refused_table_functions)",
        new="in_from, {})",
        tests=(
            "tests/unit/warehouse/allowed/test_logical_plans.py::"
            "test_a_table_function_is_refused_with_what_to_do_instead_and_an_unknown_one_too",
        ),
    ),
    Mutant(
        name="any-table-function",
        breaks="any table function is allowed",
        path="src/tilth/warehouse/allowed/allow_list.py",
        old='return _checked_function(node.text("name"), in_from, allowed.refused_table_functions)',
        new="return None",
        tests=(
            "tests/unit/warehouse/allowed/test_logical_plans.py::"
            "test_a_table_function_is_refused_with_what_to_do_instead_and_an_unknown_one_too",
        ),
    ),
    Mutant(
        name="any-hint",
        breaks="any hint is allowed",
        path="src/tilth/warehouse/allowed/allow_list.py",
        old='if kind == "UnresolvedHint" and node.text("name")[0].lower() not in allowed.hints:',
        new='if kind == "UnresolvedHint" and not node.text("name"):',
        tests=("tests/unit/warehouse/allowed/test_logical_plans.py::test_a_hint_that_no_list_names_is_refused",),
    ),
    Mutant(
        name="first-offsets-unconditional",
        breaks="first offsets are written over those that another server has stored meanwhile",
        path="src/tilth/catalog/rules/fold.py",
        old="        moved = {*update.offsets, *update.forgotten, *update.before}",
        new="        moved = set(update.before)",
        tests=("tests/unit/ingest/test_rival_hosts.py::test_first_offsets_are_written_where_there_are_none",),
    ),
    Mutant(
        name="offsets-without-a-lease",
        breaks="a server that has joined anew moves offsets that another server hosts by now",
        path="src/tilth/ingest/offsets/positions.py",
        old=", fences=[self._fence]) as txn:",
        new=") as txn:",
        tests=(
            "tests/unit/ingest/test_rival_hosts.py::"
            "test_first_offsets_of_a_server_that_was_ended_meanwhile_are_refused",
        ),
    ),
    Mutant(
        name="repair-of-young-files",
        breaks="REPAIR removes files that are younger than the given age",
        path="src/tilth/verify/stored.py",
        old="        return self._clock.now_ms() - newest_ms >= self._age_ms\n",
        new="        return newest_ms > 0\n",
        tests=(
            "tests/unit/statements/operate/test_check_files.py::"
            "test_repair_removes_old_orphans_of_transactions_that_can_never_commit_and_nothing_else",
        ),
    ),
    Mutant(
        name="repair-of-a-lost-commit",
        breaks="REPAIR removes files of an acknowledged transaction that the database has lost",
        path="src/tilth/verify/stored.py",
        old="        return kept is not None and (part_of_sidecar(name) or name) not in kept\n",
        new="        return kept is not None\n",
        tests=(
            "tests/unit/statements/operate/test_check_files.py::test_a_loss_that_is_recorded_while_the_store_is_listed_keeps_the_files",
        ),
    ),
    Mutant(
        name="blocked-consumer-for-good",
        breaks="a consumer that waits for something other than Spark keeps its topic partitions for good",
        path="src/tilth/warehouse/worker/embedded.py",
        old="            task.waited += seconds\n",
        new="",
        tests=(
            "tests/unit/warehouse/worker/test_embedded.py::"
            "test_a_task_that_waits_for_something_besides_spark_is_given_up_after_a_minute",
        ),
    ),
    Mutant(
        name="report-of-a-task-that-was-given-up",
        breaks="a task that was given up is reported once more when it ends",
        path="src/tilth/warehouse/worker/embedded.py",
        old="                # It was given up, and has ended since.\n                return\n",
        new="                pass\n",
        tests=(
            "tests/unit/warehouse/worker/test_embedded.py::"
            "test_a_task_that_waits_for_something_besides_spark_is_given_up_after_a_minute",
        ),
    ),
    Mutant(
        name="silent-store-ends-the-jvm",
        breaks="cancelled tasks that wait for a silent store end the JVM before their client's time limit",
        path="src/tilth/warehouse/worker/pulse.py",
        old="        is_starved = reading.cpu_seconds < STARVED_SHARE",
        new="        is_starved = 0 < reading.cpu_seconds < STARVED_SHARE",
        tests=(
            "tests/unit/warehouse/worker/test_pulse.py::"
            "test_cancelled_tasks_that_use_little_processor_time_get_the_allowance_of_a_busy_jvm",
        ),
    ),
    Mutant(
        name="ended-tasks-count-on",
        breaks="time of cancelled tasks that have ended counts with that of others until the JVM is killed",
        path="src/tilth/warehouse/worker/pulse.py",
        old="{task: known.get(task, _Waiting()) for task in tasks}",
        new="known | {task: known.get(task, _Waiting()) for task in tasks}",
        tests=("tests/unit/warehouse/worker/test_pulse.py::test_tasks_that_end_late_one_after_the_other_are_no_hang",),
    ),
    Mutant(
        name="stopped-on-purpose-is-an-alarm",
        breaks="what somebody has stopped on purpose is an alarm",
        path="src/tilth/introspection/alarms/observation.py",
        old="        return switch is not None and switch.state is not SwitchState.RUNNING\n",
        new="        return False\n",
        tests=(
            "tests/unit/introspection/alarms/test_tables.py::test_a_mutation_that_somebody_has_stopped_is_no_alarm",
        ),
    ),
    Mutant(
        name="counts-of-every-table",
        breaks="alarms count the parts of each table, however few it has",
        path="src/tilth/catalog/services/throttle.py",
        old=" and version.counted_parts >= _first_limit(table)",
        new="",
        tests=(
            "tests/unit/introspection/alarms/test_alarms.py::"
            "test_an_evaluation_reads_no_more_of_ten_thousand_tables_than_of_none",
        ),
    ),
    Mutant(
        name="map-keys-twice",
        breaks="the compiled kernel makes two entries of a map of a key that a message gives twice",
        path="src/tilth/ingest/messages/json_kernel.py",
        old="            seen[number] = row + 1\n",
        new="",
        tests=("tests/property/test_json_maps.py::test_the_same_maps_and_reasons_with_and_without",),
    ),
    Mutant(
        name="map-keys-of-doubtful-messages",
        breaks="a key of a map begins with keys of the message before, which the compiled kernel could not read",
        path="src/tilth/ingest/messages/json_kernel.py",
        old="            count, key_at = first, first_key_at\n",
        new="            count = first\n",
        tests=("tests/property/test_json_maps.py::test_the_same_maps_and_reasons_with_and_without",),
    ),
    Mutant(
        name="definitions-that-have-changed",
        breaks="a relation that was changed is read as it was before",
        path="src/tilth/catalog/records/decoded.py",
        old="            if known is None or known[0] != each.value:\n",
        new="            if known is None:\n",
        tests=(
            "tests/unit/catalog/tables/test_tables.py::test_definitions_that_have_not_changed_are_not_decoded_again",
        ),
    ),
)
