"""What Spark says of an object that it could not read: the store that is away is no damage of the file."""

from __future__ import annotations

import pytest

from tilth.storage.read.hadoop_spark import object_error

PATH = "s3://tilth/tables/u/data/1-0.0-0.parquet"


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
