"""A storage with replicas of two kinds: two folders and a bucket, of which two make a quorum."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tilth.storage import StoreRoot, parse_root, replicas_of, replicated_root, reserve_location
from tilth.testing import FakeBucket

#: Number of the replica in the bucket.
IN_BUCKET = 2


def root_with_bucket(folder: Path, bucket: FakeBucket, table: str) -> StoreRoot:
    """Return the root of a new storage whose replicas have the marker of the table. The bucket's credentials are in
    TILTH_TEST_KEY.
    """
    options = f"endpoint={bucket.endpoint}&region=eu-west-1&key=env:TILTH_TEST_KEY&secret=env:TILTH_TEST_KEY"
    locations = [parse_root(f"{folder}/{name}") for name in ("one", "two")]
    locations.append(parse_root(f"s3://tilth/p?{options}"))
    for each in locations:
        reserve_location(each)
    root = msgspec.structs.replace(replicated_root("r", locations, 2), replica_ids=("a", "b", "c"))
    for replica in replicas_of(root):
        replica.write_marker(table)
    return root
