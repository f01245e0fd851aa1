"""Workers in processes of their own: the protocol between them and their server, over HTTP.

Covers: messages, errors as bytes, calls with their retries, the server's list of workers, the worker's side of it. Does
not cover: routes (tilth.server), calls of runners (ingest/consumer, query/snapshots), tasks (warehouse/tasks).
Always holds: nothing that comes over the network is unpickled; a call that is sent twice acts once.
"""
