#!/usr/bin/env python3
"""A Markdown table of every golden that is compared with a tolerance: worst figure against bound.

  tools/golden_table.py build/test/src/models/models_test build/test/tests/vision_test
  tools/golden_table.py --filter '*Golden*' build/test/src/models/models_test
  tools/golden_table.py models.xml      # what a program wrote with --gtest_output=xml:models.xml

The tests record the figures (tests/golden_error.h); the worst of all tests counts, so of every
instruction set that the programs ran. "of tolerance" is the part of it that is used up: 100 % is
the last figure that passes. Fails when a program fails, a figure is out of bounds, or none is
found.
"""
import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from typing import NamedTuple

SETS = ("ref", "avx2", "emulated512", "avx512")
COLUMNS = ("family", "golden", "what", "measure", "worst", "tolerance", "of tolerance")


class Figure(NamedTuple):
    value: float
    relation: str  # "<=": an error, 0 at best; ">=": an agreement, 1 at best
    bound: float

    def used(self):
        """Part of the tolerance; above 1 means out of bounds, as does NaN."""
        best = 0.0 if self.relation == "<=" else 1.0
        room = abs(self.bound - best)
        if math.isnan(self.value):
            return math.inf
        return abs(self.value - best) / room if room else math.inf

    def fits(self):
        if self.relation == "<=":
            return self.value <= self.bound
        return self.value >= self.bound


def figure_of(text):
    value, relation, bound = text.split()
    if relation not in ("<=", ">="):
        raise ValueError(f"{text!r} is no figure: <= or >= is missing")
    return Figure(float(value), relation, float(bound))


def run(program, test_filter):
    """Runs a gtest program; its XML tree."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.xml")
        done = subprocess.run([program, "--gtest_brief=1", f"--gtest_filter={test_filter}",
                               f"--gtest_output=xml:{path}"], stdout=sys.stderr, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{program}: tests fail (exit {done.returncode})")
        return ElementTree.parse(path)


def collect(trees):
    """{(family, golden, what, measure): worst Figure} and the instruction sets in tests' names."""
    worst, sets = {}, set()
    for tree in trees:
        for case in tree.iter("testcase"):
            figures = [p for p in case.iter("property") if p.get("name").startswith("golden.")]
            if not figures:
                continue
            sets |= set(re.split(r"[/_]", case.get("name"))) & set(SETS)
            for item in figures:
                golden, _, measure = item.get("name")[len("golden."):].partition(".")
                family, _, name = golden.partition("/")
                what, _, how = measure.rpartition(", ")
                figure = figure_of(item.get("value"))
                before = worst.get((family, name, what, how))
                if before and (before.relation, before.bound) != figure[1:]:
                    raise ValueError(f"{golden}: {measure} has two tolerances: {before}, {figure}")
                if not before or figure.used() > before.used():
                    worst[family, name, what, how] = figure
    return worst, [name for name in SETS if name in sets]


def table(worst):
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|---|---|--:|--:|--:|"]
    for key, figure in sorted(worst.items()):
        percent = 100 * figure.used()
        used = f"{percent:.{0 if percent >= 10 else 1}f} %" if figure.fits() else "**fails**"
        value = f"{figure.value:.2g}" if figure.relation == "<=" else f"{figure.value:.5g}"
        bound = f"{'≤' if figure.relation == '<=' else '≥'} {figure.bound:.4g}"
        lines.append("| " + " | ".join([*key, value, bound, used]) + " |")
    return "\n".join(lines)


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return re.search(r"model name\s*: (.*)", file.read()).group(1)
    except (OSError, AttributeError):
        return "unknown processor"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="PROGRAM|FILE.xml")
    parser.add_argument("--filter", default="*", help="--gtest_filter of the programs")
    options = parser.parse_args()
    trees = [ElementTree.parse(source) if source.endswith(".xml") else run(source, options.filter)
             for source in options.sources]
    worst, sets = collect(trees)
    if not worst:
        raise SystemExit("no golden was compared")
    print(table(worst))
    of_sets = f"; worst of {', '.join(sets)}" if sets else ""
    print(f"\n{len(worst)} figures{of_sets}; {processor()}.")
    if not all(figure.fits() for figure in worst.values()):
        raise SystemExit("a figure is out of bounds")


if __name__ == "__main__":
    main()
