"""Warehouses as users define them: what their settings mean, which one a table's work goes to.

Does not cover: where definitions are kept (catalog), which workers there are (tasks/).
"""
