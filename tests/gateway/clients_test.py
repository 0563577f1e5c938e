"""Real clients against the real server: assertion 46."""

import asyncio
import json
import subprocess
import threading

import langchain_openai
import litellm
import openai
import pytest
from api import chat_body, scripted, user
from shardline_cluster import MODEL, PATIENCE, Cluster

FOX = "The quick brown fox 😊 jumps."
TOOL = {"type": "function", "function": {
    "name": "get_time", "description": "The time in a zone",
    "parameters": {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}},
                   "required": ["zone"], "additionalProperties": False}}}


@pytest.fixture
def options(cluster):
    return {"base_url": f"{cluster.url}/v1", "api_key": "none", "timeout": PATIENCE}


@pytest.fixture
def client(options):
    return openai.OpenAI(**options)


def test_openai_whole(client):
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=user("hi"), max_tokens=32, extra_body=scripted(FOX))
    answer = raw.parse()
    assert answer.choices[0].message.content == FOX
    assert answer.choices[0].finish_reason == "stop"
    assert answer._request_id == raw.headers["x-request-id"]
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_openai_stream(client):
    chunks = list(client.chat.completions.create(
        model=MODEL, messages=user("hi"), max_tokens=32, stream=True,
        stream_options={"include_usage": True}, extra_body=scripted(FOX)))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == FOX
    assert chunks[-1].usage.completion_tokens > 0


def test_openai_stream_helper(client):
    with client.chat.completions.stream(model=MODEL, messages=user("hi"), max_tokens=32,
                                        extra_body=scripted(FOX)) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == FOX == final.choices[0].message.content
    assert final.choices[0].finish_reason == "stop"


def test_39_openai_tries_again_until_there_is_room():
    with Cluster(nodes=1, shards=1, arguments=["--requests-max", "1", "--queue", "0"]) as cluster:
        cluster.await_ready()
        impatient = openai.OpenAI(base_url=f"{cluster.url}/v1", api_key="none", timeout=PATIENCE,
                                  max_retries=0)
        first = impatient.chat.completions.create(
            model=MODEL, messages=user("hi"), max_tokens=60, stream=True,
            extra_body={"ignore_eos": True})
        next(first)
        with pytest.raises(openai.RateLimitError):
            impatient.chat.completions.create(model=MODEL, messages=user("hi"), max_tokens=1)
        rest = threading.Thread(target=lambda: list(first))
        rest.start()
        patient = impatient.with_options(max_retries=5)
        answer = patient.chat.completions.create(model=MODEL, messages=user("hi"), max_tokens=1)
        rest.join()
    assert answer.choices[0].finish_reason == "length"


def test_openai_async_streams_beside_each_other(options):
    async def one(client, index):
        said = f"Stream {index}."
        stream = await client.chat.completions.create(
            model=MODEL, messages=user("hi"), max_tokens=32, stream=True,
            extra_body=scripted(said))
        text = "".join([c.choices[0].delta.content or "" async for c in stream])
        return text == said

    async def run():
        async with openai.AsyncOpenAI(**options) as client:
            return await asyncio.gather(*(one(client, i) for i in range(6)))

    assert all(asyncio.run(run()))


def test_openai_completions(client):
    answer = client.completions.create(model=MODEL, prompt="Once", max_tokens=4, temperature=0)
    streamed = client.completions.create(model=MODEL, prompt="Once", max_tokens=4, temperature=0,
                                         stream=True)
    assert "".join(c.choices[0].text for c in streamed) == answer.choices[0].text


def test_openai_tools(client):
    fields = {"model": MODEL, "messages": user("What time is it in UTC?"), "tools": [TOOL],
              "tool_choice": "required", "parallel_tool_calls": False, "temperature": 0,
              "max_tokens": 100}
    whole = client.chat.completions.create(**fields).choices[0]
    assert whole.finish_reason == "tool_calls"
    with client.chat.completions.stream(**fields) as stream:
        streamed = stream.get_final_completion().choices[0]
    for choice in (whole, streamed):
        for call in choice.message.tool_calls:
            assert call.function.name == "get_time"
            assert json.loads(call.function.arguments)["zone"] in ("UTC", "CET")


def test_openai_parses_into_a_schema(client):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
              "additionalProperties": False}
    answer = client.chat.completions.create(
        model=MODEL, messages=user("Is it fine?"), max_tokens=40,
        response_format={"type": "json_schema",
                         "json_schema": {"name": "fine", "strict": True, "schema": schema}})
    assert isinstance(json.loads(answer.choices[0].message.content)["ok"], bool)


def test_openai_errors(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=user("word " * 3000))
    assert refused.value.code == "context_length_exceeded" and refused.value.param == "messages"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="none", messages=user("hi"))
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as range_error:
        client.chat.completions.create(model=MODEL, messages=user("hi"), temperature=3)
    assert range_error.value.param == "temperature"


def test_openai_leaves_a_stream(client, cluster):
    stream = client.chat.completions.create(model=MODEL, messages=user("hi"), max_tokens=1500,
                                            stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    cluster.await_idle()


def langchain(options, **extra_body):
    return langchain_openai.ChatOpenAI(model=MODEL, max_tokens=48, temperature=0,
                                       extra_body=extra_body, **options)


def test_langchain(options):
    model = langchain(options, **scripted(FOX))
    answer = model.invoke("hi")
    assert answer.content == FOX
    assert answer.usage_metadata["output_tokens"] > 0
    assert answer.response_metadata["finish_reason"] == "stop"
    assert "".join(chunk.content for chunk in model.stream("hi")) == FOX


def test_langchain_tools(options):
    model = langchain(options).bind_tools([TOOL], tool_choice="required",
                                          parallel_tool_calls=False)
    chunks = list(model.stream("Time in UTC?"))
    for message in (model.invoke("Time in UTC?"), sum(chunks[1:], start=chunks[0])):
        assert message.tool_calls[0]["name"] == "get_time"
        assert message.tool_calls[0]["args"]["zone"] in ("UTC", "CET")


def test_litellm(options):
    fields = {"model": f"openai/{MODEL}", "messages": user("hi"), "max_tokens": 32,
              "api_base": options["base_url"], "api_key": "none"}
    answer = litellm.completion(**fields, extra_body=scripted(FOX))
    assert answer.choices[0].message.content == FOX
    chunks = list(litellm.completion(**fields, extra_body=scripted(FOX), stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == FOX
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**{**fields, "messages": user("word " * 3000)})


def curl(cluster, *arguments, stdin=None):
    return subprocess.run(["curl", "-sS", "--max-time", str(int(PATIENCE)), *arguments],
                          input=stdin, capture_output=True, text=True, check=True).stdout


def test_curl(cluster):
    body = json.dumps(chat_body("hi", **scripted(FOX)))
    url = f"{cluster.url}/v1/chat/completions"
    whole = json.loads(curl(cluster, url, "-d", body))
    assert whole["choices"][0]["message"]["content"] == FOX
    stream = curl(cluster, "-N", url, "-d", json.dumps({**json.loads(body), "stream": True}))
    assert stream.rstrip().endswith("data: [DONE]")
    # More than a megabyte: curl waits for "100 Continue" before it sends it.
    long = json.dumps({**json.loads(body), "metadata": {"a": "x" * 1_200_000}})
    shown = curl(cluster, "-i", url, "--data-binary", "@-", stdin=long)
    assert shown.startswith("HTTP/1.1 100 Continue") and "200 OK" in shown
