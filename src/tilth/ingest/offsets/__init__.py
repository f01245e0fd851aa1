"""Stored offsets where no round moves them: subscriptions, first positions, gaps, resets.

Covers: the server's side. Does not cover: what rounds commit (tilth.ingest.service).
"""
