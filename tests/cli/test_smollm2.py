"""Commands on the real SmolLM2-135M-Instruct; tools/fetch_data.py smollm2 puts it in the cache."""

import json
import os
import pathlib
import pty
import select
import subprocess
import sys
import time
import unittest

from program import GOLDEN, PROGRAM, ROOT, Case, environment, run

ANSWERS = json.loads((GOLDEN / "smollm2" / "answers.json").read_text())
EXACT = ("--numerics", "exact", "--kv", "f32")


def setUpModule():
    path = subprocess.run([sys.executable, ROOT / "tools" / "fetch_data.py", "--path", "smollm2"],
                          stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if not pathlib.Path(path).exists():
        raise RuntimeError(f"{path} is missing; run tools/fetch_data.py smollm2")


class Tokenize(Case):
    def test_round_trip(self):
        text = "Hello  world, 123 \u00fc\u4e2d\U0001f600\n"
        line, = self.lines("tokenize", "smollm2", "--json", stdin=json.dumps(text) + "\n")
        back, = self.lines("tokenize", "smollm2", "--decode", "--json", stdin=json.dumps(line))
        self.assertEqual(back["text"], text)

    def test_special(self):
        text = "<|im_start|>"
        self.assertEqual(self.ok("tokenize", "smollm2", "--special", stdin=text), "[1]\n")
        self.assertNotEqual(self.ok("tokenize", "smollm2", stdin=text), "[1]\n")
        self.assertEqual(self.ok("tokenize", "smollm2", "--decode", "--special", stdin="[1]"),
                         text + "\n")

    def test_bad_input(self):
        self.fails(2, "tokenize", "smollm2", stdin=b"ok\n\xff\xfe\n", says=["line 2"])
        self.fails(2, "tokenize", "smollm2", "--decode", stdin="49152", says=["49152"])


class Generate(Case):
    def test_invalid_utf8_in_a_prompt(self):
        self.fails(2, "generate", "smollm2", stdin=b"caf\xe9\n", says=["UTF-8"])

    def test_greedy_text_is_the_oracles(self):
        # Compared to the first step whose two best logits nearly tie (none of these does).
        items = [p for p in ANSWERS["plain"] if p["smallest_gap"] > 0.02]
        file = self.file("p.jsonl", "".join(
            json.dumps({"ids": p["input_ids"], "max_tokens": 48}) + "\n" for p in items))
        lines = self.lines("generate", "smollm2", "--prompts", file, "--json", "--ignore-eos",
                           *EXACT)
        for item, line in zip(items, lines):
            with self.subTest(item["name"]):
                self.assertEqual(line["ids"], item["greedy_ids"])

    def test_chat_prompts_have_the_oracles_ids(self):
        file = self.file("p.jsonl", "".join(
            json.dumps({"messages": p["messages"], "max_tokens": 48}) + "\n"
            for p in ANSWERS["chat"]))
        lines = self.lines("generate", "smollm2", "--prompts", file, "--json", "--ignore-eos",
                           *EXACT)
        for item, line in zip(ANSWERS["chat"], lines):
            with self.subTest(item["name"]):
                self.assertEqual(line["prompt_tokens"], len(item["input_ids"]))
                if item["smallest_gap"] > 0.02:
                    self.assertEqual(line["ids"], item["greedy_ids"])

    def test_stop_strings_cut_the_text(self):
        prompt = ("generate", "smollm2", "--prompt", "The capital of France is", "--json",
                  "--max-tokens", 20)
        free, = self.lines(*prompt)
        self.assertIn("Paris", free["text"])
        line, = self.lines(*prompt, "--stop", "ris.")
        self.assertEqual(line["text"], free["text"][:free["text"].index("ris.")])
        self.assertEqual(line["finish_reason"], "stop")

    def test_plain_output_reports_speed_on_stderr(self):
        done = run("generate", "smollm2", "--chat", "--prompt", "Name a colour.", "--prompt",
                   "Name a fruit.", "--max-tokens", 12)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"> Name a colour.", done.stdout)
        self.assertIn(b"tokens/s", done.stderr)
        self.assertIn(b"GB/s", done.stderr)
        self.assertIn(b"memory", done.stderr)

    def test_control_tokens_in_a_question_stay_text(self):
        # The layout with this content as text is longer than with control tokens.
        def prompt_tokens(content):
            return self.lines("generate", "smollm2", "--chat", "--prompt", content, "--json",
                              "--max-tokens", 1)[0]["prompt_tokens"]
        self.assertGreater(prompt_tokens("<|im_end|>") - prompt_tokens("x"), 2)


class Perplexity(Case):
    def test_the_goldens_text(self):
        line, = self.lines("perplexity", "smollm2", "--ids", GOLDEN / "smollm2" / "nll.jsonl",
                           "--json", *EXACT)
        self.assertEqual(line["tokens"], ANSWERS["nll"]["predicted"])
        self.assertAlmostEqual(line["nll"], ANSWERS["nll"]["total"], delta=0.05)

    def test_fast_is_close(self):
        line, = self.lines("perplexity", "smollm2", "--ids", GOLDEN / "smollm2" / "nll.jsonl",
                           "--json")
        # The text is short: int8 rounding moves its likelihood by some tenths of a percent,
        # differently on each instruction set.
        self.assertLess(line["perplexity"], ANSWERS["nll"]["perplexity"] * 1.01)

    def test_text_file(self):
        text = self.file("t.txt", "The harbour lay quiet under a thin mist.\n" * 4)
        line, = self.lines("perplexity", "smollm2", text, "--json")
        self.assertGreater(line["tokens"], 30)


class Chat(Case):
    def test_a_pipe_is_a_conversation(self):
        out = self.ok("chat", "smollm2", "--max-tokens", 12,
                      stdin="What is 2+2?\n/help\n/retry\n/save " +
                      str(pathlib.Path(self.folder.name) / "s.jsonl") + "\n/exit\n")
        self.assertIn("/retry", out)
        saved = (pathlib.Path(self.folder.name) / "s.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["role"] for line in saved], ["user", "assistant"])

    def test_load_goes_on(self):
        saved = self.file("s.jsonl", '{"role":"user","content":"Hi"}\n'
                          '{"role":"assistant","content":"Hello!"}\n')
        again = pathlib.Path(self.folder.name) / "t.jsonl"
        self.ok("chat", "smollm2", "--max-tokens", 4,
                stdin=f"/load {saved}\nAnd now?\n/save {again}\n")
        self.assertEqual(len(again.read_text().splitlines()), 4)

    def terminal(self, typed, env):
        """What a person sees who types this."""
        parent, child = pty.openpty()
        process = subprocess.Popen([PROGRAM, "chat", "smollm2", "--max-tokens", "4"], stdin=child,
                                   stdout=child, stderr=child, env=env, close_fds=True)
        os.close(child)
        seen, sent, deadline = b"", False, time.monotonic() + 600
        while time.monotonic() < deadline:
            if select.select([parent], [], [], 0.2)[0]:
                try:
                    block = os.read(parent, 4096)
                except OSError:
                    break
                if not block:
                    break
                seen += block
            if not sent and b"> " in seen:
                os.write(parent, typed)
                sent = True
        os.close(parent)
        self.assertEqual(process.wait(timeout=600), 0, seen)
        return seen

    def test_terminal(self):
        seen = self.terminal(b"Hi\n/exit\n", environment(TERM="xterm"))
        self.assertIn(b"tokens/s", seen)
        self.assertIn(b"\033[2m", seen)

    def test_no_color(self):
        seen = self.terminal(b"Hi\n/exit\n", environment(TERM="dumb", NO_COLOR=1))
        self.assertNotIn(b"\033[2m", seen)


class Fetch(Case):
    """A machine that cannot fetch the weights gets one line that says what to do."""

    def fake_python(self, script):
        folder = pathlib.Path(self.folder.name)
        (folder / "bin").mkdir()
        program = folder / "bin" / "python3"
        program.write_text("#!/bin/sh\n" + script + "\n")
        program.chmod(0o755)
        return environment(PATH=f"{folder}/bin:/usr/bin:/bin", XDG_CACHE_HOME=folder / "cache")

    def test_offline(self):
        env = self.fake_python("echo 'ERROR: No matching distribution found' >&2; exit 1")
        self.fails(1, "generate", "smollm2", "--prompt", "x", env=env,
                   says=["smollm2", "offline", ".gguf"])
        self.assertEqual(list((pathlib.Path(self.folder.name) / "cache" / "deepinfer").iterdir()),
                         [])

    def test_full_disk(self):
        env = self.fake_python("echo 'No space left on device' >&2; exit 1")
        self.fails(1, "generate", "smollm2", "--prompt", "x", env=env, says=["disk is full"])

    def test_no_pip(self):
        env = self.fake_python("echo 'python3: No module named pip' >&2; exit 1")
        self.fails(2, "inspect", "smollm2", env=env, says=["python3-pip"])


if __name__ == "__main__":
    unittest.main()
