"""Definitions: databases, tables, Kafka tables, views, storages and warehouses, made, dropped and renamed."""
