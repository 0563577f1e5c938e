"""Asking the HTTP API, and reading its streams strictly: what no client must accept fails here."""

import dataclasses
import json

import httpx
from shardline_cluster import MODEL

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
FINISH_REASONS = {"stop", "length", "tool_calls", "content_filter"}


def user(text):
    return [{"role": "user", "content": text}]


def chat_body(text="Tell me about rivers.", **fields):
    return {"model": MODEL, "messages": user(text), "temperature": 0, "max_tokens": 64, **fields}


def scripted(text):
    """The field that makes a model say exactly `text`."""
    quoted = json.dumps(text, ensure_ascii=False)
    return {"grammar": f"root ::= {quoted}"}


@dataclasses.dataclass
class Stream:
    """A stream that was read to its end, whatever that was."""

    status: int
    headers: httpx.Headers
    chunks: list = dataclasses.field(default_factory=list)  # All JSON events.
    comments: int = 0
    is_done: bool = False   # "[DONE]" came, and nothing after it.
    is_whole: bool = False  # The body ended with its last chunk.

    def choices(self, index=0):
        return [choice for chunk in self.chunks for choice in chunk.get("choices", [])
                if choice["index"] == index]

    def text(self, index=0):
        return "".join(choice["delta"].get("content") or "" for choice in self.choices(index))

    def finish_reasons(self, index=0):
        return [c["finish_reason"] for c in self.choices(index) if c["finish_reason"] is not None]

    def errors(self):
        return [chunk["error"] for chunk in self.chunks if "error" in chunk]

    def tool_calls(self, index=0):
        """The calls as a client puts them together."""
        calls = {}
        for choice in self.choices(index):
            for delta in choice["delta"].get("tool_calls", []):
                call = calls.setdefault(delta["index"], {"arguments": ""})
                for key in ("id", "type"):
                    if key in delta:
                        assert key not in call, f"{key} came twice"
                        call[key] = delta[key]
                function = delta["function"]
                if "name" in function:
                    assert "name" not in call, "the name came twice"
                    call["name"] = function["name"]
                call["arguments"] += function.get("arguments", "")
        assert sorted(calls) == list(range(len(calls)))
        return [calls[i] for i in range(len(calls))]


def read_line(stream, line):
    assert not stream.is_done or line == "", f"after [DONE]: {line}"
    if line == "":
        return
    if line.startswith(":"):
        stream.comments += 1
    elif line == "data: [DONE]":
        stream.is_done = True
    else:
        assert line.startswith("data: "), f"neither data nor comment: {line}"
        event = json.loads(line[6:])
        assert isinstance(event, dict)
        stream.chunks.append(event)


class Api:
    def __init__(self, cluster):
        self.cluster = cluster
        self.http = cluster.client()

    def post(self, path, body, **options):
        return self.http.post(path, json=body, **options)

    def chat(self, text="Tell me about rivers.", **fields):
        """One whole answer; fails unless it is one."""
        return self.ok(self.post(CHAT, chat_body(text, **fields)))

    def complete(self, prompt, **fields):
        body = {"model": MODEL, "prompt": prompt, "temperature": 0, **fields}
        return self.ok(self.post(COMPLETIONS, body))

    def stream(self, text="Tell me about rivers.", path=CHAT, body=None, on_chunk=None, **fields):
        """One stream, to its end. `on_chunk` runs after every event, with the stream so far."""
        body = body or chat_body(text, **fields)
        with self.http.stream("POST", path, json={**body, "stream": True}) as response:
            stream = Stream(response.status_code, response.headers)
            if response.status_code != 200:
                response.read()
                raise AssertionError(f"{response.status_code}: {response.text}")
            seen = 0
            try:
                for line in response.iter_lines():
                    read_line(stream, line)
                    if on_chunk and len(stream.chunks) > seen:
                        seen = len(stream.chunks)
                        on_chunk(stream)
                stream.is_whole = True
            except httpx.RemoteProtocolError:
                pass
        return stream

    def prompt_ids(self, **body):
        rendered = self.ok(self.post("/apply-template", {"model": MODEL, **body}))["prompt"]
        return self.ok(self.post("/tokenize", {"model": MODEL, "prompt": rendered}))["tokens"]

    @staticmethod
    def ok(response):
        assert response.status_code == 200, f"{response.status_code}: {response.text}"
        assert response.headers["content-type"].startswith("application/json")
        return response.json()

    @staticmethod
    def error(response, status, code=..., param=...):
        """The error of a refusal, which must have the one shape there is."""
        assert response.status_code == status, f"{response.status_code}: {response.text}"
        assert response.headers["content-type"].startswith("application/json"), response.headers
        error = response.json()["error"]
        assert {"message", "type", "param", "code"} <= set(error)
        assert error["message"] and isinstance(error["message"], str)
        assert error["code"] is None or isinstance(error["code"], str)
        if code is not ...:
            assert error["code"] == code, error
        if param is not ...:
            assert error["param"] == param, error
        return error

    def refused(self, status=400, code=..., param=..., path=CHAT, **fields):
        """Asks with `fields` added to a good request, and expects this refusal."""
        body = chat_body(**fields) if path == CHAT else {"model": MODEL, "prompt": "a", **fields}
        return self.error(self.post(path, body), status, code, param)
