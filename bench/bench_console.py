"""The console over many tables and parts: the time of each page in a real browser, and what a browser costs that stays.

    python -m bench.bench_console [--tables 10000] [--loads 3] [--minutes 20] [--shots DIR]

A node over a catalog of so many tables of ten parts, one of them with `DRAWN_PARTS`, without the files, which no page
reads. Each page is loaded as by a link that somebody sent, with everything fetched anew, until nothing on it waits any
more. Then the browser goes round all pages for so many minutes, while rows come in, and its memory and the processor
time of the node are compared with those before it was opened.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
from rich.table import Table

from bench.ha_idle import cpu_seconds
from bench.report import less, print_report
from tests.acceptance.console_browser import NARROW, WIDE, Browser
from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError
from tilth.base.ids import random_id
from tilth.catalog import Catalog, InsertPart, RocksKV
from tilth.model.part import ColumnRange, DataFile, WrittenPart
from tilth.model.table import Column, Schema, TableDef, Transform, TransformKind
from tilth.model.types import Kind, Simple
from tools.node_process import NodeProcess

PARTS_OF_TABLE = 10
#: Parts of the table whose parts are drawn.
DRAWN_PARTS = 5_000
DRAWN_PARTITIONS = 50
#: Too large to be merged, so that the node is at rest.
PART_BYTES = 100 << 30
SCHEMA = Schema(
    columns=(
        Column(id=1, name="id", type=Simple(Kind.INT64)),
        Column(id=2, name="day", type=Simple(Kind.STRING)),
    )
)
PAGES = (
    "overview",
    "tables",
    "tables?search=t00&order=parts-desc",
    "table/many/drawn",
    "table/many/drawn?tab=services",
    "table/many/drawn?tab=settings",
    "table/many/drawn?tab=history",
    "table/many/drawn?tab=gc",
    "streams",
    "tasks",
    "tasks?tab=choices",
    "cluster",
    "sql",
    "decisions",
    "audit",
    "settings",
)
#: Script that returns true when nothing on the page waits for its first answer.
READY = """
const text = document.querySelector('main')?.innerText ?? ''
return text.length > 20 && !text.includes('Loading …')
"""
#: Memory of the page, in bytes, after its garbage is collected.
HEAP = "if (window.gc) window.gc(); return performance.memory.usedJSHeapSize"
POLL_SECONDS = 0.02
PAGE_SECONDS_MAX = 60.0
#: Time until the effects of a start, of a closed browser are over.
SETTLE_SECONDS = 60.0
STAY_SECONDS = 20.0
INSERTS_A_SECOND = 2.0


def build(folder: Path, tables: int) -> None:
    """Make the catalog of a node in its folder."""
    clock = SystemClock()
    with closing(RocksKV(str(folder / "catalog"))) as kv:
        catalog = Catalog(kv, clock, "bench", random_id)
        catalog.tables.create_database("many")
        for number in range(tables):
            parts = [_part(each, "all") for each in range(PARTS_OF_TABLE)]
            _add(catalog, f"t{number:05d}", parts, clock.now_ms())
        drawn = [_part(each, f"p{each % DRAWN_PARTITIONS:03d}") for each in range(DRAWN_PARTS)]
        _add(catalog, "drawn", drawn, clock.now_ms())


def _add(catalog: Catalog, name: str, parts: list[WrittenPart], now_ms: int) -> None:
    table = TableDef(
        uuid=random_id(),
        database="many",
        name=name,
        schema=SCHEMA,
        partition_by=(Transform(kind=TransformKind.IDENTITY, column="day"),),
        order_by=("id",),
        next_column_id=3,
        created_ms=now_ms,
    )
    uuid = catalog.tables.create(table).uuid
    catalog.transactions.apply("bench", [InsertPart(table=uuid, written=part) for part in parts])


def _part(number: int, partition: str) -> WrittenPart:
    file = DataFile(name=f"{number}.parquet", size=PART_BYTES + number, checksum=1)
    ranges = {"id": ColumnRange(number * 1000, number * 1000 + 1500, 0), "day": ColumnRange(partition, partition, 0)}
    return WrittenPart(partition=partition, values=(partition,), rows=1000 + number, file=file, ranges=ranges)


def load(browser: Browser, page: str) -> float:
    """Return the seconds until everything of the page is there; modules and styles are fetched anew."""
    browser.driver.get("about:blank")
    browser.driver.execute_cdp_cmd("Network.clearBrowserCache", {})
    began = time.monotonic()
    browser.open(f"#/{page}")
    while not browser.run(READY):
        if time.monotonic() - began > PAGE_SECONDS_MAX:
            raise RuntimeError(f"{page} is not there after {PAGE_SECONDS_MAX:g} s: {browser.text()[:500]}")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


def stay(browser: Browser, node: NodeProcess, minutes: float) -> tuple[float, list[float]]:
    """Go round the pages; return the cores that the node used, and the memory of the page after each round, in MiB."""
    process, heaps = psutil.Process(node.pid), []
    began, before = time.monotonic(), cpu_seconds(process)
    browser.open("#/overview")
    while time.monotonic() - began < minutes * 60:
        for page in PAGES:
            # A change of the fragment alone: the page of the application stays, as it does for a person.
            browser.run("location.hash = arguments[0]", f"#/{page}")
            time.sleep(STAY_SECONDS)
        browser.run("location.hash = '#/overview'")
        time.sleep(STAY_SECONDS)
        heaps.append(browser.run(HEAP) / (1 << 20))
    return (cpu_seconds(process) - before) / (time.monotonic() - began), heaps


@contextmanager
def inserting(node: NodeProcess) -> Iterator[None]:
    """Small INSERTs into one table meanwhile."""
    node.connection.sql("CREATE TABLE IF NOT EXISTS many.live (id BIGINT) ENGINE = MergeTree ORDER BY id")
    ended = threading.Event()

    def insert() -> None:
        number = 0
        while not ended.wait(1 / INSERTS_A_SECOND):
            number += 1
            try:
                node.connection.sql(f"INSERT INTO many.live VALUES ({number})")
            except TilthError as error:
                print(f"an INSERT failed: {error}")

    thread = threading.Thread(target=insert, name="inserts")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _idle(node: NodeProcess) -> float:
    """Return the cores that the node uses without a browser."""
    process = psutil.Process(node.pid)
    began, before = time.monotonic(), cpu_seconds(process)
    time.sleep(SETTLE_SECONDS)
    return (cpu_seconds(process) - before) / (time.monotonic() - began)


def _shots(browser: Browser, folder: Path) -> None:
    """Keep an image of each page, light and dark, wide and narrow."""
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        for name, size in (("wide", WIDE), ("narrow", NARROW)):
            browser.resize(*size)
            for page in PAGES:
                load(browser, page)
                file = page.replace("/", "-").replace("?", "-").replace("&", "-")
                browser.driver.save_screenshot(str(folder / f"{file}-{scheme}-{name}.png"))
    browser.resize(*WIDE)


def _measure(folder: Path, arguments: argparse.Namespace) -> None:
    (folder / "data").mkdir()
    build(folder / "data", arguments.tables)
    node = NodeProcess(folder, settings={"warehouse.master": "local[1]", "warehouse.driver-memory": "1g"})
    node.start()
    try:
        node.wait_ready()
        time.sleep(SETTLE_SECONDS)
        with closing(Browser(node.url, folder / "chromium")) as browser:
            loads = {page: [load(browser, page) for _ in range(arguments.loads)] for page in PAGES}
            if arguments.shots:
                _shots(browser, arguments.shots)
        pages = Table("page", "median s", "slowest s", title=f"{arguments.tables} tables of {PARTS_OF_TABLE} parts")
        for page, seconds in loads.items():
            pages.add_row(page, f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}")
        figures = [less("console_page_slowest_s", max(statistics.median(each) for each in loads.values()), "s", 1.0)]
        if arguments.minutes:
            with inserting(node):
                time.sleep(SETTLE_SECONDS)
                idle = _idle(node)
                with closing(Browser(node.url, folder / "chromium-stays")) as browser:
                    busy, heaps = stay(browser, node, arguments.minutes)
            figures += [
                less("console_node_cores", busy - idle, "cores", 0.03),
                less("console_idle_cores", idle, "cores"),
                less("console_heap_first_mib", heaps[0], "MiB"),
                less("console_heap_last_mib", heaps[-1], "MiB"),
            ]
        print_report("console", figures, [pages])
    finally:
        node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--loads", type=int, default=3, help="loads of each page")
    parser.add_argument("--minutes", type=float, default=20.0, help="time for which a browser stays; 0: no such run")
    parser.add_argument("--shots", type=Path, help="folder for images of each page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilth-console-") as folder:
        _measure(Path(folder), arguments)


if __name__ == "__main__":
    main()
