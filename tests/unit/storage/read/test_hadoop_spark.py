"""Errors of files that Spark could not read: a store that is away is no damage of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilth.base.mailbox import new_mailbox
from tilth.storage.read.hadoop_spark import object_error
from tilth.storage.read.spark import file_error

PATH = "s3://tilth/tables/u/data/1-0.0-0.parquet"
HDFS_PATH = "hdfs://127.0.0.1:8020/tables/u/data/1-0.0-0.parquet"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("java.net.ConnectException: Connection refused", "STORE_AWAY"),
        ("software.amazon.awssdk: The specified bucket does not exist (NoSuchBucket, Status Code: 404)", "STORE_AWAY"),
        ("java.nio.file.AccessDeniedException: s3a://tilth: (Service: S3, Status Code: 403)", "STORE_REFUSED"),
        ("org.apache.hadoop.fs.s3a.AWSServiceThrottledException: SlowDown (Status Code: 503)", "STORE_BUSY"),
        ("java.net.SocketTimeoutException: Read timed out", "STORE_BUSY"),
        ("java.io.FileNotFoundException: No such file or directory: s3a://tilth/x", "PART_FILE_NOT_FOUND"),
        ("org.apache.parquet.io.ParquetDecodingException: could not verify page integrity", "PART_FILE_CORRUPT"),
    ],
)
def test_each_cause_has_its_error(text: str, code: str) -> None:
    error = object_error(PATH, text, text)
    assert error.code == code
    assert PATH in str(error)


@pytest.mark.parametrize(
    ("causes", "code"),
    [
        # The connection was refused, after the NameNode was killed.
        (
            (
                "java.net.ConnectException: Call From vm/127.0.0.1 to localhost:8020 failed on connection exception",
                "java.net.ConnectException: Connection refused",
            ),
            "STORE_AWAY",
        ),
        # The NameNode was killed while it answered.
        (
            (
                'java.io.EOFException: End of File Exception between local host is: "vm/127.0.0.1"; destination host',
                "java.io.EOFException",
            ),
            "STORE_BUSY",
        ),
        (("org.apache.hadoop.ipc.RemoteException: SafeModeException: Name node is in safe mode.",), "STORE_BUSY"),
        (("org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: BP-1",), "STORE_BUSY"),
        (("java.io.IOException: Premature EOF: no length prefix available",), "STORE_BUSY"),
        (("org.apache.hadoop.security.AccessControlException: Permission denied: user=x",), "STORE_REFUSED"),
        # The file is shorter than it was; frames of a socket with a timeout are in the trace of any read.
        (("java.io.EOFException: Reached the end of stream with 10 bytes left to read",), "PART_FILE_CORRUPT"),
        (("java.lang.RuntimeException: x.parquet is not a Parquet file. Expected magic number",), "PART_FILE_CORRUPT"),
    ],
)
def test_a_name_node_that_ends_during_a_read_is_no_damage_of_the_file(
    causes: tuple[str, ...], code: str, tmp_path: Path
) -> None:
    frames = "\tat org.apache.hadoop.net.SocketIOWithTimeout$SelectorPool.select(SocketIOWithTimeout.java:335)"
    lines = [f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {HDFS_PATH}.  SQLSTATE: KD001"]
    for cause in causes:
        lines += [f"Caused by: {cause}", frames]
    error = file_error(RuntimeError("\n".join(lines)), new_mailbox())
    assert error is not None
    assert error.code == code
    assert HDFS_PATH in str(error)
