"""Packed checkpoints, streamed experts: the same answers bit for bit, errors that say where."""

import json
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from program import GOLDEN, PROGRAM, Case, environment, run

DENSE = GOLDEN / "llama" / "llama"
MODELS = [
    DENSE,
    GOLDEN / "llama" / "deepseek_v3",
    GOLDEN / "deepseek_v4" / "quant",
    GOLDEN / "deepseek_v41" / "base",
]
EXPERTS = [model for model in MODELS if model != DENSE]


class Pack(Case):
    def packed(self, model, *options):
        out = pathlib.Path(self.folder.name) / f"{model.name}-{len(options)}"
        self.ok("pack", model, out, *options)
        return out

    def answers(self, model, *options):
        lines = self.lines("generate", model, "--ids", "--prompt", "[1, 2, 3, 4, 5]", "--json",
                           "--max-tokens", 12, "--ignore-eos", "--logprobs", *options)
        return [(line["ids"], line["logprobs"]) for line in lines]

    def test_packed_answers_are_the_originals(self):
        for model in MODELS:
            with self.subTest(model=model.name):
                out = self.packed(model)
                for numerics in ("fast", "exact"):
                    options = ("--numerics", numerics)
                    self.assertEqual(self.answers(out, *options), self.answers(model, *options))

    def test_streamed_answers_are_the_residents_at_every_budget(self):
        for model in EXPERTS:
            with self.subTest(model=model.name):
                wanted = self.answers(model)
                out = self.packed(model)
                for budget in ("400kB", "600kB", "1MB", "1GB"):
                    options = ("--stream-memory", budget)
                    self.assertEqual(self.answers(model, *options), wanted, budget)
                    self.assertEqual(self.answers(out, *options), wanted, budget)

    def test_a_budget_below_the_floor_names_both(self):
        self.fails(1, "generate", EXPERTS[1], "--ids", "--prompt", "[1]", "--stream-memory", "10kB",
                   says=["10000 bytes", "at least", "are needed"])

    def test_summary_and_checksums(self):
        out = pathlib.Path(self.folder.name) / "out"
        line, = self.lines("pack", DENSE, out, "--json")
        self.assertEqual(line["path"], str(out))
        self.assertGreater(line["packed_tensors"], 0)
        self.assertEqual(line["resumed_tensors"], 0)
        self.assertIn("every checksum agrees", self.ok("pack", "--verify", out))
        data = bytearray((out / "model.packed").read_bytes())
        data[-100] ^= 1
        (out / "model.packed").write_bytes(data)
        self.fails(2, "pack", "--verify", out, says=["checksum is", "the header says"])

    def test_the_original_is_kept_and_nothing_is_overwritten(self):
        before = sorted((file.name, file.stat().st_size) for file in DENSE.iterdir())
        out = self.packed(DENSE)
        self.assertEqual(before, sorted((f.name, f.stat().st_size) for f in DENSE.iterdir()))
        self.fails(2, "pack", DENSE, out, says=[str(out), "exists already"])
        self.fails(2, "pack", out, str(out) + "2", says=["is packed already"])

    def test_another_instruction_set_is_refused_by_name(self):
        out = self.packed(DENSE, "--isa", "ref")
        self.fails(2, "generate", out, "--ids", "--prompt", "[1]", "--isa", "avx2",
                   says=["ref", "avx2"])

    def test_partial_work_is_taken_up_again(self):
        # A finished pack put back to what a kill in its middle leaves: the journal of some tensors.
        out = self.packed(EXPERTS[1])
        whole = (out / "model.packed").read_bytes()
        length = int.from_bytes(whole[12:16], "little")
        tensors = json.loads(whole[16:16 + length])["tensors"]
        fresh = pathlib.Path(self.folder.name) / "again"
        process = subprocess.Popen([PROGRAM, "pack", EXPERTS[1], fresh], env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.communicate(timeout=300)
        self.assertEqual((fresh / "model.packed").read_bytes(), whole, "packing is deterministic")
        partial = pathlib.Path(str(fresh) + ".partial")
        fresh.rename(partial)
        plan = self.plan_of(EXPERTS[1])
        done = tensors[:10]
        journal = plan + "".join(f"{i} {tensor['xxh3']}\n" for i, tensor in enumerate(done))
        (partial / "journal").write_text(journal + "11 0123")  # a line that was cut off
        data = bytearray(whole)
        data[tensors[10]["offset"]:] = bytes(len(data) - tensors[10]["offset"])
        data[:4096] = bytes(4096)
        (partial / "model.packed").write_bytes(data)
        line, = self.lines("pack", EXPERTS[1], fresh, "--json")
        self.assertEqual(line["resumed_tensors"], 10)
        self.assertEqual((fresh / "model.packed").read_bytes(), whole)
        self.assertFalse(partial.exists())

    def plan_of(self, model):
        """The first line of the journal that packing this model writes."""
        out = pathlib.Path(self.folder.name) / "plan"
        blocked = pathlib.Path(str(out) + ".partial")
        blocked.mkdir()
        # The side files come last: a directory in the place of one stops the work before the end.
        (blocked / "config.json").mkdir()
        self.fails(1, "pack", model, out, says=["config.json"])
        line = (blocked / "journal").read_text().splitlines()[0] + "\n"
        shutil.rmtree(blocked)
        return line

    def test_interrupted_work_says_how_to_go_on(self):
        process = subprocess.Popen([PROGRAM, "pack", EXPERTS[2],
                                    pathlib.Path(self.folder.name) / "cut"], env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
        # It may have been faster than the signal.
        self.assertIn(process.returncode, (0, 130), errors)
        self.ok("pack", EXPERTS[2], pathlib.Path(self.folder.name) / "cut2")


class Stream(Case):
    def copy(self, model):
        target = pathlib.Path(self.folder.name) / "model"
        shutil.copytree(model, target)
        return target

    def test_a_damaged_expert_ends_its_request_with_file_and_offset(self):
        out = pathlib.Path(self.folder.name) / "packed"
        self.ok("pack", EXPERTS[1], out)
        path = out / "model.packed"
        data = bytearray(path.read_bytes())
        length = int.from_bytes(data[12:16], "little")
        experts = [tensor for tensor in json.loads(data[16:16 + length])["tensors"]
                   if ".experts." in tensor["name"]]
        for tensor in experts:
            data[tensor["offset"] + 5] ^= 0x40
        path.write_bytes(data)
        done = run("generate", out, "--ids", "--prompt", "[1, 2, 3]", "--json",
                   "--stream-memory", "1MB")
        text = done.stdout.decode() + done.stderr.decode()
        self.assertNotEqual(done.returncode, 0, text)
        self.assertIn(str(path), text)
        self.assertIn("checksum is", text)

    def test_reads_are_counted(self):
        line, = self.lines("bench", "stream", EXPERTS[1], "--stream-memory", "300kB", "--rounds", 1,
                           "--json")
        self.assertEqual(line["name"], "stream")
        self.assertIn("% hits", line["limit_name"])


if __name__ == "__main__":
    unittest.main()
