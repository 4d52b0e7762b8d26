"""`plan` and `inspect`: what a model takes, from its configuration or its files."""

import json
import pathlib
import unittest

from program import GOLDEN, TINY, Case

CONFIGS = GOLDEN / "configs"
QUICK = ("--threads", 1)


def config(name):
    return CONFIGS / name / "config.json"


class Plan(Case):
    def plan(self, *arguments):
        line, = self.lines("plan", *arguments, "--json", *QUICK)
        return line

    def test_sizes_are_the_published_ones(self):
        for name, tensors, size in (("deepseek-v4-flash", 69187, 159609485896),
                                    ("deepseek-v4-flash-dspark", 72317, 166878536440),
                                    ("deepseek-v4-pro", 145116, 864704792696)):
            seen = self.plan(config(name), "--memory", "64GB")
            self.assertEqual(seen["tensors"], tensors)
            self.assertEqual(seen["weight_bytes"], size)
            self.assertEqual(sum(part["bytes"] for part in seen["parts"]), size)
            self.assertEqual(sum(part["tensors"] for part in seen["parts"]), tensors)

    def test_the_four_real_configurations(self):
        for name in ("deepseek-v3", "deepseek-v4-flash", "deepseek-v4-pro", "deepseek-v4.1-flash"):
            seen = self.plan(config(name), "--memory", "64GB", "--context", 4096)
            self.assertTrue(seen["runs"], name)
            self.assertFalse(seen["resident"], name)
            self.assertLess(seen["hit_rate"], 1)
            self.assertLess(seen["floor_bytes"], 64e9)
            for step in ("decode", "prefill"):
                self.assertGreater(seen[step]["tokens_per_second"], 0)
                self.assertIn(seen[step]["bound"], ("memory", "disk", "arithmetic"))
            for limit in ("memory", "disk"):
                self.assertGreater(seen["limits"][limit + "_bytes_per_second"], 0)

    def test_memory_decides_what_stays(self):
        model = config("deepseek-v4-flash")
        needed = self.plan(model)["needed_bytes"]
        self.assertTrue(self.plan(model, "--memory", needed)["resident"])
        some = self.plan(model, "--memory", needed - 1)
        self.assertFalse(some["resident"])
        self.assertTrue(some["runs"])
        self.assertGreater(some["stream_memory_bytes"], 0)
        self.assertLess(some["stream_memory_bytes"], some["streamable_bytes"])
        floor = some["floor_bytes"]
        self.assertTrue(self.plan(model, "--memory", floor)["runs"])
        self.assertFalse(self.plan(model, "--memory", floor - 1)["runs"])

    def test_context_and_streams_take_cache(self):
        model = config("deepseek-v4.1-flash")
        one = self.plan(model, "--context", 12800)
        self.assertEqual(one["cache_bytes"],
                         12800 * one["cache_bytes_per_token"] + one["cache_bytes_per_sequence"])
        two = self.plan(model, "--context", 12800, "--streams", 2)
        self.assertEqual(two["cache_bytes"], 2 * one["cache_bytes"])
        wide = self.plan(model, "--context", 12800, "--kv", "f32")
        self.assertGreater(wide["cache_bytes"], 3 * one["cache_bytes"])

    def test_a_stated_disk_is_believed(self):
        model = config("deepseek-v4-flash")
        fast = self.plan(model, "--memory", "32GB", "--disk", "100GB")
        slow = self.plan(model, "--memory", "32GB", "--disk", "100MB")
        self.assertEqual(slow["limits"]["disk_source"], "stated")
        self.assertEqual(slow["decode"]["bound"], "disk")
        self.assertGreater(fast["decode"]["tokens_per_second"],
                           5 * slow["decode"]["tokens_per_second"])

    def test_a_folder_with_a_config_alone_and_one_with_weights(self):
        alone = self.plan(CONFIGS / "deepseek-v4-flash")
        self.assertEqual(alone["tensors"], 69187)
        for model, family in ((TINY, "llama"), (GOLDEN / "deepseek_v4" / "quant", "deepseek_v4"),
                              (GOLDEN / "deepseek_v41" / "base", "deepseek_v41"),
                              (GOLDEN / "llama" / "deepseek_v32", "deepseek_v32")):
            seen = self.plan(model)
            self.assertEqual(seen["config"]["family"], family)
            self.assertTrue(seen["resident"])
            described, = self.lines("inspect", model, "--json")
            self.assertEqual(seen["parts"], described["parts"])
            self.assertEqual(seen["weight_bytes"], described["bytes"])

    def test_a_packed_model_takes_what_its_panels_take(self):
        packed = pathlib.Path(self.folder.name) / "packed"
        self.ok("pack", GOLDEN / "deepseek_v41" / "base", packed)
        seen = self.plan(packed)
        described, = self.lines("inspect", packed, "--json")
        self.assertEqual(seen["weight_bytes"], described["bytes"])
        self.assertEqual(sum(part["bytes"] for part in seen["parts"]), described["bytes"])
        size = (packed / "model.packed").stat().st_size
        self.assertLess(described["bytes"], size)
        self.assertGreater(described["bytes"], size - 4096 * (seen["tensors"] + 64))

    def test_text_says_the_bound_and_why(self):
        text = self.ok("plan", config("deepseek-v4.1-flash"), "--memory", "64GB", *QUICK)
        for part in ("routed experts", "Engram tables", "vision", "drafts", "96085 tensors",
                     "894 bytes a token", "64.00 GB may be used",
                     "Engram tables stay on disk", "bound by disk", "assumed"):
            self.assertIn(part, text)
        text = self.ok("plan", config("deepseek-v4-flash"), "--memory", "1GB", *QUICK)
        self.assertIn("does not run: the least is", text)
        self.assertNotIn("decode:", text)

    def test_bad_input(self):
        broken = json.loads(config("deepseek-v4-flash").read_text())
        broken["o_groups"] = 7
        self.fails(2, "plan", self.file("config.json", json.dumps(broken)),
                   says=["config.json", "o_groups", "7", "64"])
        self.fails(2, "plan", self.file("other.json", "[1]"), says=["other.json", "JSON object"])
        self.fails(2, "plan", "/no/such/config.json", says=["/no/such/config.json"])
        self.fails(2, "plan", config("deepseek-v3"), "--context", 1 << 30,
                   says=["--context", "163840"])
        self.fails(2, "plan", config("deepseek-v3"), "--streams", 0, says=["streams"])


class Inspect(Case):
    def test_every_family_is_described(self):
        for model, family in ((GOLDEN / "llama" / "deepseek_v3", "deepseek_v3"),
                              (GOLDEN / "llama" / "deepseek_v32", "deepseek_v32"),
                              (GOLDEN / "deepseek_v4" / "dspark", "deepseek_v4"),
                              (GOLDEN / "deepseek_v41" / "base", "deepseek_v41")):
            seen, = self.lines("inspect", model, "--json")
            self.assertEqual(seen["config"]["family"], family)
            self.assertEqual(seen["tensors"], len(seen["tensor_list"]))
            self.assertEqual(sum(part["bytes"] for part in seen["parts"]), seen["bytes"])
            self.assertEqual(seen["config"]["moe"]["experts"],
                             json.loads((model / "config.json").read_text()).get(
                                 "n_routed_experts", 8))
            text = self.ok("inspect", model)
            for part in (family, "routed experts", "experts", "matrices"):
                self.assertIn(part, text)

    def test_a_tensor_without_a_role_is_named(self):
        folder = self.file("config.json", (GOLDEN / "deepseek_v4" / "flash" / "config.json")
                           .read_bytes()).parent
        data = (GOLDEN / "deepseek_v4" / "flash" / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data.replace(b"layers.3.ffn_norm.weight",
                                                                b"layers.9.ffn_norm.weight"))
        self.fails(2, "inspect", folder, says=["layers.3.ffn_norm.weight", "is missing"])


if __name__ == "__main__":
    unittest.main()
