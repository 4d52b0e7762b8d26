"""Tests of compare.py and tools/make_random_gguf.py with programs that only pretend to measure.

  python3 bench/peers/compare_test.py
"""

import hashlib
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
GENERATOR = HERE.parent.parent / "tools" / "make_random_gguf.py"

# Speeds 40 and 20: a ratio of 2, half of the limit of 80 reached by ours.
FAKE_OURS = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
if words[0] == "generate":
    print(json.dumps({"index": 0, "text": " one two", "ids": [1, 2]}))
elif words[1] == "limits":
    print(json.dumps({"name": "dram_read", "value": 12.5, "unit": "GB/s", "isa": "avx2"}))
else:
    if "--explain" in words:
        print("matmul: avx2", file=sys.stderr)
    print(json.dumps({"name": words[1], "value": 40.0, "median": 40.0, "unit": "UNIT",
                      "limit": 80.0, "share": 0.5, "isa": "avx2", "threads": 2}))
"""
FAKE_PEER = """#!/usr/bin/env python3
import json, sys
if "--broken" in sys.argv:
    sys.exit("error: unknown type")
print(json.dumps([{"avg_ts": 20.0}]))
"""
FAKE_SIMPLE = """#!/usr/bin/env python3
import sys
print(sys.argv[-1] + " one TEXT more")
"""


def generate(path, *options):
    command = [sys.executable, GENERATOR, "--shape", "dense-tiny", "--out", path, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path


class Compare(WithFolder):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "tiny.gguf"
        generate(self.model, "--type", "Q4_0")
        self.ours = self.program("deepinfer", FAKE_OURS.replace("UNIT", "tokens/s"))
        self.peer = self.program("llama-bench", FAKE_PEER)

    def compare(self, *options):
        command = [sys.executable, HERE / "compare.py", "--program", self.ours, "--no-llama-cpp"]
        command += ["--rounds", "2", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_ratio_limit_and_share_stand_in_the_table(self):
        done = self.compare(self.model, "--peer", f"other={self.peer}")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line for line in done.stdout.splitlines() if line.startswith("| tiny |")]
        self.assertEqual(len(rows), 4)
        self.assertIn("| prefill 512 | deepinfer | 40.0 (40.0–40.0) | 1 | 80.0 |", rows[0])
        self.assertIn("| other | 20.0 (20.0–20.0) | **2.00** (2.00–2.00) | 80.0 | 25% |", rows[3])
        self.assertIn("dram_read 12.5 GB/s", done.stdout)
        self.assertIn("matmul: avx2", done.stdout)

    def test_runs_are_interleaved(self):
        done = self.compare(self.model, "--measure", "decode", "--peer", f"other={self.peer}")
        order = [line.split(":")[0].split()[-1] for line in done.stderr.splitlines()]
        self.assertEqual(order, ["deepinfer", "other", "deepinfer", "other"])

    def test_minutes_bound_the_rounds(self):
        # Of two --rounds the last counts; without time left each measure still gets one round.
        done = self.compare(self.model, "--peer", f"other={self.peer}", "--rounds", "40",
                            "--minutes", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 4)
        self.assertIn("| tiny | decode 64 | other | 20.0", done.stdout)

    def test_failing_peer_is_named_and_left_out(self):
        done = self.compare(self.model, "--peer", f"other={self.peer} --broken")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = "failed: tiny, decode 64: other: exit code 1: error: unknown type"
        self.assertIn(told, done.stdout)
        self.assertNotIn("| other |", done.stdout)

    def test_wrong_unit_is_an_error(self):
        self.ours = self.program("deepinfer", FAKE_OURS.replace("UNIT", "ms"))
        done = self.compare(self.model)
        self.assertEqual(done.returncode, 1)
        self.assertIn("error: deepinfer bench prefill: unit ms, wanted tokens/s", done.stderr)

    def answers(self, peer_word):
        """Runs with a model that is not called random, so that answers are compared."""
        self.program("llama-simple", FAKE_SIMPLE.replace("TEXT", peer_word))
        self.model.write_bytes(self.model.read_bytes().replace(b"random dense", b"actual dense"))
        return self.compare(self.model, "--peer", f"other={self.peer}").stdout

    def test_equal_answers_are_told(self):
        self.assertIn("3 of 3 greedy answers of 16 tokens equal to other", self.answers("two"))

    def test_first_difference_is_told(self):
        self.assertIn("first difference is at character 6: 'wo' against 'en", self.answers("ten"))

    def test_out_replaces_only_its_own_part(self):
        page = self.folder / "page.md"
        page.write_text("# Title\n", encoding="utf-8")
        for _ in range(2):
            self.compare(self.model, "--out", page)
        text = page.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("# Title\n\n<!-- compare.py: begin -->\n"))
        self.assertEqual(text.count("| tiny | decode 64 |"), 1)

    def test_smoke_needs_neither_model_nor_peer(self):
        done = self.compare("--smoke")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| dense-tiny.Q4_0 | decode 64 | deepinfer |", done.stdout)


class Generator(WithFolder):
    def test_same_arguments_give_the_same_bytes_and_seeds_differ(self):
        digests = []
        for seed in ("1", "1", "2"):
            generate(self.folder / "a.gguf", "--type", "MXFP4", "--seed", seed)
            digests.append(hashlib.sha256((self.folder / "a.gguf").read_bytes()).hexdigest())
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[0], digests[2])

    def test_every_type_gives_a_file_of_the_stated_size(self):
        # 1,703,936 matrix values: two of 256 x 1024, and 589,824 in each of the two layers; five
        # norms of 256. All tensor sizes are multiples of the alignment.
        bytes_per_256 = {"Q4_0": 144, "Q4_1": 160, "Q8_0": 272, "Q4_K": 144, "Q6_K": 210}
        bytes_per_256 |= {"MXFP4": 136, "F16": 512, "BF16": 512, "F32": 1024}
        for kind, size in bytes_per_256.items():
            path = self.folder / f"{kind}.gguf"
            done = generate(path, "--type", kind)
            self.assertEqual(done.returncode, 0, done.stderr)
            data = path.read_bytes()
            self.assertEqual(struct.unpack_from("<4sIQ", data), (b"GGUF", 3, 21))
            header_start = data.rindex(b"blk.1.ffn_down.weight") + 21
            header_end = -(-(header_start + 4 + 16 + 12) // 32) * 32
            self.assertEqual(len(data) - header_end, 1703936 // 256 * size + 5 * 1024, kind)

    def test_unwritable_place_is_one_clear_line(self):
        done = generate(self.folder / "missing" / "a.gguf", "--type", "Q4_0")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^error: .*missing/a\.gguf: No such file or directory\n$")


if __name__ == "__main__":
    unittest.main()
