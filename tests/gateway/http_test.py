"""Errors and HTTP itself: assertions 36 to 45; the number stands in each name."""

import json
import subprocess
import threading

import httpx
import pytest
from api import CHAT, COMPLETIONS, Api, chat_body, user
from shardline_cluster import BINARIES, MODEL, Cluster

JSON_TYPE = {"content-type": "application/json"}


def raw_answer(cluster, sent):
    """All that comes back for these bytes until the server closes."""
    with cluster.socket() as raw:
        raw.sendall(sent)
        return raw.makefile("rb").read().decode()


def test_36_errors_have_one_shape(api):
    api.refused(param="messages", messages=None)
    assert api.error(api.post(CHAT, {"model": MODEL}), 400)["param"] == "messages"
    api.error(api.post(CHAT, {**chat_body(), "model": "none"}), 404, "model_not_found")
    api.error(api.http.get("/v1/nothing"), 404)
    api.error(api.http.get(CHAT), 405, "method_not_allowed")
    embeddings = api.post("/v1/embeddings", {"model": MODEL, "input": "a"})
    api.error(embeddings, 501, "unsupported_endpoint")
    assert embeddings.headers["x-should-retry"] == "false"
    late = api.post(CHAT, chat_body(max_tokens=1500, ignore_eos=True, deadline_ms=100))
    assert api.error(late, 504)["code"] == "deadline_exceeded"


DEEP = '{"a":' * 200 + "1" + "}" * 200


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"null", b'"x"', b'{"model":', b"{'model': 1}",
    DEEP.encode(), (f'{{"model": "{MODEL}", "messages": {DEEP}}}').encode(),
    b'{"model": "smollm2", "messages": [{"role": "user", "content": "\xe6\xad"}]}',
    b'{"model": "smollm2", "messages": [{"role": "user", "content": "\\ud83d"}]}',
    b'{"model": "smollm2", "model": "other", "messages": []}',
    b'{"model": "smollm2", "messages": [], "temperature": 1e999}',
    b"\x00" * 64,
])
def test_37_what_is_not_good_json_is_refused_and_nothing_breaks(api, body):
    api.error(api.http.post(CHAT, content=body, headers=JSON_TYPE), 400)
    assert api.http.get("/livez").status_code == 200


def test_37_a_body_is_read_whatever_its_type_is_called(api):
    body = json.dumps(chat_body(max_tokens=1)).encode()
    form = {"content-type": "application/x-www-form-urlencoded"}  # As curl -d sends it.
    assert api.http.post(CHAT, content=body, headers=form).status_code == 200


def test_38_a_context_overflow_says_both_numbers(api):
    text = "word " * 3000
    error = api.error(api.post(CHAT, chat_body(text)), 400, "context_length_exceeded", "messages")
    assert "maximum context length is 2048 tokens" in error["message"]
    assert error["n_ctx"] == 2048
    assert error["n_prompt_tokens"] == len(api.prompt_ids(messages=user(text)))


def test_38_a_prompt_that_just_fits_is_answered(api):
    ids = api.ok(api.post("/tokenize", {"model": MODEL, "prompt": "word " * 3000}))["tokens"]
    answer = api.complete(ids[:2047], max_tokens=1, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 1
    assert answer["choices"][0]["finish_reason"] == "length"
    # The last token's worth of room is given, and the answer says that it was cut.
    answer = api.complete(ids[:2047], max_tokens=5, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 1
    assert answer["choices"][0]["finish_reason"] == "length"
    # A prompt is never shortened in silence.
    for prompt, max_tokens in ((ids[:2048], 1), (ids[:2049], 1)):
        body = {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens}
        error = api.error(api.post(COMPLETIONS, body), 400, "context_length_exceeded", "prompt")
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (len(prompt), 2048)


def test_39_a_full_queue_says_when_to_come_back():
    with Cluster(nodes=1, shards=1, arguments=["--requests-max", "1", "--queue", "0"]) as cluster:
        cluster.await_ready()
        api = Api(cluster)
        refusals = []

        def ask_beside(stream):
            if len(stream.chunks) == 5:
                refusals.append(api.post(CHAT, chat_body(max_tokens=1)))

        api.stream(max_tokens=60, ignore_eos=True, on_chunk=ask_beside)
        [refused] = refusals
        assert api.error(refused, 429)["code"] == "queue_full"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert api.chat(max_tokens=1)


def test_40_paths_and_methods(api):
    assert api.http.get("/v1/models/").status_code == 200
    assert api.http.get(f"/v1/models/{MODEL}").json()["id"] == MODEL
    api.error(api.http.get("/v1/models/some%2Fother"), 404, "model_not_found")
    refused = api.http.delete(f"/v1/models/{MODEL}")
    api.error(refused, 405)
    assert "GET" in refused.headers["allow"]
    assert "POST" in api.http.get(CHAT).headers["allow"]
    for path in ("/v1/models", "/health", "/livez"):
        head, get = api.http.head(path), api.http.get(path)
        assert head.status_code == get.status_code == 200 and head.content == b""
        assert head.headers["content-length"] == str(len(get.content))


def test_41_request_ids_are_echoed_or_made(api, cluster):
    mine = "conformance.41:a_b-c"
    answer = api.post(CHAT, chat_body(max_tokens=1), headers={"x-request-id": mine})
    assert answer.headers["x-request-id"] == mine
    assert mine in (cluster.directory / "coordinator.log").read_text()
    made = {api.http.get("/v1/models").headers["x-request-id"] for _ in range(2)}
    assert len(made) == 2
    for bad in ("x" * 129, "a b", "a;b"):
        given = api.http.get("/v1/models", headers={"x-request-id": bad})
        assert given.headers["x-request-id"] != bad
    error = api.http.get("/v1/nothing", headers={"x-request-id": mine})
    assert error.headers["x-request-id"] == mine


def test_42_a_body_may_be_announced_and_chunked(api, cluster):
    def pieces():
        data = json.dumps(chat_body(max_tokens=1)).encode()
        for at in range(0, len(data), 7):
            yield data[at:at + 7]
    assert api.http.post(CHAT, content=pieces()).status_code == 200
    body = json.dumps(chat_body(max_tokens=1)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    with cluster.socket() as raw:
        raw.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
        file = raw.makefile("rb")
        assert file.readline() == b"HTTP/1.1 100 Continue\r\n" and file.readline() == b"\r\n"
        raw.sendall(body)
        assert file.readline() == b"HTTP/1.1 200 OK\r\n"


def test_42_requests_may_be_pipelined(cluster):
    get = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    answers = raw_answer(cluster, get + b"\r\n" + get + b"Connection: close\r\n\r\n")
    assert answers.count("HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize("sent, status", [
    (b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"x" * 9000 + b"\r\n\r\n", 431),
    (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n", 413),
    (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"GET / HTTP/1.1\nHost: h\n\n", 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
])
def test_42_what_breaks_the_protocol_gets_a_proper_error_and_the_end(cluster, sent, status):
    head, body = raw_answer(cluster, sent).split("\r\n\r\n", 1)
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert "application/json" in head.lower() and "connection: close" in head.lower()
    assert {"message", "type", "param", "code"} <= set(json.loads(body)["error"])


def test_43_preflights_need_no_key_and_requests_do(tmp_path):
    keys = tmp_path / "keys.txt"
    made = {}
    for name, extra in (("app", []), ("boss", ["--admin"])):
        shown = subprocess.run([BINARIES / "shardctl", "key", "new", name, "--file", keys, *extra],
                               capture_output=True, text=True, check=True)
        made[name] = next(word for word in shown.stdout.split() if len(word) > 40)
    bearer = {name: {"authorization": f"Bearer {key}"} for name, key in made.items()}
    origin = {"origin": "http://localhost:3000"}
    with Cluster(nodes=1, shards=1, arguments=["--api-keys", str(keys)]) as cluster, \
            cluster.client() as http:
        cluster.await_ready(headers=bearer["boss"])
        preflight = http.options(CHAT, headers={
            **origin, "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type,x-stainless-lang"})
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] in ("*", origin["origin"])
        allowed = preflight.headers["access-control-allow-headers"].lower()
        assert "authorization" in allowed and "x-stainless-lang" in allowed
        body = chat_body(max_tokens=1)
        for headers in ({}, {"authorization": "Bearer wrong"}):
            refused = http.post(CHAT, json=body, headers={**headers, **origin})
            assert Api.error(refused, 401)["code"] == "invalid_api_key"
            assert refused.headers["www-authenticate"].startswith("Bearer")
            assert "access-control-allow-origin" in refused.headers
        good = http.post(CHAT, json=body, headers={**bearer["app"], **origin})
        assert good.status_code == 200
        assert "x-request-id" in good.headers["access-control-expose-headers"].lower()
        for path in ("/livez", "/readyz", "/health"):
            assert http.get(path).status_code == 200
        Api.error(http.get("/admin/v1/state"), 401)
        Api.error(http.get("/admin/v1/state", headers=bearer["app"]), 403)
        assert http.get("/admin/v1/state", headers=bearer["boss"]).status_code == 200


def test_44_health_follows_the_model():
    with Cluster(nodes=1, shards=2) as cluster, cluster.client() as http:
        assert http.get("/livez").status_code == 200
        assert http.get("/readyz").status_code == 503  # A node is missing.
        assert Api.error(http.get("/health"), 503)
        refused = http.post(CHAT, json=chat_body(max_tokens=1))
        assert refused.status_code in (404, 503), refused.text
        cluster.start_node(1)
        cluster.await_ready()
        assert http.get("/readyz").status_code == 200
        assert http.get("/health").json() == {"status": "ok"}
        cluster.kill("node-b")
        cluster.await_state(lambda s: any(n["state"] == "NODE_STATE_LOST" for n in s["nodes"]))
        assert http.get("/readyz").status_code == 503
        assert http.get("/livez").status_code == 200
        verbose = http.get("/readyz?verbose").text
        assert MODEL in verbose and "[-]" in verbose


def test_45_a_drain_refuses_new_requests_and_finishes_streams():
    with Cluster(nodes=1, shards=1, arguments=["--drain", "60s"]) as cluster:
        cluster.await_ready()
        api = Api(cluster)
        told = threading.Event()
        refusals = []

        def terminate_once(stream):
            if told.is_set():
                return
            told.set()
            cluster.terminate("coordinator")
            # Until it has heard the signal.
            with cluster.client() as other:
                while other.get("/readyz").status_code == 200:
                    pass
                refusals.append(other.post(CHAT, json=chat_body(max_tokens=1)))

        stream = api.stream(max_tokens=120, ignore_eos=True, on_chunk=terminate_once)
        assert stream.is_done and stream.finish_reasons() == ["length"]
        [refused] = refusals
        assert Api.error(refused, 503)["code"] == "draining"
        assert "retry-after" in refused.headers
        assert cluster.processes["coordinator"].wait(timeout=60) == 0
        with pytest.raises(httpx.ConnectError):
            api.http.get("/livez")
