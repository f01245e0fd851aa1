"""The `tilth` command: `serve` runs a node, `sql` is a shell, `status` tells how a server is.

Covers: arguments, the shell, exit codes. Does not cover: the calls themselves (client/http.py).
"""
