"""Mutants of commits of the catalog."""

from __future__ import annotations

from tools.mutant_list.mutant import Mutant

CATALOG_COMMITS: tuple[Mutant, ...] = (
    Mutant(
        name="begin-under-a-lost-lease",
        breaks="a transaction begins under a lease that is lost meanwhile",
        path="src/tilth/catalog/commit/transactions.py",
        old="                preconditions.append(unchanged(lease_key, view.get(lease_key)))\n",
        new="",
        tests=(
            "tests/unit/catalog/services/test_leases.py::test_no_transaction_begins_under_a_lease_that_is_lost_meanwhile",
        ),
    ),
    Mutant(
        name="commit-under-a-lost-lease",
        breaks="a transaction commits under a lease that is lost meanwhile",
        path="src/tilth/catalog/commit/load.py",
        old="        batch.preconditions.append(unchanged(key, found))\n        leases[fence.name]",
        new="        leases[fence.name]",
        tests=(
            "tests/unit/catalog/services/test_leases.py::test_nothing_is_committed_under_a_lease_that_is_lost_meanwhile",
        ),
    ),
    Mutant(
        name="no-commit-lock",
        breaks="a commit that was refused too often waits for nobody",
        path="src/tilth/catalog/commit/commit.py",
        old="        self.locks.await_others(sorted(tables), txn)\n",
        new="",
        tests=("tests/unit/catalog/commit/test_commit_locks.py::test_a_slow_commit_lands_beside_one_that_never_rests",),
    ),
    Mutant(
        name="unknown-aborted",
        breaks="work whose outcome is not known is aborted",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="            if not self._is_kept:\n                self._end()\n        elif not",
        new="            pass\n        if not",
        tests=(
            "tests/unit/catalog/commit/test_txn_handle.py::test_an_unknown_outcome_stays_unknown_whatever_is_raised_behind_it",
        ),
    ),
    Mutant(
        name="landed-swept",
        breaks="files of work are removed whose commit succeeded without an answer",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="        elif is_aborted and is_settled:",
        new="        elif is_settled:",
        tests=("tests/unit/catalog/commit/test_txn_handle.py::test_settling_finds_out_what_became_of_it",),
    ),
    Mutant(
        name="answer-waits-for-removal",
        breaks="answers of UPDATE and DELETE wait until a slow store has removed the files of failed attempts",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="        if not self._later(sweep):",
        new="        sweep()\n        if not self._later(sweep):",
        tests=(
            "tests/unit/catalog/commit/test_txn_handle_removal.py::test_a_commit_is_answered_before_its_leftover_files_are_removed",
        ),
    ),
    Mutant(
        name="refused-tries-left",
        breaks="files of tries that were refused stay after the commit that succeeds",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="(self._may_write_on or self._may_leave_files or is_retried)",
        new="(self._may_write_on or is_retried)",
        tests=(
            "tests/unit/catalog/commit/test_txn_handle.py::test_files_of_tries_that_were_refused_go_with_the_commit_that_lands",
        ),
    ),
    Mutant(
        name="earlier-attempts-left",
        breaks="files of an attempt that was lost on a cluster stay where a later attempt is committed",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="(self._may_write_on or self._may_leave_files or is_retried)",
        new="(self._may_write_on or self._may_leave_files)",
        tests=(
            "tests/unit/catalog/commit/test_txn_handle.py::test_a_later_attempt_says_that_an_earlier_one_may_have_left_files",
        ),
    ),
    Mutant(
        name="former-try-left",
        breaks="files of a try that others made useless before its commit stay for ever",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="        self._may_leave_files |= number > 0\n",
        new="",
        tests=(
            "tests/unit/catalog/commit/test_txn_handle_removal.py::test_a_later_try_may_have_left_files_of_the_former_one",
        ),
    ),
    Mutant(
        name="forgotten-work-keeps-its-files",
        breaks="files of work stay for ever that another server has aborted and forgotten",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="            return not self._may_have_landed\n",
        new="            return False\n",
        tests=(
            "tests/unit/catalog/commit/test_txn_handle.py::test_files_go_where_another_server_has_aborted_the_transaction_and_forgotten_it",
        ),
    ),
    Mutant(
        name="trimmed-commit-swept",
        breaks="files of a commit whose answer was lost are removed when its record was trimmed",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="            return not self._may_have_landed\n",
        new="            return True\n",
        tests=(
            "tests/unit/catalog/commit/test_txn_handle.py::"
            "test_nothing_goes_where_a_lost_commit_may_have_landed_so_long_ago_that_its_record_was_trimmed",
        ),
    ),
    Mutant(
        name="sweep-of-what-landed",
        breaks="a removal trusts its caller, not the record that says that the transaction is committed",
        path="src/tilth/catalog/commit/tombstones.py",
        old="if trace.is_running or (trace.finished is not None and trace.note is None):",
        new="if trace.is_running:",
        tests=(
            "tests/unit/maintenance/cleaner/test_ended.py::"
            "test_nothing_of_a_transaction_that_runs_or_has_landed_is_removed",
        ),
    ),
    Mutant(
        name="leftovers-without-a-note",
        breaks="files of failed tries stay for ever where the server dies between the commit and their removal",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="updates, requirements, leftovers)",
        new="updates, requirements, None)",
        tests=("tests/simulation/test_deaths.py::test_files_of_refused_tries_are_found_after_a_death",),
    ),
    Mutant(
        name="outage-after-a-lost-answer",
        breaks="after a lost answer an outage counts as a refusal, and files go of a commit that may still succeed",
        path="src/tilth/catalog/commit/commit.py",
        old="                in_doubt = in_doubt if is_lost else None\n",
        new="                in_doubt = None\n",
        tests=("tests/unit/catalog/commit/test_transactions.py::test_after_a_lost_answer_an_outage_is_no_refusal",),
    ),
    Mutant(
        name="aborted-while-it-commits",
        breaks="a transaction that is aborted between the view and the write of its commit is committed",
        path="src/tilth/catalog/commit/commit.py",
        old="Batch(preconditions=[unchanged(key, found), ",
        new="Batch(preconditions=[",
        tests=(
            "tests/unit/catalog/commit/test_transactions.py::test_a_transaction_that_is_aborted_while_it_commits_lands_nothing",
        ),
    ),
    Mutant(
        name="commit-lock-of-the-gone",
        breaks="the commit lock of a server that is gone holds up the others",
        path="src/tilth/catalog/commit/commit_locks.py",
        old="or not is_others or live_server(view, lock.server) is None:",
        new="or not is_others:",
        tests=(
            "tests/unit/catalog/commit/test_commit_locks.py::test_the_lock_of_a_server_that_is_gone_holds_up_nobody",
        ),
    ),
    Mutant(
        name="commit-lock-beside-commits",
        breaks="whoever acquires the commit lock does not wait for the commits under way",
        path="src/tilth/catalog/commit/commit.py",
        old="        with self._following((table,)):\n            pass\n",
        new="        return\n",
        tests=(
            "tests/unit/catalog/commit/test_commit_locks.py::test_who_acquires_the_lock_waits_for_the_commits_under_way",
        ),
    ),
    Mutant(
        name="commits-beside-commits",
        breaks="commits to one table are folded beside one another, all but one in vain",
        path="src/tilth/catalog/commit/commit.py",
        old="                stack.enter_context(self._stripes[stripe])\n",
        new="                pass\n",
        tests=(
            "tests/unit/catalog/commit/test_commit_locks.py::test_commits_to_one_table_follow_one_another_and_none_is_folded_in_vain",
        ),
    ),
    Mutant(
        name="two-commit-locks-at-once",
        breaks="two servers that acquire the commit lock at once both hold it",
        path="src/tilth/catalog/commit/commit_locks.py",
        old="result=None, preconditions=[unchanged(key, view.get(key))], puts",
        new="result=None, preconditions=[], puts",
        tests=(
            "tests/unit/catalog/commit/test_commit_locks.py::test_two_servers_that_acquire_a_lock_at_once_hold_it_one_after_the_other",
        ),
    ),
    Mutant(
        name="commit-lock-of-a-successor",
        breaks="whoever releases an expired commit lock releases the one of its successor",
        path="src/tilth/catalog/commit/commit_locks.py",
        old="if found is None or codec.COMMIT_LOCKS.decode(key, found.value).txn != txn:",
        new="if found is None:",
        tests=(
            "tests/unit/catalog/commit/test_commit_locks.py::test_who_releases_an_expired_lock_leaves_the_one_of_its_successor",
        ),
    ),
    Mutant(
        name="commit-lock-acquired-meanwhile",
        breaks="the release of a commit lock releases the one that somebody acquires meanwhile",
        path="src/tilth/catalog/commit/commit_locks.py",
        old="preconditions=[unchanged(key, found)], deletes=[key])",
        new="preconditions=[], deletes=[key])",
        tests=(
            "tests/unit/catalog/commit/test_commit_locks.py::test_who_releases_an_expired_lock_leaves_the_one_of_its_successor",
        ),
    ),
    Mutant(
        name="storage-not-pinned",
        breaks="a storage changes between the read and the write of a commit",
        path="src/tilth/catalog/commit/pinned_storages.py",
        old="        batch.preconditions.append(Pinned(key, found.version))\n",
        new="",
        tests=(
            "tests/unit/catalog/commit/test_pinned_storages.py::test_a_storage_that_changes_while_a_commit_is_on_its_way",
        ),
    ),
    Mutant(
        name="new-note-unseen-by-replace",
        breaks="REPLACE gives up the only replica with a file whose commit came between its look and its change",
        path="src/tilth/catalog/commit/pinned_storages.py",
        old="        batch.puts[lacking_key(each.table, each.replica)] = codec.INTEGERS.encode(commit_ts)\n",
        new="",
        tests=("tests/unit/catalog/commit/test_pinned_storages.py::test_a_commit_that_comes_while_a_storage_changes",),
    ),
    Mutant(
        name="unknown-work-ended",
        breaks="work whose outcome is unknown and whose owner asks again is ended",
        path="src/tilth/catalog/commit/txn_handle.py",
        old="        self._is_kept = True\n",
        new="        pass\n",
        tests=(
            "tests/unit/maintenance/work/test_part_work.py::"
            "test_what_nobody_knows_is_found_out_also_while_the_service_is_stopped",
        ),
    ),
    Mutant(
        name="id-of-a-finished-transaction",
        breaks="a transaction begins under an id that has finished",
        path="src/tilth/catalog/commit/transactions.py",
        old="            if found is not None or view.get(finished) is not None:",
        new="            if found is not None:",
        tests=(
            "tests/unit/membership/test_ended_servers.py::"
            "test_an_id_that_is_in_use_is_drawn_anew_and_one_that_has_finished_too",
        ),
    ),
    Mutant(
        name="begin-of-an-ended-server",
        breaks="a server that was ended begins a transaction",
        path="src/tilth/catalog/commit/transactions.py",
        old="[Absent(key), *life, *time], {key: value}, [])",
        new="[Absent(key), *time], {key: value}, [])",
        tests=(
            "tests/unit/membership/test_ended_servers.py::test_an_ended_server_that_does_not_know_it_begins_nothing",
        ),
    ),
    Mutant(
        name="commit-of-an-ended-server",
        breaks="a server that was ended commits what it had begun",
        path="src/tilth/catalog/commit/commit.py",
        old="Batch(preconditions=[unchanged(key, found), *pin_life(view, txn.server)]",
        new="Batch(preconditions=[unchanged(key, found)]",
        tests=(
            "tests/unit/membership/test_ended_servers.py::test_an_ended_server_commits_nothing_of_what_it_had_begun",
        ),
    ),
    Mutant(
        name="begin-ahead-of-the-database",
        breaks="a transaction begins with a time far ahead of the database's clock",
        path="src/tilth/catalog/commit/transactions.py",
        old="[Absent(key), *life, *time], {key: value}, [])",
        new="[Absent(key), *life], {key: value}, [])",
        tests=(
            "tests/unit/membership/test_ended_servers.py::"
            "test_a_time_ahead_of_the_databases_clock_begins_nothing_and_commits_nothing_that_was_begun",
        ),
    ),
    Mutant(
        name="begin-under-a-fence-ahead-of-the-database",
        breaks="a transaction under a fence begins with a time far ahead of the database's clock",
        path="src/tilth/catalog/commit/transactions.py",
        old="preconditions: list[Precondition] = [*pin_life(view, txn.server), *time]",
        new="preconditions: list[Precondition] = [*pin_life(view, txn.server)]",
        tests=(
            "tests/unit/membership/test_ended_servers.py::"
            "test_a_time_ahead_of_the_databases_clock_begins_nothing_and_commits_nothing_that_was_begun",
        ),
    ),
    Mutant(
        name="commit-ahead-of-the-database",
        breaks="a commit has a time far ahead of the database's clock",
        path="src/tilth/catalog/commit/commit.py",
        old="        batch.preconditions += self._clock_check.preconditions(commit_ts)\n",
        new="",
        tests=(
            "tests/unit/membership/test_ended_servers.py::"
            "test_a_time_ahead_of_the_databases_clock_begins_nothing_and_commits_nothing_that_was_begun",
        ),
    ),
    Mutant(
        name="commit-by-a-wrong-clock",
        breaks="a server whose clock has jumped commits until it is compared",
        path="src/tilth/catalog/commit/commit.py",
        old="                if refusal := self.refusal:",
        new="                if refusal := self.lasting_refusal:",
        tests=(
            "tests/unit/membership/test_ended_servers.py::"
            "test_a_clock_that_has_jumped_commits_nothing_not_even_before_it_is_compared",
        ),
    ),
    Mutant(
        name="refusal-after-a-lost-answer",
        breaks="after a lost answer a refusal of this server counts as one of the commit",
        path="src/tilth/catalog/commit/commit.py",
        old='return Conflicted(refusal) if in_doubt is None else Unknown(f"{in_doubt}: {refusal}")',
        new="return Conflicted(refusal)",
        tests=(
            "tests/unit/catalog/commit/test_transactions.py::"
            "test_after_a_lost_answer_a_refusal_of_this_server_is_none_of_the_commit",
        ),
    ),
    Mutant(
        name="times-of-a-clock-that-was-wrong",
        breaks="a server that joins draws times that its clock gave when it was wrong",
        path="src/tilth/catalog/commit/transactions.py",
        old="        self._life = None if found is None else Pinned(key, found.version)\n        self.follow_clock()\n",
        new="        self._life = None if found is None else Pinned(key, found.version)\n",
        tests=(
            "tests/unit/membership/test_ended_servers.py::"
            "test_a_server_whose_clock_was_wrong_before_it_joined_begins_with_times_of_the_catalog",
        ),
    ),
    Mutant(
        name="cache-of-a-lost-history",
        breaks="visible parts of commits that a failover has lost stay in the cache",
        path="src/tilth/catalog/commit/visible_parts.py",
        old="        if now != self._known_history:\n",
        new="        if now is None:\n",
        tests=(
            "tests/unit/catalog/commit/test_visible_parts.py::test_nothing_of_a_lost_history_is_found_or_keeps_others_out",
        ),
    ),
)
