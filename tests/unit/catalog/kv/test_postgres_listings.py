"""Permits of listings: a bounded number at a time, one for each thread, released on any thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tilth.catalog.kv.postgres_listings import CatalogBusyError, Listings


def test_one_too_many_waits_for_an_end_and_is_refused_when_none_comes() -> None:
    listings = Listings(1, 0.05)
    first, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with listings.permit():
            first.set()
            assert ends.wait(30)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(hold)
        assert first.wait(30)
        with pytest.raises(CatalogBusyError, match="under_way=1"), listings.permit():
            raise AssertionError("there was no permit")
        ends.set()
        held.result()
    with listings.permit():
        pass


def test_a_thread_that_lists_within_a_listing_needs_no_second_permit() -> None:
    listings = Listings(1, 0.0)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(listings.permit())
        with ThreadPoolExecutor(1) as pool, pytest.raises(CatalogBusyError):
            pool.submit(lambda: stack.enter_context(listings.permit())).result()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: stack.enter_context(listings.permit())).result()


def test_a_listing_that_ends_on_another_thread_gives_its_permit_back() -> None:
    listings = Listings(1, 0.0)
    stack = ExitStack()
    stack.enter_context(listings.permit())
    with ThreadPoolExecutor(1) as pool:
        pool.submit(stack.close).result()
        pool.submit(lambda: stack.enter_context(listings.permit())).result()
