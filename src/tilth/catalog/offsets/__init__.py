"""Records of what is stored already: Kafka positions with their ledger, and labels of inserts."""
