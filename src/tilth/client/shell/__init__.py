"""The shell of `tilth sql`: what is typed, what is completed, what runs, how far it is, how its rows are shown.

Covers: the conversation at a terminal, and running a statement for the command line. Does not cover: arguments
(client/cli/sql.py), calls of the server (client/http.py), cells and grids (client/rows.py).
Always holds: typing waits for nothing; what the shell knows of the server it reads by SQL, on threads of its own.
"""
