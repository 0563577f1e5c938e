#!/usr/bin/env python3
"""Records what Python's Jinja makes of templates, for the tests of model/jinja.

  make_jinja_golden.py TEMPLATES            writes jinja/ beside this script
  make_jinja_golden.py --try TEMPLATES BINARY COUNT SEED
                                            compares the engine with the reference on new input

TEMPLATES is the folder that deploy/fetch_templates.sh fills, BINARY the program jinja_render.
Needs jinja2. README.md describes the output.
"""
import hashlib
import json
import os
import subprocess
import sys

from jinja_conversations import conversations
from jinja_reference import NOW_SECONDS, render
from jinja_snippets import VARIABLES, WRITTEN, snippets

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jinja")
CONVERSATION_COUNT = 100
SNIPPET_COUNT = 600
# One template a family, two where versions differ much.
TEMPLATES = """
Apertus-8B-Instruct Bielik-11B-v3.0-Instruct ByteDance-Seed-OSS Cohere2MoE
CohereForAI-c4ai-command-r-plus-tool_use GLM-4.6 HuggingFaceTB-SmolLM2-135M-Instruct
HuggingFaceTB-SmolLM3-3B Kimi-K2-Instruct LFM2-8B-A1B LGAI-EXAONE-EXAONE-4.0-32B MiniMax-M2
NVIDIA-Nemotron-Nano-v2 Qwen-QwQ-32B Qwen-Qwen2.5-7B-Instruct Qwen-Qwen3-0.6B Qwen3-Coder
Reka-Edge deepseek-ai-DeepSeek-R1-Distill-Llama-8B deepseek-ai-DeepSeek-V3.1
google-gemma-2-2b-it google-gemma-4-31B-it ibm-granite-granite-3.3-2B-Instruct
ibm-granite-granite-4.0 meetkai-functionary-medium-v3.2 meta-llama-Llama-3.1-8B-Instruct
meta-llama-Llama-3.2-3B-Instruct microsoft-Phi-3.5-mini-instruct
mistralai-Ministral-3-14B-Reasoning-2512 mistralai-Mistral-Nemo-Instruct-2407
openai-gpt-oss-120b tencent-Hy3 unsloth-mistral-Devstral-Small-2507 upstage-Solar-Open-100B
""".split()


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def variables_of(conversation):
    return dict(conversation, bos_token="<s>", eos_token="</s>")


def read(folder, name):
    with open(os.path.join(folder, name + ".jinja"), encoding="utf-8", newline="") as file:
        return file.read()


def record(folder):
    os.makedirs(HERE, exist_ok=True)
    made = conversations(seed=5, count=CONVERSATION_COUNT)
    with open(os.path.join(HERE, "conversations.jsonl"), "w", encoding="utf-8") as file:
        for conversation in made:
            file.write(json.dumps(variables_of(conversation), ensure_ascii=False) + "\n")
    with open(os.path.join(HERE, "templates.txt"), "w", encoding="utf-8") as file:
        for name in TEMPLATES:
            source = read(folder, name)
            texts = [render(source, variables_of(conversation))[0] for conversation in made]
            marks = ["-" if text is None else digest(text)[:6] for text in texts]
            file.write(f"{name} {digest(source)} {' '.join(marks)}\n")
    with open(os.path.join(HERE, "snippets.jsonl"), "w", encoding="utf-8") as file:
        file.write(json.dumps(VARIABLES, ensure_ascii=False) + "\n")
        for snippet in WRITTEN + snippets(seed=5, count=SNIPPET_COUNT):
            text = render(snippet, json.loads(json.dumps(VARIABLES)))[0]
            if text is None or " at 0x" not in text:
                file.write(json.dumps([snippet, text], ensure_ascii=False) + "\n")


def answers(binary, requests):
    lines = "".join(json.dumps({"template": source, "variables": variables, "now": NOW_SECONDS}) + "\n"
                    for source, variables in requests)
    done = subprocess.run([binary], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def compare(binary, requests):
    """Prints where the two differ; the engine may fail where the reference does not, and is told."""
    counts = {"same": 0, "both fail": 0, "only ours fails": 0, "only theirs fails": 0, "DIFFERENT": 0}
    for (source, variables), ours in zip(requests, answers(binary, requests)):
        text, error = render(source, json.loads(json.dumps(variables)))
        if text is not None and " at 0x" in text:
            continue
        if "error" in ours:
            kind = "both fail" if text is None else "only ours fails"
        elif text is None:
            kind = "only theirs fails"
        else:
            kind = "same" if ours["text"] == text else "DIFFERENT"
        counts[kind] += 1
        if kind not in ("same", "both fail"):
            print(f"{kind}: {source[:300]!r}\n  ours   {ours}\n  theirs {text or error!r}"[:2000])
    print(counts)
    return counts["DIFFERENT"] == 0


def attempt(folder, binary, count, seed):
    sources = [read(folder, name[:-len(".jinja")]) for name in sorted(os.listdir(folder))
               if name.endswith(".jinja")]
    good = True
    for source in sources:
        good &= compare(binary, [(source, variables_of(c)) for c in conversations(seed, count)])
    good &= compare(binary, [(snippet, VARIABLES) for snippet in snippets(seed, 100 * count)])
    sys.exit(0 if good else 1)


def main():
    if len(sys.argv) == 2:
        record(sys.argv[1])
    elif len(sys.argv) == 6 and sys.argv[1] == "--try":
        attempt(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        sys.exit(__doc__)


main()
