"""Streams: assertions 18 to 31 of the conformance list; the number stands in each name."""

import contextlib
import json
import threading
import time

import pytest
from api import CHAT, Api, chat_body, scripted
from shardline_cluster import Cluster


def sends(stream_socket, body):
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n"
    stream_socket.sendall(head.encode() + data)


def test_18_the_head_of_a_stream_and_its_pieces_one_by_one(api, cluster):
    arrivals = []
    stream = api.stream(max_tokens=12, ignore_eos=True,
                        on_chunk=lambda s: arrivals.append(time.monotonic()))
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.headers["cache-control"] == "no-cache"
    assert stream.headers["x-accel-buffering"] == "no"
    assert stream.headers["transfer-encoding"] == "chunked"
    assert len(set(arrivals)) >= 12
    # On the wire: every chunk of HTTP is one event, or several whole ones.
    with cluster.socket() as raw:
        sends(raw, chat_body(stream=True, max_tokens=4, ignore_eos=True))
        file = raw.makefile("rb")
        while file.readline() != b"\r\n":
            pass
        while size := int(file.readline(), 16):
            piece = file.read(size)
            assert piece.endswith(b"\n\n"), piece
            assert file.readline() == b"\r\n"


def test_19_a_stream_is_data_lines_and_done(api):
    stream = api.stream(max_tokens=4)  # api.read_line is strict.
    assert stream.is_done and stream.is_whole


def test_20_the_first_delta_has_the_role_and_no_other(api):
    stream = api.stream(max_tokens=4, n=2, temperature=1, seed=1)
    for index in range(2):
        roles = [choice["delta"].get("role") for choice in stream.choices(index)]
        assert roles[0] == "assistant" and not any(roles[1:])


def test_21_all_chunks_are_of_one_answer(api):
    stream = api.stream(max_tokens=4)
    assert len({(c["id"], c["created"], c["model"]) for c in stream.chunks}) == 1
    assert {c["object"] for c in stream.chunks} == {"chat.completion.chunk"}


def test_22_one_finish_reason_ends_each_choice(api):
    for fields in ({"max_tokens": 4}, scripted("Done."), {**scripted("Done."), "stop": "ne"}):
        stream = api.stream(**{"n": 2, **fields})
        for index in range(2):
            reasons = [choice["finish_reason"] for choice in stream.choices(index)]
            assert reasons[-1] is not None and not any(reasons[:-1])


def test_23_usage_comes_when_asked_for_and_only_then(api):
    asked = api.stream(max_tokens=3, ignore_eos=True, stream_options={"include_usage": True})
    assert asked.chunks[-1]["choices"] == []
    assert asked.chunks[-1]["usage"]["completion_tokens"] == 3
    assert all(c["usage"] is None and c["choices"] for c in asked.chunks[:-1])
    plain = api.stream(max_tokens=3)
    assert all(c["choices"] for c in plain.chunks)
    assert not any(c.get("usage") for c in plain.chunks)


def test_24_stream_options_need_a_stream(api):
    api.refused(param="stream_options", stream_options={"include_usage": True})


@pytest.mark.parametrize("said", ["😊", "歪", "👩‍👩‍👧‍👦 family", "e\u0301a\u0300", "日本語🗾とемоji", "𝔘𝔫𝔦"])
def test_25_characters_come_whole(api, said):
    stream = api.stream(**scripted(said))
    assert stream.text() == said
    for choice in stream.choices():
        assert "\ufffd" not in (choice["delta"].get("content") or "")


def test_26_a_failure_before_the_first_token_is_a_plain_error(api):
    response = api.post(CHAT, chat_body("word " * 3000, stream=True))
    api.error(response, 400, "context_length_exceeded", "messages")
    api.error(api.post(CHAT, {**chat_body(stream=True), "model": "none"}), 404, "model_not_found")


def test_27_a_shard_lost_for_good_ends_the_stream_abnormally():
    with Cluster(nodes=2, arguments=["--replan-after", "inf"]) as cluster:
        cluster.await_ready()
        api = Api(cluster)
        killed = threading.Event()

        def kill_once(stream):
            if len(stream.chunks) == 5 and not killed.is_set():
                killed.set()
                cluster.kill("node-b")

        stream = api.stream(max_tokens=1500, ignore_eos=True, deadline_ms=4000,
                            on_chunk=kill_once)
        assert killed.is_set()
        assert not stream.is_done and not stream.is_whole
        assert stream.finish_reasons() == []
        [error] = stream.errors()
        assert error["code"] in ("shard_unavailable", "deadline_exceeded"), error
        # And from then on before the first byte.
        refused = api.post(CHAT, chat_body(max_tokens=1))
        assert refused.status_code == 503, refused.text
        assert api.error(refused, 503)["code"] == "shard_unavailable"
        assert 1 <= int(refused.headers["retry-after"]) <= 60


def test_28_a_shard_lost_with_a_replica_changes_nothing_in_the_stream():
    with Cluster(nodes=4, shards=2, arguments=["--replicas", "2"], node_memory="1GiB") as cluster:
        cluster.await_state(lambda state: len(state["shards"]) == 4
                            and all(shard["proven"] for shard in state["shards"]))
        api = Api(cluster)
        undisturbed = api.stream(max_tokens=120, ignore_eos=True)
        killed = threading.Event()

        def kill_once(stream):
            if len(stream.chunks) == 20 and not killed.is_set():
                killed.set()
                cluster.kill(stream.headers["x-shardline-nodes"].split(",")[-1])

        stream = api.stream(max_tokens=120, ignore_eos=True, on_chunk=kill_once)
        assert killed.is_set() and stream.is_done
        assert stream.text() == undisturbed.text()
        assert stream.finish_reasons() == ["length"]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("when", ["decode", "prefill", "queued"])
def test_29_a_client_that_goes_frees_its_pages(api, cluster, streamed, when):
    cluster.await_idle()
    with contextlib.ExitStack() as stack:
        if when == "queued":  # All full contexts of KV are taken by others.
            for _ in range(4):
                other = stack.enter_context(cluster.socket())
                sends(other, chat_body(stream=True, max_tokens=1900, ignore_eos=True))
                other.recv(1)
        text = "word " * 1500 if when == "prefill" else "Tell me a story."
        raw = stack.enter_context(cluster.socket())
        count = len(next(cluster.states())["sessions"])
        sends(raw, chat_body(text, stream=streamed, max_tokens=400, ignore_eos=True))
        if when == "decode":
            cluster.await_state(lambda s: any(x["tokens"] > 0 for x in s["sessions"]))
        else:
            cluster.await_state(lambda s: len(s["sessions"]) > count
                                or s["figures"]["sessions_waiting"] > 0)
    cluster.await_idle()


def test_29_others_go_on_when_one_client_goes(api, cluster):
    expected = api.chat(max_tokens=60, ignore_eos=True)["choices"][0]["message"]["content"]
    gone = threading.Event()
    with cluster.socket() as raw:
        sends(raw, chat_body("A long tale.", stream=True, max_tokens=1500, ignore_eos=True))
        raw.recv(1)

        def close_once(stream):
            if not gone.is_set():
                gone.set()
                raw.close()

        stream = api.stream(max_tokens=60, ignore_eos=True, on_chunk=close_once)
    assert gone.is_set() and stream.text() == expected
    cluster.await_idle()


def test_30_a_slow_reader_slows_nobody(api, cluster):
    with cluster.socket() as raw:
        sends(raw, chat_body(stream=True, max_tokens=600, ignore_eos=True, logprobs=True,
                             top_logprobs=20))
        raw.recv(1)  # And never again.
        for _ in range(3):
            assert api.stream(max_tokens=20, ignore_eos=True).is_done
    cluster.await_idle()


def test_31_a_silent_stream_gets_comments():
    with Cluster(arguments=["--http-ping", "20ms"]) as cluster:
        cluster.await_ready()
        stream = Api(cluster).stream("word " * 300, max_tokens=1)
        assert stream.comments > 0 and stream.is_done
