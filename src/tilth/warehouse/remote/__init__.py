"""Workers in processes of their own: what they and their server say to each other over HTTP.

Covers: messages, errors as bytes, calls with their retries, the server's list of workers, the worker's side of it. Does
not cover: routes (tilth.server), what runners ask (ingest/consumer, query/snapshots), tasks (warehouse/tasks).
Always holds: nothing that comes over the network is unpickled; a call that is sent twice acts once.
"""
