"""Whole answers: assertions 1 to 17 of the conformance list; the number stands in each name."""

import json
import math

import pytest
from api import CHAT, COMPLETIONS, FINISH_REASONS, scripted, user
from shardline_cluster import MODEL


def content(answer, index=0):
    return answer["choices"][index]["message"]["content"]


def test_01_an_answer_has_its_keys(api):
    answer = api.chat(max_tokens=4)
    assert answer["object"] == "chat.completion"
    assert isinstance(answer["created"], int) and answer["created"] > 1_600_000_000
    assert answer["id"].startswith("chatcmpl-") and answer["model"] == MODEL
    assert answer["choices"] and answer["usage"] and answer["system_fingerprint"]


def test_02_a_choice_has_its_keys(api):
    for choice in api.chat(max_tokens=4, n=2)["choices"]:
        assert {"index", "message", "logprobs", "finish_reason"} <= set(choice)
        assert {"role", "content", "refusal"} <= set(choice["message"])
        assert choice["message"]["role"] == "assistant"
        assert choice["message"]["refusal"] is None and choice["logprobs"] is None


def test_03_finish_reasons_are_of_the_closed_set(api):
    for fields in ({"max_tokens": 1}, scripted("All done."), {"max_tokens": 40, "stop": "e"}):
        assert api.chat(**fields)["choices"][0]["finish_reason"] in FINISH_REASONS


def test_04_usage_adds_up_and_counts_the_prompt_as_tokenize_does(api):
    usage = api.chat("How many?", max_tokens=5)["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] == len(api.prompt_ids(messages=user("How many?")))
    assert usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]


def test_05_completion_tokens_are_the_streamed_ones_and_eos_is_no_text(api):
    stream = api.stream(max_tokens=12, ignore_eos=True, logprobs=True,
                        stream_options={"include_usage": True})
    entries = [e for c in stream.choices() if c["logprobs"] for e in c["logprobs"]["content"]]
    assert len(entries) == 12 == stream.chunks[-1]["usage"]["completion_tokens"]
    ended = api.chat(**scripted("Done."))
    assert content(ended) == "Done." and ended["choices"][0]["finish_reason"] == "stop"


def test_06_limits_of_tokens(api):
    answer = api.chat(max_tokens=1)
    assert answer["usage"]["completion_tokens"] == 1
    assert answer["choices"][0]["finish_reason"] == "length"
    api.refused(param="max_tokens", max_tokens=0)
    api.refused(param="max_completion_tokens", max_completion_tokens=-1)
    both = api.chat(max_tokens=9, max_completion_tokens=2, ignore_eos=True)
    assert both["usage"]["completion_tokens"] == 2


def test_07_a_stop_text_over_several_tokens_is_found_and_does_not_leak(api):
    said = "The quick brown fox jumps over the lazy dog."
    for stop, left in (("own fox jum", "The quick br"), ("The", ""), ("dog.", said[:-4])):
        answer = api.chat(**scripted(said), stop=[stop])
        assert content(answer) == left
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert api.stream(**scripted(said), stop=[stop]).text() == left
    # The earliest stop text ends it, not the first one of the list.
    assert content(api.chat(**scripted(said), stop=["dog", "brown"])) == "The quick "
    # What only began like one is text after all.
    assert content(api.chat(**scripted(said), stop=["dog!"])) == said


def test_08_stop_texts_that_make_no_sense(api):
    api.refused(param="stop", stop=["a", "b", "c", "d", "e"])
    api.refused(param="stop", stop="")
    api.refused(stop=["a", ""])
    assert api.chat(max_tokens=1, stop=None)


def test_09_choices_are_dense_and_each_is_in_order(api):
    fields = {"max_tokens": 8, "n": 3, "temperature": 1, "seed": 7, "ignore_eos": True}
    answer = api.chat(**fields)
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    stream = api.stream(**fields)
    for index in range(3):
        assert stream.text(index) == content(answer, index)
        assert stream.finish_reasons(index) == ["length"]
    api.refused(param="n", n=1000)
    api.refused(param="n", n=0)


def test_10_the_same_seed_says_the_same(api):
    fields = {"max_tokens": 12, "temperature": 1.2, "seed": 42}
    first = content(api.chat(**fields))
    assert content(api.chat(**fields)) == first == api.stream(**fields).text()
    assert content(api.chat(**{**fields, "seed": 43})) != first
    greedy = api.chat(max_tokens=8, n=2, temperature=0)
    assert content(greedy, 0) == content(greedy, 1)


def test_11_a_stream_says_what_the_whole_answer_says(api):
    for fields in ({"max_tokens": 24}, {"max_tokens": 24, "temperature": 0.9, "seed": 5},
                   scripted("Voilà: 歪 😊, done.")):
        assert api.stream(**fields).text() == content(api.chat(**fields))


def test_12_logprobs(api):
    said = "Grüße 😊 aus 東京"
    choice = api.chat(**scripted(said), logprobs=True, top_logprobs=5)["choices"][0]
    entries = choice["logprobs"]["content"]
    assert b"".join(bytes(e["bytes"]) for e in entries).decode() == said
    for entry in entries:
        alternatives = [a["logprob"] for a in entry["top_logprobs"]]
        assert len(alternatives) <= 5 and alternatives == sorted(alternatives, reverse=True)
        for value in [entry["logprob"], *alternatives]:
            assert math.isfinite(value) and value <= 1e-6
    plain = api.chat(max_tokens=6, logprobs=True, top_logprobs=2, ignore_eos=True)
    assert len(plain["choices"][0]["logprobs"]["content"]) == 6
    assert all(len(e["top_logprobs"]) == 2 for e in plain["choices"][0]["logprobs"]["content"])


def test_13_logprobs_that_make_no_sense(api):
    api.refused(param="top_logprobs", top_logprobs=5)
    api.refused(param="top_logprobs", logprobs=True, top_logprobs=21)


def test_14_unknown_fields_are_taken(api):
    assert api.chat(max_tokens=1, some_field_of_tomorrow={"a": [1]}, user="me", store=False)


def test_15_the_shapes_of_content(api):
    def ids(messages):
        return api.prompt_ids(messages=messages)

    def parts(*texts):
        return [{"role": "user", "content": [{"type": "text", "text": t} for t in texts]}]

    assert ids(user("Say yes")) == ids(parts("Say yes")) == ids(parts("Say", " yes"))
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for assistant in ({"content": None}, {}, {"content": ""}):
        messages = [*user("hi"), {"role": "assistant", "tool_calls": [call], **assistant},
                    {"role": "tool", "tool_call_id": "call_1", "content": "done"}]
        assert api.ok(api.post(CHAT, {"model": MODEL, "messages": messages, "max_tokens": 1}))
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    error = api.error(api.post(CHAT, {"model": MODEL, "messages": image}), 400)
    assert error["param"].startswith("messages[0].content")


def test_16_developer_is_system(api):
    def ids(role):
        return api.prompt_ids(messages=[{"role": role, "content": "Be brief."}, *user("hi")])
    assert ids("developer") == ids("system")


def test_17_completions_take_every_shape_of_prompt(api):
    ids = api.ok(api.post("/tokenize", {"model": MODEL, "prompt": "Once upon a time"}))["tokens"]
    text = api.complete("Once upon a time")
    assert text["object"] == "text_completion"
    assert text["usage"]["completion_tokens"] == 16
    first = text["choices"][0]["text"]
    assert api.complete(ids)["choices"][0]["text"] == first
    for prompts in (["Once upon a time"] * 2, [ids, ids]):
        answer = api.complete(prompts)
        assert [c["index"] for c in answer["choices"]] == [0, 1]
        assert [c["text"] for c in answer["choices"]] == [first, first]
    echoed = api.complete("Once upon a time", echo=True)["choices"][0]["text"]
    assert echoed == "Once upon a time" + first
    scored = api.complete("Once", logprobs=2, max_tokens=3, ignore_eos=True)
    logprobs = scored["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == 3 == len(logprobs["token_logprobs"])
    assert all(len(top) >= 2 for top in logprobs["top_logprobs"])
    assert "".join(logprobs["tokens"]) == scored["choices"][0]["text"]


@pytest.mark.parametrize("prompt", ["", [], [""], [[]], [-1], [10**9], [["a"]], 5, None, {}])
def test_17_prompts_that_are_none_are_refused(api, prompt):
    api.refused(path=COMPLETIONS, prompt=prompt)


@pytest.mark.parametrize("bias", [{"AI": -100}, {"191222": -100}, {"5": 101}, {"5": "x"}, [1]])
def test_logit_bias_is_checked_before_any_stage(api, bias):
    error = api.refused(logit_bias=bias)
    assert error["param"].startswith("logit_bias"), error


def test_logit_bias_acts(api):
    word = api.chat(max_tokens=1)["choices"][0]["message"]["content"]
    token = api.ok(api.post("/tokenize", {"model": MODEL, "prompt": word}))["tokens"][0]
    other = api.chat(max_tokens=1, logit_bias={str(token): -100})
    assert other["choices"][0]["message"]["content"] != word


@pytest.mark.parametrize("field, value", [
    ("temperature", -0.1), ("temperature", 2.1), ("temperature", "hot"), ("top_p", -1), ("top_p", 2),
    ("frequency_penalty", 3), ("presence_penalty", -3), ("n", 1.5), ("seed", "x"), ("stream", "yes"),
    ("max_tokens", 2**40), ("messages", []), ("messages", "hi"), ("logit_bias", {"5": 1e400}),
])
def test_values_out_of_range_name_their_field(api, field, value):
    body = json.dumps({"model": MODEL, "messages": user("hi"), field: value})
    response = api.http.post(CHAT, content=body.replace("Infinity", "1e400"),
                             headers={"content-type": "application/json"})
    error = api.error(response, 400)
    if "1e400" not in body and "Infinity" not in body:
        assert error["param"] and error["param"].startswith(field), error
