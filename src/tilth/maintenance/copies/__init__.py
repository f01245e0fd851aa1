"""Copies of files: those that replicas lack are made, all of them are compared with their checksums."""
