"""The shell of `tilth sql`: typing and completing statements, running them, their progress, their rows.

Covers: the conversation at a terminal, and running a statement for the command line. Does not cover: arguments
(client/cli/sql.py), calls of the server (client/http.py), cells and grids (client/rows.py).
Always holds: typing waits for nothing; what the shell knows of the server it reads by SQL, on threads of its own.
"""
