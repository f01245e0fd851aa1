"""A real browser that opens pages of a node's console, and says what was wrong with each.

Covers: Chromium without a window, its log, accessibility by axe, screenshots. Does not cover: what pages should show
(test_questions.py).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

AXE = Path(__file__).resolve().parents[1] / "fixtures" / "axe" / "axe.min.js"
#: Options: no sandbox, which needs rights that tests do not have, and no calls home.
ARGUMENTS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --lang=en"
).split()
WIDE, NARROW = (1440, 1000), (390, 844)
SECONDS_MAX = 40.0
POLL_SECONDS = 0.2
#: Rules of axe that the console is held to.
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


class Browser:
    """One window of Chromium on the console of a node."""

    def __init__(self, url: str, folder: Path) -> None:
        options = ChromeOptions()
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        # Without the two selenium would look for others, and fetch them.
        assert chromium, "run `make browser`"
        assert driver, "run `make browser`"
        options.binary_location = chromium
        for argument in (*ARGUMENTS, f"--user-data-dir={folder}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self._url = url
        self.driver = Chrome(options=options, service=Service(driver))
        self.driver.set_script_timeout(SECONDS_MAX)
        self.resize(*WIDE)

    def close(self) -> None:
        self.driver.quit()

    def resize(self, width: int, height: int) -> None:
        self.driver.set_window_size(width, height)

    def open(self, address: str) -> None:
        """Open a page of the console as a link would, `#/tables` for instance."""
        self.driver.get("about:blank")
        self.driver.get(f"{self._url}/{address}")

    def text(self) -> str:
        found = self.driver.execute_script("return document.querySelector('main')?.innerText ?? ''")
        return str(found)

    def wait_for(self, is_there: Callable[[str], bool], *, seconds: float = SECONDS_MAX) -> str:
        """Return the text of the page once it has what is expected; raises AssertionError with the text."""
        deadline = time.monotonic() + seconds
        while not is_there(text := self.text()):
            assert time.monotonic() < deadline, text[:4_000]
            time.sleep(POLL_SECONDS)
        return text

    def press(self, selector: str) -> None:
        """Click the first element that a CSS selector finds, once it is there and stays."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                element = self.driver.find_element("css selector", selector)
                self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
                element.click()
                return
            except (NoSuchElementException, StaleElementReferenceException):
                assert time.monotonic() < deadline
                time.sleep(POLL_SECONDS)

    # Any: what the script returns.
    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def complaints(self) -> list[str]:
        """Return new lines of the browser's log that are warnings or worse: errors of scripts, refused loads."""
        lines = self.driver.get_log("browser")  # type: ignore[no-untyped-call]  # selenium has no types here
        return [str(line["message"]) for line in lines if line["level"] in ("WARNING", "SEVERE")]

    def requested(self) -> set[str]:
        """Addresses that were requested since the last call."""
        found = set()
        for line in self.driver.get_log("performance"):  # type: ignore[no-untyped-call]  # as above
            message = line["message"]
            at = message.find('"Network.requestWillBeSent"')
            if at >= 0:
                start = message.find('"url":"', at) + len('"url":"')
                found.add(message[start : message.find('"', start)])
        return found

    def barriers(self) -> list[str]:
        """What axe finds: rule, meaning, and the elements."""
        self.driver.execute_script(AXE.read_text())
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {runOnly: arguments[0]}).then((result) => done(result.violations.map((each) => "
            "`${each.id}: ${each.help}: "
            "${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(' | ')}`)),"
            "(error) => done([String(error)]))",
            AXE_TAGS,
        )
        return list(found)
