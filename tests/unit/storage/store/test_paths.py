"""Names and layouts."""

import pickle

import msgspec

from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Kind, Simple
from tilth.storage import TableLayout, data_folder, file_name, layout_of, local_folder, local_root, table_folder

SCHEMA = Schema(columns=(Column(id=1, name="k", type=Simple(Kind.INT64)),))


def test_a_file_is_named_by_transaction_task_attempt_and_number() -> None:
    assert file_name(txn=12, task=3, attempt=1, n=0) == "12-3.1-0.parquet"


def test_all_files_of_a_table_lie_in_one_folder() -> None:
    assert str(table_folder(local_root("/data"), "ab")) == "/data/ab"
    assert str(data_folder(local_root("/data"), "ab")) == "/data/ab/data"


def test_the_layout_follows_the_definition_and_its_settings() -> None:
    settings = {"parquet_compression_level": "5", "parquet_row_group_rows": "1000", "something_else": "x"}
    table = TableDef(uuid="ab", database="d", name="t", schema=SCHEMA, order_by=("k",), settings=settings)
    layout = layout_of(table, local_root("/data"), fsync=False)
    assert str(layout.folder) == "/data/ab/data"
    assert layout.order_by == ("k",)
    assert (layout.zstd_level, layout.row_group_rows, layout.fsync) == (5, 1000, False)


def test_a_layout_can_have_other_columns_than_the_table_now() -> None:
    wider = Schema(columns=(*SCHEMA.columns, Column(id=2, name="Day", type=Simple(Kind.DATE))))
    table = TableDef(uuid="ab", database="d", name="t", schema=wider, order_by=("k",), ttl="day + INTERVAL 1 DAY")
    assert layout_of(table, local_root("/data")).ttl_column == "Day"
    assert layout_of(table, local_root("/data"), SCHEMA).schema == SCHEMA
    assert layout_of(msgspec.structs.replace(table, ttl=None), local_root("/data")).ttl_column is None


def test_a_layout_crosses_process_borders() -> None:
    layout = TableLayout(folder=local_folder("f"), schema=SCHEMA, order_by=("k",))
    assert pickle.loads(pickle.dumps(layout)) == layout
