"""recipe: prompts, outputs and protocols as JSON lines."""

import gzip
import json
import unittest

from program import GOLDEN, Case, run


def golden(name):
    return gzip.decompress((GOLDEN / "recipe" / f"{name}.jsonl.gz").read_bytes())


class Recipe(Case):
    def equal(self, name, task, *arguments):
        lines = self.lines("recipe", task, "--check", *arguments, stdin=golden(name))
        self.assertEqual(len(lines), golden(name).count(b"\n"))
        self.assertEqual([line for line in lines if not line["equal"]], [])

    def test_prompts_equal_the_goldens(self):
        self.equal("encode", "encode")

    def test_requests_and_errors_equal_the_goldens(self):
        self.equal("errors", "convert")
        # The lines of answers hold token ids: those of all tests have the tokenizer.
        for name, protocol in (("chat", "chat"), ("responses", "responses"),
                               ("anthropic", "anthropic")):
            self.equal(f"convert_{name}", "convert", "--protocol", protocol, "--tokenizer", "v4")

    def test_a_conversation_becomes_a_prompt(self):
        line = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
        [answer] = self.lines("recipe", "encode", "--family", "smollm2", stdin=line)
        self.assertTrue(answer["output"]["prompt"].endswith(
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"))
        [answer] = self.lines("recipe", "encode", "--family", "deepseek_v41", stdin=line)
        self.assertIn("<｜User｜>Hi<｜Assistant｜><think>", answer["output"]["prompt"])

    def test_outputs_are_parsed(self):
        line = json.dumps({"options": {"thinking_initial_stage": "ReasoningStart"},
                           "text": "because\n</think>\n\nyes", "finish": "stop"})
        [answer] = self.lines("recipe", "parse", stdin=line)
        self.assertEqual(answer["output"]["reasoning"], "because")
        self.assertEqual(answer["output"]["content"], "yes")

    def test_a_difference_ends_with_1_and_is_named(self):
        line = json.dumps({"options": {}, "text": "yes", "finish": "stop", "expect": {
            "content": "no", "reasoning": "", "tool_calls": [], "finish_reason": "stop",
            "stop_reason": "end_turn", "stop_sequence": None}})
        done = run("recipe", "parse", "--check", stdin=line)
        self.assertEqual(done.returncode, 1)
        answer = json.loads(done.stdout)
        self.assertFalse(answer["equal"])
        self.assertIn("content", answer["difference"])

    def test_a_refused_request_is_an_output(self):
        line = json.dumps({"kind": "request", "request": {"model": "gpt", "messages": []}})
        [answer] = self.lines("recipe", "convert", stdin=line)
        self.assertEqual(answer["output"]["category"], "unknown_model")
        self.assertEqual(answer["output"]["status"], 400)

    def test_bad_lines_and_words_are_bad_input(self):
        self.fails(2, "recipe", says=["encode", "parse", "convert"])
        self.fails(2, "recipe", "sing", says=["sing"])
        self.fails(2, "recipe", "parse", stdin="{", says=["stdin line 1"])
        self.fails(2, "recipe", "parse", stdin="{}", says=["text"])
        self.fails(2, "recipe", "encode", "--family", "gpt", stdin="{}", says=["gpt", "smollm2"])


if __name__ == "__main__":
    unittest.main()
