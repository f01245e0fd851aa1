"""The questions of docs/operate/questions.md, each asked with its statement in a node where much is wrong at once; and
the console, which shows the same mess to people.

One node serves all tests of this file, in their order: the last ones kill it. What takes a moment to show is asked
again for a while.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.console_browser import NARROW, WIDE, Browser
from tests.acceptance.mess import OPEN_BOUND, Mess
from tests.otlp_collector import Collector
from tilth.base.errors import TilthError
from tools.broker import JARS, Broker
from tools.dashboard_panels import panels
from tools.node_process import NodeProcess

pytestmark = pytest.mark.acceptance

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "questions.md"
SECTION = re.compile(r"^## (\d+)\. .*?```sql\n(.*?);\n```", re.MULTILINE | re.DOTALL)
STATEMENTS = {int(number): statement for number, statement in SECTION.findall(PAGE.read_text())}
SECONDS_MAX = 60
#: The round that seems to hang ends within this time, on a machine that does much else, too.
STUCK_SECONDS_MAX = 300

# Any: a cell is whatever its column's type is in Python.
Row = dict[str, Any]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


@pytest.fixture(scope="module")
def mess(java_home: Path, tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Mess]:
    folder = tmp_path_factory.mktemp("mess")
    broker = Broker(folder / "broker", JARS, java_home)
    # Only what a client traces is sent.
    settings = {"log.format": "json", "trace.endpoint": collector.url, "trace.sample-ratio": "0"}
    settings |= {"warehouse.master": "local[2]", "warehouse.driver-memory": "1g"}
    node = NodeProcess(folder, settings=settings)
    made = Mess(node, broker)
    try:
        broker.start()
        node.start()
        node.wait_ready()
        made.build()
        yield made
        made.close()
    finally:
        node.stop()
        broker.stop()


def asked(mess: Mess, statement: str) -> list[Row]:
    result = mess.sql(statement)
    return [dict(zip(result.names, row, strict=True)) for row in result.rows]


def is_soon(at: datetime | None, *, within: float = 600) -> bool:
    """Return whether a time comes within so many seconds, or was less than ten ago."""
    if at is None:
        return False
    return timedelta(seconds=-10) <= at.astimezone(UTC) - datetime.now(UTC) <= timedelta(seconds=within)


def is_recent(at: datetime | None, *, within: float = 10) -> bool:
    return at is not None and datetime.now(UTC) - at.astimezone(UTC) <= timedelta(seconds=within)


def stopped(rows: list[Row]) -> None:
    [row] = rows
    assert (row["service"], row["because"], row["until"]) == ("merge", "a copy is being made, ask Ann", None)
    assert row["asked_by"]
    assert row["asked_from"].startswith("127.0.0.1:")


def damaged(rows: list[Row]) -> None:
    told = next(row["reason"] for row in rows if "damaged" in row["reason"])
    assert ".parquet" in told or "part all_" in told, told


def full_disk(rows: list[Row]) -> None:
    assert rows == [], "there is room"


def unreached(rows: list[Row]) -> None:
    [row] = rows
    assert row["state"] == "failed"
    assert "waiting for the broker since" in row["reason"]
    assert "127.0.0.1:1 " in row["reason"]
    assert row["failures"] > 0
    assert is_soon(row["next_attempt"], within=60)


def poisoned(rows: list[Row]) -> None:
    [row] = rows
    assert (row["messages"], row["dead"], row["rows"]) == (7, 7, 0)
    assert "broken messages, now dead letters: 7, all that were read" in row["reason"]
    assert "JSON" in row["last_broken"]


def back_off(rows: list[Row]) -> None:
    found = {(row["table"], row["service"]): row for row in rows}
    for key in (("mutated", "mutate"), ("unreached_topic", "consume")):
        assert found[key]["failures"] > 0
        assert is_soon(found[key]["next_attempt"])
    assert ("stopped", "merge") not in found


def mutated(rows: list[Row]) -> None:
    [row] = rows
    assert "no such price" in row["latest_fail_reason"]
    assert row["latest_failed_part"].startswith("all_")
    assert row["parts_to_do"] == 1


def pinned(rows: list[Row]) -> None:
    held = [row for row in rows if str(row["held_by"]).startswith("reader ")]
    assert len(held) == 2
    for row in held:
        assert re.search(r"opened at 20\d\d-.* UTC by 127\.0\.0\.1:\d+ \(report-builder\) on server ", row["reason"])
        assert is_soon(row["until"], within=700)


def crowded(rows: list[Row]) -> None:
    [row] = rows
    assert row["insert_pressure"] == "refused: 5 parts, parts_to_throw_insert = 5"
    assert "disable_compaction" in row["reason"]


def memory(rows: list[Row]) -> None:
    [row] = rows
    assert 0 < row["memory_bytes"] < row["memory_limit_bytes"]
    assert row["memory_pressure"] is None


def dropped(rows: list[Row]) -> None:
    [row] = rows
    assert row["bytes"] > 0
    assert row["undrop"] == "UNDROP TABLE shop.dropped"
    assert is_soon(row["kept_until"], within=10 * 86_400)


def young(rows: list[Row]) -> None:
    [row] = rows
    assert row["history_setting"] == "tablet_history_max_age_sec = 60"
    assert is_recent(row["readable_since"], within=75)


def slow(rows: list[Row]) -> None:
    [row] = rows
    assert row["slowest_view"] == "shop.slow_view"
    assert 0.3 < row["slowest_view_share"] <= 1
    [view] = row["view_seconds"]
    assert float(view.removeprefix("shop.slow_view=")) <= row["last_round_seconds"]


def lagging(rows: list[Row]) -> None:
    [row] = rows
    assert row["bounded_by"] == "kafka_max_block_size"
    assert row["rate"] > 0
    assert row["seconds_left"] == pytest.approx(row["lag"] / row["rate"], rel=0.5)


def idle_and_stuck(rows: list[Row]) -> None:
    idle, stuck = rows
    assert (idle["activity"], idle["lag"], idle["round_running_seconds"]) == ("idle", 0, None)
    assert is_recent(idle["last_poll"])
    assert (stuck["activity"], stuck["lag"]) == ("reading", 1)
    assert stuck["round_running_seconds"] > 10
    assert "its round has been under way for" in stuck["reason"]


def expiring(rows: list[Row]) -> None:
    [row] = rows
    assert row["state"] == "lone"
    assert "some of its rows expired from 2020-01-02" in row["reason"]


def unknown(rows: list[Row]) -> None:
    near, far = (row["error"] for row in rows if "unmade" in row["text"])
    assert "did you mean: old_parts_lifetime" in near
    assert "SHOW SETTINGS lists" in far


def large(rows: list[Row]) -> None:
    assert len(rows) == 3
    for row in rows:
        assert "too large to be merged" in row["reason"]
        assert "max_bytes_to_merge_at_max_space_in_pool = 1.5 KiB" in row["reason"]


def killed(rows: list[Row]) -> None:
    [row] = rows
    assert row["is_killed"]
    assert (row["parts_done"], row["parts_to_do"]) == (0, 1)
    assert "KILL MUTATION by query " in row["state_reason"]


def paused(rows: list[Row]) -> None:
    [row] = rows
    assert (row["switch"], row["because"]) == ("stopped", "the disk is slow")
    assert is_soon(row["until"])
    assert row["next_wakeup"] is None or row["next_wakeup"] >= row["until"]


def blocked(rows: list[Row]) -> None:
    [row] = rows
    assert (row["activity"], row["uncommitted"], row["lag"]) == ("open_transaction", 5, 5)
    assert "behind an open transaction since" in row["reason"]


def workers(rows: list[Row]) -> None:
    [row] = rows
    assert row["state"] == "alive"
    assert not row["reason"]
    assert is_recent(row["last_answer"])


ANSWERS: dict[int, Callable[[list[Row]], None]] = dict(
    enumerate(
        (
            *(stopped, damaged, full_disk, unreached, poisoned, back_off, mutated, pinned, crowded, memory, dropped),
            *(young, slow, lagging, idle_and_stuck, expiring, unknown, large, killed, paused, blocked, workers),
        ),
        start=1,
    )
)


def test_the_page_has_every_question() -> None:
    assert sorted(STATEMENTS) == sorted(ANSWERS) == list(range(1, 23))


#: Questions about short-lived states come first, those about states that take a while to begin come last.
FIRST, LAST = (15, 14), (7, 6, 8)
ORDER = (*FIRST, *(number for number in sorted(ANSWERS) if number not in FIRST + LAST), *LAST)


@pytest.mark.parametrize("number", ORDER)
def test_one_statement_answers(mess: Mess, number: int) -> None:
    deadline = time.monotonic() + (STUCK_SECONDS_MAX if number in LAST else SECONDS_MAX)
    while True:
        try:
            ANSWERS[number](asked(mess, STATEMENTS[number]))
            break
        except (AssertionError, LookupError, StopIteration, TypeError, ValueError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)
    if ANSWERS[number] is lagging:
        mess.catch_up()
    if ANSWERS[number] is idle_and_stuck:
        mess.unstick()


def test_every_metric_of_the_dashboard_is_exposed(mess: Mess) -> None:
    """Costs one scrape."""
    lines = httpx.get(f"{mess.node.url}/metrics").text.splitlines()
    exposed = {re.split("[{ ]", line, maxsplit=1)[0] for line in lines if not line.startswith("#")}
    expressions = [query.expression for panel in panels() for query in panel.queries]
    wanted = {name for each in expressions for name in re.findall(r"\b([a-z_]\w*)\{", each)} - {"up"}
    assert len(wanted) > 20
    assert wanted - exposed == set()


def test_a_client_that_traces_sees_its_statement_down_to_spark(mess: Mess, collector: Collector) -> None:
    """Costs one query."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    statement = "SELECT count(*) FROM shop.crowded WHERE id > 0"
    answer = httpx.post(f"{mess.node.url}/v1/sql", content=statement, headers={"traceparent": parent}, timeout=60)
    assert answer.status_code == 200, answer.text
    spans = collector.wait_for(lambda spans: any(each.name == "statement" for each in spans))
    assert {each.trace for each in spans} == {parent[3:35]}
    by_name = {each.name: each for each in spans}
    assert by_name["statement"].parent == parent[36:52]
    assert by_name["statement"].attributes["tilth.query_id"] == answer.headers["X-Tilth-Query-Id"]
    assert by_name["task query"].parent == by_name["statement"].id
    assert by_name["spark"].parent == by_name["task query"].id
    sent = re.search(r"^tilth_trace_spans_sent_total (.+)$", httpx.get(f"{mess.node.url}/metrics").text, re.M)
    assert sent is not None
    assert float(sent[1]) >= 1


def test_each_line_of_the_log_is_an_object(mess: Mess) -> None:
    """Costs nothing; the JVM and the command write lines of their own between them."""
    lines = (mess.node.data.parent / "node.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    assert [line for line in lines if " action=" in line and not line.startswith("{")] == []
    assert {each["message"] for each in found} >= {"node_started", "worker_joined", "consumer_started"}
    assert {each.get("server") for each in found if each["message"] == "consumer_started"} != {None}
    assert all(each["time"].endswith("Z") for each in found)


# --- the console -----------------------------------------------------------------------------------------------------

#: Addresses of the console, and what each says of the mess; the page with alarms is last, because alarms take a while.
CONSOLE = {
    "#/tables": ("shop.damaged", "shop.crowded", "Dropped", "shop.dropped"),
    "#/tables?search=crowd&order=parts-desc": ("1 of ", "shop.crowded"),
    "#/table/shop/crowded": ("What would be merged", "parts_to_throw_insert"),
    "#/table/shop/large": ("too large to be merged",),
    "#/table/shop/stopped?tab=services": ("a copy is being made, ask Ann", "Start …"),
    "#/table/shop/crowded?tab=settings": ("parts_to_throw_insert", "Change …"),
    "#/table/shop/crowded?tab=history": ("Read as it was …",),
    "#/table/shop/crowded?tab=columns": ("bigint",),
    "#/table/shop/mutated?tab=mutations": ("no such price",),
    "#/table/shop/pinned?tab=gc": ("reader", "report-builder"),
    "#/table/shop/crowded?tab=ddl": ("CREATE TABLE shop.crowded",),
    "#/streams": ("shop.lagging_topic", "shop.unreached_topic", "behind an open transaction"),
    "#/stream/shop/lagging_topic": ("Consumers", "Verify …"),
    "#/stream/shop/poisoned_topic?tab=letters": ("{broken",),
    "#/tasks": ("Tasks on workers",),
    "#/tasks?tab=choices": ("shop.",),
    "#/cluster": ("alive", "Hosts of tables"),
    "#/cluster?tab=leases": ("report-builder",),
    "#/decisions?search=damaged": ("damaged",),
    "#/audit": ("a copy is being made, ask Ann",),
    "#/settings?search=memory_limit_hard_bytes": ("memory_limit_hard_bytes",),
    "#/sql?q=SELECT%201%20AS%20one": ("Questions", "Why does nothing happen with this table?"),
    "#/overview": ("Needs a person", "shop.unreached_topic", "rows in", "Freshness"),
}
KEYS = "return arguments[0].dispatchEvent(new KeyboardEvent('keydown', {bubbles: true, ...arguments[1]}))"


@pytest.fixture(scope="module")
def browser(mess: Mess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(mess.node.url, tmp_path_factory.mktemp("browser"))
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("address", CONSOLE)
def test_a_page_of_the_console_shows_the_mess(mess: Mess, browser: Browser, address: str) -> None:
    browser.open(address)
    browser.wait_for(lambda text: all(word in text for word in CONSOLE[address]))
    assert browser.complaints() == []
    assert browser.barriers() == []
    # `data:` and `about:` load nothing; `chrome:` is the browser's own first page.
    own = (mess.node.url, "data:", "about:", "chrome:")
    foreign = [url for url in browser.requested() if not url.startswith(own)]
    assert foreign == []
    browser.resize(*NARROW)
    try:
        overhang = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overhang <= 0, "a narrow page scrolls in one direction"
    finally:
        browser.resize(*WIDE)


def test_a_service_is_stopped_and_started_in_the_console(mess: Mess, browser: Browser) -> None:
    browser.open("#/table/shop/idle?tab=services")
    browser.wait_for(lambda text: "merge" in text)
    browser.press("button[aria-label='Stop merge']")
    browser.run(
        "const field = document.querySelectorAll('dialog input')[1];"
        "field.value = 'tried in a browser'; field.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert "SYSTEM STOP MERGES `shop`.`idle` FOR 30 minutes BECAUSE" in browser.run(
        "return document.querySelector('dialog').innerText"
    )
    browser.press("dialog button[type=submit]")
    browser.wait_for(lambda text: "tried in a browser" in text)
    switches = "SELECT switch, because FROM system.bg_threads WHERE table = 'idle' AND service = 'merge'"
    assert asked(mess, switches) == [{"switch": "stopped", "because": "tried in a browser"}]
    browser.press("button[aria-label='Start merge']")
    browser.press("dialog button[type=submit]")
    browser.wait_for(lambda text: "tried in a browser" not in text)
    assert [row["switch"] for row in asked(mess, switches)] == ["running"]


def test_names_lead_to_tables(browser: Browser) -> None:
    browser.open("#/settings")
    browser.wait_for(lambda text: "Settings" in text)
    browser.run(KEYS, browser.run("return document.body"), {"key": "k", "ctrlKey": True})
    browser.run(
        "const field = document.querySelector('.palette input');"
        "field.value = 'crowd'; field.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    browser.press(".palette a[href='#/table/shop/crowded']")
    browser.wait_for(lambda text: "What would be merged" in text)


def test_statements_run_in_the_console(mess: Mess, browser: Browser) -> None:
    browser.open("#/sql?q=SELECT%20id%20FROM%20shop.crowded%20ORDER%20BY%20id%20LIMIT%203")
    browser.wait_for(lambda text: "Run" in text and "3 rows" not in text)
    browser.press(".main")
    browser.wait_for(lambda text: "3 rows" in text)
    browser.open("#/sql?q=SELECT%20nothing%20FROM%20shop.quick")
    browser.wait_for(lambda text: "Run" in text and "UNKNOWN" not in text.upper())
    browser.press(".main")
    browser.wait_for(lambda text: "nothing" in text and "UNKNOWN" in text.upper())
    # The browser tells of the refused request, too.
    assert [line for line in browser.complaints() if "/v1/sql" not in line] == []


#: Alarms of the mess, each with its table; other alarms may be there on a slow or a small machine.
ALARMS = {
    ("stream_failed", "unreached_topic"),
    ("stream_blocked", "blocked_topic"),
    ("dead_letters", "poisoned_topic"),
    ("part_damaged", "damaged"),
    ("inserts_refused", "crowded"),
    ("mutation_stuck", "mutated"),
}
#: Tables where all is well, or where somebody has stopped something on purpose.
WELL = {"stopped", "paused", "killed", "idle_topic", "young", "large", "expiring", "quick", "idle", "dropped"}


def test_the_mess_has_its_alarms_and_no_others_where_all_is_well(mess: Mess) -> None:
    """A stream is blocked after a minute only, in which the console is looked at."""
    deadline = time.monotonic() + STUCK_SECONDS_MAX
    while True:
        rows = asked(mess, "SELECT * FROM system.alarms")
        if {(row["alarm"], row["table"]) for row in rows} >= ALARMS or time.monotonic() > deadline:
            break
        time.sleep(1)
    found = {(row["alarm"], row["table"]): row for row in rows}
    assert found.keys() >= ALARMS
    assert {table for _, table in found} & WELL == set()
    # One cause is one alarm.
    assert {alarm for alarm, table in found if table in ("damaged", "mutated", "unreached_topic")} == {
        "part_damaged",
        "mutation_stuck",
        "stream_failed",
    }
    for alarm, table in ALARMS:
        row = found[alarm, table]
        assert row["database"] == "shop"
        assert f"shop.{table}" in row["sentence"], row
        assert row["todo"].endswith(".")
        assert (PAGE.parents[2] / row["page"].partition("#")[0]).is_file()
    assert "no such price" in found["mutation_stuck", "mutated"]["sentence"]
    assert "127.0.0.1:1 " in found["stream_failed", "unreached_topic"]["sentence"]
    assert found["dead_letters", "poisoned_topic"]["sentence"].startswith("7 dead letters of shop.poisoned_topic")
    assert not is_recent(found["stream_blocked", "blocked_topic"]["since"], within=OPEN_BOUND)
    metrics = httpx.get(f"{mess.node.url}/metrics").text
    counts = {name: float(count) for name, count in re.findall(r'^tilth_alarms{alarm="(\w+)",.*} (.+)$', metrics, re.M)}
    assert {alarm for alarm, _ in ALARMS} <= {name for name, count in counts.items() if count}
    assert counts["transaction_lost"] == counts["table_without_host"] == counts["catalog_away"] == 0


def test_leases_of_queries_end_with_their_process_and_memory_pressure_has_a_reason(mess: Mess) -> None:
    """A node is killed while it reads, and comes back with little memory allowed."""
    readers = "SELECT database, table, client, opened, holder FROM system.readers ORDER BY table"

    def read_long() -> None:
        # It ends with the node.
        with pytest.raises(TilthError):
            mess.sql("SELECT sum(length(s) + r.id) FROM shop.quick CROSS JOIN range(400000000000) AS r")

    reading = threading.Thread(target=read_long, daemon=True)
    reading.start()
    deadline = time.monotonic() + SECONDS_MAX
    while len(found := asked(mess, readers)) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert [row["table"] for row in found] == ["pinned", "quick"]
    assert "127.0.0.1:" in found[1]["client"]
    assert is_recent(found[1]["opened"], within=SECONDS_MAX)
    mess.node.kill()
    reading.join(SECONDS_MAX)
    mess.node.change_settings({"memory_limit_hard_bytes": str(64 << 20)})
    mess.node.start()
    mess.node.wait_ready()
    # The reader outside goes on; the query has ended with its process.
    assert [row["table"] for row in asked(mess, readers)] == ["pinned"]
    [row] = asked(mess, STATEMENTS[10])
    assert row["memory_pressure"].startswith("every write is refused: ")
    assert "memory_limit_hard_bytes = 64.0 MiB" in row["memory_pressure"]
    assert "memory_limit_soft_percentage" in row["memory_pressure"]
