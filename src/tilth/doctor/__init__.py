"""Diagnosis of a set-up: what is wrong on a machine before a server starts, and with a server that runs.

Covers: the checks of this machine, a node's folder and what its settings name (machine.py, libraries.py, folders.py,
catalog.py, network.py), the checks of a server by its public API (server.py), running them side by side (checkup.py);
for bundles, sizes of files and ends of logs (node_files.py), and texts without secrets (redaction.py).
Does not cover: the command (client/cli/doctor.py), alarms (tilth.introspection).
Always holds: nothing is changed; a probe file is removed by its name; a check that hangs is a finding, and delays the
others by a bounded time; a library that is missing or broken is a finding, not an error, so that modules of other rooms
are imported inside of the checks.
See also: docs/operate/doctor.md.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.doctor.checkup import Checkup, run_checks
    from tilth.doctor.given import GivenSetup, read_setup
    from tilth.doctor.local import LocalSetup, local_checks
    from tilth.doctor.node_files import folder_sizes, tails
    from tilth.doctor.redaction import shown_and_secrets, without_any_secret
    from tilth.doctor.server import CALL_SHARE, ServerCalls, check_server
else:
    __getattr__ = door(__name__)
