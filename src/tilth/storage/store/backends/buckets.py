"""Clients of buckets and containers, by the options of their roots.

Covers: S3 and stores that speak like it, GCS, Azure. Does not cover: what is done with them (objects.py).
Always holds: a secret is read where the root refers to, and held by the client alone.

Tests: tests/integration/storage/test_store_behaviour.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.store import AzureStore, GCSStore, S3Store

from tilth.storage.store.backends.secrets import secret_of
from tilth.storage.store.root import StoreRoot

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig, S3Config

Bucket = S3Store | GCSStore | AzureStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectTimes:
    """Times that a store may take."""

    connect_seconds: float = 3.0
    #: Time limit of one request.
    request_seconds: float = 30.0
    retries_max: int = 3
    #: No request is started again after this time.
    retry_seconds: float = 60.0


def open_bucket(root: StoreRoot, times: ObjectTimes) -> Bucket:
    """Return a client; sends no request yet. Raises StoreSecretError."""
    client: ClientConfig = {
        "allow_http": root.option("endpoint").startswith("http://"),
        "connect_timeout": timedelta(seconds=times.connect_seconds),
        "timeout": timedelta(seconds=times.request_seconds),
    }
    retry: RetryConfig = {
        "max_retries": times.retries_max,
        "retry_timeout": timedelta(seconds=times.retry_seconds),
    }
    match root.kind:
        case "gs":
            return _gcs(root, client, retry)
        case "az":
            return _azure(root, client, retry)
        case _:
            return _s3(root, client, retry)


def _s3(root: StoreRoot, client: ClientConfig, retry: RetryConfig) -> S3Store:
    config: S3Config = {"region": root.option("region") or "us-east-1"}
    if root.option("endpoint"):
        config["endpoint"] = _endpoint(root)
    if root.option("key"):
        config["access_key_id"] = secret_of(root.option("key"))
        config["secret_access_key"] = secret_of(root.option("secret"))
    if root.option("token"):
        config["session_token"] = secret_of(root.option("token"))
    return S3Store(root.bucket, prefix=root.prefix or None, config=config, client_options=client, retry_config=retry)


def _gcs(root: StoreRoot, client: ClientConfig, retry: RetryConfig) -> GCSStore:
    config: GCSConfig = {}
    if root.option("endpoint"):
        config["base_url"] = _endpoint(root)
    if root.option("credentials"):
        config["service_account_key"] = secret_of(root.option("credentials"))
    return GCSStore(root.bucket, prefix=root.prefix or None, config=config, client_options=client, retry_config=retry)


def _azure(root: StoreRoot, client: ClientConfig, retry: RetryConfig) -> AzureStore:
    config: AzureConfig = {"account_name": root.option("account")}
    if root.option("endpoint"):
        # The form of services that serve several accounts under one host.
        config["endpoint"] = f"{_endpoint(root)}/{root.option('account')}"
    if root.option("key"):
        config["account_key"] = secret_of(root.option("key"))
    if root.option("sas"):
        config["sas_key"] = secret_of(root.option("sas"))
    return AzureStore(root.bucket, prefix=root.prefix or None, config=config, client_options=client, retry_config=retry)


def _endpoint(root: StoreRoot) -> str:
    return root.option("endpoint").rstrip("/")
