"""The page on a real coordinator with real nodes: load, chat, kill, drain."""

import json
import re

import pytest
from playwright.sync_api import expect

from cluster import Cluster, MODEL
from conftest import open_view

NAME = MODEL.stem
SLOW_MS = 60000  # Beyond the work itself: a loaded machine.


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(nodes=4)
    yield made
    made.close()


@pytest.fixture
def page(new_page, cluster):
    made = new_page(width=1440)
    made.set_default_timeout(SLOW_MS)
    return open_view(made, cluster.url)


def load(page, cluster):
    """The model in service on three of the four nodes, loaded from the page."""
    page.get_by_role("textbox", name="Path").fill(str(MODEL))
    page.get_by_label("Shards").fill("3")
    page.get_by_label("Context").fill("1024")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".preview")).to_contain_text("Fits on 3 nodes", timeout=SLOW_MS)
    page.get_by_role("button", name="Load…", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Load", exact=True).click()
    expect(page.locator("#top .health")).to_contain_text("Healthy", timeout=SLOW_MS)


def ask(page, text):
    page.locator("#composer").fill(text)
    page.locator("#composer").press("Enter")


def endlessly(route):
    """The page's own request, for an answer that only its longest length ends."""
    route.continue_(post_data=json.dumps({**route.request.post_data_json, "ignore_eos": True}))


def test_load_chat_kill_and_drain(page, cluster):
    expect(page.locator(".panel.empty")).to_contain_text("No model is loaded")
    expect(page.locator("#nodes-title ~ .dim")).to_have_text("4 nodes", timeout=SLOW_MS)
    load(page, cluster)
    expect(page.locator("svg.ring .card")).to_have_count(3)
    expect(page.locator(".events")).to_contain_text(re.compile("ready"))

    page.keyboard.press("2")
    expect(page.get_by_label("Model", exact=True)).to_have_value(NAME, timeout=SLOW_MS)
    page.get_by_label("Longest answer").fill("48")
    page.get_by_label("Temperature").fill("0")
    ask(page, "What is the capital of France? Answer in one sentence.")
    answer = page.get_by_role("article", name="Answer", exact=True)
    expect(answer).to_contain_text(re.compile(r"[\d.]+ tok/s · first token .*s · \d+ tokens"),
                                   timeout=SLOW_MS)
    expect(answer).to_contain_text(re.compile(r"node-\d → node-\d → node-\d"))
    expect(page.locator(".context-meter")).to_contain_text(re.compile(r"\d+ / 1,024"))
    page.get_by_role("button", name="Hops").click()
    fall = page.locator(".waterfall")
    expect(fall.locator("tr", has_text="Prompt")).to_contain_text(re.compile(r"\d ?(ms|s)"))
    expect(fall).to_contain_text("One lap of the ring")
    expect(fall.locator("tr", has_text="Links and waiting")).to_be_visible()

    # A long answer runs while its second node dies: it goes on, and the page tells both.
    page.get_by_label("Longest answer").fill("500")
    page.route("**/v1/chat/completions", endlessly)
    ask(page, "Write a long story about a river.")
    second = page.get_by_role("article", name="Answer", exact=True).nth(1)
    expect(second.locator(".live")).to_contain_text("tok/s", timeout=SLOW_MS)
    page.get_by_role("link", name="Cluster", exact=True).click()
    expect(page.locator("svg.ring .card")).to_have_count(3)
    ring = page.locator("svg.ring .card-name").all_text_contents()
    expect(page.locator("table", has_text="Attempts")).to_contain_text("running", timeout=SLOW_MS)
    victim = ring[1]
    spare = next(name for name in cluster.nodes if name not in ring)
    cluster.kill(victim)
    problem = page.locator(".problem", has_text=f"{victim} is lost")
    expect(problem).to_be_visible(timeout=SLOW_MS)
    expect(problem).to_contain_text(re.compile(r"since \d\d:\d\d:\d\d"))
    expect(page.locator(".events")).to_contain_text(re.compile(f"{victim}.*lost", re.I))
    expect(page.locator(".events")).to_contain_text(re.compile(r"session \d+ goes on"),
                                                    timeout=SLOW_MS)

    # The spare takes the layers over, by itself; the lost node is forgotten by hand.
    expect(page.get_by_label(re.compile(f"^{spare}, .*ready"))).to_be_visible(timeout=SLOW_MS)
    page.get_by_role("button", name=f"Forget… {victim}").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget it").click()
    expect(problem).to_have_count(0, timeout=SLOW_MS)
    expect(page.locator("#top .health")).to_contain_text("Healthy", timeout=SLOW_MS)
    page.get_by_role("link", name="Chat", exact=True).click()
    expect(page.get_by_role("button", name="Send")).to_be_visible(timeout=SLOW_MS)
    expect(page.get_by_role("article", name="Broken answer")).to_have_count(0)
    expect(second).to_contain_text("500 tokens")

    # Drain: refused while the layers have no other node, done once there is one.
    page.get_by_role("link", name="Cluster", exact=True).click()
    page.get_by_role("button", name=f"Drain… {spare}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("No other node takes sessions for layers")
    dialog.get_by_role("button", name="Drain", exact=True).click()
    expect(page.locator("#toasts")).to_contain_text(re.compile(f"{spare} leaves .* without"))
    page.get_by_role("button", name=f"Drain… {spare}").click()
    dialog.get_by_label("Force: drain all the same").check()
    dialog.get_by_label("Deadline, seconds").fill("0")
    dialog.get_by_role("button", name="Drain", exact=True).click()
    row = page.locator(f"#node-{spare}")
    expect(row).to_contain_text("drained", timeout=SLOW_MS)
    row.get_by_role("button", name="Uncordon").click()
    expect(row).to_contain_text("ready", timeout=SLOW_MS)


def test_a_coordinator_that_goes_away_leaves_its_picture_and_says_so(page, cluster):
    expect(page.locator("#nodes-title ~ .dim")).to_contain_text("nodes")
    cluster.kill("coordinator")
    banner = page.locator(".banner")
    expect(banner).to_contain_text("Connection to the coordinator lost", timeout=SLOW_MS)
    expect(page.locator(".nodes")).to_be_visible()
    page.get_by_role("link", name="Chat", exact=True).click()
    ask(page, "Are you there?")
    expect(page.get_by_role("article", name="Broken answer")).to_contain_text(
        "The coordinator does not answer", timeout=SLOW_MS)
