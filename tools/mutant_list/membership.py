"""Mutants of membership."""

from __future__ import annotations

from tools.mutant_list.mutant import Mutant

MEMBERSHIP: tuple[Mutant, ...] = (
    Mutant(
        name="ends-others-after-a-pause",
        breaks="a process that stood still ends others for what it has not seen",
        path="src/tilth/membership/member.py",
        old="            self._watch = Watch()\n        silent",
        new="            pass\n        silent",
        tests=(
            "tests/unit/membership/test_member.py::"
            "test_a_process_that_stood_still_ends_nobody_for_what_it_has_not_seen",
        ),
    ),
    Mutant(
        name="hosts-although-ended",
        breaks="a server that was ended hosts its tables until it has joined anew",
        path="src/tilth/membership/member.py",
        old='            self._now = Membership(me="", servers=self._now.servers)\n',
        new="            pass\n",
        tests=("tests/unit/membership/test_member.py::test_who_was_ended_hosts_nothing_at_the_moment_when_it_is_told",),
    ),
    Mutant(
        name="ended-by-a-hint",
        breaks="a server whose presence was lost is ended although it proves that it lives",
        path="src/tilth/membership/member.py",
        old="return silent > GONE_SECONDS and self._presence",
        new="return self._presence",
        tests=("tests/unit/membership/test_member.py::test_a_missing_sign_alone_ends_nobody",),
    ),
)
