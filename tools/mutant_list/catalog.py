"""Mutants of the catalog, without those of commits."""

from __future__ import annotations

from tools.mutant_list.mutant import Mutant

CATALOG: tuple[Mutant, ...] = (
    Mutant(
        name="mark-over-an-undrop",
        breaks="a mark writes an item back that an UNDROP has removed from the trash",
        path="src/tilth/catalog/parts/trash.py",
        old="                    preconditions.append(unchanged(each.key, found))\n                    puts[each.key]",
        new="                    puts[each.key]",
        tests=("tests/unit/catalog/parts/test_trash.py::test_the_removal_of_files_loses_against_an_undrop",),
    ),
    Mutant(
        name="mark-of-another-drop",
        breaks="what was brought back and dropped anew is marked although it was not judged",
        path="src/tilth/catalog/parts/trash.py",
        old="                if item.end_ts != each.item.end_ts:\n                    continue\n",
        new="",
        tests=(
            "tests/unit/catalog/parts/test_trash.py::test_a_claim_is_for_the_drop_that_was_judged",
            "tests/unit/maintenance/test_gc_promises.py::test_what_comes_back_before_its_file_is_claimed_keeps_it",
        ),
    ),
    Mutant(
        name="expired-leases-hold-changes",
        breaks="changes that nobody has retained since a reader's lease ended count as held by it",
        path="src/tilth/catalog/services/readers.py",
        old="each for each in leases if not _is_over(each, now_ms) and bool(each.name) is is_named",
        new="each for each in leases if bool(each.name) is is_named",
        tests=(
            "tests/unit/catalog/services/test_leases.py::test_readers_hold_the_past",
            "tests/unit/query/snapshots/test_feeds.py::test_without_history_only_what_a_reader_holds_is_read",
        ),
    ),
    Mutant(
        name="lease-written-over",
        breaks="a lease that was taken over meanwhile is taken under the same epoch",
        path="src/tilth/catalog/services/leases.py",
        old="preconditions=[unchanged(key, found), *pin_life(view, holder)],",
        new="preconditions=[*pin_life(view, holder)],",
        tests=("tests/unit/catalog/services/test_leases.py::test_two_who_take_it_at_once_get_two_epochs",),
    ),
    Mutant(
        name="collect-under-a-lost-lease",
        breaks="entries move, and records of deltas go, under a lease that is lost meanwhile",
        path="src/tilth/catalog/parts/parts.py",
        old="    return [unchanged(lease_key, view.get(lease_key))]\n",
        new="    return []\n",
        tests=(
            "tests/unit/catalog/services/test_leases.py::test_nothing_is_collected_under_a_lease_that_is_lost_meanwhile",
        ),
    ),
    Mutant(
        name="mark-under-a-lost-lease",
        breaks="trash is marked under a lease that is lost meanwhile",
        path="src/tilth/catalog/parts/trash.py",
        old="                preconditions.append(unchanged(lease_key, view.get(lease_key)))\n",
        new="",
        tests=(
            "tests/unit/catalog/services/test_leases.py::test_nothing_is_collected_under_a_lease_that_is_lost_meanwhile",
        ),
    ),
    Mutant(
        name="log-without-sync",
        breaks="a commit does not wait for RocksDB's log",
        path="src/tilth/catalog/kv/rocksdb.py",
        old="self._db.flush_wal(self._is_synced)",
        new="self._db.flush_wal(False)",
        tests=("tests/integration/catalog/test_rocksdb_kv.py::test_each_commit_waits_for_the_disk",),
    ),
    Mutant(
        name="backend-that-may-still-commit",
        breaks="a commit whose backend is still there counts as not applied",
        path="src/tilth/catalog/kv/postgres.py",
        old="                    if left is None:",
        new="                    if left is not connection:",
        tests=(
            "tests/integration/catalog/test_postgres_kv.py::test_a_commit_whose_backend_cannot_be_ended_stays_unknown",
        ),
    ),
    Mutant(
        name="copies-that-changes-lack",
        breaks="what a replica lacks of files of changes is not noted",
        path="src/tilth/catalog/rules/updates.py",
        old="        case InsertPart(written=WrittenPart(file=file)) | AddDelta(written=WrittenDelta(file=file)):\n",
        new="        case InsertPart(written=WrittenPart(file=file)):\n",
        tests=(
            "tests/unit/catalog/rules/test_fold_deltas.py::"
            "test_copies_that_a_file_of_changes_lacks_are_noted_in_its_commit",
        ),
    ),
    Mutant(
        name="copies-of-before-count",
        breaks="a commit counts copies in replicas that have given way to others",
        path="src/tilth/catalog/rules/missing_copies.py",
        old="    if found < copies.quorum:\n",
        new="    if not copies.replicas:\n",
        tests=(
            "tests/unit/catalog/commit/test_pinned_storages.py::test_what_was_written_to_replicas_of_before_is_refused",
        ),
    ),
    Mutant(
        name="note-settled-for-another-replica",
        breaks="a copy that was made in a replica which has given way to another ends the note of the new one",
        path="src/tilth/catalog/services/copy_notes.py",
        old="                        continue\n",
        new="                        pass\n",
        tests=(
            "tests/unit/catalog/commit/test_pinned_storages.py::"
            "test_a_note_stays_where_its_copy_was_made_in_a_replica_of_before",
        ),
    ),
    Mutant(
        name="rows-not-counted",
        breaks="the invariants of commits see no row that is lost or there twice",
        path="src/tilth/catalog/rules/invariants.py",
        old='    _require(more == inserted - removed, "rows are counted", uuid)\n',
        new="    assert more is not None\n",
        tests=("tests/unit/catalog/rules/test_invariants.py::test_a_defect_is_named",),
    ),
    Mutant(
        name="blocks-visible-twice",
        breaks="the invariants of commits see no blocks that are visible twice",
        path="src/tilth/catalog/rules/invariants.py",
        old='    _require(len(set(blocks)) == len(blocks), "no blocks are visible twice", table)\n',
        new="",
        tests=("tests/unit/catalog/rules/test_invariants.py::test_a_defect_is_named",),
    ),
    Mutant(
        name="renewed-as-it-was-before",
        breaks="a late heartbeat of a process's former life undoes the end of it",
        path="src/tilth/catalog/services/servers.py",
        old=" or old.run != record.run or old.epoch != record.epoch:",
        new=" or old.run != record.run:",
        tests=(
            "tests/unit/catalog/services/test_servers.py::"
            "test_a_process_that_has_joined_anew_does_not_renew_what_it_was_before",
        ),
    ),
    Mutant(
        name="renewed-by-another-process",
        breaks="a process renews the record of another one that was given its epoch again",
        path="src/tilth/catalog/services/servers.py",
        old=" or old.run != record.run or old.epoch != record.epoch:",
        new=" or old.epoch != record.epoch:",
        tests=(
            "tests/unit/catalog/services/test_servers.py::"
            "test_an_epoch_that_was_given_again_by_a_standby_without_the_tail_is_of_one_process",
        ),
    ),
    Mutant(
        name="table-in-a-changed-storage",
        breaks="a replica is replaced although a table has come whose files lie in it alone",
        path="src/tilth/catalog/services/storages.py",
        old=" or any(each.uuid not in others for each in tables_in_storage(view, storage.name))",
        new="",
        tests=(
            "tests/unit/catalog/services/test_storages.py"
            "::test_a_replica_is_not_replaced_with_a_table_that_nobody_has_looked_at",
        ),
    ),
    Mutant(
        name="life-after-the-end",
        breaks="the key of a process's life stays after its end",
        path="src/tilth/catalog/services/servers.py",
        old="deletes=[] if new.lives else [life_key(new.id)],",
        new="deletes=[],",
        tests=("tests/unit/catalog/services/test_servers.py::test_who_was_ended_takes_no_lease",),
    ),
    Mutant(
        name="former-primary-followed",
        breaks="a former primary that is back is followed, and what is committed there is lost",
        path="src/tilth/catalog/kv/incarnation.py",
        old="        return HistoryVerdict.REFUSE\n",
        new="        return HistoryVerdict.FOLLOW\n",
        tests=("tests/unit/catalog/kv/test_incarnation.py::test_which_history_is_followed",),
    ),
    Mutant(
        name="diverged-history-followed",
        breaks="a history that diverged is taken for the known one, and its versions repeat",
        path="src/tilth/catalog/kv/incarnation.py",
        old="is_same = stored.token == known.token and found.version",
        new="is_same = found.version",
        tests=("tests/unit/catalog/kv/test_incarnation.py::test_which_history_is_followed",),
    ),
    Mutant(
        name="history-set-back",
        breaks="a database that was set back gives out versions again",
        path="src/tilth/catalog/kv/incarnation.py",
        old="stored.token == known.token and found.version >= memory.version",
        new="stored.token == known.token",
        tests=("tests/unit/catalog/kv/test_incarnation.py::test_which_history_is_followed",),
    ),
    Mutant(
        name="promoted-standby-followed",
        breaks="a promoted standby goes on with the versions of the history that it lacks",
        path="src/tilth/catalog/kv/incarnation.py",
        old="    if stored is None or (stored.system, stored.timeline) != (found.system, found.timeline):",
        new="    if stored is None:",
        tests=("tests/unit/catalog/kv/test_incarnation.py::test_which_history_is_followed",),
    ),
    Mutant(
        name="number-of-a-known-incarnation",
        breaks="a new incarnation has a number that the process knows",
        path="src/tilth/catalog/kv/incarnation.py",
        old="for each in (memory.incarnation, found.stored))",
        new="for each in (found.stored,))",
        tests=(
            "tests/unit/catalog/kv/test_incarnation.py::"
            "test_the_number_of_a_new_one_is_above_all_that_the_process_and_the_database_know",
        ),
    ),
    Mutant(
        name="epochs-of-the-history-before",
        breaks="epochs of leases are given out again after a failover",
        path="src/tilth/catalog/kv/incarnation.py",
        old="return (self.number - 1) * EPOCHS_MAX",
        new="return 0",
        tests=(
            "tests/unit/catalog/kv/test_incarnation.py::test_versions_and_epochs_of_one_lie_above_all_of_the_one_before",
        ),
    ),
    Mutant(
        name="back-to-the-history-before",
        breaks="a process goes back to the history before the failover",
        path="src/tilth/catalog/kv/postgres_introduction.py",
        old="            if before is not None and incarnation.number <= before.number:\n                return None\n",
        new="",
        tests=(
            "tests/unit/catalog/kv/test_incarnation.py::"
            "test_a_process_never_goes_back_and_forgets_the_versions_of_the_history_before",
        ),
    ),
    Mutant(
        name="landed-in-the-history-before",
        breaks="a commit to the former primary counts as committed",
        path="src/tilth/catalog/kv/postgres_introduction.py",
        old="            if incarnation != known.incarnation:\n                return False\n",
        new="",
        tests=("tests/unit/catalog/kv/test_incarnation.py::test_a_commit_of_the_history_before_has_not_landed",),
    ),
    Mutant(
        name="dead-host-at-each-connection",
        breaks="each connection waits for a first host that is off",
        path="src/tilth/catalog/kv/postgres_connect.py",
        old='            self._answered = each["host"], each["hostaddr"]\n',
        new="",
        tests=(
            "tests/unit/catalog/kv/test_postgres_watch.py::test_the_host_that_answered_is_tried_first_the_next_time",
        ),
    ),
    Mutant(
        name="commit-after-a-move",
        breaks="a commit is applied to a catalog that has moved",
        path="src/tilth/catalog/kv/postgres_schema.py",
        old="    IF conflict IS NOT NULL THEN\n        outcome := 'moved';",
        new="    IF false THEN\n        outcome := 'moved';",
        tests=(
            "tests/integration/catalog/test_catalog_copy.py::"
            "test_a_move_that_fails_leaves_the_catalog_in_use_and_one_that_was_killed_can_begin_again",
        ),
    ),
)
