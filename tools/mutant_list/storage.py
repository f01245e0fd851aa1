"""Mutants of storage."""

from __future__ import annotations

from tools.mutant_list.mutant import Mutant

STORAGE: tuple[Mutant, ...] = (
    Mutant(
        name="files-without-fsync",
        breaks="a file is committed that is not on the disk",
        path="src/tilth/storage/store/backends/local.py",
        old="            os.fsync(self._file.fileno())\n",
        new="            pass\n",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="folders-without-fsync",
        breaks="a file is committed whose name is not on the disk",
        path="src/tilth/storage/store/backends/local.py",
        old="        os.fsync(handle)\n",
        new="        pass\n",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="names-of-parts",
        breaks="written parts and their names are not waited for",
        path="src/tilth/storage/parts/part_files.py",
        old="    with FileFinisher(layout.folder, fsync=layout.fsync) as endings:\n",
        new="    with FileFinisher(layout.folder, fsync=False) as endings:\n",
        tests=(
            "tests/integration/test_durable_commits.py::test_rows_that_are_sorted_at_once_come_after_their_files_too",
        ),
    ),
    Mutant(
        name="names-of-merged-parts",
        breaks="the name of a part that is written by a merge or a flush is not waited for",
        path="src/tilth/storage/parts/part_files.py",
        old="else end_file(layout.folder, self._file, fsync=layout.fsync)\n",
        new="else self._file.finish(fsync=layout.fsync)\n",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="names-of-segments",
        breaks="row segments and their names are not waited for",
        path="src/tilth/storage/parts/segments.py",
        old="    with FileFinisher(layout.folder, fsync=layout.fsync) as endings:\n",
        new="    with FileFinisher(layout.folder, fsync=False) as endings:\n",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="names-of-deltas",
        breaks="files with changes of rows and their names are not waited for",
        path="src/tilth/storage/deltas/deltas.py",
        old="        self._endings = FileFinisher(self._layout.folder, fsync=self._layout.fsync)\n",
        new="        self._endings = FileFinisher(self._layout.folder, fsync=False)\n",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="names-of-files-ended-together",
        breaks="the names of files that are ended together are not waited for",
        path="src/tilth/storage/store/files/files.py",
        old="            if self._fsync:\n                sync_folder(self._folder)\n",
        new="",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="files-ended-together",
        breaks="a file that fails while others are ended is not said to have failed",
        path="src/tilth/storage/store/files/files.py",
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
        path="src/tilth/storage/store/backends/local.py",
        old="        sync_local_folder(above)\n",
        new="",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="name-of-the-table-folder",
        breaks="the name of a table's folder is not waited for",
        path="src/tilth/storage/store/backends/local.py",
        old="        sync_local_folder(os.path.dirname(above))\n",
        new="",
        tests=("tests/integration/test_durable_commits.py::test_each_commit_comes_after_its_files_and_their_names",),
    ),
    Mutant(
        name="folder-of-somebody-else",
        breaks="a folder that somebody else has made a moment ago is taken to be on the disk",
        path="src/tilth/storage/store/backends/local.py",
        old="    if is_there and (not fsync or folder in _synced):\n",
        new="    if is_there:\n",
        tests=("tests/integration/test_durable_commits.py::test_a_folder_that_somebody_else_made_is_waited_for_once",),
    ),
    Mutant(
        name="missing-before-away",
        breaks="a file that one replica lacks counts as missing although another one does not answer",
        path="src/tilth/storage/store/replicas/replicated.py",
        old="        raise min(errors, key=error_rank)\n",
        new="        raise max(errors, key=error_rank)\n",
        tests=(
            "tests/unit/storage/store/replicas/test_replicated.py::test_a_file_that_is_missing_here_and_away_there_is_away",
        ),
    ),
    Mutant(
        name="copy-of-a-changed-source",
        breaks="a copy counts as made whatever its bytes are",
        path="src/tilth/storage/store/files/copying.py",
        old="    if (written.size, written.checksum) != (file.size, file.checksum):",
        new="    if False:",
        tests=(
            "tests/unit/storage/store/files/test_copying.py::test_a_copy_whose_source_changed_while_it_was_read_is_not_left",
        ),
    ),
    Mutant(
        name="replica-that-came-back",
        breaks="a replica that comes back counts as having what it had",
        path="src/tilth/storage/store/replicas/health.py",
        old="            self.returns += bool(before and not trouble)\n",
        new="",
        tests=(
            "tests/unit/maintenance/copies/test_replicate.py::"
            "test_a_replica_that_was_away_for_a_moment_is_asked_again_what_it_has",
        ),
    ),
    Mutant(
        name="hanging-replica-waited-for",
        breaks="a replica that hangs in the middle of a file holds up whoever writes it",
        path="src/tilth/storage/store/replicas/new_copies.py",
        old="            if each.queued > room:\n",
        new="            if each.queued < 0:\n",
        tests=(
            "tests/unit/storage/store/replicas/test_failover.py::test_of_what_a_replica_has_not_taken_a_bounded_part_is_kept",
        ),
    ),
    Mutant(
        name="reader-stays-with-replica",
        breaks="whoever reads from a replica that hangs waits for it",
        path="src/tilth/storage/store/replicas/replica.py",
        old="        if replica.health.trouble:\n",
        new="        if not replica:\n",
        tests=(
            "tests/unit/storage/store/replicas/test_failover.py::"
            "test_a_reader_in_the_middle_of_a_file_goes_on_with_another_replica",
        ),
    ),
    Mutant(
        name="server-always-right-about-replica",
        breaks="a worker never uses a replica again that the server once found to be away",
        path="src/tilth/storage/store/replicas/health.py",
        old="        is_new = _clock.monotonic() - self._reported_since < REPORTED_SECONDS\n",
        new="        is_new = True\n",
        tests=(
            "tests/unit/storage/store/replicas/test_failover.py::test_a_report_of_a_server_about_a_replica_counts_for_some_seconds",
        ),
    ),
    Mutant(
        name="late-copy-given-up-by-name",
        breaks="a copy that its writer has left out empties, much later, the one that was made in its place",
        path="src/tilth/storage/store/replicas/new_copies.py",
        old="self._file.abandon()",
        new="self._file.give_up()",
        tests=(
            "tests/unit/storage/store/files/test_copying_late.py"
            "::test_a_copy_that_its_writer_has_left_out_is_given_up_without_its_name",
        ),
    ),
    Mutant(
        name="keys-out-of-order",
        breaks="rows of equal keys are searched as if each key were there once",
        path="src/tilth/storage/values/unique_keys.py",
        old="np.all(numbers[1:] > numbers[:-1])",
        new="np.all(numbers[1:] >= numbers[:-1])",
        tests=("tests/property/test_upsert_resolve.py::test_a_number_that_comes_twice_is_not_in_order",),
    ),
    Mutant(
        name="neighbours-of-keys",
        breaks="a row is found whose key is only next to a wanted one",
        path="src/tilth/storage/upsert/key_lookup.py",
        old="        is_there = numbers[rows] == wanted\n",
        new="        is_there = numbers[rows] >= wanted\n",
        tests=("tests/property/test_upsert_resolve.py::test_numbers_in_order_are_found_without_hashes",),
    ),
    Mutant(
        name="masks-of-neighbours",
        breaks="deleted rows of one file hide those of the next one",
        path="src/tilth/storage/read/masks.py",
        old="    return (rows + (1 << _ROW_BITS) - 1) >> _ROW_BITS\n",
        new="    return max(1, rows >> _ROW_BITS)\n",
        tests=(
            "tests/unit/storage/read/test_scan_paths.py::test_every_row_has_a_block_and_no_block_two_files",
            "tests/integration/storage/test_read_scan_paths.py::test_each_row_of_many_parts_is_judged_by_its_own_bit",
        ),
    ),
)
