"""Meaning of texts, whoever runs them: values of types, the dialect, secrets, Spark's errors.

Covers: literals as values, assignable types, ClickHouse's SELECTs, redaction, errors in the words of the user. Does not
cover: the text of statements (grammar).
Always holds: pure; nothing here calls another room.
"""
