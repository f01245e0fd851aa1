"""The console: pages for people, which their browsers load as files and which read the server by SQL.

Covers: the files (`static/`: `core` is what pages share, `pages` has a file and a folder for each page), how they are
served (files.py). Does not cover: watched statements (server/watch.py).
Always holds: pages show nothing that a user cannot read by SQL; static/core/api.js is their only way to the server.
See also: docs/operate/console.md.
"""
