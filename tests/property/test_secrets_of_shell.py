"""A statement in which the server finds a secret is not kept by the shell, however it is laid out or cut off."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.property.test_redacted_statements import gaps, heads, names, tails
from tilth.client.secrets import may_hold_secret
from tilth.grammar.render import quoted_string
from tilth.query.language.redact import redacted

SECRET = [
    "CREATE TABLE k (a Int64) ENGINE = Kafka SETTINGS kafka_sasl_password = 'hunter2'",
    "SELECT * FROM s3('https://b/x', 'AKIA', 'hunter2')",
    "SELECT * FROM t /* a */ JOIN mysql -- b\n ('h:1', 'd', 't', 'u', 'hunter2')",
    "CREATE TABLE t (a Int64) ENGINE = PostgreSQL('h:1', 'd', 't', 'u', 'hunter2')",
    "SELECT aes_encrypt(a, 'hunter2hunter2') FROM t",
    "CREATE USER u IDENTIFIED WITH plaintext BY 'hunter2'",
    "BACKUP CATALOG TO 's3://user:hunter2@host/x'",
    "CREATE STORAGE s ROOT 'az://c/p?sas=hunter2'",
    "CREATE TABLE k (a Int64) ENGINE = Kafka SETTINGS kafka_broker_list = 'user:hunter2@broker:9092'",
    'ALTER TABLE k MODIFY SETTING kafka_extra_librdkafka_config = \'{"sasl.password": "hunter2"}\'',
    "SELECT 1 SETTINGS kafka_sasl_password = 'hunter2'",
]
PLAIN = [
    "SELECT count(*) FROM t WHERE k = 'one'",
    "SELECT token, password FROM accounts ORDER BY token",
    "SELECT token FROM accounts;\n",
    "INSERT INTO t VALUES (1, 'one')",
    "CREATE TABLE t (a Int64, remote_id Int64) ENGINE = MergeTree ORDER BY a",
    "SHOW TABLES",
    "\\d t",
]


@pytest.mark.parametrize("text", SECRET)
def test_secrets_of_every_kind(text: str) -> None:
    assert redacted(text).secrets
    assert may_hold_secret(text)


@pytest.mark.parametrize("text", PLAIN)
def test_statements_without_any_are_kept(text: str) -> None:
    assert not may_hold_secret(text)


def test_each_statement_of_a_line_counts() -> None:
    """They are sent one by one, and kept as they were typed."""
    second = "CREATE USER u IDENTIFIED BY 'hunter2';"
    assert redacted(second).secrets
    assert may_hold_secret(f"SELECT 1; {second}")


@settings(max_examples=examples(200))
@given(heads, names, gaps, gaps, st.text(max_size=12), tails)
def test_however_it_is_laid_out_and_wherever_it_breaks_off(
    head: str, name: str, before: str, behind: str, more: str, tail: str
) -> None:
    text = f"{head}{name}{before}={behind}{quoted_string('hunter' + more)}{tail}"
    for end in range(len(text) + 1):
        assert may_hold_secret(text[:end]) or not redacted(text[:end]).secrets


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.sampled_from(
            [
                " ",
                "\n",
                "s3",
                "mysql",
                "(",
                ")",
                "'a'",
                "'hunter2'",
                ",",
                "select",
                "create",
                "password",
                "=",
                ":",
                "@h:1",
                "https://",
                "u:p",
                "?sas=x",
                "--\n",
                "/* */",
                "kafka_sasl_password",
                "identified",
                "by",
                "aes_decrypt",
                '"',
            ]
        ),
        max_size=20,
    )
)
def test_whatever_the_server_hides_is_not_kept(words: list[str]) -> None:
    text = "".join(words)
    assert may_hold_secret(text) or not redacted(text).secrets
