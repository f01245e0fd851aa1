"""Roots in the buckets of tests: a fake bucket, or a server that speaks S3."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from tilth.storage import StoreRoot, parse_root
from tools.s3server import KEY, SECRET

BUCKET = "tilth"
KEY_VARIABLE, SECRET_VARIABLE = "TILTH_TEST_S3_KEY", "TILTH_TEST_S3_SECRET"
#: Numbers of the prefixes of this process, which shares its servers with no other.
_numbers = count()


def set_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the secrets that the roots refer to."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)


def gcs_root(endpoint: str, folder: Path, *, prefix: str = "") -> StoreRoot:
    """A prefix of the tests' bucket as one of GCS, whose server asks nobody who they are."""
    account = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
    (folder / "gcs.json").write_text(json.dumps(account | {"private_key_id": ""}))
    options = f"endpoint={endpoint}&credentials=file:{folder}/gcs.json"
    return parse_root(f"gs://{BUCKET}/{prefix or _new_prefix()}?{options}")


def bucket_root(endpoint: str, *, prefix: str = "", **options: str) -> StoreRoot:
    """A prefix of the tests' bucket."""
    given = {"endpoint": endpoint, "key": f"env:{KEY_VARIABLE}", "secret": f"env:{SECRET_VARIABLE}"} | options
    query = "&".join(f"{name}={value}" for name, value in given.items())
    return parse_root(f"s3://{BUCKET}/{prefix or _new_prefix()}?{query}")


def _new_prefix() -> str:
    return f"prefix{next(_numbers)}"
