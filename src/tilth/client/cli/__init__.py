"""The `tilth` command: `serve` runs a node, `sql` is a shell, `status` shows the state of a server.

Covers: arguments, the shell, exit codes. Does not cover: the calls themselves (client/http.py).
"""
