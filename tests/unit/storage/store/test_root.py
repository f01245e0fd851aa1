"""Roots of stores: their texts, what is refused, and that no text shows a secret."""

import pickle

import msgspec
import pytest

from tilth.base.errors import ErrorKind
from tilth.storage import BadStoreError, Folder, StoreRoot, data_folder, local_folder, parse_root
from tilth.storage.errors import StoreSecretError
from tilth.storage.store.backends.secrets import secret_of

FULL = "s3://bucket/a/b?endpoint=http://127.0.0.1:9000&key=env:S3_KEY&region=eu-west-1&secret=file:/etc/tilth/s3"


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("/data/tables", "/data/tables"),
        ("/data//tables/", "/data/tables"),
        ("/a folder with 100% ü?x=1", "/a folder with 100% ü?x=1"),
        ("file:///data/tables", "/data/tables"),
        ("file://localhost/data/a%20b", "/data/a b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a//b/", "s3://bucket/a/b"),
        (FULL, "s3://bucket/a/b"),
        ("gs://bucket/a?credentials=file:/etc/tilth/gcs.json&endpoint=http://127.0.0.1:4443", "gs://bucket/a"),
        ("az://container/a?account=tilth1&key=env:K", "az://container/a"),
        ("az://container?account=tilth1&sas=env:K", "az://container"),
        ("hdfs://namenode:8020/a/b/", "hdfs://namenode:8020/a/b"),
        ("hdfs://name_service", "hdfs://name_service"),
    ],
)
def test_a_root_is_read_from_its_text_and_written_again(text: str, uri: str) -> None:
    root = parse_root(text)
    assert (root.uri, str(root)) == (uri, uri)
    assert parse_root(root.text) == root
    assert pickle.loads(pickle.dumps(root)) == root
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(root), type=StoreRoot) == root


def test_a_root_has_the_parts_that_a_client_needs() -> None:
    root = parse_root(FULL)
    assert (root.kind, root.is_local, root.bucket, root.prefix) == ("s3", False, "bucket", "a/b")
    assert [root.option(name) for name in ("endpoint", "region", "key", "secret", "token")] == [
        "http://127.0.0.1:9000",
        "eu-west-1",
        "env:S3_KEY",
        "file:/etc/tilth/s3",
        "",
    ]
    assert root.text == FULL


@pytest.mark.parametrize(
    "text",
    [
        "",
        "data/tables",
        "file:data",
        "file://host/data",
        "file:///data?x=1",
        "/data\n",
        "hdfs://",
        "hdfs:///data",
        "hdfs://host:/data",
        "hdfs://host:port/data",
        "hdfs://host:8020/a b",
        "hdfs://host:8020/a?user=somebody",
        "gs://bucket/a?region=eu",
        "gs://bucket/a?key=env:K&secret=env:K",
        "az://container/a",
        "az://container/a?account=T.1",
        "az://container/a?account=tilth1&key=env:K&sas=env:K",
        "http://host/data",
        "s3://",
        "s3:///a",
        "s3://B/a",
        "s3://bucket/../a",
        "s3://bucket/a b",
        "s3://bucket/a#b",
        "s3://bucket/a?b",
        "s3://bucket/a?colour=red",
        "s3://bucket/a?region=eu&region=us",
        "s3://bucket/a?region=eu%0Awest",
        "s3://bucket/a?endpoint=host:9000",
        "s3://bucket/a?endpoint=http://host:9000/path",
        "s3://bucket/a?key=env:K",
        "s3://bucket/a?key=env:K&secret=env:",
        "s3://[::1/a",
    ],
)
def test_what_is_no_root_is_refused(text: str) -> None:
    with pytest.raises(BadStoreError) as refused:
        parse_root(text)
    assert refused.value.kind is ErrorKind.INVALID


@pytest.mark.parametrize(
    "text",
    [
        "s3://hidden:hidden@bucket/a",
        "s3://hidden@bucket/a",
        "s3://bucket/a?key=hidden&secret=hidden",
        "s3://bucket/a?key=env:K&secret=hidden",
        "s3://bucket/a?key=env:K&secret=env:K&token=hidden",
        "s3://bucket/a?hidden",
        "s3://bucket/a?endpoint=http://hidden@host",
        "gs://bucket/a?credentials=hidden",
        "az://container/a?account=tilth1&key=hidden",
        "az://container/a?account=hidden..",
        "az://container/a?account=tilth1&sas=hidden",
        "hdfs://hidden@host:8020/a",
        "hdfs://host:8020/a?password=hidden",
    ],
)
def test_a_refusal_does_not_repeat_what_may_be_a_secret(text: str) -> None:
    with pytest.raises(BadStoreError) as refused:
        parse_root(text)
    shown: BaseException | None = refused.value
    while shown is not None:
        assert "hidden" not in f"{shown} {shown.args}"
        shown = shown.__cause__


def test_folders_join_names_and_show_no_options() -> None:
    folder = data_folder(parse_root(FULL), "ab")
    assert (str(folder), folder.uri("x.parquet")) == ("s3://bucket/a/b/ab/data", "s3://bucket/a/b/ab/data/x.parquet")
    assert folder.key("x.parquet") == "ab/data/x.parquet"
    assert Folder(folder.root).key("x") == "x"
    with pytest.raises(TypeError, match="no folder of a local disk"):
        folder.__fspath__()
    assert local_folder("/data").uri("x") == "/data/x"


def test_secrets_are_read_where_the_reference_points(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILTH_TEST_SECRET", "one")
    assert secret_of("env:TILTH_TEST_SECRET") == "one"
    file = tmp_path_factory.mktemp("secrets") / "s3"
    file.write_text("two\n")
    assert secret_of(f"file:{file}") == "two"
    monkeypatch.delenv("TILTH_TEST_SECRET")
    file.write_bytes(b"\xff\xfe")
    for reference in ("env:TILTH_TEST_SECRET", f"file:{file}", f"file:{file}.none"):
        with pytest.raises(StoreSecretError) as missing:
            secret_of(reference)
        assert reference.partition(":")[2] in missing.value.message
    file.write_text("")
    with pytest.raises(StoreSecretError, match="is empty"):
        secret_of(f"file:{file}")
