"""Relations: names, definitions, entries of ALTER, secrets, and what remains of relations that were dropped."""
