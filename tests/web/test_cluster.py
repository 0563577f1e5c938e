"""The cluster view tells what is, what is wrong, and asks before it acts."""

import re

from playwright.sync_api import expect

import world
from conftest import open_view


def test_the_ring_names_every_node_its_layers_and_its_state(page, stub):
    open_view(page, stub.url)
    ring = page.locator("svg.ring")
    expect(ring).to_have_attribute(
        "aria-label", re.compile("layers 0-7 on node-1, then layers 8-18 on node-2"))
    expect(ring.get_by_label("node-1, head, layers 0-7, ready")).to_be_visible()
    expect(ring.get_by_label("node-3, layers 19-29, ready")).to_be_visible()
    expect(page.locator(".spares")).to_contain_text("node-4 holds no layers")


def test_only_links_that_carry_sessions_move(page, stub):
    stub.snapshot = world.replicated()
    open_view(page, stub.url)
    expect(page.locator("svg.ring .link")).to_have_count(9)
    expect(page.locator("svg.ring .link-flow")).to_have_count(2)  # a1 to a2 to b3 of the route.
    stub.push(world.degraded())
    expect(page.locator("svg.ring .link-dead")).to_have_count(2)
    expect(page.locator("svg.ring .link-flow")).to_have_count(0)


def test_a_node_in_the_ring_leads_to_its_row(page, stub):
    open_view(page, stub.url)
    page.get_by_label("node-2, layers 8-18, ready").click()
    expect(page.locator("#node-node-2")).to_be_focused()
    expect(page.locator("#node-node-2")).to_have_class(re.compile("is-picked"))


def test_a_lost_node_says_what_since_when_why_and_what_helps(page, stub):
    open_view(page, stub.url)
    stub.push(world.degraded(), *world.losses()[7:])
    problem = page.locator(".problem", has_text="node-2 is lost")
    expect(problem).to_contain_text(re.compile(r"since \d\d:\d\d:\d\d"))
    expect(problem).to_contain_text("no echoed heartbeat for 1.4 s")
    expect(problem).to_contain_text("It held layers 8-18")
    expect(problem.locator("code")).to_have_text(re.compile("^shardline-node --node-id node-2 "))
    expect(page.get_by_label(re.compile("^node-2, layers 8-18, lost: no echoed"))).to_be_visible()
    expect(page.locator("#top .health")).to_contain_text("Not serving")


def test_a_model_that_cannot_start_says_why_in_numbers(page, stub):
    stub.snapshot = world.degraded()
    open_view(page, stub.url)
    problem = page.locator(".problem", has_text=f"{world.MODEL} is degraded")
    expect(problem).to_contain_text("needs 26.4 MiB of weights and 41.2 MiB of KV")
    expect(problem).to_contain_text("On no live node: layers 8-18")
    expect(page.locator(".problem")).to_have_count(2)  # Told once, not again as a line.
    expect(page.locator(".layer-map tr", has_text="nobody")).to_contain_text("8-18")


def test_loading_shows_how_far_each_shard_is_and_is_no_error(page, stub):
    stub.snapshot = world.loading()
    open_view(page, stub.url)
    expect(page.locator(".layer-map tr", has_text="node-2")).to_contain_text(
        re.compile(r"loading 48 %, 12\.\d of 26\.4 MiB"))
    expect(page.locator(".problem")).to_have_count(0)
    expect(page.locator("#top .health")).to_contain_text("Loading")


def test_replicas_duties_stale_nodes_and_silent_links_are_told_apart(page, stub):
    stub.snapshot = world.replicated()
    open_view(page, stub.url)
    for words in ("rack-b1, head, layers 0-7, drained", "rack-a2, layers 8-18, draining",
                  "rack-b2, layers 8-18, stale: no heartbeat for 1.2 s"):
        expect(page.get_by_label(re.compile(re.escape(words)))).to_be_visible()
    icons = page.eval_on_selector_all(
        "svg.ring .card use", "uses => uses.map(use => use.getAttribute('href').split('#')[1])")
    assert len(set(icons)) == 4, icons  # Ready, drained, draining, stale: a shape each.
    expect(page.locator(".link-word")).to_have_text("rack-a3 to rack-a1 silent 2.3 s")


def test_a_new_state_leaves_focus_and_typing_alone(page, stub):
    open_view(page, stub.url)
    field = page.locator("#event-filter")
    field.click()
    field.press_sequentially("node-1")
    stub.push(world.degraded())
    expect(page.locator(".problem").first).to_be_visible()
    expect(field).to_be_focused()
    field.press_sequentially("0")
    expect(field).to_have_value("node-10")


def test_events_are_filtered_by_level_and_words(page, stub):
    stub.timeline = world.losses()
    open_view(page, stub.url)
    rows = page.locator(".events li")
    expect(rows).to_have_count(10)
    expect(rows.first).to_contain_text("is degraded")
    page.get_by_label("Least level").select_option("error")
    expect(rows).to_have_count(2)
    page.locator("#event-filter").fill("NODE-2 heartbeat")
    expect(rows).to_have_count(1)
    page.locator("#event-filter").fill("nothing of the kind")
    expect(page.locator(".timeline")).to_contain_text("No event matches")


def test_a_drain_says_what_will_happen_before_it_does(page, stub):
    open_view(page, stub.url)
    page.get_by_role("button", name="Drain… node-2").click()
    dialog = page.get_by_role("dialog", name="Drain node-2?")
    expect(dialog).to_contain_text("2 sessions may end there")
    expect(dialog).to_contain_text("No other node takes sessions for layers 8-18")
    expect(dialog.locator("code")).to_have_text("shardctl node drain node-2 --deadline 30s --force")
    dialog.get_by_role("button", name="Keep as it is").click()
    assert stub.calls == []
    page.get_by_role("button", name="Drain… node-2").click()
    dialog.get_by_label("Deadline, seconds").fill("5")
    dialog.get_by_label("Force: drain all the same").check()
    dialog.get_by_role("button", name="Drain", exact=True).click()
    expect(page.locator("#toasts")).to_contain_text("node-2 drains")
    assert stub.calls == [
        ("POST", "/admin/v1/nodes/node-2/drain", {"deadline_ms": 5000, "force": True})]


def test_a_refusal_is_shown_in_the_coordinators_words(page, stub):
    stub.refuse["POST /admin/v1/nodes/node-1/cordon"] = (400, "node-1 holds the only head")
    open_view(page, stub.url)
    page.get_by_role("button", name="Cordon… node-1").click()
    page.get_by_role("dialog").get_by_role("button", name="Cordon", exact=True).click()
    expect(page.locator("#toasts")).to_contain_text("node-1 holds the only head")


def test_a_button_that_may_not_act_says_why(page, stub):
    open_view(page, stub.url)
    forget = page.get_by_role("button", name=re.compile("^Forget… node-1: not now"))
    expect(forget).to_have_attribute("aria-disabled", "true")
    forget.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("node-1 is live: drain and stop it first")
    assert stub.calls == []


def test_a_lost_node_can_be_forgotten(page, stub):
    stub.snapshot = world.degraded()
    open_view(page, stub.url)
    page.get_by_role("button", name="Forget… node-2").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget it").click()
    expect(page.locator("#toasts")).to_contain_text("node-2 is forgotten")
    assert stub.calls == [("POST", "/admin/v1/nodes/node-2/remove", {})]


def test_a_session_can_be_cancelled(page, stub):
    open_view(page, stub.url)
    page.get_by_role("button", name="Cancel session 70368744177665").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the session").click()
    expect(page.locator("#toasts")).to_contain_text("is cancelled")
    assert stub.calls[0][1] == "/admin/v1/sessions/70368744177665/cancel"


def test_a_placement_is_previewed_in_numbers_and_loads_nothing(page, stub):
    stub.placement = {"fits": True, "reason": "", "shards": [
        {**world.shard("node-4", (0, 30)), "kv_pages": 512,
         "memory_free_bytes": str(210 * world.MIB)}]}
    open_view(page, stub.url)
    page.get_by_label("Path").fill("/models/other.gguf")
    page.get_by_label("Replicas").fill("2")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".preview")).to_contain_text("Fits on 1 node")
    expect(page.locator(".preview tbody")).to_contain_text("210 MiB")
    assert stub.calls == [("POST", "/admin/v1/placement", {
        "path": "/models/other.gguf", "shards": 0, "replicas": 2, "context_tokens_max": 0,
        "sessions_max": 0})]
    stub.placement = {"fits": False, "reason": "needs 900 MiB, node-4 has 512 MiB", "shards": []}
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".preview")).to_contain_text("Does not fit")
    expect(page.locator(".preview")).to_contain_text("needs 900 MiB, node-4 has 512 MiB")


def test_a_model_is_loaded_after_a_question(page, stub):
    open_view(page, stub.url)
    page.get_by_label("Path").fill("/models/other.gguf")
    page.get_by_role("button", name="Load…", exact=True).click()
    dialog = page.get_by_role("dialog", name="Load other?")
    expect(dialog.locator("code")).to_have_text("shardctl model load /models/other.gguf")
    dialog.get_by_role("button", name="Load", exact=True).click()
    expect(page.locator("#toasts")).to_contain_text("other is being loaded")
    assert stub.calls[-1][:2] == ("POST", "/admin/v1/models")
    assert stub.calls[-1][2]["path"] == "/models/other.gguf"


def test_a_lost_connection_shows_the_age_of_what_is_seen_and_resumes(page, stub):
    open_view(page, stub.url)
    expect(page.locator(".events li")).to_have_count(7)
    stub.events_status = 503
    stub.snapshot_status = 503
    stub.hang_up()
    banner = page.locator(".banner")
    expect(banner).to_contain_text("Connection to the coordinator lost")
    expect(banner).to_contain_text(re.compile(r"\d s ago"))
    expect(page.locator("svg.ring")).to_be_visible()  # Never an empty page.
    stub.events_status = stub.snapshot_status = 200
    stub.push(None, world.event(60, "info", "node_joined", "node-9 joined", node="node-9"))
    page.get_by_role("button", name="Try now").click()
    expect(banner).to_have_count(0)
    expect(page.locator(".events li")).to_have_count(8)  # The new one, and none twice.
    assert stub.resumed[-1] == str((7 << 32) + 7)


def test_events_that_are_sent_again_are_shown_once(page, stub):
    open_view(page, stub.url)
    expect(page.locator(".events li")).to_have_count(7)
    stub.resends = True
    stub.hang_up()
    stub.push(None, world.event(60, "info", "node_joined", "node-9 joined", node="node-9"))
    expect(page.locator(".events")).to_contain_text("node-9 joined")
    expect(page.locator(".events li")).to_have_count(8)


def test_where_streams_do_not_get_through_the_page_polls(page, stub):
    stub.events_status = 502
    open_view(page, stub.url)
    expect(page.locator("#top .health")).to_contain_text("polling")
    expect(page.locator("svg.ring")).to_be_visible()


def test_a_key_is_asked_for_and_kept_in_this_tab_only(page, stub):
    stub.admin_key = "sl-admin"
    page.goto(stub.url)
    dialog = page.get_by_role("dialog", name="Admin key")
    dialog.get_by_label("Key").fill("wrong")
    dialog.get_by_role("button", name="Use this key").click()
    dialog.get_by_label("Key").fill("sl-admin")
    dialog.get_by_role("button", name="Use this key").click()
    expect(page.locator("svg.ring")).to_be_visible()
    stored = page.evaluate("[JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
    assert "sl-admin" not in stored[0] and "sl-admin" in stored[1]


def test_who_has_no_key_is_told_so_and_not_asked_again_and_again(page, stub):
    stub.admin_key = "sl-admin"
    page.goto(stub.url)
    page.get_by_role("dialog").get_by_role("button", name="Not now").click()
    expect(page.locator(".panel.empty")).to_contain_text("The admin key is needed")
    asked = len(stub.resumed)
    page.keyboard.press("r")
    page.wait_for_timeout(600)
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert asked == 0


def test_without_nodes_the_page_says_how_to_begin(page, stub):
    stub.snapshot = world.empty()
    open_view(page, stub.url)
    expect(page.locator(".panel.empty")).to_contain_text("No node has joined yet")
    expect(page.locator(".problem")).to_contain_text("no node has joined")
