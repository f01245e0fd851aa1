"""Exit codes of `tilth sql`: one for each kind of error, so that a script knows what to do. Pure.

Always holds: a code never changes its meaning; those below 10 are not of a statement. `tools/make_docs` writes the
table of docs/reference/cli.md from this.
"""

from __future__ import annotations

from tilth.base.errors import ErrorKind, TilthError

GOOD = 0
#: A command line that is wrong; typer ends with it, too.
WRONG_COMMAND_LINE = 2
#: 128 and the number of SIGINT, as shells have it.
CANCELLED = 130

EXIT_CODES = {
    ErrorKind.INTERNAL: 1,
    ErrorKind.INVALID: 10,
    ErrorKind.NOT_FOUND: 11,
    ErrorKind.CONFLICT: 12,
    ErrorKind.RETRY: 13,
    ErrorKind.UNAVAILABLE: 14,
    ErrorKind.FENCED: 15,
    ErrorKind.UNKNOWN_OUTCOME: 16,
    ErrorKind.CORRUPT: 17,
}
#: The reader of the output left, as `head` does.
OUTPUT_CLOSED = EXIT_CODES[ErrorKind.INTERNAL]


def exit_code(error: TilthError) -> int:
    return EXIT_CODES[error.kind]
