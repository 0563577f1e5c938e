#!/usr/bin/env python3
"""Records what llama.cpp's tokenizer does with the corpus of tokenizer_corpus.py.

  make_tokenizer_golden.py SMOLLM2.gguf            writes tokenizer/ beside this script
  make_tokenizer_golden.py --model M.gguf OUT.txt  records another model, for a check by hand
  make_tokenizer_golden.py --show M.gguf N         prints the reference's ids of string N

Needs numpy, gguf, sentencepiece and llama-cpp-python. README.md describes the output.
"""
import ctypes
import io
import os
import sys
import tempfile
import unicodedata

import gguf
import llama_cpp
import sentencepiece

from tokenizer_corpus import CODE, PHRASES, corpus

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
# Pre-tokenizers that must agree share a file, named after the first.
PRES = [["default"], ["gpt-2", "phi-2"],
        ["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        ["falcon"], ["qwen2", "stablelm2", "deepseek-r1-qwen"],
        ["llama-bpe", "llama3", "llama-v3", "falcon3"], ["dbrx", "smaug-bpe"], ["tekken"], ["gpt-4o"]]
# Every fifth merge is left out where pre-tokenizers are compared: then some tokens cannot be
# merged from their bytes, and those that take a word as it stands differ from the rest.
SPARSE_MERGE = 5


@llama_cpp.llama_log_callback
def quiet(_level, _text, _user):
    pass


llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))


def fnv(data, digits):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"[:digits]


def packed(ids):
    return b"".join(i.to_bytes(4, "little") for i in ids) + b"\xff\xff\xff\xff"


class Reference:
    def __init__(self, path):
        self.llama = llama_cpp.Llama(path, vocab_only=True, verbose=False)
        self.vocab = llama_cpp.llama_model_get_vocab(self.llama._model.model)

    def encode(self, data, special):
        size = len(data) + 16
        ids = (llama_cpp.llama_token * size)()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), ids, size, special, special)
        assert count >= 0
        return list(ids[:count])

    def decode(self, ids):
        """Without control tokens. Piece by piece, less the leading space that detokenize drops."""
        size = 64 * len(ids) + 64
        out = (ctypes.c_char * size)()
        data = b""
        for n, i in enumerate(ids):
            count = llama_cpp.llama_token_to_piece(self.vocab, i, out, size, 0, False)
            assert count >= 0
            data += out.raw[:count]
            if n == 0 and data[:1] == b" ":
                array = (llama_cpp.llama_token * 1)(i)
                count = llama_cpp.llama_detokenize(self.vocab, array, 1, out, size, False, False)
                data = out.raw[:count]
        return data

    def end_ids(self):
        return [i for i in range(llama_cpp.llama_vocab_n_tokens(self.vocab))
                if llama_cpp.llama_vocab_is_eog(self.vocab, i)]


def escaped(data):
    """One line: \\xHH for a backslash and for what is not a visible UTF-8 character or a space."""
    out = ""
    for char in data.decode("utf-8", "surrogateescape"):
        if char != "\\" and (char == " " or unicodedata.category(char)[0] not in "CZ"):
            out += char
        else:
            out += "".join(f"\\x{b:02x}" for b in char.encode("utf-8", "surrogateescape"))
    return out


def record(path, strings, head, digits, with_decoded=True):
    reference = Reference(path)
    lines = [f"{key} {value}" for key, value in head.items()]
    lines.append("end_ids " + ",".join(map(str, reference.end_ids())))
    lines.append("")
    same = 0
    for data in strings:
        plain, special = reference.encode(data, False), reference.encode(data, True)
        lines.append(fnv(packed(plain) + packed(special), digits))
        if not with_decoded:
            continue
        decoded = reference.decode(plain)
        same += decoded == data
        lines[-1] += " =" if decoded == data else " " + fnv(decoded, digits)
    if with_decoded:
        print(f"{path}: {same} of {len(strings)} survive the round trip", file=sys.stderr)
    return "\n".join(lines) + "\n"


def vocab_only(path, model, tokens, types, scores=None, merges=None, pre=None, name=None, **keys):
    writer = gguf.GGUFWriter(path, "llama")
    if name:
        writer.add_name(name)
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if scores:
        writer.add_token_scores(scores)
    if merges:
        writer.add_token_merges(merges)
    for key, value in keys.items():
        getattr(writer, "add_" + key)(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def train_spm(path):
    """A small SentencePiece BPE with byte fallback, user-defined and control tokens."""
    text = "\n".join((PHRASES + CODE) * 3 + [" ".join(PHRASES)])
    sentences = [s for s in text.split("\n") if s.strip()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, model_type="bpe", vocab_size=1500,
        byte_fallback=True, num_threads=1, normalization_rule_name="identity",
        remove_extra_whitespaces=False, hard_vocab_limit=False, character_coverage=0.98,
        user_defined_symbols=["<tool>", "<table>"], control_symbols=["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
        minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    tokens, types, scores = [], [], []
    for i in range(processor.vocab_size()):
        piece = processor.id_to_piece(i)
        if processor.is_unknown(i):
            kind = gguf.TokenType.UNKNOWN
        elif processor.is_control(i):
            kind = gguf.TokenType.CONTROL
        elif processor.is_byte(i):
            kind = gguf.TokenType.BYTE
        elif piece in ("<tool>", "<table>"):
            kind = gguf.TokenType.USER_DEFINED
        else:
            kind = gguf.TokenType.NORMAL
        tokens.append(piece.encode())
        types.append(int(kind))
        scores.append(processor.get_score(i))
    for run in range(2, 9):  # As Gemma has them.
        tokens.append(b"\n" * run)
        types.append(int(gguf.TokenType.USER_DEFINED))
        scores.append(0.0)
    vocab_only(path, "llama", tokens, types, scores=scores, bos_token_id=1, eos_token_id=2,
               unk_token_id=0)


def joined_vocabulary(path):
    """Bytes, and merges of a letter, a mark, a digit or a space with whatever may follow them.

    Two characters of one word show as a merge, so the ids tell the class of every character.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spelled = [chr(b) if b in visible else None for b in range(256)]
    for n, b in enumerate(b for b in range(256) if b not in visible):
        spelled[b] = chr(256 + n)
    tokens, merges = list(spelled), []
    for head in "a!1 '":
        for byte in [*range(0x09, 0x0E), *range(0x20, 0x7F), *range(0xC2, 0xF5)]:
            tokens.append(spelled[ord(head)] + spelled[byte])
            merges.append(spelled[ord(head)] + " " + spelled[byte])
    vocab_only(path, "gpt2", tokens, [1] * len(tokens), merges=merges, bos_token_id=1,
               eos_token_id=2, unk_token_id=0)
    return tokens, merges


def main(model):
    os.makedirs(HERE, exist_ok=True)
    strings = corpus()
    with open(os.path.join(HERE, "corpus.txt"), "w") as file:
        file.writelines(escaped(s) + "\n" for s in strings)

    def write(name, *args):
        with open(os.path.join(HERE, name + ".txt"), "w") as file:
            file.write(record(*args))

    write("smollm2", model, strings, {"vocabulary": "smollm2"}, 16)
    spm = os.path.join(HERE, "spm_small.gguf")
    train_spm(spm)
    write("spm_small", spm, strings, {"vocabulary": "spm_small"}, 16)

    fields = gguf.GGUFReader(model).fields
    smollm_tokens = fields["tokenizer.ggml.tokens"].contents()
    smollm_types = fields["tokenizer.ggml.token_type"].contents()
    sparse = [m for i, m in enumerate(fields["tokenizer.ggml.merges"].contents())
              if i % SPARSE_MERGE != 0]
    spm_fields = gguf.GGUFReader(spm).fields
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vocab.gguf")
        tokens, merges = joined_vocabulary(os.path.join(HERE, "joined.gguf"))
        for pre in ("gpt-2", "default", "llama-bpe"):
            vocab_only(path, "gpt2", tokens, [1] * len(tokens), merges=merges, pre=pre,
                       bos_token_id=1, eos_token_id=2, unk_token_id=0)
            with open(os.path.join(HERE, f"joined_{pre}.txt"), "w") as file:
                file.write(record(path, strings, {"vocabulary": "joined", "pre": pre}, 4,
                                  with_decoded=False))
        for names in PRES:
            results = set()
            for pre in names:
                vocab_only(path, "gpt2", smollm_tokens, smollm_types, merges=sparse, pre=pre,
                           bos_token_id=1, eos_token_id=2, unk_token_id=0)
                head = {"vocabulary": "smollm2", "pre": " ".join(names),
                        "merges": f"sparse {SPARSE_MERGE}", "add_bos_token": "absent"}
                results.add(record(path, strings, head, 4, with_decoded=False))
            assert len(results) == 1, names
            with open(os.path.join(HERE, f"pre_{names[0]}.txt"), "w") as file:
                file.write(results.pop())
        for name, keys in (("spm_no_prefix", {"add_space_prefix": False, "add_eos_token": True}),
                           ("spm_phi3", {"add_bos_token": False})):
            vocab_only(path, "llama", spm_fields["tokenizer.ggml.tokens"].contents(),
                       spm_fields["tokenizer.ggml.token_type"].contents(),
                       scores=spm_fields["tokenizer.ggml.scores"].contents(), bos_token_id=1,
                       eos_token_id=2, unk_token_id=0, **keys,
                       **({"name": "Phi-3 Mini"} if name == "spm_phi3" else {}))
            head = {"vocabulary": "spm_small"}
            head.update({k: str(v).lower() for k, v in keys.items()})
            if name == "spm_phi3":
                head["name"] = "Phi-3 Mini"
            write(name, path, strings, head, 4)


if __name__ == "__main__":
    if sys.argv[1] == "--model":
        with open(sys.argv[3], "w") as out:
            out.write(record(sys.argv[2], corpus(), {"vocabulary": "file"}, 16))
    elif sys.argv[1] == "--show":
        shown, string = Reference(sys.argv[2]), corpus()[int(sys.argv[3])]
        print(string, shown.encode(string, False), shown.encode(string, True), sep="\n")
    else:
        main(sys.argv[1])
