"""No statement shows the password in it: however it is laid out, wherever it breaks off, whatever the password is."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tilth.base.secrets import HIDDEN, without_secrets
from tilth.grammar.render import quoted_string
from tilth.query.language.redact import redacted

MARK = "hunter"
gaps = st.sampled_from(["", " ", "\n", "\t ", " -- a comment\n", "/* one */", " /* a 'quote' */ "])
names = st.sampled_from(
    [
        "kafka_sasl_password",
        "`kafka_sasl_password`",
        "KAFKA_SASL_PASSWORD",
        "kafka_sasl_pasword",
        "my_secret",
        "s3_token",
    ]
)
heads = st.sampled_from(["CREATE TABLE k (a Int64) SETTINGS ", "ALTER TABLE k MODIFY SETTING a = 'b', ", "CRETE "])
tails = st.sampled_from(["", ", b = 'c'", " x", "'", ";", " COMMENT 'it''s'"])


@given(heads, names, gaps, gaps, st.text(max_size=12), tails)
def test_a_password_is_hidden_however_the_statement_is_laid_out(
    head: str, name: str, before: str, behind: str, more: str, tail: str
) -> None:
    secret = MARK + more
    text = f"{head}{name}{before}={behind}{quoted_string(secret)}{tail}"
    found = redacted(text)
    assert MARK not in found.text
    assert HIDDEN in found.text
    assert found.text.startswith(head)
    for end in range(len(text)):
        assert MARK not in redacted(text[:end]).text


@given(heads, st.text(max_size=12).filter(lambda text: ";" not in text), tails, st.booleans())
def test_pairs_of_the_client_library_too(head: str, more: str, tail: str, is_json: bool) -> None:
    secret = MARK + more
    pairs = (
        json.dumps({"client.rack": "r", "sasl.password": secret})
        if is_json
        else f"client.rack=r;sasl.password={secret}"
    )
    text = f"{head}kafka_extra_librdkafka_config = {quoted_string(pairs)}{tail}"
    found = redacted(text)
    assert MARK not in found.text
    assert "client.rack" in found.text or tail == "'"
    for end in range(len(text)):
        assert MARK not in redacted(text[:end]).text


@given(st.text(), st.text(min_size=4), st.text())
def test_a_secret_in_a_message_is_hidden_whole_and_in_part(before: str, secret: str, behind: str) -> None:
    assert secret not in without_secrets(f"{before}{secret}{behind}", [secret]).replace(HIDDEN, "") or secret in (
        f"{before}{behind}"
    )
    quoted = f"found '{(MARK + secret)[:10]}..'"
    assert MARK not in without_secrets(quoted, [MARK + secret])
