#!/usr/bin/env python3
"""Writes unicode_tables.cc and unprintable.cc beside this script, from the character database of this Python."""
import os
import sys
import unicodedata

HEAD = f"""// Written by unicode_tables.py from Unicode {unicodedata.unidata_version}.

#include "model/jinja/unicode_tables.h"

namespace shardline::jinja {{
"""


def ranges(wanted):
    found = []
    for c in range(sys.maxunicode + 1):
        if not wanted(chr(c)):
            continue
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def deltas(mapped):
    """Runs (first, last, step, delta) of code points that move by the same delta."""
    runs = []
    for c in range(sys.maxunicode + 1):
        to = mapped(chr(c))
        if to == chr(c) or len(to) > 1:
            continue
        delta = ord(to) - c
        if runs and runs[-1][3] == delta and runs[-1][1] < c:
            gap = c - runs[-1][1]
            if gap <= 2 and (runs[-1][0] == runs[-1][1] or gap == runs[-1][2]):
                runs[-1][1], runs[-1][2] = c, gap
                continue
        runs.append([c, c, 1, delta])
    return runs


def rows(items):
    line, lines = " ", []
    for item in items:
        if len(line) + len(item) + 1 > 98:
            lines.append(line)
            line = " "
        line += " " + item
    return "\n".join(lines + [line])


def table(kind, name, items):
    return f"const std::vector<{kind}>& {name}() {{\n" \
           f"  static const auto* const table = new std::vector<{kind}>{{\n" \
           f"{rows(items)}\n  }};\n  return *table;\n}}\n"


def special(mapped):
    found = []
    for c in range(sys.maxunicode + 1):
        to = mapped(chr(c))
        if len(to) > 1:
            found.append(f"{{0x{c:X}, \"" + "".join(
                f"\\U{ord(t):08X}" if ord(t) > 0x7E else t for t in to) + "\"},")
    return found


def write(name, parts):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, name), "w", encoding="utf-8") as file:
        file.write("\n".join(parts) + "\n}  // namespace shardline::jinja\n")


def main():
    first = out = [HEAD]
    pair = "{{0x{:X}, 0x{:X}}},".format
    run = "{{0x{:X}, 0x{:X}, {}, {}}},".format
    cased = lambda c: c.islower() or c.isupper() or unicodedata.category(c) == "Lt"
    write("unprintable.cc", [HEAD, table("CodePointRange", "Unprintable",
                                         [pair(*r) for r in ranges(lambda c: not c.isprintable())])])
    out.append(table("CodePointRange", "Cased", [pair(*r) for r in ranges(cased)]))
    titles = [HEAD]
    for name, mapped in [("Upper", str.upper), ("Lower", str.lower), ("Title", str.title)]:
        out = titles if name == "Title" else out
        out.append(table("CaseRun", f"{name}Runs", [run(*r) for r in deltas(mapped)]))
        out.append(table("CaseText", f"{name}Texts", special(mapped)))
    write("unicode_titles.cc", titles)
    write("unicode_tables.cc", first)


main()
