"""Topics as brokers know them: the Kafka client, the answers once they are known to be answers, messages that are
missing.

Covers: everything that needs the Kafka client (broker.py). Does not cover: the stored offsets (tilth.ingest.offsets).
"""
