"""Records of what was taken in already: Kafka positions with their ledger, and labels of inserts."""
