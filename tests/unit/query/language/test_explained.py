"""Plans of Spark name no folder; EXPLAIN is found behind comments."""

from __future__ import annotations

import pytest

from tilth.query.language.explained import explains, with_tasks, without_locations


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (
            "FileScan parquet [i#1] Location: InMemoryFileIndex(1 paths)[file:/srv/tilth/tables/ab12..., Filters: []",
            "FileScan parquet [i#1] Location: InMemoryFileIndex(1 paths)[files of a table..., Filters: []",
        ),
        (
            "Location: InMemoryFileIndex [file:/srv/my [1] folder/tables/ab/data]\nPushedFilters: [IsNotNull(i)]",
            "Location: InMemoryFileIndex [files of a table]\nPushedFilters: [IsNotNull(i)]",
        ),
        (
            "Location: InMemoryFileIndex [s3a://b/p/ab/data, ... 3 entries]\nReadSchema",
            "Location: InMemoryFileIndex [files of a table... 3 entries]\nReadSchema",
        ),
        ("Filter (s = file:/a/b)", "Filter (s = file:/a/b)"),
    ],
)
def test_locations_of_files_are_removed(shown: str, expected: str) -> None:
    assert without_locations(shown) == expected


@pytest.mark.parametrize("before", ["", " \n", "-- a\n", "/* a */", "/* /* a */ b */ "])
def test_an_explain_is_found_behind_comments(before: str) -> None:
    assert explains(f"{before}explain SELECT 1")
    assert not explains(f"{before}SELECT 'EXPLAIN'")


@pytest.mark.parametrize(
    ("shuffle_tasks", "last"),
    [
        (16, "16: 16 cores of 4 executors"),
        (7, "16: 16 cores of 4 executors; shuffles: 7, by spark.sql.shuffle.partitions"),
    ],
)
def test_a_plan_ends_with_its_tasks_and_their_origin(shuffle_tasks: int, last: str) -> None:
    plan = with_tasks("== Plan ==\nScan\n\n", tasks=16, reason="16 cores of 4 executors", shuffle_tasks=shuffle_tasks)
    assert plan == f"== Plan ==\nScan\n\n== Tasks ==\n{last}\n"
