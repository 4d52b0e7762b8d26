#!/usr/bin/env python3
"""Writes src/text/unicode_classes.inc from the ranges in tests/golden/tokenizer.

  tools/make_unicode_classes.py             # needs nothing but the two JSON files
  tools/make_unicode_classes.py --measure   # first measures letters.json; needs tokenizers==0.23.3

character_classes.json holds the sets `L|M`, `N`, `P|S`, `White_Space`; letters.json holds `L` alone.
Both were measured over all code points from the regular expressions of the tokenizers package
(Unicode 16), because ids depend on the tables that a tokenizer was trained with.
"""
import argparse
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "tokenizer"
TARGET = ROOT / "src" / "text" / "unicode_classes.inc"

# Bits as in src/text/unicode_classes.h.
LETTER, LETTER_OR_MARK, NUMBER, PUNCTUATION_OR_SYMBOL, SPACE, NEWLINE, HAN_OR_KANA = (
    1 << i for i in range(7))
HAN_OR_KANA_RANGES = [(0x3040, 0x309F), (0x30A0, 0x30FF), (0x4E00, 0x9FA5)]


def ranges_of(points):
    out = []
    for p in sorted(points):
        if out and out[-1][1] == p - 1:
            out[-1][1] = p
        else:
            out.append([p, p])
    return out


def measure(pattern):
    """Code points that the engine's pattern matches."""
    from tokenizers import Regex, pre_tokenizers
    remove = pre_tokenizers.Split(Regex(pattern), "removed")
    matched = set()
    points = [p for p in range(0x110000) if not 0xD800 <= p <= 0xDFFF]
    for at in range(0, len(points), 4096):
        batch = points[at:at + 4096]
        left = {ord(c) for piece, _ in remove.pre_tokenize_str("".join(map(chr, batch)))
                for c in piece}
        matched |= set(batch) - left
    return matched


def write_letters():
    letters = ranges_of(measure(r"\p{L}"))
    (GOLDEN / "letters.json").write_text(json.dumps({"L": letters}) + "\n")
    print("letters.json: %d code points" % sum(b - a + 1 for a, b in letters))
    known = json.loads((GOLDEN / "character_classes.json").read_text())
    for name, pattern in (("N", r"\p{N}"), ("White_Space", r"\s"), ("L|M", r"[\p{L}\p{M}]")):
        if ranges_of(measure(pattern)) != known[name]:
            print("note: %s of this engine differs from character_classes.json" % name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure letters.json first")
    if parser.parse_args().measure:
        write_letters()
    sets = json.loads((GOLDEN / "character_classes.json").read_text())
    sets.update(json.loads((GOLDEN / "letters.json").read_text()))
    classes = bytearray(0x110000)
    for ranges, bit in ((sets["L"], LETTER), (sets["L|M"], LETTER_OR_MARK), (sets["N"], NUMBER),
                        (sets["P|S"], PUNCTUATION_OR_SYMBOL), (sets["White_Space"], SPACE),
                        ([(10, 10), (13, 13)], NEWLINE), (HAN_OR_KANA_RANGES, HAN_OR_KANA)):
        for first, last in ranges:
            for p in range(first, last + 1):
                classes[p] |= bit
    starts = [p for p in range(0x110000) if p == 0 or classes[p] != classes[p - 1]]
    words = ["0x%x," % (p << 8 | classes[p]) for p in starts]
    lines = ["// Made by tools/make_unicode_classes.py. First code point of each run << 8 | class bits."]
    line = ""
    for word in words:
        if len(line) + len(word) > 100:
            lines.append(line)
            line = ""
        line += word
    TARGET.write_text("\n".join(lines + [line]) + "\n")
    print("%s: %d runs" % (TARGET.name, len(starts)))


if __name__ == "__main__":
    main()
