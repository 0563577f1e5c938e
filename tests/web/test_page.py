"""The page as a whole: accessible, usable by keyboard, at every width, in both themes, offline."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import stub as stubs
import world
from conftest import open_view

STATES = {"healthy": (world.healthy, world.history), "degraded": (world.degraded, world.losses),
          "replicated": (world.replicated, world.history), "loading": (world.loading, list),
          "empty": (world.empty, list)}


def assert_axe_clean(page):
    found = Axe().run(page, options={"runOnly": [
        "wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("state,theme", [
    ("healthy", "light"), ("degraded", "light"), ("degraded", "dark"), ("replicated", "light"),
    ("replicated", "dark"), ("loading", "light"), ("empty", "dark")])
def test_axe_finds_nothing_in_the_cluster_view(new_page, stub, state, theme):
    snapshot, timeline = STATES[state]
    stub.snapshot, stub.timeline = snapshot(), timeline()
    assert_axe_clean(open_view(new_page(theme=theme), stub.url))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_in_chat_dialogs_and_connect(new_page, stub, theme):
    page = open_view(new_page(theme=theme, width=1440), stub.url, "chat")
    stub.requests["req-1"] = stubs.WATERFALL
    stub.chat = stubs.answer("# Title\n\n- a `b`\n\n```py\nx = 1\n```\n\n|a|b|\n|-|-|\n|1|2|\n")
    page.locator("#composer").fill("Hello")
    page.locator("#composer").press("Enter")
    page.get_by_role("button", name="Hops").click()
    page.wait_for_selector(".waterfall")
    stub.chat = stubs.answer()[:2] + [("text", "Half"), ("abort",)]
    page.locator("#composer").fill("Again")
    page.locator("#composer").press("Enter")
    page.wait_for_selector(".broken")
    assert_axe_clean(page)
    page.get_by_role("button", name="Keyboard shortcuts").click()
    assert_axe_clean(page)
    page.keyboard.press("Escape")
    assert_axe_clean(open_view(page, stub.url, "connect"))
    open_view(page, stub.url).get_by_role("button", name="Drain… node-2").click()
    assert_axe_clean(page)


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_nothing_runs_out_of_the_page_at_any_width(new_page, stub, width):
    page = new_page(width=width, height=780)
    open_view(page, stub.url)
    for state, first in ((world.replicated, "rack-a1"), (world.large, "gpu-0"),
                         (world.degraded, "node-1")):
        stub.push(state())
        page.wait_for_selector(f"svg.ring [aria-label^='{first},']")
        expect_no_overflow(page, width)
    stub.chat = stubs.answer("word" * 200 + "\n\n```\n" + "x" * 400 + "\n```\n")
    open_view(page, stub.url, "chat")
    page.locator("#composer").fill("w" * 300)
    page.locator("#composer").press("Enter")
    page.wait_for_selector(".figures-line")
    expect_no_overflow(page, width)
    expect(page.locator("#composer")).to_be_in_viewport()
    open_view(page, stub.url, "connect")
    expect_no_overflow(page, width)


def expect_no_overflow(page, width):
    page.wait_for_function("() => new Promise(requestAnimationFrame)")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"{wide} px in a window of {width}"


@pytest.mark.parametrize("width", [360, 1280])
def test_cards_of_the_ring_never_overlap(new_page, stub, width):
    stub.snapshot = world.large()
    page = open_view(new_page(width=width), stub.url)
    page.wait_for_function("document.querySelectorAll('svg.ring .card').length === 10")
    boxes = page.locator("svg.ring .card-box").evaluate_all(
        "all => all.map(b => b.getBoundingClientRect()).map(r => [r.x, r.y, r.right, r.bottom])")
    for i, a in enumerate(boxes):
        for b in boxes[i + 1:]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)


def test_the_whole_page_works_without_a_mouse(page, stub):
    open_view(page, stub.url)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("2")
    expect(page.locator("#composer")).to_be_focused()
    page.keyboard.press("2")
    expect(page.locator("#composer")).to_have_value("2")  # In a field, keys are text.
    stub.chat = stubs.answer("Fine.")
    page.keyboard.press("Enter")
    expect(page.get_by_role("article", name="Answer")).to_contain_text("Fine.")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#composer")).to_have_value("2")
    page.keyboard.press("Escape")
    expect(page.locator("#composer")).to_have_value("")
    page.locator("#thread").focus()
    page.keyboard.press("1")
    expect(page.locator("svg.ring")).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#event-filter")).to_be_focused()


def test_a_dialog_keeps_focus_inside_and_gives_it_back(page, stub):
    open_view(page, stub.url)
    button = page.get_by_role("button", name="Cordon… node-1")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    for _ in range(6):
        page.keyboard.press("Tab")
        inside = page.evaluate(
            "document.activeElement === document.body || "
            "document.querySelector('dialog').contains(document.activeElement)")
        assert inside
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(button).to_be_focused()
    assert stub.calls == []


def test_shortcuts_are_listed_and_can_be_switched_off(page, stub):
    open_view(page, stub.url)
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard")
    expect(dialog).to_contain_text("New chat")
    dialog.get_by_label("Shortcuts of a single key").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    expect(page.locator("svg.ring")).to_be_visible()
    page.reload()
    page.wait_for_selector("svg.ring")
    page.keyboard.press("2")
    expect(page.locator("svg.ring")).to_be_visible()


def test_every_focused_control_has_a_ring(page, stub):
    open_view(page, stub.url)
    for _ in range(12):
        page.keyboard.press("Tab")
        shown = page.evaluate("""() => {
          const el = document.activeElement;
          const style = getComputedStyle(el);
          const box = el.querySelector('.card-box');
          return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2
            ? true : box ? parseFloat(getComputedStyle(box).strokeWidth) >= 3 : el.outerHTML;
        }""")
        assert shown is True, shown


def test_the_theme_follows_the_system_until_it_is_chosen(new_page, stub):
    page = open_view(new_page(theme="dark"), stub.url)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(14, 17, 20)"
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate(ground) == "rgb(244, 245, 247)"
    page.reload()
    page.wait_for_selector("svg.ring")
    assert page.evaluate(ground) == "rgb(244, 245, 247)"


def test_nothing_is_fetched_from_anywhere_else(page, stub):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    open_view(page, stub.url)
    open_view(page, stub.url, "chat")
    open_view(page, stub.url, "connect")
    assert asked and all(url.startswith(stub.url + "/") for url in asked), asked


def test_a_page_whose_script_does_not_come_is_not_empty(new_page, stub):
    page = new_page()
    page.route("**/app.js", lambda route: route.abort())
    page.goto(stub.url)
    expect(page.locator("main")).to_contain_text("shardctl status")
    expect(page.get_by_role("link", name="/status.txt")).to_be_visible()


def test_a_browser_that_refuses_storage_shows_the_page_all_the_same(new_page, stub):
    page = new_page()
    page.add_init_script("""for (const name of ['localStorage', 'sessionStorage']) {
      Object.defineProperty(window, name, {get() { throw new Error('refused'); }});
    }""")
    open_view(page, stub.url)
    expect(page.locator("svg.ring")).to_be_visible()
    open_view(page, stub.url, "chat")
    stub.chat = stubs.answer("Fine.")
    page.locator("#composer").fill("Hello")
    page.locator("#composer").press("Enter")
    expect(page.get_by_role("article", name="Answer")).to_contain_text("Fine.")


def test_snippets_name_this_server_this_model_and_the_join_command(page, stub):
    open_view(page, stub.url, "connect")
    expect(page.get_by_label("curl", exact=True)).to_contain_text(
        f"curl -N {stub.url}/v1/chat/completions")
    expect(page.get_by_label("Python, openai package", exact=True)).to_contain_text(
        f'base_url="{stub.url}/v1"')
    expect(page.get_by_label("curl", exact=True)).to_contain_text(world.MODEL)
    expect(page.get_by_label("Add a node", exact=True)).to_contain_text(
        "shardline-node --coordinator")


def test_a_snippet_is_copied_whole(new_page, stub):
    page = new_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_view(page, stub.url, "connect")
    page.get_by_role("button", name="Copy: Add a node").click()
    expect(page.locator("#toasts")).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("shardline-node --coord")
