"""Tests of many_streams.py with programs that only pretend to measure.

  python3 bench/peers/many_streams_test.py
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent

FAKE_OURS = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
if words[1] == "batch":
    print(json.dumps({"name": "batch 16", "median": 90.0, "unit": "tokens/s"}))
else:
    assert "--mixed" in words
    print(json.dumps({"name": "engine mixed", "median": 1.5, "median_gap_ms": 20.0,
                      "p99_gap_ms": 30.0, "longest_gap_ms": 50.0, "prompts": 3}))
"""
FAKE_BATCHED = """#!/usr/bin/env python3
import json, sys
assert sys.argv[sys.argv.index("-npl") + 1] == "16"
print("some note")
print(json.dumps({"pp": 32, "tg": 64, "pl": 16, "speed_tg": 45.0, "speed": 50.0}))
"""
# 160 tokens, 2 ms apart.
FAKE_SERVER = """#!/usr/bin/env python3
import http.server, json, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        for i in range(body["n_predict"]):
            time.sleep(0.002)
            self.wfile.write(b"data: " + json.dumps({"stop": False}).encode() + b"\\n\\n")
        self.wfile.write(b'data: {"stop":true}\\n\\n')

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


class ManyStreams(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ours = self.program("deepinfer", FAKE_OURS)
        self.program("llama-batched-bench", FAKE_BATCHED)
        self.program("llama-server", FAKE_SERVER)
        self.model = self.folder / "tiny.gguf"
        self.model.write_bytes(b"GGUF")

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def run_it(self, *options):
        command = [sys.executable, HERE / "many_streams.py", self.model, "--program", self.ours]
        command += ["--rounds", "2", "--threads", "2", "--peer-bin", self.folder, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_both_tables_have_both_programs(self):
        done = self.run_it()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| tiny | 16 | deepinfer | 90.0 (90.0 – 90.0) |  |", done.stdout)
        self.assertIn("| tiny | 16 | llama.cpp | 45.0 (45.0 – 45.0) | 2.00 |", done.stdout)
        self.assertIn("| tiny | 16 | deepinfer | 20.0 | 30.0 | 1.50 | 50 | 3 |", done.stdout)
        rows = [line for line in done.stdout.splitlines() if "| llama.cpp |" in line]
        self.assertEqual(len(rows), 2)
        self.assertGreaterEqual(float(rows[1].split("|")[4]), 1.5)  # ms between its tokens

    def test_a_peer_that_fails_is_named_and_left_out(self):
        self.program("llama-server", "#!/bin/sh\nexit 3\n")
        done = self.run_it()
        self.assertEqual(done.returncode, 0)
        self.assertIn("llama-server did not start", done.stderr)
        self.assertEqual(done.stdout.count("| llama.cpp |"), 1)

    def test_ours_failing_is_an_error(self):
        self.ours = self.program("deepinfer", "#!/bin/sh\necho error: no >&2\nexit 1\n")
        done = self.run_it("--total-only")
        self.assertEqual(done.returncode, 1)
        self.assertIn("error: deepinfer bench batch: exit code 1: error: no", done.stderr)


if __name__ == "__main__":
    unittest.main()
