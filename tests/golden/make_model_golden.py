#!/usr/bin/env python3
"""Records what two reference implementations compute for SmolLM2-135M-Instruct Q4_1.

  make_model_golden.py MODEL.gguf > smollm2_135m_q4_1.json

Needs numpy, gguf, torch, transformers and llama-cpp-python. README.md describes the output.
"exact" is torch in float32 on the dequantised weights: the model as the file defines it.
"quantised" is llama.cpp, which also rounds activations to 8 bits and keys and values to f16.
"""
import hashlib
import json
import sys

import gguf
import llama_cpp
import numpy as np
import torch
import transformers

CONTINUATION_TOKENS = 64
TOP_IDS = 64
SPACED_IDS = 256


def chat(*messages):
    """The file's chat template, written out; it adds this system message when none is given."""
    text = ""
    if messages[0][0] != "system":
        text = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
                "trained by Hugging Face<|im_end|>\n")
    for role, content in messages:
        text += f"<|im_start|>{role}\n{content}<|im_end|>\n"
    return text + "<|im_start|>assistant\n"


LONG = """The harbour of the old town lies between two hills. In the morning the fishing boats come \
back with the tide, and their crews carry baskets of herring and mackerel up the stone steps to the \
market. The market hall was built in 1874 by an architect from the capital, who had never seen the \
sea before he came, and who is said to have wept when he first stood on the quay. He gave the hall \
nine arches, one for each of the families that owned a boat at that time, and above every arch he \
set the head of a different animal: a seal, a gull, a pike, a horse, an otter, a ram, a heron, a \
bear and a hare. The hare has lost one ear. Children of the town believe that whoever finds the \
missing ear will never be cold again, and so each winter there are small lanterns moving along the \
beach below the hall, long after supper, while the parents call from the windows.

In the afternoon the harbour is quiet. The nets hang over the railings to dry, and old Marten, who \
repairs them, sits on a crate with a needle of bone and a ball of tarred twine. He knows every knot \
by the name of the man who taught it to him. Most of those men are dead, and so, he says, when he \
works he is never alone. A visitor once asked him how many knots there are in a net. Marten thought \
for a while, then he"""

PROMPTS = [
    ("plain", "The capital of France is"),
    ("one_token", "Hello"),
    ("story", "Once upon a time, in a small village at the edge of the forest, there lived"),
    ("chat", chat(("user", "What is gravity? Answer in two sentences."))),
    ("chat_system", chat(("system", "You are a terse assistant who answers in one line."),
                         ("user", "Name three primary colours."),
                         ("assistant", "Red, yellow and blue."),
                         ("user", "And three fruits of these colours?"))),
    ("code", "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n    if n < 2:\n"),
    ("json", '{"name": "Ada Lovelace", "born": 1815, "fields": ["mathematics", "comput'),
    ("unicode", "Caf\u00e9 d\u00e9j\u00e0 vu \u2014 na\u00efve r\u00e9sum\u00e9. \u6771\u4eac\u306f"
                "\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002 \U0001f60a \u041f\u0440\u0438"
                "\u0432\u0435\u0442, \u043c\u0438\u0440! Translation:"),
    ("numbers", "1, 2, 4, 8, 16, 32, 64, 128,"),
    ("long", LONG),
]


class Exact:
    """torch, float32, CPU."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)

        def field(key):
            return reader.fields[key].contents()

        heads, kv_heads = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
        config = transformers.LlamaConfig(
            vocab_size=field("llama.vocab_size"),
            hidden_size=field("llama.embedding_length"),
            intermediate_size=field("llama.feed_forward_length"),
            num_hidden_layers=field("llama.block_count"),
            num_attention_heads=heads, num_key_value_heads=kv_heads,
            max_position_embeddings=field("llama.context_length"),
            rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base")},
            tie_word_embeddings=True, attention_bias=False, mlp_bias=False)
        config._attn_implementation = "eager"
        weights = {t.name: torch.from_numpy(
            np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32))
            for t in reader.tensors}

        def halves(weight, head_count):
            """GGUF rotates neighbours (2i, 2i+1), torch rotates (i, i + head_dim/2)."""
            rows, columns = weight.shape
            pairs = weight.reshape(head_count, rows // head_count // 2, 2, columns)
            return pairs.transpose(1, 2).reshape(rows, columns)

        state = {"model.embed_tokens.weight": weights["token_embd.weight"],
                 "lm_head.weight": weights["token_embd.weight"],
                 "model.norm.weight": weights["output_norm.weight"]}
        for layer in range(config.num_hidden_layers):
            ours, theirs = f"blk.{layer}.", f"model.layers.{layer}."
            for a, b in [("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"),
                         ("attn_v", "self_attn.v_proj"), ("attn_output", "self_attn.o_proj"),
                         ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"),
                         ("ffn_down", "mlp.down_proj")]:
                state[f"{theirs}{b}.weight"] = weights[f"{ours}{a}.weight"]
            state[f"{theirs}self_attn.q_proj.weight"] = halves(weights[f"{ours}attn_q.weight"], heads)
            state[f"{theirs}self_attn.k_proj.weight"] = halves(weights[f"{ours}attn_k.weight"],
                                                              kv_heads)
        self.model = transformers.LlamaForCausalLM(config).float().eval()
        self.model.load_state_dict(state, strict=True)

    @torch.no_grad()
    def start(self, ids):
        out = self.model(torch.tensor([ids]), use_cache=True)
        self.cache = out.past_key_values
        return out.logits[0, -1].numpy()

    @torch.no_grad()
    def step(self, token):
        out = self.model(torch.tensor([[token]]), past_key_values=self.cache, use_cache=True)
        self.cache = out.past_key_values
        return out.logits[0, -1].numpy()


class Quantised:
    """llama.cpp, CPU."""

    def __init__(self, llm):
        self.llm = llm

    def start(self, ids):
        self.llm.reset()
        self.llm.eval(ids)
        return self.llm.scores[self.llm.n_tokens - 1].copy()

    def step(self, token):
        self.llm.eval([token])
        return self.llm.scores[self.llm.n_tokens - 1].copy()


def rounded(values, digits=6):
    return [float(f"{float(v):.{digits}g}") for v in values]


def logits_record(logits):
    top = np.argsort(-logits, kind="stable")[:TOP_IDS]
    spaced = np.setdiff1d(np.arange(SPACED_IDS) * (len(logits) // SPACED_IDS), top)
    wide = logits.astype(np.float64)
    return {"top_ids": top.tolist(), "top_values": rounded(logits[top], 8),
            "spaced_ids": spaced.tolist(), "spaced_values": rounded(logits[spaced], 8),
            "l2_norm": rounded([np.sqrt((wide * wide).sum())], 9)[0],
            "mean": rounded([wide.mean()], 9)[0]}


def record(reference, ids):
    logits = reference.start(ids)
    prompt_logits = logits_record(logits)
    continuation, gaps = [], []
    for index in range(CONTINUATION_TOKENS):
        best, second = np.argsort(-logits, kind="stable")[:2]
        continuation.append(int(best))
        gaps.append(logits[best] - logits[second])
        if index + 1 < CONTINUATION_TOKENS:
            logits = reference.step(int(best))
    return {"continuation_ids": continuation, "gaps": rounded(gaps, 5),
            "prompt_logits": prompt_logits}


def main(path):
    torch.manual_seed(0)
    llm = llama_cpp.Llama(path, n_ctx=1024, n_threads=2, logits_all=True, verbose=False)
    exact, quantised = Exact(path), Quantised(llm)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    cases = []
    for name, text in PROMPTS:
        ids = llm.tokenize(text.encode(), add_bos=False, special=True)
        case = {"name": name, "text": text, "prompt_ids": ids,
                "exact": record(exact, ids), "quantised": record(quantised, ids)}
        for kind in ("exact", "quantised"):
            case[kind]["continuation_text"] = llm.detokenize(
                case[kind]["continuation_ids"], special=True).decode(errors="replace")
            print(name, len(ids), kind, repr(case[kind]["continuation_text"]), file=sys.stderr)
        cases.append(case)
    head = {"model_sha256": digest,
            "exact_by": f"torch {torch.__version__}, transformers {transformers.__version__}, "
                        "float32, CPU",
            "quantised_by": f"llama-cpp-python {llama_cpp.__version__}, CPU"}
    print("{")
    for key, value in head.items():
        print(f" {json.dumps(key)}: {json.dumps(value)},")
    print(' "cases": [')
    print(",\n".join("  " + json.dumps(case, separators=(",", ":")) for case in cases))
    print(" ]\n}")


if __name__ == "__main__":
    main(sys.argv[1])
