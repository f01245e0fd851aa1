"""Records of what is stored already: Kafka positions with their ledger, labels of inserts, loaded files, batches of
streams.
"""
