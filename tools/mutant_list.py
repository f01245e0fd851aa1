"""The mutants of the project: patches of its source, each of which breaks a promise, with the tests that fail then.

Covers: the patches. Does not cover: running them (mutants.py). A tidy test checks that each still fits its file exactly
once: who changes such a line writes the patch anew, and sees to it that its tests still fail with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A patch of one file that breaks a promise."""

    name: str
    #: What is wrong with the patch applied.
    breaks: str
    path: str
    #: Is there exactly once.
    old: str
    new: str
    #: Ids of tests, as pytest takes them: each fails with the patch, for one of its parameters at least.
    tests: tuple[str, ...]


def mutated(text: str, mutant: Mutant) -> str:
    """The file's text with the patch; raises ValueError where it does not fit exactly once."""
    count = text.count(mutant.old)
    if count != 1:
        raise ValueError(f"{mutant.name}: {mutant.path} has {count} places instead of 1 for:\n{mutant.old}")
    return text.replace(mutant.old, mutant.new)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="claim-over-an-undrop",
        breaks="a claim writes an item back that an UNDROP has taken out of the trash",
        path="src/tilth/catalog/parts/trash.py",
        old="                    preconditions.append(unchanged(each.key, found))\n                    puts[each.key]",
        new="                    puts[each.key]",
        tests=("tests/unit/catalog/test_catalog_undrop.py::test_the_removal_of_files_loses_against_an_undrop",),
    ),
    Mutant(
        name="claim-of-another-drop",
        breaks="what was brought back and dropped anew is claimed as if it had been judged",
        path="src/tilth/catalog/parts/trash.py",
        old="                if item.end_ts != each.item.end_ts:\n                    continue\n",
        new="",
        tests=(
            "tests/unit/catalog/test_catalog_undrop.py::test_a_claim_is_for_the_drop_that_was_judged",
            "tests/unit/maintenance/test_gc_promises.py::test_what_comes_back_before_its_file_is_claimed_keeps_it",
        ),
    ),
    Mutant(
        name="trash-without-claim",
        breaks="files of the trash go without being claimed",
        path="src/tilth/maintenance/gc/trash.py",
        old="self._remove(done, self._claimed(over))",
        new="self._remove(done, over)",
        tests=(
            "tests/unit/maintenance/test_maintenance_gc.py::test_what_undrop_may_bring_back_is_claimed_before_its_file_goes",
        ),
    ),
    Mutant(
        name="segments-without-claim",
        breaks="files of flushed segments go without being claimed",
        path="src/tilth/maintenance/gc/trash.py",
        old="self._remove(done, self._claimed(going))",
        new="self._remove(done, going)",
        tests=("tests/unit/maintenance/test_gc_promises.py::test_what_lies_in_the_trash_stays_when_the_table_is_lost",),
    ),
    Mutant(
        name="orphans-in-the-trash",
        breaks="changes of a part in the trash are taken for orphans",
        path="src/tilth/maintenance/gc/history_gc.py",
        old="        unknown = _without_parts(unknown, self._trashed())\n",
        new="",
        tests=(
            "tests/unit/maintenance/test_gc_promises.py::test_changes_of_a_part_in_the_trash_stay_with_it",
            "tests/simulation/test_sequences.py::test_what_was_dropped_comes_back_from_the_trash_with_its_changes",
        ),
    ),
    Mutant(
        name="orphans-that-come-back",
        breaks="changes of a part that an UNDROP brings back meanwhile are taken for orphans",
        path="src/tilth/maintenance/gc/history_gc.py",
        old="        unknown = _without_parts(unknown, self._files(partition))\n        return",
        new="        return",
        tests=(
            "tests/unit/maintenance/test_gc_promises.py::test_changes_of_a_part_that_comes_back_meanwhile_stay_with_it",
        ),
    ),
    Mutant(
        name="versions-of-parts",
        breaks="versions stay whose parts go",
        path="src/tilth/maintenance/gc/move.py",
        old="        table.forget_versions([end_ts for _, end_ts in moves])\n",
        new="",
        tests=(
            "tests/unit/maintenance/test_gc_promises.py::test_versions_are_forgotten_before_the_first_of_their_files_goes",
        ),
    ),
    Mutant(
        name="versions-of-segments",
        breaks="versions stay whose segments go",
        path="src/tilth/maintenance/gc/log_gc.py",
        old="        table.forget_versions([end_ts for _, end_ts in going])\n",
        new="",
        tests=(
            "tests/unit/maintenance/test_gc_promises.py::test_versions_are_forgotten_before_the_first_of_their_files_goes",
        ),
    ),
    Mutant(
        name="versions-of-deltas",
        breaks="versions stay whose changes go",
        path="src/tilth/maintenance/gc/history_gc.py",
        old="        table.forget_versions([delta.end_ts for delta in going])\n",
        new="",
        tests=(
            "tests/unit/maintenance/test_gc_promises.py::test_versions_are_forgotten_before_the_first_of_their_files_goes",
        ),
    ),
    Mutant(
        name="versions-up-to-the-first",
        breaks="versions are forgotten up to the first of the files only",
        path="src/tilth/maintenance/gc/round.py",
        old="self.catalog.history.trim(self.uuid, max(ends))",
        new="self.catalog.history.trim(self.uuid, min(ends))",
        tests=(
            "tests/unit/maintenance/test_gc_promises.py::test_versions_are_forgotten_before_the_first_of_their_files_goes",
        ),
    ),
    Mutant(
        name="moves-without-a-fence",
        breaks="a server that has lost the table moves its parts to the trash",
        path="src/tilth/maintenance/gc/move.py",
        old="                fence=table.table_leases.fence(table.uuid),\n",
        new="",
        tests=(
            "tests/unit/maintenance/test_gc_promises.py::test_a_server_that_has_lost_the_table_moves_and_removes_nothing",
        ),
    ),
    Mutant(
        name="segments-without-a-fence",
        breaks="a server that has lost the table moves its segments to the trash",
        path="src/tilth/maintenance/gc/log_gc.py",
        old="moves, fence=fence, now_ms=now_ms",
        new="moves, now_ms=now_ms",
        tests=(
            "tests/unit/maintenance/test_gc_promises.py::test_a_server_that_has_lost_the_table_moves_and_removes_nothing",
        ),
    ),
    Mutant(
        name="claims-without-a-fence",
        breaks="a server that has lost the table removes files of its trash",
        path="src/tilth/maintenance/gc/trash.py",
        old="items, fence=table.table_leases.fence(table.uuid))",
        new="items)",
        tests=("tests/unit/maintenance/test_gc_promises.py::test_what_lies_in_the_trash_stays_when_the_table_is_lost",),
    ),
    Mutant(
        name="deltas-without-a-look",
        breaks="a server that has lost the table removes files of its deltas",
        path="src/tilth/maintenance/gc/history_gc.py",
        old="        table.catalog.leases.check(fence)\n",
        new="",
        tests=(
            "tests/unit/maintenance/test_gc_promises.py::test_a_server_that_has_lost_the_table_moves_and_removes_nothing",
        ),
    ),
    Mutant(
        name="deltas-without-a-fence",
        breaks="a server that loses the table forgets its deltas",
        path="src/tilth/maintenance/gc/history_gc.py",
        old="gone, fence=fence)",
        new="gone)",
        tests=(
            "tests/unit/maintenance/test_gc_promises.py::test_a_server_that_loses_the_table_while_files_go_forgets_no_record",
        ),
    ),
    Mutant(
        name="work-without-a-fence",
        breaks="a server that has lost the table drops its expired partitions and hides its parts without rows",
        path="src/tilth/maintenance/work/context.py",
        old="            fences=(self.server.table_leases.fence(self.watch.uuid),),\n",
        new="",
        tests=(
            "tests/unit/maintenance/test_maintenance_expiry.py::"
            "test_a_server_that_has_lost_the_table_drops_no_partition",
            "tests/unit/maintenance/test_gc_promises.py::test_parts_without_rows_stay_when_the_table_is_lost",
        ),
    ),
    Mutant(
        name="expired-leases-hold-files",
        breaks="a reader that died holds its files for ever",
        path="src/tilth/maintenance/gc/round.py",
        old=" and lease.expires_ms > now_ms",
        new="",
        tests=("tests/unit/maintenance/test_gc_promises.py::test_a_reader_whose_lease_has_run_out_holds_nothing",),
    ),
    Mutant(
        name="expired-leases-hold-collecting",
        breaks="a reader that died holds up collecting for two hours",
        path="src/tilth/catalog/services/readers.py",
        old=" for each in leases if not _is_over(each, now_ms)), default=None)",
        new=" for each in leases), default=None)",
        tests=("tests/unit/maintenance/test_gc_promises.py::test_a_reader_whose_lease_has_run_out_holds_nothing",),
    ),
    Mutant(
        name="lease-written-over",
        breaks="a lease that was taken over meanwhile is taken under the same epoch",
        path="src/tilth/catalog/services/leases.py",
        old="return Plan(result=new, preconditions=[unchanged(key, found)], ",
        new="return Plan(result=new, ",
        tests=("tests/unit/catalog/test_catalog_leases.py::test_two_who_take_it_at_once_get_two_epochs",),
    ),
    Mutant(
        name="begin-under-a-lost-lease",
        breaks="a transaction begins under a lease that is lost meanwhile",
        path="src/tilth/catalog/commit/transactions.py",
        old="                preconditions.append(unchanged(lease_key, view.get(lease_key)))\n",
        new="",
        tests=(
            "tests/unit/catalog/test_catalog_leases.py::test_no_transaction_begins_under_a_lease_that_is_lost_meanwhile",
        ),
    ),
    Mutant(
        name="commit-under-a-lost-lease",
        breaks="a transaction commits under a lease that is lost meanwhile",
        path="src/tilth/catalog/commit/load.py",
        old="        batch.preconditions.append(unchanged(key, found))\n        leases[fence.name]",
        new="        leases[fence.name]",
        tests=(
            "tests/unit/catalog/test_catalog_leases.py::test_nothing_is_committed_under_a_lease_that_is_lost_meanwhile",
        ),
    ),
    Mutant(
        name="collect-under-a-lost-lease",
        breaks="entries move, and records of deltas go, under a lease that is lost meanwhile",
        path="src/tilth/catalog/parts/parts.py",
        old="    return [unchanged(lease_key, view.get(lease_key))]\n",
        new="    return []\n",
        tests=(
            "tests/unit/catalog/test_catalog_leases.py::test_nothing_is_collected_under_a_lease_that_is_lost_meanwhile",
        ),
    ),
    Mutant(
        name="claim-under-a-lost-lease",
        breaks="trash is claimed under a lease that is lost meanwhile",
        path="src/tilth/catalog/parts/trash.py",
        old="                preconditions.append(unchanged(lease_key, view.get(lease_key)))\n",
        new="",
        tests=(
            "tests/unit/catalog/test_catalog_leases.py::test_nothing_is_collected_under_a_lease_that_is_lost_meanwhile",
        ),
    ),
    Mutant(
        name="late-begin",
        breaks="a consumer that was replaced begins, and its successor's round ends",
        path="src/tilth/ingest/service/consumers.py",
        old="self._check_columns(self._current(call.consumer, call.fence))",
        new="self._check_columns(self._of(call.consumer))",
        tests=("tests/unit/ingest/test_late_consumers.py::test_a_late_begin_leaves_the_round_of_its_successor_alone",),
    ),
    Mutant(
        name="late-commit",
        breaks="a consumer that was replaced is let through to the catalog",
        path="src/tilth/ingest/service/consumers.py",
        old="        known = self._current(call.consumer, call.fence)\n        work",
        new="        known = self._of(call.consumer)\n        work",
        tests=("tests/unit/ingest/test_late_consumers.py::test_a_late_commit_is_refused_before_anybody_hears_of_it",),
    ),
    Mutant(
        name="no-turn",
        breaks="a commit that was refused too often waits for nobody",
        path="src/tilth/catalog/commit/commit.py",
        old="        self.turns.await_others(sorted(tables), txn)\n",
        new="",
        tests=("tests/unit/catalog/test_turns.py::test_a_slow_commit_lands_beside_one_that_never_rests",),
    ),
    Mutant(
        name="late-look",
        breaks="a consumer that was replaced looks for rows",
        path="src/tilth/ingest/service/consumers.py",
        old="        known = self._current(call.consumer, call.fence)\n        if known.work is",
        new="        known = self._of(call.consumer)\n        if known.work is",
        tests=("tests/unit/ingest/test_late_consumers.py::test_late_questions_and_news_are_refused_too",),
    ),
    Mutant(
        name="late-news",
        breaks="a consumer that was replaced says how far topics reach",
        path="src/tilth/ingest/service/consumers.py",
        old="        known = self._current(call.consumer, call.fence)\n        with self._lock:\n            ends",
        new="        known = self._of(call.consumer)\n        with self._lock:\n            ends",
        tests=("tests/unit/ingest/test_late_consumers.py::test_late_questions_and_news_are_refused_too",),
    ),
    Mutant(
        name="rounds-without-a-fence",
        breaks="rounds begin and commit without their consumer's epoch",
        path="src/tilth/ingest/service/consumers.py",
        old="            fences=[call.fence],\n",
        new="",
        tests=(
            "tests/unit/ingest/test_late_consumers.py::test_no_round_begins_under_an_epoch_that_is_over",
            "tests/unit/ingest/test_late_consumers.py::test_no_round_commits_under_an_epoch_that_is_over",
        ),
    ),
    Mutant(
        name="round-of-a-replaced-consumer",
        breaks="the round of a replaced consumer stays open",
        path="src/tilth/ingest/service/consumers.py",
        old='        self.settle(index, "its consumer was replaced")\n',
        new="",
        tests=("tests/unit/ingest/test_late_consumers.py::test_the_round_of_a_replaced_consumer_is_settled_at_once",),
    ),
    Mutant(
        name="round-begun-again",
        breaks="a round that is begun again leaves the one before open",
        path="src/tilth/ingest/service/consumers.py",
        old='        self.settle(call.consumer, "its round is done again in another way")\n',
        new="",
        tests=("tests/unit/ingest/test_late_consumers.py::test_a_round_that_is_begun_again_settles_the_one_before",),
    ),
    Mutant(
        name="round-begun-while-replaced",
        breaks="a round stays open whose consumer is replaced while it begins",
        path="src/tilth/ingest/service/consumers.py",
        old='            work.settle("its consumer was replaced")\n',
        new="",
        tests=(
            "tests/unit/ingest/test_late_consumers.py::test_a_round_whose_consumer_is_replaced_while_it_begins_is_settled",
        ),
    ),
    Mutant(
        name="unknown-aborted",
        breaks="work whose outcome is not known is aborted",
        path="src/tilth/catalog/commit/work.py",
        old="            if not self._is_kept:\n                self._end()\n        elif not",
        new="            pass\n        if not",
        tests=("tests/unit/catalog/test_work.py::test_an_unknown_outcome_stays_unknown_whatever_is_raised_behind_it",),
    ),
    Mutant(
        name="landed-swept",
        breaks="files of work that landed unheard are removed",
        path="src/tilth/catalog/commit/work.py",
        old="        if is_aborted and is_settled:",
        new="        if is_settled:",
        tests=("tests/unit/catalog/test_work.py::test_settling_finds_out_what_became_of_it",),
    ),
    Mutant(
        name="refused-tries-left",
        breaks="files of tries that were refused stay behind the commit that lands",
        path="src/tilth/catalog/commit/work.py",
        old="(self._may_retry or self._is_refused)",
        new="self._may_retry",
        tests=("tests/unit/catalog/test_work.py::test_files_of_tries_that_were_refused_go_with_the_commit_that_lands",),
    ),
    Mutant(
        name="leftovers-without-a-note",
        breaks="files of failed tries stay for ever where the server dies between the commit and their removal",
        path="src/tilth/catalog/commit/work.py",
        old="updates, requirements, unswept)",
        new="updates, requirements, None)",
        tests=("tests/simulation/test_deaths.py::test_files_of_refused_tries_are_found_after_a_death",),
    ),
    Mutant(
        name="attempt-forgotten",
        breaks="an error of one attempt of a task is forgotten when another attempt answers",
        path="src/tilth/base/mailbox.py",
        old="{key: unpack(packed) for key, _, packed in letters}\n        return list(answers.values())",
        new="{key: packed for key, _, packed in letters}\n        return [*map(unpack, answers.values())]",
        tests=("tests/unit/base/test_mailbox.py::test_an_error_of_any_attempt_is_not_forgotten",),
    ),
    Mutant(
        name="answers-of-cut-off-rows",
        breaks="a task whose rows broke off answers as if they had ended there",
        path="src/tilth/warehouse/session/spark.py",
        old="            if is_waiting:\n",
        new="            if False:\n",
        tests=("tests/unit/warehouse/test_run_tasks.py::test_what_fails_before_the_function_is_for_spark_to_tell",),
    ),
    Mutant(
        name="round-of-nobody",
        breaks="a round that a replaced consumer began counts as its successor's",
        path="src/tilth/ingest/service/consumers.py",
        old="            is_current = known.fence == call.fence\n",
        new="            is_current = True\n",
        tests=(
            "tests/unit/ingest/test_late_consumers.py::test_a_round_whose_consumer_is_replaced_while_it_begins_is_settled",
        ),
    ),
    Mutant(
        name="log-without-sync",
        breaks="a commit does not wait for RocksDB's log",
        path="src/tilth/catalog/kv/rocksdb.py",
        old="self._sync.sync = True",
        new="self._sync.sync = False",
        tests=("tests/integration/catalog/test_rocksdb_kv.py::test_each_commit_waits_for_the_disk",),
    ),
    Mutant(
        name="files-without-fsync",
        breaks="a file is committed that is not on the disk",
        path="src/tilth/storage/store/local.py",
        old="            os.fsync(self._file.fileno())\n",
        new="            pass\n",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="folders-without-fsync",
        breaks="a file is committed whose name is not on the disk",
        path="src/tilth/storage/store/local.py",
        old="        os.fsync(handle)\n",
        new="        pass\n",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="names-of-parts",
        breaks="written parts and their names are not waited for",
        path="src/tilth/storage/parts/parts.py",
        old="    with Endings(layout.folder, fsync=layout.fsync) as endings:\n",
        new="    with Endings(layout.folder, fsync=False) as endings:\n",
        tests=(
            "tests/integration/test_durable_commits.py::test_rows_that_are_sorted_at_once_come_after_their_files_too",
        ),
    ),
    Mutant(
        name="names-of-merged-parts",
        breaks="the name of a part that is written by a merge or a flush is not waited for",
        path="src/tilth/storage/parts/parts.py",
        old="else end_file(layout.folder, self._file, fsync=layout.fsync)\n",
        new="else self._file.finish(fsync=layout.fsync)\n",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="names-of-segments",
        breaks="row segments and their names are not waited for",
        path="src/tilth/storage/parts/segments.py",
        old="    with Endings(layout.folder, fsync=layout.fsync) as endings:\n",
        new="    with Endings(layout.folder, fsync=False) as endings:\n",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="names-of-deltas",
        breaks="files with changes of rows and their names are not waited for",
        path="src/tilth/storage/deltas/deltas.py",
        old="        self._endings = Endings(self._layout.folder, fsync=self._layout.fsync)\n",
        new="        self._endings = Endings(self._layout.folder, fsync=False)\n",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="names-of-files-ended-together",
        breaks="the names of files that are ended together are not waited for",
        path="src/tilth/storage/store/files.py",
        old="            if self._fsync:\n                sync_folder(self._folder)\n",
        new="",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="files-ended-together",
        breaks="a file that fails while others are ended is not said to have failed",
        path="src/tilth/storage/store/files.py",
        old="                self._waiting.popleft().result()\n            if",
        new="                self._waiting.popleft()\n            if",
        tests=(
            "tests/integration/storage/test_store_behaviour.py::"
            "test_of_files_that_are_ended_at_once_one_that_fails_fails_all",
        ),
    ),
    Mutant(
        name="name-of-the-data-folder",
        breaks="the name of a table's data folder is not waited for",
        path="src/tilth/storage/store/local.py",
        old="        sync_local_folder(above)\n",
        new="",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="name-of-the-table-folder",
        breaks="the name of a table's folder is not waited for",
        path="src/tilth/storage/store/local.py",
        old="        sync_local_folder(os.path.dirname(above))\n",
        new="",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="folder-of-somebody-else",
        breaks="a folder that somebody else has made a moment ago is taken to be on the disk",
        path="src/tilth/storage/store/local.py",
        old="    if is_there and (not fsync or folder in _synced):\n",
        new="    if is_there:\n",
        tests=("tests/integration/test_durable_commits.py::test_a_folder_that_somebody_else_made_is_waited_for_once",),
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
        name="keys-by-their-beginning",
        breaks="keys that begin alike are compared by their first eight bytes",
        path="src/tilth/maintenance/merge/policy/key_shares.py",
        old="by_prefix.setdefault(_common(lows[part], highs[part]), [])",
        new="by_prefix.setdefault(0, [])",
        tests=("tests/unit/maintenance/test_key_range.py::test_keys_with_a_long_common_beginning_are_told_apart",),
    ),
    Mutant(
        name="digits-by-their-beginning",
        breaks="what follows the common beginning of keys is not looked at",
        path="src/tilth/maintenance/merge/policy/key_shares.py",
        old="key[prefix : prefix + DIGITS]",
        new="key[:DIGITS]",
        tests=("tests/unit/maintenance/test_key_range.py::test_keys_with_a_long_common_beginning_are_told_apart",),
    ),
    Mutant(
        name="lost-answers-after-the-switch",
        breaks="while a service is stopped, nobody asks what became of a commit whose answer was lost",
        path="src/tilth/maintenance/work/op.py",
        old="""        self.resolve()
        moment = self.moment()
        if not self._watch.is_on(self.service, moment.now_ms):
            self._hear(Stopped())
            return OpStats.idle("stopped by the user")
""",
        new="""        moment = self.moment()
        if not self._watch.is_on(self.service, moment.now_ms):
            self._hear(Stopped())
            return OpStats.idle("stopped by the user")
        self.resolve()
""",
        tests=(
            "tests/unit/maintenance/test_work_shell.py::"
            "test_what_nobody_knows_is_found_out_also_while_the_service_is_stopped",
        ),
    ),
    Mutant(
        name="end-heard-before-parts-are-free",
        breaks="the next look finds the parts of a run that has ended reserved, and the run counted",
        path="src/tilth/maintenance/work/op.py",
        old="            self._let_go(work)\n            self._hear(WorkEnded(work, error))\n",
        new="            self._hear(WorkEnded(work, error))\n            self._let_go(work)\n",
        tests=(
            "tests/unit/maintenance/test_work_shell.py::test_who_hears_of_an_end_finds_the_parts_free_and_the_run_gone",
        ),
    ),
    Mutant(
        name="failure-outlives-a-late-answer",
        breaks="a failure stands although the next try has landed, because its answer came late",
        path="src/tilth/maintenance/work/op.py",
        old="        for work, error in self._attempts.resolve():\n            self._judge(work, error)\n",
        new="        for work, error in self._attempts.resolve():\n",
        tests=(
            "tests/unit/maintenance/test_work_shell.py::"
            "test_a_failure_is_over_when_it_is_known_late_that_the_next_try_landed",
        ),
    ),
    Mutant(
        name="stopped-merges-keep-their-parts",
        breaks="merges that wait keep their parts reserved while merges are stopped",
        path="src/tilth/maintenance/merge/op.py",
        old="            case Stopped():\n                self._waiting = []\n",
        new="            case Stopped():\n                pass\n",
        tests=("tests/unit/maintenance/test_choosers.py::test_what_waits_is_forgotten_by_events",),
    ),
    Mutant(
        name="lost-answers-never-due",
        breaks="a table of a stopped service is not looked at although the answer to a commit was lost",
        path="src/tilth/maintenance/manager/poller.py",
        old="if op.has_unknown or watch.is_on(op.service, now_ms):",
        new="if watch.is_on(op.service, now_ms):",
        tests=(
            "tests/unit/maintenance/test_work_shell.py::"
            "test_what_nobody_knows_is_found_out_also_while_the_service_is_stopped",
        ),
    ),
    Mutant(
        name="calls-act-twice",
        breaks="a call between processes that is sent again for its answer was lost acts again",
        path="src/tilth/server/calls.py",
        old='return calls.answers.once(f"{name} {caller} {call_id}", lambda: act(caller, body))',
        new="return act(caller, body)",
        tests=("tests/unit/warehouse/test_remote_wire.py::test_a_call_is_sent_again_under_its_id_and_acts_once",),
    ),
    Mutant(
        name="calls-of-the-gone",
        breaks="what runners of a worker that is gone ask is answered",
        path="src/tilth/warehouse/remote/workers.py",
        old="            self._of(caller)\n            return act(caller, body)",
        new="            return act(caller, body)",
        tests=(
            "tests/unit/warehouse/test_remote_workers.py::"
            "test_who_is_silent_is_gone_and_nothing_of_what_it_says_counts",
        ),
    ),
)
