"""Conversations for chat templates, made from a seed."""
import random

WORDS = ["hello", "sharded", "model", "Größe", "naïve", "日本語", "한국어", "مرحبا", "👩‍🔬", "e\u0301",
         "<think>", "</think>", "{{ braces }}", "{% block %}", "\"quoted\"", "it's", "a\\b", "<b>&amp;</b>",
         "tab\there", "line\nbreak", "\r\nold", "100%", "x_1", "\u00a0wide\u3000", "[INST]", "===="]
ENDS = ["", "", "", " ", "\n", "  \n", "\n\n"]
CITIES = ["Paris", "Köln", "東京", "São Paulo", "O'Fallon"]


def text(rng, low=1, high=12):
    body = rng.choice([" ", " ", "\n"]).join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))
    return rng.choice(ENDS) + body + rng.choice(ENDS)


def schema(rng):
    properties = {
        "city": {"type": "string", "description": text(rng, 1, 4)},
        "days": {"type": "integer", "minimum": 1, "maximum": rng.choice([7, 14])},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "share": {"type": "number", "default": rng.choice([0.5, 1.0, 2e-7])},
        "places": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
        "maybe": {"type": ["string", "null"]},
    }
    names = rng.sample(sorted(properties), rng.randint(0, 5))
    made = {"type": "object", "properties": {name: properties[name] for name in names}}
    if rng.random() < 0.7:
        made["required"] = names[:rng.randint(0, len(names))]
    return made


def tool(rng, number):
    function = {"name": rng.choice(["get_weather", "search", "add", "send_mail"]) + f"_{number}",
                "description": text(rng, 1, 8), "parameters": schema(rng)}
    return {"type": "function", "function": function}


def arguments(rng):
    values = {"city": rng.choice(CITIES), "days": rng.randint(-3, 40), "share": rng.choice([1.5, 1e22, -0.25]),
              "ok": True, "none": None, "list": [1, "zwei", [3.0]], "object": {"a": {"b": "c\"d"}}}
    return {name: values[name] for name in rng.sample(sorted(values), rng.randint(0, 4))}


def content(rng, parts):
    if parts and rng.random() < 0.5:
        return [{"type": "text", "text": text(rng)} for _ in range(rng.randint(1, 2))]
    return text(rng)


def assistant_with_calls(rng, tools, index):
    calls = []
    for n in range(rng.choice([1, 1, 2])):
        function = {"name": rng.choice(tools)["function"]["name"], "arguments": arguments(rng)}
        call = {"id": f"call{index:03d}{n:02d}", "type": "function", "function": function}
        calls.append(call)
    message = {"role": "assistant", "tool_calls": calls}
    if rng.random() < 0.6:
        message["content"] = rng.choice([None, "", text(rng)])
    if rng.random() < 0.2:
        message["reasoning_content"] = text(rng)
    return message


def conversation(rng):
    messages = []
    tools = [tool(rng, n) for n in range(rng.randint(1, 3))] if rng.random() < 0.45 else None
    parts = rng.random() < 0.15
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": content(rng, parts)})
    for turn in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": content(rng, parts)})
        if tools and rng.random() < 0.6:
            call = assistant_with_calls(rng, tools, len(messages))
            messages.append(call)
            for made in call["tool_calls"]:
                messages.append({"role": "tool", "name": made["function"]["name"], "tool_call_id": made["id"],
                                 "content": rng.choice([text(rng), "{\"degrees\": 21.5}", ""])})
        answer = {"role": "assistant", "content": rng.choice([text(rng), text(rng), "",
                                                              "<think>\nwell\n</think>\n\n" + text(rng)])}
        if rng.random() < 0.15:
            answer["reasoning_content"] = text(rng)
        messages.append(answer)
    if rng.random() < 0.7:
        messages.append({"role": "user", "content": content(rng, parts)})
    if rng.random() < 0.04:
        messages = messages[1:]  # Wrong orders are refused alike.
    made = {"messages": messages, "add_generation_prompt": rng.random() < 0.7}
    if tools or rng.random() < 0.8:
        made["tools"] = tools
    for name, values in [("enable_thinking", [True, False]), ("reasoning_effort", ["low", "high"]),
                         ("date_string", ["01 Jan 2026"]), ("tools_in_user_message", [True, False])]:
        if rng.random() < 0.2:
            made[name] = rng.choice(values)
    return made


def conversations(seed, count):
    rng = random.Random(seed)
    return [conversation(rng) for _ in range(count)]
