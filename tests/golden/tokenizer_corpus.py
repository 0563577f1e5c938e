"""The strings that tokenizers are compared on: made by rule from one seed, 2,400 of them."""
import random
import unicodedata

PHRASES = [
    "The quick brown fox jumps over the lazy dog.",
    "She said she'd come, but they've gone; I'm sure it's fine, we'll see, you're late, don't!",
    "SHE'D COME, THEY'VE GONE, I'M SURE IT'S FINE, WE'LL SEE, YOU'RE LATE, DON'T",
    "Zw\u00f6lf Boxk\u00e4mpfer jagen Viktor quer \u00fcber den gro\u00dfen Sylter Deich.",
    "D\u00e8s No\u00ebl, o\u00f9 un z\u00e9phyr ha\u00ef me v\u00eat de gla\u00e7ons w\u00fcrmiens.",
    "El veloz murci\u00e9lago hind\u00fa com\u00eda feliz cardillo y kiwi. \u00bfQu\u00e9? \u00a1Ol\u00e9!",
    "\u0421\u044a\u0435\u0448\u044c \u0435\u0449\u0451 \u044d\u0442\u0438\u0445 \u043c\u044f\u0433\u043a\u0438\u0445 \u0431\u0443\u043b\u043e\u043a, \u0432\u044b\u043f\u0435\u0439 \u0447\u0430\u044e.",
    "\u0393\u03b1\u03b6\u03ad\u03b5\u03c2 \u03ba\u03b1\u1f76 \u03bc\u03c5\u03c1\u03c4\u03b9\u1f72\u03c2 \u03b4\u1f72\u03bd \u03b8\u1f70 \u03b2\u03c1\u1ff6 \u03c0\u03b9\u1f70",
    "\u05d3\u05d2 \u05e1\u05e7\u05e8\u05df \u05e9\u05d8 \u05d1\u05d9\u05dd \u05de\u05d0\u05d5\u05db\u05d6\u05d1, \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
    "\u0635\u0650\u0641 \u062e\u064e\u0644\u0642\u064e \u062e\u064e\u0648\u062f\u0650 \u0643\u064e\u0645\u0650\u062b\u0644\u0650 \u0627\u0644\u0634\u064e\u0645\u0633\u0650\u060c \u0663\u0664\u0665",
    "\u0631\u0648\u0628\u0627\u0647 \u0642\u0647\u0648\u0647\u200c\u0627\u06cc \u0686\u0627\u0628\u06a9 \u06f1\u06f2\u06f3\u06f4",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e, \u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f \u0967\u0968\u0969",
    "\u09ac\u09be\u0982\u09b2\u09be \u09ad\u09be\u09b7\u09be\u09af\u09bc \u09b2\u09c7\u0996\u09be",
    "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0b8e\u0bb4\u0bc1\u0ba4\u0bcd\u0ba4\u0bc1\u0b95\u0bcd\u0b95\u0bb3\u0bcd",
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22\u0e44\u0e21\u0e48\u0e21\u0e35\u0e0a\u0e48\u0e2d\u0e07\u0e27\u0e48\u0e32\u0e07 \u0e51\u0e52\u0e53",
    "\u1019\u103c\u1014\u103a\u1019\u102c\u1018\u102c\u101e\u102c",
    "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8 \u10d4\u10dc\u10d0 \u1c94\u1c95\u1c96",
    "\u0540\u0561\u0575\u0565\u0580\u0565\u0576 \u0561\u0575\u0562\u0578\u0582\u0562\u0565\u0576",
    "\u12a0\u121b\u122d\u129b \u1369\u136a\u136b",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u5427\u3002\u4e8c\u96f6\u4e8c\u56db\u5e74",
    "\u6a5f\u68b0\u5b78\u7fd2\u8207\u5206\u6563\u5f0f\u63a8\u8ad6\u3001\u6b6a\u6b6a",
    "\u3044\u308d\u306f\u306b\u307b\u3078\u3068 \u30c1\u30ea\u30cc\u30eb\u30f2 \uff8a\uff9d\uff76\uff78 \uff11\uff12\uff13",
    "\ub2e4\ub78c\uc950 \ud5cc \uccc7\ubc14\ud034\uc5d0 \ud0c0\uace0\ud30c",
    "\u1e0a\u1e6d\u1e83\u1ebc\u1ef3 \u01c4 \u01c5 \u01c6 \u0130stanbul \u0131\u015f\u0131k \u017f \u212a\u212b",
    "Caf\u00e9 d\u00e9j\u00e0 vu \u2014 na\u00efve \u201cquotes\u201d \u2018single\u2019 it\u2019s \u2026 \u00ab\u00bb \u2039\u203a",
    "1 12 123 1234 12345 123456 1,234,567.89 3.14159e-10 0xDEADBEEF 2024-02-29T12:34:56Z",
    "\u00b2\u00b3\u00b9 \u00bd\u00be \u2160\u2161\u2162 \u2460\u2461 \u0e51\u0967\u06f1 \U0001d7d8\U0001d7d9 \u3007",
    "$100 \u20ac50 \u00a3 \u00a5 50% a+b=c x<y>z ^caret ~tilde `tick` |pipe| \\back #hash @at &amp;",
    "Hello world! Caf\u00e9 d\u00e9j\u00e0 vu \u2014 123 \U0001f60a",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea #\ufe0f\u20e3 \u2764\ufe0f",
    "\U0001d4d7\U0001d4ee\U0001d4f5\U0001d4f5\U0001d4f8 \U00010330\U00010331 \U00020000\U0002a6d6 \U000e0041",
    "e\u0301 o\u0308 n\u0303 a\u0300\u0301\u0302\u0303 Z\u0351\u0343\u0365a\u0328\u0315l\u0334g\u0489o",
]

CODE = [
    "int main(int argc, char** argv) {\n\treturn argc > 1 ? 0 : -1;\n}\n",
    "def f(x):\n    if x is None:\n        return {'a': [1, 2, 3]}\n\n    return x**2  # done\n",
    "for (auto& [k, v] : map) { std::cout << k << \"=\" << v << '\\n'; }\r\n",
    "SELECT * FROM t WHERE id IN (1,2,3) AND name LIKE '%foo%';--comment",
    "<div class=\"x\"><a href='https://example.com/?q=1&r=2#frag'>link</a></div>",
    '{"k": [null, true, -1.5e+3, "\\u00e9"], "nested": {"deep": {}}}',
    "fn main() -> Result<(), Box<dyn Error>> { let x: &'static str = \"hi\"; Ok(()) }",
    "\\begin{equation} \\frac{a}{b} = \\sum_{i=0}^{n} x_i^2 \\end{equation}",
    "#!/bin/sh\nset -e; for f in *.txt; do echo \"$f\" >> /tmp/out 2>&1; done",
    "camelCaseWord PascalCaseWord snake_case_word SCREAMING_SNAKE kebab-case-word XMLHttpRequest",
    "a/b//c///d http://a.b/c?d=e/f\n/\n//\r\n/* c */ 1/2",
]

SPACES = [" ", "  ", "   ", "    ", "        ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r",
          " \n", "\n ", " \t \n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\u2029", "\u0085",
          "\x0b", "\x0c", "\u1680", "\u180e", "\u202f", "\u205f", "\ufeff", "\x1c", "\x1f"]

CONTROLS = [chr(c) for c in range(32)] + ["\x7f", "\x80", "\x9f", "\u00ad", "\u200d", "\u200e", "\u202e",
                                          "\u2066", "\ufffd", "\uffff", "\ue000", "\U000f0000",
                                          "\U0010ffff"]

INVALID = [b"\xff", b"\xfe", b"\x80", b"\xbf\xbf", b"\xc3", b"\xe6\xad", b"\xe6", b"\xf0\x9f\x98",
           b"\xf0\x9f", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x80\xaf", b"\xed\xa0\x80",
           b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x8a", b"\xf0\x80\x80\x80", b"\xf8\x88\x80\x80\x80",
           b"\xfc\x84\x80\x80\x80\x80", b"\xe6\xadx", b"a\xcc", b"\xf4\x8f\xbf\xbf", b"\xc2\x20"]

SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "<0x0A>", "<0xFF>",
            "<|im_start", "|im_end|>", "<<|im_end|>>", "<|im_start|><|im_end|>", "<file_sep>",
            "<repo_name>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<pad>", "<table>",
            "<unused12>", "[multimodal]", "<tool>", "<tool><tool>", "<<tool>", "ab<tool", "\u2581",
            "\u2581\u2581", "a\u2581b", "\u0120a", "\u010a", "<|im_end|>\n", " <|im_end|> x"]

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def pools():
    words = [w for p in PHRASES for w in p.split(" ")]
    return [words, words, PHRASES, CODE, SPACES, SPACES, CONTROLS, SPECIALS,
            [str(10 ** n + 7) for n in range(12)]]


def corpus():
    """Distinct byte strings, at most 400 bytes each but for a few long ones, none empty."""
    rng = random.Random(20240229)
    out, seen = [], set()

    def add(text):
        data = text if isinstance(text, bytes) else text.encode()
        if data and data not in seen:
            seen.add(data)
            out.append(data)

    for text in PHRASES + CODE + SPACES + CONTROLS + SPECIALS:
        add(text)
        add(" " + text)
        add(text + " ")
        add("a" + text + "b")
    for text in PHRASES:
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            add(unicodedata.normalize(form, text))
        add(text.upper())
        add(text.replace(" ", ""))
        add(text[::-1])
    for data in INVALID:
        for before, after in ((b"", b""), (b"a", b"b"), (b" ", b" "), (b"\xe6\xad\xaa", b"\n1")):
            add(before + data + after)
    for n in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 257):
        for unit in (" ", "\n", "\t", "a", "1", "\u6b6a", "!", "-", "\U0001f60a", "=", "\u00a0", "\u2581"):
            if n * len(unit.encode()) <= 400:
                add(unit * n)
                add("x" + unit * n + "y")
    for suffix in ("s", "t", "re", "ve", "m", "ll", "d", "x", "S", "T", "RE", "Ve", "M", "lL", "D", "ss"):
        for quote in ("'", "\u2019"):
            add(f"it{quote}{suffix}")
            add(f" {quote}{suffix} ")
            add(f"9{quote}{suffix}1")
            add(f"A\n{quote}{suffix}\n")
    # Every assigned character of the lower planes somewhere, beside a letter, a digit and a space.
    for start in list(range(0, 0x3400, 48)) + list(range(0xA000, 0xAC00, 48)) \
            + list(range(0xF900, 0x10000, 48)) + list(range(0x10000, 0x11000, 96)) \
            + list(range(0x1D400, 0x1D800, 96)) + list(range(0x1F000, 0x1FB00, 96)):
        chars = [chr(c) for c in range(start, start + 48)
                 if unicodedata.category(chr(c)) not in ("Cn", "Cs")
                 and unicodedata.ucd_3_2_0.category(chr(c)) != "Cn"]
        add("".join(chars))
        add("".join(rng.choice(["a", "!", "1", " ", "\n", "'"]) + c for c in chars))
    for c in "\U0001e030\U00011f50\U00011b00\U00031350\U0002ebf0\U0001d2c0":  # Unicode 15 and 15.1.
        add(f"a{c} !{c} 1{c}  {c}")
    for a in LETTERS[::5]:
        for sep in (" ", "  ", "\n", " \n ", "\t", ".", ",", "'", "_", "-", "/", "1"):
            add(a + sep + a.upper())
            add(a.upper() + sep + a)
            add(sep + a + sep)
    groups = pools()
    while len(out) < 2385:
        parts = []
        for _ in range(rng.randint(1, 9)):
            if rng.random() < 0.04:
                parts.append(rng.choice(INVALID))
            elif rng.random() < 0.08:
                parts.append("".join(rng.choice(LETTERS + LETTERS.upper())
                                     for _ in range(rng.randint(1, 24))).encode())
            else:
                parts.append(rng.choice(rng.choice(groups)).encode())
            if rng.random() < 0.5:
                parts.append(b" ")
        data = b"".join(parts)
        if len(data) <= 220:
            add(data)
    for text in ("lorem ipsum dolor sit amet " * 40, "\n".join(CODE), "a b" * 300,
                 "".join(PHRASES), "x" * 1500, " " * 700 + "x", "\r\n \t" * 200, "1234567890" * 90):
        add(text[:1600])
    while len(out) < 2400:
        add("".join(chr(rng.choice([rng.randrange(0x20, 0x7F), rng.randrange(0xA0, 0x250),
                                    rng.randrange(0x4E00, 0x9FA5)])) for _ in range(40)))
    return out
