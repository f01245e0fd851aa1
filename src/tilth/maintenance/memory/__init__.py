"""The memory of the node: how much is used, and what is given back under pressure."""
