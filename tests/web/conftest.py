"""One browser for all tests, a fresh profile and a fresh stub for each."""

import os

import pytest
from playwright.sync_api import sync_playwright

import world
from stub import Stub

TIMEOUT_MS = 8000


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=os.environ.get("SHARDLINE_CHROMIUM", "/usr/bin/chromium"),
            # A sandbox needs user namespaces, which containers seldom have.
            args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield made
        made.close()


@pytest.fixture
def stub():
    made = Stub(world.healthy(), world.history())
    yield made
    made.close()


class Faults:
    """What the browser complained of: exceptions, and strings that trusted types refused."""

    def __init__(self, page):
        self.seen = []
        page.on("pageerror", lambda error: self.seen.append(str(error)))
        page.on("console", self.on_console)

    def on_console(self, message):
        # A failed request is part of many tests, and told on the page.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.seen.append(message.text)


@pytest.fixture
def new_page(browser):
    """new_page(theme="dark", width=360): a page of its own profile. No fault goes unseen."""
    contexts, faults = [], []

    def make(theme="light", width=1280, height=900):
        context = browser.new_context(color_scheme=theme, reduced_motion="reduce",
                                      viewport={"width": width, "height": height})
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        contexts.append(context)
        faults.append(Faults(page))
        return page

    yield make
    for context in contexts:
        context.close()
    assert [fault for one in faults for fault in one.seen] == []


@pytest.fixture
def page(new_page):
    return new_page()


def open_view(page, url, view="cluster"):
    page.goto(f"{url}/#{view}")
    page.wait_for_selector(f".{view}")
    return page
