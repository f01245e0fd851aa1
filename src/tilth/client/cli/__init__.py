"""The `tilth` command: a module for each of its commands.

Covers: arguments, what is printed, exit codes. Does not cover: the calls themselves (client/http.py), the shell
(client/shell). See also: docs/reference/cli.md.
"""
