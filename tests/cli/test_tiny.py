"""Commands on a tiny model without tokenizer: ids in, ids out."""

import json
import math
import os
import pathlib
import signal
import struct
import subprocess
import unittest

from program import GOLDEN, PROGRAM, TINY, Case, environment, run


def golden(name):
    """A tensor of the tiny model's golden file as (shape, values)."""
    data = (GOLDEN / "llama" / "llama" / "golden.safetensors").read_bytes()
    return tensor(data, name)


def tensor(data, name):
    length, = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8:8 + length])[name]
    begin, end = entry["data_offsets"]
    letter = {"F32": "f", "I32": "i", "I64": "q"}[entry["dtype"]]
    raw = data[8 + length + begin:8 + length + end]
    return entry["shape"], struct.unpack(f"<{len(raw) // struct.calcsize(letter)}{letter}", raw)


PROMPT = list(golden("prompt.input_ids")[1])
EXACT = ("--numerics", "exact", "--kv", "f32")


class Generate(Case):
    def test_greedy_ids_are_the_oracles(self):
        wanted = list(golden("greedy.ids")[1])
        line, = self.lines("generate", TINY, "--ids", "--prompt", json.dumps(PROMPT), "--json",
                           "--ignore-eos", "--max-tokens", len(wanted), *EXACT)
        self.assertEqual(line["ids"], wanted)
        self.assertEqual(line["finish_reason"], "length")
        self.assertEqual(line["prompt_tokens"], len(PROMPT))
        self.assertEqual(line["completion_tokens"], len(wanted))

    def test_json_lines_have_the_contracts_fields(self):
        file = self.file("p.jsonl", '{"ids": [1, 2], "max_tokens": 3}\n{"ids": [7]}\n')
        lines = self.lines("generate", TINY, "--prompts", file, "--json", "--logprobs",
                           "--max-tokens", 5, "--ignore-eos")
        self.assertEqual([line["index"] for line in lines], [0, 1])
        self.assertEqual([line["completion_tokens"] for line in lines], [3, 5])
        for line in lines:
            for key in ("text", "ids", "finish_reason", "prompt_tokens", "cached_tokens",
                        "completion_tokens", "ttft_ms", "tpot_ms"):
                self.assertIn(key, line)
            self.assertEqual(len(line["logprobs"]), len(line["ids"]))
            self.assertTrue(all(x <= 0 for x in line["logprobs"]))

    def test_seeds_repeat_and_differ(self):
        def ids(seed):
            return self.lines("generate", TINY, "--ids", "--prompt", "5", "--json", "--seed", seed,
                              "--temperature", 1.5, "--ignore-eos", "--max-tokens", 12)[0]["ids"]
        self.assertEqual(ids(1), ids(1))
        self.assertNotEqual(ids(1), ids(2))

    def test_a_pipe_gives_prompts(self):
        lines = self.lines("generate", TINY, "--json", "--max-tokens", 2, "--ignore-eos",
                           stdin='{"ids": [1]}\n[2, 3]\n')
        self.assertEqual([line["prompt_tokens"] for line in lines], [1, 2])

    def test_refused_prompts_leave_the_others(self):
        done = self.fails(2, "generate", TINY, "--json", "--max-tokens", 2, "--ignore-eos",
                          stdin='{"ids": [1]}\n{"ids": [1, 512]}\n',
                          says=["line 2", "512"])
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(lines[0]["completion_tokens"], 2)
        self.assertEqual(lines[1]["finish_reason"], "error")
        self.assertIn("512", lines[1]["error"])

    def test_bad_prompts(self):
        for content, parts in (('{"ids": [-1]}', ["-1"]), ('{"ids": []}', ["empty"]),
                               ('{"prompt": ', ["line 1"]), ('{"ids": [1], "x": 2}', ["x"])):
            with self.subTest(content=content):
                self.fails(2, "generate", TINY, stdin=content, says=parts)
        self.fails(2, "generate", TINY, stdin="", says=["prompt"])
        self.fails(2, "generate", TINY, "--prompts", "/no/such.jsonl", says=["/no/such.jsonl"])
        self.fails(2, "generate", TINY, "--prompt", "a", "--prompts", "b", says=["--prompts"])
        self.fails(2, "generate", TINY, "--prompt", "text", says=["tokenizer"])

    def test_a_prompt_longer_than_the_context(self):
        context = json.loads((TINY / "config.json").read_text())["max_position_embeddings"]
        self.fails(2, "generate", TINY, stdin=json.dumps({"ids": [1] * (context + 1)}),
                   says=[str(context), str(context + 1)])

    def test_json_is_alone_on_stdout_and_nothing_is_coloured(self):
        done = run("generate", TINY, "--ids", "--prompt", "5", "--json", "--max-tokens", 2)
        json.loads(done.stdout)
        self.assertNotIn(b"\033", done.stdout + done.stderr)
        self.assertEqual(done.stderr, b"")

    def test_a_known_head_is_not_computed_again_and_lines_tell(self):
        ids = list(range(2, 150))
        lines = self.lines("generate", TINY, "--json", "--max-tokens", 3, "--ignore-eos",
                           "--max-rows", 64, stdin="\n".join(
                               json.dumps({"ids": ids}) for _ in range(2)))
        self.assertEqual([line["ids"] for line in lines], [lines[0]["ids"]] * 2)
        self.assertEqual(lines[0]["resume"], "cold")
        self.assertIn("cached_tokens", lines[1])

    def test_choices_are_seeded_in_a_row_and_ranked_on_demand(self):
        several = ("generate", TINY, "--ids", "--prompt", "5", "--json", "--max-tokens", 6,
                   "--temperature", 1, "--ignore-eos", "--logprobs")
        line, = self.lines(*several, "--seed", 7, "--n", 3)
        self.assertEqual(len(line["others"]), 2)
        second, = self.lines(*several, "--seed", 8)
        self.assertEqual(line["others"][0]["ids"], second["ids"])
        best, = self.lines(*several, "--seed", 7, "--best-of", 3)
        means = [sum(one["logprobs"]) / 6 for one in [line, *line["others"]]]
        self.assertAlmostEqual(sum(best["logprobs"]) / 6, max(means), places=5)
        self.assertNotIn("others", best)

    def test_loops_and_drafts_change_no_token(self):
        prompt = ("generate", TINY, "--ids", "--prompt", "5 6 7 5 6 7 5 6", "--json",
                  "--max-tokens", 30, "--ignore-eos")
        plain, = self.lines(*prompt, "--no-overlap")
        for more in ((), ("--draft", "ngram"), ("--target-step-ms", 5),
                     ("--draft", "ngram", "--no-overlap")):
            line, = self.lines(*prompt, *more)
            self.assertEqual(line["ids"], plain["ids"], more)

    def test_bias_and_least_tokens(self):
        prompt = ("generate", TINY, "--ids", "--prompt", "5", "--json", "--max-tokens", 4)
        line, = self.lines(*prompt, "--logit-bias", "77:100")
        self.assertEqual(line["ids"], [77] * 4)
        line, = self.lines("generate", TINY, "--json", stdin=json.dumps(
            {"ids": [5], "max_tokens": 4, "min_tokens": 4, "logit_bias": {"77": 100}}))
        self.assertEqual(line["ids"], [77] * 4)
        self.fails(2, *prompt, "--logit-bias", "77", says=["77", "ID:BIAS"])

    def test_impossible_pairs_are_refused_by_name(self):
        prompt = ("generate", TINY, "--ids", "--prompt", "5")
        self.fails(2, *prompt, "--n", 3, "--best-of", 2, says=["best_of is 2", "n is 3"])
        self.fails(2, *prompt, "--replay-tokens", 140, says=["140", "replay"])
        self.fails(2, *prompt, "--resume", "replay", says=["bounded replay"])
        self.fails(2, *prompt, "--min-tokens", 9, "--max-tokens", 3, says=["9", "3"])
        self.fails(2, *prompt, "--stop", "x", says=["tokenizer"])

    def test_deepinfer_variables(self):
        prompt = ("generate", TINY, "--ids", "--prompt", "5", "--max-tokens", 2)
        mode = "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE"
        keep = "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS"
        self.ok(*prompt, env=environment(**{mode: "off", keep: "140"}))
        self.fails(2, *prompt, env=environment(**{mode: "compact"}), says=[keep])
        self.fails(2, *prompt, env=environment(**{mode: "mask", keep: "140"}), says=["mask"])
        # This model has no bounded replay; the command line wins.
        self.fails(2, *prompt, env=environment(**{mode: "compact", keep: "140"}),
                   says=["bounded replay"])
        self.ok(*prompt, "--resume", "exact", env=environment(**{mode: "compact", keep: "140"}))
        self.ok(*prompt, env=environment(DEEPINFER_USE_NEXTN_DECODE="0"))
        self.fails(2, *prompt, env=environment(DEEPINFER_USE_NEXTN_DECODE="few"), says=["few"])

    def test_explain_prints_choices_on_stderr(self):
        done = run("generate", TINY, "--ids", "--prompt", "5", "--json", "--max-tokens", 2,
                   "--explain")
        self.assertIn(b"matmul", done.stderr)
        json.loads(done.stdout)

    def test_less_than_4_gib_of_address_space(self):
        limit = ("/bin/sh", "-c", 'ulimit -v 4194304; exec "$@"', "sh")
        self.ok("generate", TINY, "--ids", "--prompt", "5", "--max-tokens", 2, "--json", wrap=limit)
        self.fails(2, "generate", "/no/such", "--prompt", "5", wrap=limit, says=["/no/such"])
        self.ok("--version", wrap=limit)


class Interrupt(Case):
    def test_ctrl_c_ends_with_130_and_tells_json_readers(self):
        child = subprocess.Popen(
            [PROGRAM, "generate", TINY, "--json", "--ignore-eos", "--max-tokens", "32",
             "--isa", "ref", "--threads", "1"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment())
        # Many batches of work are left when the first answer comes.
        child.stdin.write(b'{"ids": [1]}\n' * 3000)
        child.stdin.close()
        out = child.stdout.readline()
        child.send_signal(signal.SIGINT)
        out, errors = out + child.stdout.read(), child.stderr.read()
        child.stdout.close()
        child.stderr.close()
        self.assertEqual(child.wait(timeout=600), 130, errors)
        reasons = {json.loads(line)["finish_reason"] for line in out.splitlines()}
        self.assertEqual(reasons, {"cancelled", "length"})


class Score(Case):
    def test_logits_are_the_oracles(self):
        shape, wanted = golden("prompt.logits")
        out = pathlib.Path(self.folder.name) / "l.safetensors"
        ids = self.file("ids.jsonl", json.dumps({"ids": PROMPT}))
        line, = self.lines("score", TINY, "--ids", ids, "--top", 3, "--logits-out", out, "--json",
                           *EXACT)
        seen_shape, seen = tensor(out.read_bytes(), "logits.0")
        self.assertEqual(seen_shape, shape)
        self.assertLess(max(abs(a - b) for a, b in zip(seen, wanted)), 1e-3)
        # Log-probabilities follow from the logits.
        self.assertEqual(line["ids"], PROMPT)
        vocabulary = shape[1]
        for i, logprob in enumerate(line["logprobs"]):
            row = wanted[i * vocabulary:(i + 1) * vocabulary]
            peak = max(row)
            total = peak + math.log(sum(math.exp(x - peak) for x in row))
            self.assertAlmostEqual(logprob, row[PROMPT[i + 1]] - total, delta=2e-3)
            top = line["top"][i]
            self.assertEqual(len(top), 3)
            self.assertEqual(top[0]["id"], row.index(peak))
            self.assertEqual(top, sorted(top, key=lambda t: (-t["logprob"], t["id"])))

    def test_chunks_do_not_matter(self):
        ids = json.dumps({"ids": PROMPT})
        whole = self.lines("score", TINY, "--ids", "-", "--json", stdin=ids)
        for rows in (1, 3, 7):
            self.assertEqual(
                self.lines("score", TINY, "--ids", "-", "--json", "--max-rows", rows, stdin=ids),
                whole)

    def test_bad_ids(self):
        self.fails(2, "score", TINY, says=["--ids"])
        self.fails(2, "score", TINY, "--ids", "-", stdin='{"ids": [1, 600]}', says=["600", "512"])
        self.fails(2, "score", TINY, "--ids", "-", stdin='{"ids": "1"}', says=["ids"])
        self.fails(2, "score", TINY, "--ids", "-", stdin='{"ids": []}', says=["no ids"])

    def test_a_full_disk_is_one_line_and_leaves_nothing(self):
        if not os.path.exists("/dev/full"):
            self.fail("this system has no /dev/full")
        self.fails(1, "score", TINY, "--ids", "-", "--logits-out", "/no/such/folder/l",
                   stdin='{"ids": [1, 2]}', says=["/no/such/folder/l"])


class Perplexity(Case):
    def test_equals_score(self):
        ids = json.dumps({"ids": PROMPT})
        scored, = self.lines("score", TINY, "--ids", "-", "--json", stdin=ids)
        line, = self.lines("perplexity", TINY, "--ids", "-", "--json", stdin=ids)
        self.assertEqual(line["tokens"], len(PROMPT) - 1)
        self.assertAlmostEqual(line["nll"], -sum(scored["logprobs"]), places=3)
        self.assertAlmostEqual(line["perplexity"], math.exp(line["nll"] / line["tokens"]),
                               places=6)

    def test_windows(self):
        ids = json.dumps({"ids": PROMPT})
        line, = self.lines("perplexity", TINY, "--ids", "-", "--context", 8, "--json", stdin=ids)
        self.assertEqual(line["tokens"], len(PROMPT) - len(PROMPT) // 8)

    def test_bad_input(self):
        self.fails(2, "perplexity", TINY, says=["FILE"])
        self.fails(2, "perplexity", TINY, "--ids", "-", stdin='{"ids": [1]}', says=["fewer than 2"])
        self.fails(2, "perplexity", TINY, "--ids", "-", "--context", 10 ** 8,
                   stdin='{"ids": [1, 2]}', says=["--context"])


class Inspect(Case):
    def test_json_is_one_object(self):
        line, = self.lines("inspect", TINY, "--json")
        self.assertEqual(line["container"], "safetensors")
        self.assertEqual(line["config"]["family"], "llama")
        self.assertEqual(line["config"]["vocab"], 512)
        self.assertEqual(line["formats"]["BF16"]["tensors"], line["tensors"])
        self.assertEqual(sum(t["bytes"] for t in line["tensor_list"]), line["bytes"])
        self.assertRegex(line["content_id"], "^[0-9a-f]{32}$")

    def test_plain_names_the_essentials(self):
        text = self.ok("inspect", TINY)
        for part in ("llama", "512", "BF16", "content id"):
            self.assertIn(part, text)

    def test_broken_files_are_bad_input(self):
        self.fails(2, "inspect", self.file("broken.gguf", b"GGUF\x03\0\0\0" + b"\xff" * 40),
                   says=["broken.gguf"])
        self.fails(2, "inspect", self.file("empty.gguf", b""), says=["empty.gguf"])
        self.fails(2, "inspect", self.folder.name, says=["config.json"])


class Selftest(Case):
    def test_all_paths_agree(self):
        text = self.ok("selftest", TINY)
        self.assertRegex(text.splitlines()[-1], r"^all \d+ paths agree$")

    def test_json(self):
        lines = self.lines("selftest", TINY, "--json", "--isa", "ref")
        for line in lines[:-1]:
            self.assertTrue(line["equal"], line)
            self.assertIn("max_difference", line)
            self.assertIn("against", line)
        self.assertEqual(lines[-1], {"paths": len(lines) - 1, "agree": len(lines) - 1})


class Bench(Case):
    def test_json_has_the_contracts_fields(self):
        for what in ("decode", "prefill"):
            line, = self.lines("bench", what, TINY, "--rounds", 2, "--threads", 1, "--json",
                               "--peer", "other=echo speed: 12.5")
            self.assertEqual(line["name"], what)
            self.assertEqual(line["unit"], "tokens/s")
            self.assertLessEqual(line["min"], line["median"])
            self.assertLessEqual(line["median"], line["max"])
            self.assertEqual(line["value"], line["median"])
            self.assertAlmostEqual(line["share"], line["value"] / line["limit"], places=9)
            self.assertEqual(line["threads"], 1)
            self.assertEqual(line["peer"]["median"], 12.5)
            self.assertAlmostEqual(line["peer"]["ratio"], line["median"] / 12.5, places=9)

    def test_profile(self):
        self.assertIn("attention", self.ok("bench", "decode", TINY, "--rounds", 1, "--profile"))

    def test_bad_usage(self):
        self.fails(2, "bench", says=["limits"])
        self.fails(2, "bench", "everything", says=["everything"])
        self.fails(2, "bench", "decode", TINY, "--peer", "x", says=["NAME=CMD"])
        self.fails(2, "bench", "decode", TINY, "--rounds", 1, "--peer", "x=echo no number",
                   says=["no number"])
        self.fails(1, "bench", "decode", TINY, "--rounds", 1, "--peer", "x=exit 3",
                   says=["exit code 3"])


if __name__ == "__main__":
    unittest.main()
