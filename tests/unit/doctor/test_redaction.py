import json
from pathlib import Path

import pytest

from tilth.doctor import shown_and_secrets, without_any_secret


def test_secrets_of_settings_references_and_variables(tmp_path: Path) -> None:
    token, password = tmp_path / "service-token", tmp_path / "password"
    token.write_text("0123456789abcdef-token\n")
    password.write_text("correct horse\n")
    texts = {
        "warehouse.spark-conf": "spark.hadoop.fs.s3a.secret.key=wJalrXUtnFEMI spark.ui.port=4050",
        "server.token-file": str(token),
        "catalog.url": f"postgresql://tilth@db/shop?password=file:{password}&schema=s",
        "storage.root": "s3://lake/x?key=env:LAKE_KEY&secret=env:LAKE_SECRET",
        "data": "/data",
    }
    environment = {
        "LAKE_SECRET": "lake-secret-1",
        "LAKE_KEY": "lake-key-1",
        "PGPASSWORD": "pg-password",
        "HOME": "/root",
    }
    shown, secrets = shown_and_secrets(texts, environment)
    assert shown["warehouse.spark-conf"].endswith("spark.ui.port=4050")
    assert "wJalr" not in str(shown)
    assert set(secrets) == {
        "wJalrXUtnFEMI",
        "0123456789abcdef-token",
        "correct horse",
        "lake-secret-1",
        "lake-key-1",
        "pg-password",
    }


def test_a_key_of_several_lines_is_found_in_json(tmp_path: Path) -> None:
    key = tmp_path / "private-key.pem"
    key.write_text('-----BEGIN PRIVATE KEY-----\nMII"E\\vQ\u00e9\n-----END PRIVATE KEY-----\n')
    _, secrets = shown_and_secrets({"server.token-file": str(key)}, {})
    for is_ascii in (True, False):
        text = json.dumps({"sentence": f"it is {key.read_text()}"}, ensure_ascii=is_ascii)
        assert without_any_secret(text, secrets) == '{"sentence": "it is [HIDDEN]\\n"}'


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("error: correct horse is wrong, correct hors", "error: [HIDDEN] is wrong, [HIDDEN]"),
        ("reason=x sasl.password=hunter2", "reason=x sasl.password=[HIDDEN]"),
        ('{"kafka_sasl_password":"hunter2","a":1}', '{"kafka_sasl_password":\'[HIDDEN]\',"a":1}'),
        ("ssl.key.pem=MIIhunter2 a=1", "ssl.key.pem=[HIDDEN] a=1"),
        ("GET http://joe:hunter2@host/x", "GET http://[HIDDEN]@host/x"),
        ("GET http://joe:hun@ter2@host/x?a=b@c", "GET http://[HIDDEN]@host/x?a=b@c"),
        ("authorization: Bearer abcdefghijkl", "authorization: Bearer [HIDDEN]"),
        ("SELECT * FROM s3('http://b', 'AKIA12', 'hunter2')", "SELECT * FROM s3('http://b', '[HIDDEN]', '[HIDDEN]')"),
        ("2026-01-31 action=merge rows=12 reason=two parts", "2026-01-31 action=merge rows=12 reason=two parts"),
    ],
)
def test_lines(text: str, without: str) -> None:
    found = without_any_secret(f"first line\n{text}\n", ["correct horse"])
    assert "hunter2" not in found
    assert found == f"first line\n{without}\n"


def test_long_lines_end() -> None:
    line = "(" * 1000 + "password" * 5000 + "'" + "x" * 100_000
    assert "password" in without_any_secret(line, [])
