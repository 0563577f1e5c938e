"""Tools and structured output: assertions 32 to 35; the number stands in each name."""

import json

import jsonschema
import pytest
from api import CHAT, chat_body, scripted

WEATHER = {"type": "function", "function": {
    "name": "get_weather",
    "description": "Current weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}},
                   "required": ["city"], "additionalProperties": False}}}
CLOCK = {"type": "function", "function": {
    "name": "get_time",
    "parameters": {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}},
                   "required": ["zone"], "additionalProperties": False}}}
TOOLS = {"tools": [WEATHER, CLOCK]}


def check_call(call, tool):
    assert call["id"] and call["type"] == "function"
    jsonschema.validate(json.loads(call["arguments"]), tool["function"]["parameters"])


def test_32_tool_deltas_add_up_to_calls(api):
    fields = {**TOOLS, "tool_choice": "required", "max_tokens": 120, "temperature": 0}
    stream = api.stream("What is the weather in Rome?", **fields)
    calls = stream.tool_calls()
    assert calls and stream.finish_reasons() == ["tool_calls"]
    for call in calls:
        check_call(call, WEATHER if call["name"] == "get_weather" else CLOCK)
    whole = api.chat("What is the weather in Rome?", **fields)["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    said = [(c["function"]["name"], c["function"]["arguments"])
            for c in whole["message"]["tool_calls"]]
    assert said == [(c["name"], c["arguments"]) for c in calls]
    assert all(isinstance(arguments, str) for _, arguments in said)


def test_33_tool_choice_is_kept(api):
    named = {"type": "function", "function": {"name": "get_time"}}
    asked = {**TOOLS, "tool_choice": named, "max_tokens": 120}
    calls = api.chat("Hello", **asked)["choices"][0]["message"]["tool_calls"]
    assert {call["function"]["name"] for call in calls} == {"get_time"}
    for call in calls:
        assert json.loads(call["function"]["arguments"])["zone"] in ("UTC", "CET")
    [call] = api.chat("Hello", **asked, parallel_tool_calls=False)["choices"][0]["message"][
        "tool_calls"]
    assert call["function"]["name"] == "get_time"
    none = api.chat("Weather in Rome?", **TOOLS, tool_choice="none", max_tokens=8)["choices"][0]
    assert not none["message"].get("tool_calls") and none["message"]["content"]
    unknown = {"type": "function", "function": {"name": "get_lost"}}
    api.refused(**TOOLS, tool_choice=unknown)
    api.refused(param="tools", tools=[])
    api.refused(tool_choice="required")
    api.refused(**TOOLS, tool_choice="sometimes")


def test_33_old_function_fields_point_to_tools(api):
    assert "tools" in api.refused(functions=[WEATHER["function"]])["message"]


SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"],
          "properties": {"name": {"type": "string", "maxLength": 10},
                         "age": {"type": "integer", "minimum": 0, "maximum": 120},
                         "tags": {"type": "array", "maxItems": 2, "items": {"enum": ["a", "b"]}}}}


def formatted(schema, **fields):
    return {"response_format": {"type": "json_schema", "json_schema": {
        "name": "person", "strict": True, "schema": schema}}, **fields}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_34_a_schema_is_held(api, seed):
    fields = formatted(SCHEMA, max_tokens=120, temperature=1, seed=seed)
    choice = api.chat("Describe a person.", **fields)["choices"][0]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
    assert api.stream("Describe a person.", **fields).text() == choice["message"]["content"]


def test_34_a_schema_cut_by_its_limit_says_so(api):
    choice = api.chat(**formatted(SCHEMA, max_tokens=3))["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"].lstrip().startswith("{")


def test_34_a_json_object_parses(api):
    schema_free = {"response_format": {"type": "json_object"}}
    choice = api.chat('Reply with JSON: {"a": 1}', **schema_free, max_tokens=300)["choices"][0]
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)
    else:
        assert choice["finish_reason"] == "length"
        assert choice["message"]["content"].lstrip().startswith("{")


@pytest.mark.parametrize("schema, keyword", [
    ({"type": "object", "properties": {"a": {"not": {"type": "string"}}}}, "not"),
    ({"type": "array", "uniqueItems": True, "items": {"type": "integer"}}, "uniqueItems"),
    ({"$ref": "http://elsewhere/schema.json"}, "$ref"),
    ({"type": "nonsense"}, "nonsense"),
])
def test_35_what_a_schema_cannot_have_is_named(api, schema, keyword):
    error = api.refused(**formatted(schema))
    assert keyword in error["message"], error
    assert error["param"].startswith("response_format"), error


def test_35_a_grammar_that_is_broken_is_refused_with_its_place(api):
    error = api.refused(grammar='root ::= "a')
    assert error["param"] == "grammar"
    assert any(c.isdigit() for c in error["message"]), error
    assert api.chat(**scripted("fine"))["choices"][0]["message"]["content"] == "fine"


def test_35_two_formats_at_once_are_refused(api):
    body = chat_body(**formatted(SCHEMA), grammar='root ::= "a"')
    api.error(api.post(CHAT, body), 400)
