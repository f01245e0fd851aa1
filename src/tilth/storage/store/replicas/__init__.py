"""Storages with replicas: one store that writes to several backends, and what is known of each of them."""
