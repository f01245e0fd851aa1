"""What every store of files does, alike: a folder of the local disk, a fake bucket, a real S3-compatible server, a
real HDFS.

The second half is what storage writes and reads: whole tables' worth of files, cleaned by name.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.integration.storage.store_locations import KINDS, Location, new_location
from tests.long import cases
from tilth.base.clock import SystemClock
from tilth.model.delta import Delta, PartSource, WrittenDelta
from tilth.model.part import DataFile, PartName, WrittenPart
from tilth.model.table import Column, Schema, Transform, TransformKind
from tilth.model.txn import Txn, TxnOutput, TxnState
from tilth.model.types import Kind, Simple
from tilth.storage import (
    LOCATION_FILE,
    DeltaFileCorruptError,
    DeltaWriter,
    Folder,
    PartFileCorruptError,
    PartFileNotFoundError,
    ScratchWriter,
    TableLayout,
    are_there,
    check_file,
    check_size,
    clean_transaction,
    drop_table_folder,
    footer_rows,
    iter_source,
    list_files,
    new_whole_file,
    read_changes,
    read_part,
    read_scratch,
    read_source,
    remove_data,
    remove_files,
    remove_row_map,
    remove_scratch,
    scratch_name,
    write_filter,
    write_parts,
    write_segments,
)
from tilth.storage.parts.key_filter import read_filter
from tilth.storage.parts.rowmap import RowMapWriter, find_rows
from tilth.storage.store.files.files import make_folder, new_file, open_file, remove, stamp_of
from tilth.storage.store.protocol import FileSizeError

pytestmark = pytest.mark.integration

SCHEMA = Schema(
    columns=(
        Column(id=1, name="k", type=Simple(Kind.INT64), nullable=False),
        Column(id=2, name="s", type=Simple(Kind.STRING)),
    )
)
MIB = 1 << 20


@pytest.fixture(params=KINDS)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    with new_location(request.param, request, tmp_path) as found:
        make_folder(found.folder, fsync=True)
        yield found


def written(location: Location, name: str, *pieces: bytes) -> DataFile:
    file = new_file(location.folder, name)
    for piece in pieces:
        assert file.write(piece) == len(piece)
    assert file.tell() == sum(map(len, pieces))
    return file.finish(fsync=True)


@pytest.mark.parametrize("size", [0, 1, MIB, 20 * MIB + 7])
def test_a_file_is_written_once_summed_and_read_in_whole_and_in_parts(location: Location, size: int) -> None:
    content = os.urandom(size)
    pieces = [content[start : start + 3 * MIB] for start in range(0, size, 3 * MIB)]
    file = written(location, "a", *pieces)
    assert msgspec.structs.replace(file, copies=None) == DataFile(name="a", size=size, checksum=zlib.crc32(content))
    path = location.folder.key("a")
    assert location.bytes_of("a") == content
    assert location.store.size(path) == size
    assert location.store.checksum(path) == (size, file.checksum)
    check_file(location.folder, file)
    for known in (None, size):
        if not size:
            continue
        with location.store.open(path, size=known) as source:
            assert source.size() == size
            for start, length in ((size // 2, 10), (0, 1), (max(0, size - 5), 5), (size // 3, 2 * MIB), (1, size)):
                source.seek(start)
                assert source.read(length) == content[start : start + length]


def test_a_name_is_given_once(location: Location) -> None:
    written(location, "a", b"first")
    for pieces in ((b"second",), (b"x" * (9 * MIB),)):
        with pytest.raises(FileExistsError):
            written(location, "a", *pieces)
    assert location.bytes_of("a") == b"first"


def test_a_file_that_was_given_up_keeps_its_name_and_no_bytes(location: Location) -> None:
    for name, pieces in (("small", (b"abc",)), ("large", (b"x" * (9 * MIB), b"y" * (9 * MIB)))):
        file = new_file(location.folder, name)
        for piece in pieces:
            file.write(piece)
        file.give_up()
        assert file.write(b"more") == 4
        assert location.store.exist([location.folder.key(name)]) == [True]
        assert location.store.size(location.folder.key(name)) == 0


def test_what_is_not_there_is_reported(location: Location) -> None:
    path = location.folder.key("none")
    for call in (
        lambda: location.store.read(path),
        lambda: location.store.open(path),
        lambda: location.store.open(path, size=4),
        lambda: location.store.size(path),
        lambda: location.store.checksum(path),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    assert location.store.stamp(path) == ()
    written(location, "a", b"abc")
    assert location.store.exist([location.folder.key("a"), path]) == [True, False]
    assert location.store.has_folder(location.folder.path)


@pytest.mark.parametrize("size", cases([2, 0, 4, 5 * MIB], first=2))
def test_a_file_of_another_length_is_not_opened(location: Location, size: int) -> None:
    written(location, "a", b"abc")
    path = location.folder.key("a")
    for open_file_of in (location.store.read, location.store.open):
        with pytest.raises(FileSizeError) as differs:
            open_file_of(path, size=size)
        assert differs.value.size == 3


def test_an_empty_file_where_bytes_were_is_no_other_error(location: Location) -> None:
    written(location, "a")
    with pytest.raises(FileSizeError):
        location.store.open(location.folder.key("a"), size=3)


def test_files_go_by_name_and_twice_is_no_error(location: Location) -> None:
    for name in ("a", "b", "c"):
        written(location, name, b"x")
    paths = [location.folder.key(name) for name in ("a", "none", "b")]
    for times in range(2):
        removal = location.store.remove(paths)
        assert (removal.gone, removal.failed) == (paths, {})
        # A store of S3 does not report what was there; one of GCS reports what was not.
        assert removal.found in ([], [location.folder.key("a"), location.folder.key("b")] if times == 0 else [])
        assert location.store.exist([*paths, location.folder.key("c")]) == [False, False, False, True]
    assert location.store.remove([]).gone == []
    remove(location.folder, "c")
    assert location.store.exist([location.folder.key("c")]) == [False]


def test_a_stamp_differs_when_the_file_does(location: Location) -> None:
    written(location, "a", b"first")
    before = stamp_of(location.folder, "a")
    assert before == stamp_of(location.folder, "a") != ()
    location.overwrite("a", b"other")
    assert stamp_of(location.folder, "a") != before


def test_a_table_goes_with_all_its_files_and_no_others(location: Location) -> None:
    for name in ("a", "b"):
        written(location, name, b"x")
    neighbour = Location(location.root)
    location.store.prepare("t2/data", fsync=False)
    location.store.create("t2/data/a").finish(fsync=False)
    for _ in range(2):
        drop_table_folder(location.root, "t")
        assert neighbour.store.exist(["t/data/a", "t/data/b", "t2/data/a"]) == [False, False, True]


def test_all_files_below_a_folder_are_listed_with_their_sizes(location: Location) -> None:
    # A storage with replicas is a location that was reserved, the other locations are empty.
    before = list(location.store.files(""))
    assert [found.path for found in before] in ([], [LOCATION_FILE])
    folders = [Folder(location.root, path) for path in ("", "a", "a/data", "ab")]
    for number, folder in enumerate(folders):
        make_folder(folder, fsync=False)
        location.store.put(folder.key("f"), b"x" * number)
    added = sorted(set(location.store.files("")) - set(before))
    assert [found[:2] for found in added] == [("a/data/f", 2), ("a/f", 1), ("ab/f", 3), ("f", 0)]
    now_ms = SystemClock().now_ms()
    assert [now_ms - found.modified_ms for found in added if abs(now_ms - found.modified_ms) >= 600_000] == []
    assert sorted(found[:2] for found in list_files(folders[1])) == [("data/f", 2), ("f", 1)]
    assert list(list_files(Folder(location.root, "b"))) == []


def test_a_whole_file_is_there_or_it_is_not(location: Location) -> None:
    make_folder(location.folder, fsync=False)
    with new_whole_file(location.folder, "f") as file:
        file.write(b"all")
    with pytest.raises(ValueError, match="not a number"), new_whole_file(location.folder, "g") as file:
        file.write(b"%d" % int("not a number"))
    with pytest.raises(FileExistsError), new_whole_file(location.folder, "f") as file:
        file.write(b"other")
    assert (location.bytes_of("f"), are_there(location.folder, ["f", "g"])) == (b"all", [True, False])
    remove_files(location.folder, ["f", "g"])
    assert list(list_files(location.folder)) == []


def test_a_stream_is_complete_when_it_is_closed(location: Location) -> None:
    content = os.urandom(10 * MIB)
    with location.store.stream(location.folder.key("s")) as sink:
        sink.write(content)
    with open_file(location.folder, "s") as source:
        assert source.read() == content
    with pytest.raises(FileExistsError):
        with location.store.stream(location.folder.key("s")) as sink:
            sink.write(b"x")


def layout_in(location: Location, *, unique_key: tuple[str, ...] = ()) -> TableLayout:
    return TableLayout(
        folder=location.folder, schema=SCHEMA, order_by=("k",), unique_key=unique_key, row_group_rows=100
    )


def rows_of(count: int) -> pa.Table:
    return pa.table({"k": pa.array(range(count), pa.int64()), "s": [f"s{key}" for key in range(count)]})


def source_of(part: WrittenPart, *deltas: WrittenDelta) -> PartSource:
    changes = tuple(
        Delta(
            kind=each.kind,
            partition=each.partition,
            file=each.file,
            targets=each.targets,
            columns=each.columns,
            change_ts=10 + number,
            commit_ts=10 + number,
        )
        for number, each in enumerate(deltas, start=1)
    )
    return PartSource(
        name=PartName("all", 1, 1, 0, 1),
        rows=part.rows,
        file=part.file,
        schema=SCHEMA,
        is_segment=part.is_segment,
        deltas=changes,
    )


def test_parts_are_written_and_read(location: Location) -> None:
    layout = layout_in(location)
    (part,) = write_parts(layout, rows_of(1000), txn=1, task=0, attempt=0)
    check_file(location.folder, part.file)
    check_size(location.folder, part.file)
    assert footer_rows(location.folder, part.file) == 1000
    assert read_part(location.folder, part.file, ["k"])["k"].to_pylist() == list(range(1000))
    blocks = [rows for rows, _ in iter_source(location.folder, source_of(part), block_rows=300)]
    assert pa.concat_tables(blocks).column("s").to_pylist() == [f"s{key}" for key in range(1000)]


@pytest.mark.parametrize("is_segment", [False, True])
def test_segments_and_changes_of_every_kind_are_written_and_read(location: Location, is_segment: bool) -> None:
    layout = layout_in(location)
    write = write_segments if is_segment else write_parts
    (part,) = write(layout, rows_of(10), txn=1, task=0, attempt=0)
    deltas = DeltaWriter(layout, txn=2, task=0, attempt=0)
    name = part.file.name
    changed = deltas.changes("all", pa.table({"file": [name] * 2, "row": [0, 3], "op": [0, 1], "c2": [None, "new"]}))
    deleted = deltas.deletes("all", name, pa.array([9]).to_numpy())
    updated = deltas.updates("all", name, pa.table({"row": [5], "c2": ["up"]}))
    whole = deltas.columns("all", name, [pa.table({"c2": [f"w{key}" for key in range(10)]})])
    table, rows = read_source(location.folder, source_of(part, whole, changed, deleted, updated))
    assert rows.tolist() == list(range(1, 9))
    assert table.column("s").to_pylist() == ["w1", "w2", "new", "w4", "up", "w6", "w7", "w8"]
    assert read_changes(location.folder, changed.file).num_rows == 2


def test_damage_is_named_by_its_address(location: Location) -> None:
    layout = layout_in(location)
    (part,) = write_parts(layout, rows_of(1000), txn=1, task=0, attempt=0)
    deltas = DeltaWriter(layout, txn=2, task=0, attempt=0)
    delta = deltas.deletes("all", part.file.name, pa.array([9]).to_numpy())
    uri = location.folder.uri(part.file.name)
    content = location.bytes_of(part.file.name)
    location.overwrite(part.file.name, content[:-1])
    for call in (lambda: read_part(location.folder, part.file), lambda: check_size(location.folder, part.file)):
        with pytest.raises(PartFileCorruptError) as cut:
            call()
        assert cut.value.facts["file"] == uri
    location.overwrite(part.file.name, bytes([content[0]]) + bytes(20) + content[21:])
    with pytest.raises(PartFileCorruptError, match=r"checksum"):
        check_file(location.folder, part.file)
    with pytest.raises(PartFileCorruptError) as flipped:
        read_part(location.folder, part.file)
    assert flipped.value.facts["file"] == uri
    location.overwrite(delta.file.name, b"x" * delta.file.size)
    with pytest.raises(DeltaFileCorruptError):
        read_source(location.folder, source_of(part, delta))
    remove_data(location.root, "t", [part.file])
    for call in (lambda: read_part(location.folder, part.file), lambda: check_file(location.folder, part.file)):
        with pytest.raises(PartFileNotFoundError) as gone:
            call()
        assert gone.value.facts["file"] == uri


def test_row_maps_and_key_filters_lie_beside_a_part(location: Location) -> None:
    layout = layout_in(location, unique_key=("k",))
    (part,) = write_parts(layout, rows_of(10), txn=1, task=0, attempt=0)
    with RowMapWriter(layout, part.file.name) as writer:
        writer.write(pa.array([0, 1], pa.uint16()).to_numpy(), pa.array([7, 3], pa.uint32()).to_numpy())
        writer.close()
    wanted = {1: pa.array([3, 4]).to_numpy()}
    assert find_rows(location.folder, part.file.name, wanted)[1].tolist() == [1, -1]
    remove_row_map(location.folder, part.file.name)
    with pytest.raises(PartFileNotFoundError):
        find_rows(location.folder, part.file.name, wanted)
    assert read_filter(layout, part.file) is None
    write_filter(layout, part.file)
    assert read_filter(layout, part.file) is not None


def test_scratch_files_are_shared_and_gone(location: Location) -> None:
    layout, name = layout_in(location), scratch_name(txn=1, task=0, attempt=0, n=0)
    batches = rows_of(100).to_batches(max_chunksize=10)
    with ScratchWriter(layout, name, batches[0].schema) as writer:
        for batch in batches:
            writer.write(batch)
    found = pa.Table.from_batches(list(read_scratch(layout, name, ["s"])))
    assert found.column("s").to_pylist() == [f"s{key}" for key in range(100)]
    assert list(read_scratch(layout, name, ["k"], is_wanted=lambda first: first[0].as_py() > 1000)) == []
    remove_scratch(layout, name)
    with pytest.raises(FileNotFoundError):
        list(read_scratch(layout, name, ["s"]))


def txn_of(number: int, *, tasks: int = 1) -> Txn:
    outputs = (TxnOutput(table="t", tasks=tasks),)
    return Txn(id=number, actor="test", state=TxnState.ABORTED, fences=(), outputs=outputs, server="s1")


def test_what_a_transaction_left_goes_by_name(location: Location) -> None:
    layout = layout_in(location, unique_key=("k",))
    kept = [*write_parts(layout, rows_of(5), txn=1, task=0, attempt=0)]
    # An HDFS takes half a second to end a file.
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda n: write_parts(layout, rows_of(1), txn=2, task=1, attempt=3, first_n=n), range(20)))
    (part,) = write_segments(layout, rows_of(5), txn=2, task=0, attempt=0)
    DeltaWriter(layout, txn=2, task=1, attempt=0).deletes("all", part.file.name, pa.array([0]).to_numpy())
    (mapped,) = write_parts(layout, rows_of(3), txn=2, task=0, attempt=1)
    write_filter(layout, mapped.file)
    # Begun before a part that was never written.
    location.overwrite("2-0.2-0.map", b"x")
    names = [f"2-1.3-{n}.parquet" for n in range(20)]
    names += [part.file.name, "2-1.0-0.puffin", mapped.file.name, "2-0.1-0.filter", "2-0.2-0.map"]
    paths = [location.folder.key(name) for name in names]
    assert all(location.store.exist(paths))
    keep = {"2-1.3-19.parquet", mapped.file.name}
    clean_transaction(location.root, txn_of(2, tasks=2), keep=keep)
    left = [name for name, is_there in zip(names, location.store.exist(paths), strict=True) if is_there]
    assert left == ["2-1.3-19.parquet", mapped.file.name, "2-0.1-0.filter"]
    for _ in range(2):
        clean_transaction(location.root, txn_of(2, tasks=2))
        clean_transaction(location.root, txn_of(1), keep={each.file.name for each in kept})
    # A hole is where the search ends.
    assert not any(location.store.exist([path for path in paths if not path.endswith("-19.parquet")]))
    assert location.store.exist([location.folder.key(each.file.name) for each in kept]) == [True]


def test_what_failed_tries_left_goes_where_the_file_that_stays_is_gone_already(location: Location) -> None:
    layout = layout_in(location)
    names = [write_parts(layout, rows_of(1), txn=2, task=0, attempt=0, first_n=n)[0].file.name for n in range(4)]
    paths = [location.folder.key(name) for name in names]
    location.store.remove(paths[1:2])
    clean_transaction(location.root, txn_of(2), keep=set(names[:2]))
    assert location.store.exist(paths) == [True, False, False, False]
    location.store.remove(paths[:1])
    clean_transaction(location.root, txn_of(2), keep=set(names[:2]))
    assert not any(location.store.exist(paths))


def test_many_files_are_ended_at_once_and_all_are_there(location: Location) -> None:
    layout = replace(layout_in(location), partition_by=(Transform(kind=TransformKind.IDENTITY, column="k"),))
    parts = write_parts(layout, rows_of(40), txn=1, task=0, attempt=0)
    segments = write_segments(layout, rows_of(40), txn=1, task=0, attempt=0)
    for number, part in enumerate(parts):
        assert part.file.name == f"1-0.0-{number}.parquet"
        assert read_part(location.folder, part.file).num_rows == 1
    with DeltaWriter(layout, txn=2, task=0, attempt=0) as out:
        deltas = [out.deletes(part.partition, part.file.name, pa.array([0]).to_numpy()) for part in parts]
    files = [*(each.file for each in (*parts, *segments)), *(each.file for each in deltas)]
    for file in files:
        check_file(location.folder, file)
    assert len({file.name for file in files}) == 120


def test_of_files_that_are_ended_at_once_one_that_fails_fails_all(location: Location) -> None:
    layout = replace(layout_in(location), partition_by=(Transform(kind=TransformKind.IDENTITY, column="k"),))
    written(location, "1-0.0-3.parquet")
    with pytest.raises(FileExistsError):
        write_parts(layout, rows_of(6), txn=1, task=0, attempt=0)
    clean_transaction(location.root, txn_of(1))
    # The clean-up finds the files behind the existing one, too.
    assert not any(location.store.exist([location.folder.key(f"1-0.0-{number}.parquet") for number in range(6)]))
