"""Small templates that walk every construct, by hand and from a seed, and what they may name."""
import random

VARIABLES = {
    "messages": [{"role": "user", "content": "Hi é\n"}, {"role": "assistant", "content": ""}],
    "tool": {"name": "f", "a": {"b": [1, 2]}, "items": 3}, "s": " Some\ttext ", "t": "日本", "name": "n.m",
    "n": 3, "f": 2.5, "l": [3, "a", None, 1.0], "d": {"a": 1, "b": "x", "c": {"z": []}},
    "rows": [{"a": 2, "b": 1}, {"a": 1}, {"a": 3, "b": 0}],
}

# What templates in the wild lean on, spelled out.
WRITTEN = [
    "{{ 1 }} {{ 1.0 }} {{ true }} {{ none }} {{ 'é\\n\\x41\\u00e9\\'' }} {{ [1, 'a', (1,)] }} {{ {'k': \"it's\"} }}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 1e16 }} {{ 0.00001 }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' in 'abc' }} {{ 4 not in [1, 2] }} {{ 1 == 1.0 == true }}",
    "{{ 'a' ~ 1 ~ none ~ nope }}|{{ nope }}|{{ nope is defined }}|{{ nope | default('d') }}|{{ '' | default('d', true) }}",
    "{{ nope.x }}", "{{ nope() }}", "{{ 'a' + 1 }}", "{{ [] < 1 }}", "{{ 1 / 0 }}", "{{ none.x }}|{{ none['x'] }}|",
    "{{ l[1:] }} {{ l[::-1] }} {{ s[1:3] }} {{ t[-1] }} {{ t[5] }}|{{ l[-9] }}|{{ d['a'] }} {{ d.b }} {{ tool['items'] }}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for m in messages %}{{ loop.index }}{{ loop.last }}{% endfor %}",
    "{% for x in l if x is number %}{{ x }},{{ loop.length }};{% else %}none{% endfor %}{% for x in [] %}{% else %}none{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for x in [1] %}{% break %}{% else %}else after break{% endfor %}",
    "{% set ns = namespace(a=1, found=false) %}{% for i in l %}{% set ns.a = ns.a + 1 %}{% set b = i %}{% endfor %}{{ ns.a }}{{ b }}",
    "{% set n.x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}", "{% set a, b = l %}",
    "{% set x %} text {{ n }} {% endset %}[{{ x | trim }}]{% set y | upper %}abc{% endset %}{{ y }}",
    "{% macro m(a, b='q', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m(b=1) }}|{{ m(1, 2, 3, 4) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}", "{% macro m() %}{% endmacro %}{{ m(z=1) }}",
    "{% macro w() %}<{{ caller('x') }}>{% endmacro %}{% call(v) w() %}{{ v }}{{ n }}{% endcall %}",
    "{% macro r(i) %}{{ i }}{% if i > 0 %}{{ r(i - 1) }}{% endif %}{% endmacro %}{{ r(5) }}",
    "{% filter upper | replace('A', 'b') %}aba{{ n }}{% endfilter %}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% generation %}{{ n }}{% set q = 1 %}{% endgeneration %}{{ q }}", "{% raw %}{{ x }}{% if %}{% endraw %}{{ n }}",
    "{{ '<b>' | safe + '<i>' }} {{ '<b>' ~ ('<i>' | safe) }} {{ ('x' | safe)[0] + '&' }} {{ '<' | e }}",
    "{{ d | tojson }} {{ d | tojson(indent=2) }} {{ t | tojson }} {{ t | tojson(ensure_ascii=true) }} {{ l | tojson(separators=(',', ':')) }}",
    "{{ {'b': 1, 'a': [1.5, none, true]} | tojson(sort_keys=true) }} {{ '\\u2028\\x7f\\x01\"\\\\/' | tojson }}", "{{ nope | tojson }}",
    "{{ rows | map(attribute='a') | join(',') }} {{ rows | selectattr('b', 'defined') | list | length }} {{ l | map('string') | list }}",
    "{{ rows | selectattr('a', 'equalto', 1) | first }} {{ rows | rejectattr('b') | map(attribute='a') | list }} {{ rows | sort(attribute='a') | map(attribute='a') | join }}",
    "{{ [3, 1, 2] | sort }} {{ ['b', 'A'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ d | dictsort }} {{ [1, 1, 2] | unique | list }}",
    "{{ [1, 2] | sum }} {{ [1, 5] | max }} {{ [] | min }}| {{ 'abc' | first }}{{ 'abc' | last }} {{ [1, 2] | reverse | list }} {{ 'abc' | reverse }}",
    "{{ ' x ' | trim }}| {{ 'x' | upper }}{{ 'X' | lower }} {{ 'hello wORLD' | title }} {{ 'hello wORLD' | capitalize }} {{ 'a\\nb\\n' | indent }}|",
    "{{ '42' | int }} {{ 'x' | int(7) }} {{ '3.9' | int }} {{ '1e3' | float }} {{ 2.5 | round }} {{ 2.567 | round(2) }} {{ -3 | abs }} {{ '0x1f' | int(base=16) }}",
    "{{ '%s is %d%% of %.2f' % ('a', 3, 2.345) }} {{ '%05d|%-4s|%x' | format(42, 'b', 255) }} {{ '{} {1} {a!r}'.format(1) }}",
    "{{ '{} {} {{}} {a!r}'.format(1, 'x', a='q') }}", "{{ s.strip() }}|{{ s.split() }}|{{ 'a,b,,c'.split(',', 2) }}|{{ 'xxaxx'.strip('x') }}",
    "{{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ 'abc'.find('c') }} {{ 'aXbX'.replace('X', '-', 1) }} {{ '-'.join(['a', 'b']) }}",
    "{{ 'ß ΑΣ'.upper() }} {{ 'ΑΣ ΣΑ'.lower() }} {{ 'ǆ'.title() }} {{ '12'.isdigit() }} {{ 'a b'.title() }} {{ 'a\\r\\nb'.splitlines() }}",
    "{{ d.get('a') }} {{ d.get('q', 5) }} {{ d.keys() | list }} {{ d.values() | list }} {{ d | length }} {{ d | items | list | length }}",
    "{{ l.append(1) }}", "{{ d.update({'x': 1}) }}", "{{ d.pop('a') }}", "{{ l.index('a') }} {{ l.count(1) }}", "{{ 'x' is nosuch }}", "{{ 'x' | nosuch }}",
    "{% if false %}{{ 1 | upper }}{% elif n == 3 %}three{% else %}other{% endif %}", "{{ raise_exception('no ' ~ n) }}", "{{ strftime_now('%d %b %Y %H:%M') }}",
    "{{ n is odd }} {{ n is even }} {{ 6 is divisibleby(3) }} {{ n is eq 3 }} {{ n is not none }} {{ d is mapping }} {{ s is iterable }} {{ d.a is integer }}",
    "{{ l is sequence }} {{ range(3) | list }} {{ range(5, 0, -2) | list }} {{ dict(a=1) }} {{ n in [3] }} {{ true is boolean }} {{ f is float }}",
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if true -%}\n  b\n  {%- endif %}\nc\n\n", "a {%+ if true +%}\n b{% endif %}\n", "  {# c #}\n  x {#- d -#}\n y",
    "{{ 'a' }}\n{{- 'b' -}}\n {{ 'c' }}\n", "x\r\ny\r{% if 1 %}\r\nz{% endif %}", "\n\n{% set x = 1 %}\n\n{{ x }}\n", "{% raw -%}\n {{ a }} {%- endraw %} b", "{{ {'a': {'b': '}}'}}['a']['b'] }}",
    "{{ loop }}{% for x in [1, 2] %}{% for y in 'ab' %}{{ loop.index }}{% endfor %}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('p', 'q') }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{{ 'x' if false }}|{{ 'x' if n else 'y' }}", "{{ not n }} {{ n and 0 }} {{ 0 or 'q' }} {{ -n }} {{ +n }}",
    "{{ 'a' 'b' }} {{ 1_000 }} {{ 0x1F }} {{ 1 if n is defined and n }} {{ [1, 2, 3] | batch(2) | list }}", "{% if n %}", "{{ n", "{% nosuch %}", "{{ 1 + }}", "{% endif %}", "{{ a b }}",
    "{% for %}{% endfor %}", "{{ (1, 2 }}", "{% include 'x' %}", "{{ 'open }}", "{# open", "{{ messages[0]['role'] }}{{ messages[0].nope }}{{ messages | length }}",
]

STRINGS = ["''", "'a'", "'Abc def'", "'  x y '", "'é日👩\\n'", "'a,b,,c'", "'<b>'", "'1.5'", "'42'", "'%s-%d'", "\"it's\"", "s", "t",
           "messages[0].content", "name"]
NUMBERS = ["0", "1", "-1", "2", "3", "10", "1.5", "-2.5", "0.1", "true", "false", "n", "f"]
LISTS = ["[]", "[1,2,3]", "['b','a','B']", "[[1,'x'],[0,'y']]", "(1,2)", "()", "l", "messages", "rows", "d.items()", "d.values()|list",
         "[{'a':1,'b':'x'},{'a':2}]"]
OTHERS = ["{}", "d", "{'a':1,'b':[1]}", "messages[0]", "tool", "none", "nope", "d.nope", "l[99]"]
FILTERS = ["abs", "capitalize", "count", "default('q',true)", "dictsort", "first", "float", "int", "int(7)", "items|list", "join('-')",
           "join(d='.',attribute='a')", "last", "length", "list", "lower", "map('upper')|list", "map(attribute='a')|list", "max", "min",
           "reject('none')|list", "reverse|list", "round(1)", "safe", "select('string')|list", "selectattr('a')|list", "sort",
           "sort(attribute='a')", "string", "sum", "title", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "trim",
           "unique|list", "upper", "replace('a','zz')", "indent(2,true)", "batch(2,'-')|list", "escape"]
TESTS = ["defined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "odd",
         "divisibleby(2)", "callable", "eq 1", "equalto('a')", "lt 2", "ge 1", "in [1,'a']"]
METHODS = ["strip()", "rstrip()", "strip('a ')", "split()", "split(',',1)", "rsplit(none,1)", "splitlines(true)", "startswith(('a','A'))",
           "endswith('c')", "find('b')", "rfind('b')", "count('a')", "replace('a','bb')", "upper()", "lower()", "title()", "capitalize()",
           "join(['x','y'])", "items()", "keys()|list", "get('a')", "get('zz',5)", "append(1)", "partition(',')", "zfill(6)", "center(7,'*')"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]


def expression(rng, depth):
    if depth == 0 or rng.random() < 0.12:
        return rng.choice(rng.choice([STRINGS, STRINGS, NUMBERS, LISTS, OTHERS]))
    inner = f"({expression(rng, depth - 1)})"
    kind = rng.randrange(8)
    if kind == 0:
        return f"{inner} {rng.choice(OPERATORS)} ({expression(rng, depth - 1)})"
    if kind in (1, 2):
        return f"{inner}|{rng.choice(FILTERS)}"
    if kind == 3:
        return f"{inner} is {rng.choice(['', 'not '])}{rng.choice(TESTS)}"
    if kind in (4, 5):
        return f"{inner}.{rng.choice(METHODS)}"
    if kind == 6:
        return f"{inner}[{rng.choice(['0', '-1', '5', repr('a'), '1:', ':2', '::-1', '-2:9'])}]"
    return f"{inner} if {expression(rng, depth - 1)} else ({expression(rng, depth - 1)})"


def snippets(seed, count):
    rng = random.Random(seed)
    return ["{{ " + expression(rng, rng.randint(1, 3)) + " }}" for _ in range(count)]
