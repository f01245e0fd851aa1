"""Mutants of maintenance."""

from __future__ import annotations

from tools.mutant_list.mutant import Mutant

MAINTENANCE: tuple[Mutant, ...] = (
    Mutant(
        name="refused-after-its-commit",
        breaks="DROP PARTITION that has landed on one server is done again on the one that hosts the table",
        path="src/tilth/maintenance/manager/manager.py",
        old="        found = self._tables.get(table_uuid)\n        return 0 if",
        new="        found = self._registry.get(table_uuid)\n        return 0 if",
        tests=("tests/unit/statements/test_after_commit.py::test_parts_of_another_servers_table_are_hidden_once",),
    ),
    Mutant(
        name="trash-without-mark",
        breaks="files of the trash are removed without being marked",
        path="src/tilth/maintenance/gc/trash.py",
        old="self._remove(done, self._marked(over))",
        new="self._remove(done, over)",
        tests=(
            "tests/unit/maintenance/gc/test_part_gc.py::test_what_undrop_may_bring_back_is_claimed_before_its_file_goes",
        ),
    ),
    Mutant(
        name="segments-without-mark",
        breaks="files of flushed segments are removed without being marked",
        path="src/tilth/maintenance/gc/trash.py",
        old="self._remove(done, self._marked(going))",
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
        name="marks-without-a-fence",
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
            "tests/unit/maintenance/gc/test_expiry.py::test_a_server_that_has_lost_the_table_drops_no_partition",
            "tests/unit/maintenance/test_gc_promises.py::test_parts_without_rows_stay_when_the_table_is_lost",
        ),
    ),
    Mutant(
        name="expired-leases-hold-collecting",
        breaks="a reader that died holds up collecting for two hours",
        path="src/tilth/maintenance/work/collection_holds.py",
        old="            if each.expires_ms > now_ms:\n",
        new="            if each.expires_ms:\n",
        tests=("tests/unit/maintenance/test_gc_promises.py::test_a_reader_whose_lease_has_run_out_holds_nothing",),
    ),
    Mutant(
        name="holds-judged-by-a-later-time",
        breaks="what ends while the holds are read is collected from a reader that began meanwhile",
        path="src/tilth/maintenance/work/collection_holds.py",
        old="return HoldsSeen(now_ms=now_ms, ",
        new="return HoldsSeen(now_ms=self._clock.now_ms(), ",
        tests=(
            "tests/unit/maintenance/work/test_collection_holds.py::test_a_slow_reading_is_judged_by_the_time_before_it",
        ),
    ),
    Mutant(
        name="holds-of-long-ago",
        breaks="holds of readers and transactions are read once, and collecting goes by them for good",
        path="src/tilth/maintenance/work/collection_holds.py",
        old="if self._seen is None or not 0 <= now - self._seen[0] < FRESH_SECONDS:",
        new="if self._seen is None:",
        tests=(
            "tests/unit/maintenance/work/test_collection_holds.py::"
            "test_who_comes_later_is_seen_by_the_next_reading_and_a_command_reads_at_once",
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
        name="keys-by-their-beginning",
        breaks="keys that begin alike are compared by their first eight bytes",
        path="src/tilth/maintenance/merge/policy/key_shares.py",
        old="by_prefix.setdefault(_common(lows[part], highs[part]), [])",
        new="by_prefix.setdefault(0, [])",
        tests=(
            "tests/unit/maintenance/merge/policy/test_key_range.py::test_keys_with_a_long_common_beginning_are_told_apart",
        ),
    ),
    Mutant(
        name="digits-by-their-beginning",
        breaks="what follows the common beginning of keys is not looked at",
        path="src/tilth/maintenance/merge/policy/key_shares.py",
        old="key[prefix : prefix + DIGITS]",
        new="key[:DIGITS]",
        tests=(
            "tests/unit/maintenance/merge/policy/test_key_range.py::test_keys_with_a_long_common_beginning_are_told_apart",
        ),
    ),
    Mutant(
        name="lost-answers-after-the-switch",
        breaks="while a service is stopped, nobody asks what became of a commit whose answer was lost",
        path="src/tilth/maintenance/work/op.py",
        old="""        self.resolve()
        now_ms = self._clock.now_ms()
""",
        new="""        now_ms = self._clock.now_ms()
        if self.watch.is_on(self.kind.traits.service, now_ms):
            self.resolve()
""",
        tests=(
            "tests/unit/maintenance/work/test_part_work.py::"
            "test_what_nobody_knows_is_found_out_also_while_the_service_is_stopped",
        ),
    ),
    Mutant(
        name="end-heard-before-parts-are-free",
        breaks="the next look finds the parts of a run that has ended reserved, and the run counted",
        path="src/tilth/maintenance/work/part_work.py",
        old="            self._let_go(work)\n            self._notify(WorkEnded(work, error))\n",
        new="            self._notify(WorkEnded(work, error))\n            self._let_go(work)\n",
        tests=(
            "tests/unit/maintenance/work/test_part_work.py::test_who_hears_of_an_end_finds_the_parts_free_and_the_run_gone",
        ),
    ),
    Mutant(
        name="late-files-stay",
        breaks="what a task writes after its transaction was cleaned up stays for ever",
        path="src/tilth/maintenance/cleaner/ended.py",
        old="            if txn.outputs and (found is None or runs != found.runs):",
        new="            if found is not None and runs != found.runs:",
        tests=("tests/unit/maintenance/cleaner/test_ended.py::test_what_comes_after_a_start_goes",),
    ),
    Mutant(
        name="late-files-behind-a-hole",
        breaks="a task that goes on behind the files that were removed leaves what it writes then",
        path="src/tilth/maintenance/cleaner/ended.py",
        old="                now = replace(tombstone, runs=runs)\n                tombstones.put([now])\n",
        new="                pass\n",
        tests=("tests/unit/maintenance/cleaner/test_ended.py::test_files_behind_those_that_are_gone_are_found",),
    ),
    Mutant(
        name="late-files-of-what-landed",
        breaks="what an attempt writes after the commit of its transaction stays for ever",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="        if leftovers is not None and not leftovers.may_write_on:",
        new="        if leftovers is not None:",
        tests=(
            "tests/unit/catalog/commit/test_txn_handle.py::"
            "test_files_of_tasks_that_may_write_on_are_left_to_the_cleaner_also_where_it_lands",
        ),
    ),
    Mutant(
        name="failure-outlives-a-late-answer",
        breaks="a failure stands although the next try is committed, because its answer came late",
        path="src/tilth/maintenance/work/part_work.py",
        old="        for work, error in self._attempts.resolve():\n            self._judge(work, error)\n",
        new="        for work, error in self._attempts.resolve():\n",
        tests=(
            "tests/unit/maintenance/work/test_part_work.py::"
            "test_a_failure_is_over_when_it_is_known_late_that_the_next_try_landed",
        ),
    ),
    Mutant(
        name="stopped-merges-keep-their-parts",
        breaks="merges that wait keep their parts reserved while merges are stopped",
        path="src/tilth/maintenance/merge/op.py",
        old="            case Stopped():\n                self._waiting = []\n",
        new="            case Stopped():\n                pass\n",
        tests=("tests/unit/maintenance/work/test_planner.py::test_what_waits_is_forgotten_by_events",),
    ),
    Mutant(
        name="tables-behind-a-pass-leave",
        breaks="a table that is made behind a pass over all tables and known by a command is taken for gone",
        path="src/tilth/maintenance/manager/registry.py",
        old="if uuid in there or (self._hosts(uuid) and self._catalog.tables.by_id(uuid) is not None):",
        new="if uuid in there:",
        tests=("tests/unit/maintenance/manager/test_turns.py::test_tables_that_come_and_go_during_a_pass",),
    ),
    Mutant(
        name="turn-without-end",
        breaks="one turn after a start registers all tables, however long that takes",
        path="src/tilth/maintenance/manager/registry.py",
        old="            if is_over():\n                last = uuid\n                break\n",
        new="",
        tests=("tests/unit/maintenance/manager/test_turns.py::test_a_start_takes_turns_that_end_in_time",),
    ),
    Mutant(
        name="missed-events-begin-anew",
        breaks="tables are never notified of missed events where more are missed in each turn",
        path="src/tilth/maintenance/manager/news.py",
        old="                    self._doubted.setdefault(table.watch.uuid, table)\n",
        new="                    self._doubted = {table.watch.uuid: table} | self._doubted\n",
        tests=(
            "tests/unit/maintenance/manager/test_turns.py::"
            "test_all_tables_are_notified_over_several_turns_where_events_were_missed",
        ),
    ),
    Mutant(
        name="lost-answers-never-due",
        breaks="a table of a stopped service is not looked at although the answer to a commit was lost",
        path="src/tilth/maintenance/manager/poller.py",
        old="if op.has_unknown or watch.is_on(op.kind.traits.service, now_ms):",
        new="if watch.is_on(op.kind.traits.service, now_ms):",
        tests=(
            "tests/unit/maintenance/work/test_part_work.py::"
            "test_what_nobody_knows_is_found_out_also_while_the_service_is_stopped",
        ),
    ),
    Mutant(
        name="no-tombstone",
        breaks="files stay that a task writes when its transaction was cleaned up",
        path="src/tilth/maintenance/cleaner/ended.py",
        old="            if txn.outputs and (found is None or runs != found.runs):",
        new="            if txn.outputs and found is not None:",
        tests=("tests/unit/maintenance/cleaner/test_ended.py::test_what_comes_after_a_start_goes",),
    ),
    Mutant(
        name="late-files-counted-after-they-go",
        breaks="what leads to late files goes before it is noted how many there are",
        path="src/tilth/maintenance/cleaner/ended.py",
        old="                tombstones.put([now])\n",
        new="",
        tests=(
            "tests/unit/maintenance/cleaner/test_ended.py::"
            "test_late_files_behind_those_that_are_gone_are_found_after_a_death_in_between",
        ),
    ),
    Mutant(
        name="own-former-ids-forgotten",
        breaks="what a process had begun before a failover counts as another's, and its files stay",
        path="src/tilth/catalog/catalog.py",
        old="        self._own_ids.add(record.id)\n",
        new="",
        tests=(
            "tests/unit/membership/test_lost_histories.py::"
            "test_a_process_waits_for_what_others_may_know_and_not_for_itself",
        ),
    ),
    Mutant(
        name="others-losses-not-waited-for",
        breaks="files of commits that another process knows and the database has lost go",
        path="src/tilth/maintenance/cleaner/ended.py",
        old="return is_before and is_fresh and not self._catalog.is_own(txn.server)",
        new="return False",
        tests=(
            "tests/unit/membership/test_lost_histories.py::"
            "test_a_process_waits_for_what_others_may_know_and_not_for_itself",
        ),
    ),
    Mutant(
        name="listings-believed",
        breaks="a file that a bucket lists late stays",
        path="src/tilth/maintenance/cleaner/ended.py",
        old="return any(may_list_late(self._root.of(table)) for table in stored)",
        new="return False",
        tests=(
            "tests/unit/maintenance/cleaner/test_left_files_late.py::test_what_was_given_up",
            "tests/unit/maintenance/cleaner/test_left_files_late.py::test_a_failed_attempt_of_what_landed",
        ),
    ),
    Mutant(
        name="others-names-listed",
        breaks="what begins alike and is another's goes",
        path="src/tilth/storage/store/files/removal.py",
        old=" and read_file_name(name_of(path)) is not None]",
        new="]",
        tests=(
            "tests/unit/storage/store/files/test_removal_listed.py::test_any_attempt_of_any_task_goes_and_what_others_wrote_stays",
        ),
    ),
    Mutant(
        name="changes-for-one-range-only",
        breaks="what changes rows while a merge is cut into ranges is lost where another range has them",
        path="src/tilth/maintenance/work/rebases.py",
        old="new = [(each, newer(each.input.sources, self.seen, deltas)) for each in self._arrived]",
        new="new = [(each, newer(each.input.sources, self.seen, deltas)) for each in self._arrived[:1]]",
        tests=(
            "tests/unit/maintenance/merge/test_cut_merges.py::"
            "test_changes_that_come_meanwhile_reach_the_range_of_each_row",
        ),
    ),
    Mutant(
        name="rebased-rounds-out-of-order",
        breaks="changes of a later round apply before those of an earlier one",
        path="src/tilth/maintenance/work/rebases.py",
        old="10**digits if is_long else job.tasks",
        new="job.tasks",
        tests=("tests/unit/maintenance/work/test_rebases.py::test_names_of_later_rounds_follow_those_of_earlier_ones",),
    ),
    Mutant(
        name="lost-rebase-writes-over-its-successor",
        breaks="a task that was lost and goes on writes into the file of the one that was sent instead",
        path="src/tilth/maintenance/work/rebases.py",
        old="first = self._numbers.first + self.sends * self._numbers.each",
        new="first = self._numbers.first",
        tests=(
            "tests/unit/maintenance/work/test_rebases.py::test_a_task_that_is_lost_is_sent_again_under_other_names",
        ),
    ),
    Mutant(
        name="unknown-file-counts-as-good",
        breaks="a damaged file leaves the book where nobody could check it",
        path="src/tilth/maintenance/damage/book.py",
        old="if before is not None and not state.unknown:",
        new="if before is not None:",
        tests=("tests/unit/maintenance/damage/test_book.py::test_a_check_that_nobody_could_make_changes_nothing",),
    ),
    Mutant(
        name="ranges-below-old-marks",
        breaks="a range of a merge is hidden by the mark of an older one that had its blocks",
        path="src/tilth/catalog/rules/fold_table.py",
        old="return [msgspec.structs.replace(whole, max_block=block) for block in blocks]",
        new="return [msgspec.structs.replace(whole, min_block=whole.min_block + n) for n, _ in enumerate(blocks)]",
        tests=(
            "tests/unit/catalog/rules/test_fold_ranges.py::test_a_range_without_rows_hides_nothing_that_comes_later",
        ),
    ),
    Mutant(
        name="equal-keys-in-two-ranges",
        breaks="rows of a key at which a merge is cut are in two ranges, or in none",
        path="src/tilth/storage/merge/key_ranges.py",
        old="is_equal_before=number < cut.source)",
        new="is_equal_before=True)",
        tests=("tests/property/test_merge_key_ranges.py::test_the_ranges_laid_end_to_end_are_the_merge",),
    ),
    Mutant(
        name="some-ranges-for-all",
        breaks="a catalog made of files takes a few ranges of a merge that broke off for all its rows",
        path="src/tilth/recovery/attach.py",
        old=" and (file.note.pieces == 1 or made[file.by.txn] >= file.note.pieces)",
        new="",
        tests=(
            "tests/unit/recovery/test_files_alone.py::test_ranges_of_a_merge_that_broke_off_never_stand_for_its_sources",
        ),
    ),
)
