"""The chat streams, measures, and never takes a broken answer for a whole one."""

import json
import re

from playwright.sync_api import expect

import stub as stubs
import world
from conftest import open_view


def say(page, text):
    page.locator("#composer").fill(text)
    page.locator("#composer").press("Enter")


def last_request(stub):
    return [call[2] for call in stub.calls if call[1] == "/v1/chat/completions"][-1]


def test_an_answer_streams_with_its_figures_and_who_served_it(page, stub):
    stub.chat = stubs.answer("The capital ", "is **Paris**.")
    open_view(page, stub.url, "chat")
    say(page, "What is the capital of France?")
    answer = page.get_by_role("article", name="Answer")
    expect(answer).to_contain_text("The capital is Paris.")
    expect(answer.locator("strong")).to_have_text("Paris")
    expect(answer).to_contain_text("41.7 tok/s")
    expect(answer).to_contain_text("64 tokens")
    expect(answer).to_contain_text("prompt 212 (128 cached)")
    expect(answer).to_contain_text("node-1 → node-2 → node-3")
    expect(page.locator(".context-meter")).to_contain_text("276 / 2,048")
    sent = last_request(stub)
    assert sent["stream"] and sent["stream_options"] == {"include_usage": True}
    assert sent["return_progress"] and sent["timings"]
    assert "temperature" not in sent  # What is not set is the server's to choose.


def test_the_hops_of_a_request_show_where_its_time_went(page, stub):
    stub.chat = stubs.answer("Yes.")
    stub.requests["req-1"] = stubs.WATERFALL
    open_view(page, stub.url, "chat")
    say(page, "Well?")
    page.get_by_role("button", name="Hops").click()
    fall = page.locator(".waterfall")
    expect(fall.locator("tr", has_text="Queued")).to_contain_text("12.4 ms")
    expect(fall.locator("tr", has_text="Prompt")).to_contain_text("170 ms")
    expect(fall.locator("tr", has_text="node-2")).to_contain_text("7.14 ms")
    expect(fall.locator("tr", has_text="Links and waiting")).to_contain_text("3.17 ms")


def test_what_a_model_says_never_becomes_markup(page, stub):
    stub.chat = stubs.answer(
        "<img src=x onerror=alert(1)><script>alert(2)</script> [go](javascript:alert(3)) "
        "[ok](https://example.org/) ![pic](https://example.org/a.png) <b>bold</b>")
    open_view(page, stub.url, "chat")
    page.on("dialog", lambda dialog: dialog.dismiss() and None)
    say(page, "Attack")
    answer = page.get_by_role("article", name="Answer").locator(".markdown")
    expect(answer).to_contain_text("<img src=x onerror=alert(1)><script>alert(2)</script>")
    expect(answer.locator("img, script, b, iframe")).to_have_count(0)
    hrefs = answer.locator("a").evaluate_all("links => links.map(link => link.href)")
    assert hrefs == ["https://example.org/", "https://example.org/a.png"]
    assert answer.locator("a").first.get_attribute("rel") == "noopener noreferrer nofollow"


def test_stop_hangs_up_and_keeps_what_came(page, stub):
    stub.chat = stubs.answer("x")[:2] + [("text", "The beginning"), ("wait",)]
    open_view(page, stub.url, "chat")
    say(page, "Go on")
    expect(page.get_by_role("article", name="Answer")).to_contain_text("The beginning")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("article", name="Answer")).to_contain_text("You stopped this answer")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.wait_for_function("true")
    for _ in range(100):
        if ("GONE", "/v1/chat/completions", {}) in stub.calls:
            break
        page.wait_for_timeout(20)
    assert ("GONE", "/v1/chat/completions", {}) in stub.calls


def test_a_stream_without_finish_reason_is_no_answer(page, stub):
    stub.chat = stubs.answer("x")[:2] + [("text", "Half of an"), ("done",)]
    open_view(page, stub.url, "chat")
    say(page, "First")
    broken = page.get_by_role("article", name="Broken answer")
    expect(broken).to_contain_text("This is not a whole answer")
    expect(broken).to_contain_text("Half of an")
    stub.chat = stubs.answer("Whole.")
    say(page, "Second")
    expect(page.get_by_role("article", name="Answer", exact=True)).to_contain_text("Whole.")
    said = [message["content"] for message in last_request(stub)["messages"]]
    assert said == ["First", "Second"]  # The broken one is not sent as if it were the model's.


def test_a_connection_that_breaks_is_a_broken_answer(page, stub):
    stub.chat = stubs.answer("x")[:2] + [("text", "Half"), ("linger",), ("abort",)]
    open_view(page, stub.url, "chat")
    say(page, "First")
    broken = page.get_by_role("article", name="Broken answer")
    expect(broken).to_contain_text("The connection broke while the answer streamed")
    expect(broken).to_contain_text("Half")


def test_what_broke_a_connection_is_looked_up(page, stub):
    stub.requests["req-1"] = {**stubs.WATERFALL, "reason": "shard_unavailable", "status": 200}
    stub.chat = stubs.answer("x")[:2] + [("text", "Half"), ("linger",), ("abort",)]
    open_view(page, stub.url, "chat")
    say(page, "First")
    expect(page.get_by_role("article", name="Broken answer")).to_contain_text("shard_unavailable")


def test_an_error_in_the_stream_is_told_in_its_words_and_can_be_tried_again(page, stub):
    stub.chat = stubs.answer("x")[:2] + [("text", "Half"), ("chunk", {"error": {
        "message": "node-2 was lost and layers 8-18 have no other", "type": "server_error",
        "param": None, "code": "shard_unavailable"}}), ("linger",), ("abort",)]
    open_view(page, stub.url, "chat")
    say(page, "First")
    broken = page.get_by_role("article", name="Broken answer")
    expect(broken).to_contain_text("node-2 was lost and layers 8-18 have no other")
    expect(broken).to_contain_text("shard_unavailable")
    stub.chat = stubs.answer("Now it works.")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("article", name="Answer", exact=True)).to_contain_text("Now it works.")
    expect(broken).to_have_count(0)


def test_a_refusal_before_the_first_byte_says_when_to_come_back(page, stub):
    stub.chat_status = (503, {"error": {
        "message": "the model is loading: 43 %", "type": "server_error", "param": None,
        "code": "model_loading"}}, {"Retry-After": "7", "x-request-id": "req-9"})
    open_view(page, stub.url, "chat")
    say(page, "Hello")
    broken = page.get_by_role("article", name="Broken answer")
    expect(broken).to_contain_text("the model is loading: 43 %")
    expect(broken).to_contain_text("HTTP 503 · model_loading · req-9")
    expect(broken).to_contain_text("worth trying again in 7.0 s")


def test_the_prompt_shows_how_far_it_is_read(page, stub):
    stub.chat = stubs.answer("x")[:2] + [
        ("chunk", stubs.chunk(prompt_progress={"total": 1204, "cache": 256, "processed": 602,
                                               "time_ms": 90})), ("wait",)]
    open_view(page, stub.url, "chat")
    say(page, "A long one")
    expect(page.get_by_role("progressbar", name="Prompt read")).to_have_attribute(
        "aria-valuenow", "50")
    expect(page.locator(".live")).to_contain_text("602 of 1,204 tokens, 256 from the cache")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_an_answer_that_falls_silent_says_for_how_long(page, stub):
    stub.chat = stubs.answer("x")[:2] + [("text", "Half"), ("wait",)]
    open_view(page, stub.url, "chat")
    say(page, "Go on")
    expect(page.locator(".live")).to_contain_text(
        re.compile(r"Waiting for a node to go on: nothing new for [3-9]\.\d s"))


def test_regenerate_and_edit_replace_what_came_after(page, stub):
    stub.chat = stubs.answer("One.")
    open_view(page, stub.url, "chat")
    say(page, "Count")
    answer = page.get_by_role("article", name="Answer", exact=True)
    expect(answer).to_contain_text("One.")
    stub.chat = stubs.answer("Two.")
    page.get_by_role("button", name="Regenerate").click()
    expect(answer).to_contain_text("Two.")
    expect(answer).to_have_count(1)
    stub.chat = stubs.answer("Three.")
    page.get_by_role("button", name="Edit").click()
    expect(page.locator("#composer")).to_have_value("Count")
    page.locator("#composer").fill("Count on")
    page.locator("#composer").press("Enter")
    expect(answer).to_contain_text("Three.")
    assert [m["content"] for m in last_request(stub)["messages"]] == ["Count on"]


def test_settings_are_sent_where_set(new_page, stub):
    page = new_page(width=1440)
    stub.chat = stubs.answer("Ok.")
    open_view(page, stub.url, "chat")
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.2")
    page.get_by_label("Longest answer").fill("32")
    page.get_by_label("Stop texts").fill("END\n\\n\\n")
    say(page, "Hello")
    expect(page.get_by_role("article", name="Answer")).to_contain_text("Ok.")
    sent = last_request(stub)
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (sent["temperature"], sent["max_tokens"], sent["stop"]) == (0.2, 32, ["END", "\n\n"])
    assert "top_p" not in sent and "seed" not in sent


def test_chats_outlive_a_reload_and_can_be_taken_along(page, stub):
    stub.chat = stubs.answer("Kept.")
    open_view(page, stub.url, "chat")
    say(page, "Remember this")
    expect(page.get_by_role("article", name="Answer")).to_contain_text("Kept.")
    page.reload()
    expect(page.get_by_role("article", name="Answer")).to_contain_text("Kept.")
    expect(page.get_by_role("article", name="Answer")).to_contain_text("41.7 tok/s")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    exported = json.loads(open(download.value.path(), encoding="utf-8").read())
    assert [m["content"] for m in exported["messages"]] == ["Remember this", "Kept."]
    page.get_by_role("button", name="Delete chat Remember this").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("article")).to_have_count(0)


def test_an_answer_cut_by_a_reload_is_broken_afterwards(page, stub):
    stub.chat = stubs.answer("x")[:2] + [("text", "Half"), ("wait",)]
    open_view(page, stub.url, "chat")
    say(page, "First")
    expect(page.get_by_role("article", name="Answer")).to_contain_text("Half")
    page.reload()
    expect(page.get_by_role("article", name="Broken answer")).to_contain_text("Half")


def test_a_model_that_loads_is_told_before_anything_is_sent(page, stub):
    stub.snapshot, stub.models = world.loading(), False
    open_view(page, stub.url, "chat")
    expect(page.locator(".greeting")).to_contain_text("No model takes requests")
    expect(page.locator(".greeting")).to_contain_text(re.compile("is loading: layers 0-7"))


def test_chat_asks_for_its_own_key(page, stub):
    stub.api_key = "sl-key"
    open_view(page, stub.url, "chat")
    dialog = page.get_by_role("dialog", name="API key")
    dialog.get_by_label("Key").fill("sl-key")
    dialog.get_by_role("button", name="Use this key").click()
    expect(page.locator(".greeting")).to_contain_text(f"Talk to {world.MODEL}")
