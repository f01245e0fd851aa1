"""Names and settings by which Spark's own scan reaches the files of a root.

Covers: S3 through Hadoop's s3a, by the bucket's settings in the JVM's configuration. Does not cover: tasks in Python,
which reach stores by themselves (storage/store).
Always holds: a secret is in the configuration of the JVM only, never among Spark's properties, which SET, pages and
logs show; a root that is new is reached without a new start. Two roots in one bucket share its settings, and changed
ones reach a JVM only with its next start: Hadoop keeps its client of a bucket.

Tests: tests/integration/storage/test_storage_spark_hdfs.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError

from tilth.base.errors import TilthError, UnavailableError
from tilth.storage.errors import (
    PartFileCorruptError,
    PartFileNotFoundError,
    StoreAwayError,
    StoreBusyError,
    StoreRefusedError,
)
from tilth.storage.store.backends.secrets import secret_of
from tilth.storage.store.root import Folder, StoreRoot

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_S3, _S3A = "s3://", "s3a://"
_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_PROVIDERS = "org.apache.hadoop.fs.s3a"
_NO_ANSWER: Mapping[re.Pattern[str], type[TilthError]] = {
    re.compile(
        r"AccessDenied|AccessControlException|Forbidden|Status Code: 40[13]|SignatureDoesNotMatch|InvalidAccessKeyId"
    ): StoreRefusedError,
    re.compile(r"ConnectException|UnknownHost|NoRouteToHost|Connection refused"): StoreAwayError,
    re.compile(
        r"SlowDown|Status Code: 5\d\d|Timeout|timed out|InterruptedIO|Connection reset|SdkClientException|AWSClientIO|"
        # Hadoop's calls of a NameNode that ends, starts or stands by, and a DataNode that ends or is away.
        r"End of File Exception between local host|Failed on local exception|RetriableException|StandbyException|"
        r"SafeModeException|BlockMissingException|Broken pipe|Premature EOF|ClosedChannelException|Filesystem closed"
    ): StoreBusyError,
}
#: Retries for a store that refuses connections, whose queries fail after 4 seconds, or is silent, after 95. By default,
#: they fail after two minutes, or not within three. Requests that the store throttles keep Hadoop's own retries.
_RETRIES = {
    "attempts.maximum": "1",
    "retry.limit": "2",
    "retry.interval": "500ms",
    # Hadoop accepts no shorter timeouts.
    "connection.establish.timeout": "15s",
    "connection.timeout": "15s",
}
#: Settings of buckets that a JVM has, by its context.
_made: WeakKeyDictionary[SparkContext, dict[str, Mapping[str, str]]] = WeakKeyDictionary()


def spark_uri(folder: Folder) -> str:
    """Return the name under which Spark knows a folder."""
    name = str(folder)
    return f"file:{name}" if folder.root.is_local else name.replace(_S3, _S3A, 1)


def own_uri(uri: str) -> str:
    """Return the name that Tilth has for a file by the name that Spark has reported."""
    return uri.replace(_S3A, _S3, 1)


def object_error(path: str, text: str, because: str) -> TilthError:
    """Return why Spark could not read an object, by the words of its client: a store that does not answer, or does not
    let it, is no statement about the file.
    """
    if "NoSuchBucket" in text or "UnknownStoreException" in text:
        return StoreAwayError("the bucket is not there", file=path, because=because)
    if "FILE_NOT_EXIST" in text or "FileNotFoundException" in text:
        return PartFileNotFoundError(file=path, because=because)
    return store_error(path, text, because) or PartFileCorruptError(file=path, because=because)


def store_error(path: str, text: str, because: str) -> TilthError | None:
    """Return the error of a store that does not answer or refuses, by the words of its client in the JVM; None: it has
    answered.
    """
    # Stack frames are left out: any read has frames of sockets whose names contain `Timeout`.
    messages = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("at "))
    for words, kind in _NO_ANSWER.items():
        if words.search(messages):
            message = "the store does not answer" if kind is StoreAwayError else ""
            return kind(message, file=path, because=because)
    return None


def let_spark_reach(session: SparkSession, root: StoreRoot) -> None:
    """Give Hadoop what it needs for the root. Raises UnavailableError and StoreSecretError."""
    if not root.uri.startswith(_S3):
        return
    wanted = s3a_settings(root)
    made = _made.setdefault(session.sparkContext, {})
    if made.get(root.bucket) == wanted:
        return
    # Any: handles of py4j have no types.
    jvm: Any = session.sparkContext._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_FILE_SYSTEM)
    except Py4JError as error:
        hint = "fill a folder with the jars of docs/operate/storages.md#s3, and name it by warehouse.jars"
        raise UnavailableError.coded(
            "SPARK_WITHOUT_S3", "Spark has no jars for reading S3", store=str(root), hint=hint
        ) from error
    java_context: Any = session.sparkContext._jsc
    configuration = java_context.hadoopConfiguration()
    for name, value in wanted.items():
        configuration.set(f"fs.s3a.bucket.{root.bucket}.{name}", value)
    made[root.bucket] = wanted


def s3a_settings(root: StoreRoot) -> dict[str, str]:
    """Return the settings of the root's bucket, without their prefix. Raises StoreSecretError."""
    found = dict(_RETRIES)
    endpoint, region = root.option("endpoint"), root.option("region")
    if endpoint:
        found |= {"endpoint": endpoint, "path.style.access": "true"}
        found["connection.ssl.enabled"] = str(endpoint.startswith("https:")).lower()
    if region:
        found["endpoint.region"] = region
    if root.option("key"):
        found |= {"access.key": secret_of(root.option("key")), "secret.key": secret_of(root.option("secret"))}
        found["aws.credentials.provider"] = f"{_PROVIDERS}.SimpleAWSCredentialsProvider"
    if root.option("token"):
        found["session.token"] = secret_of(root.option("token"))
        found["aws.credentials.provider"] = f"{_PROVIDERS}.TemporaryAWSCredentialsProvider"
    return found
