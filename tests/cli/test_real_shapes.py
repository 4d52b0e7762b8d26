"""The generator of real shapes: what it writes is well formed, sparse where it says, and runs."""

import json
import math
import pathlib
import struct
import subprocess
import sys
import unittest

from program import ROOT, Case

ITEM_BYTES = {"F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "BF16": 2, "F32": 4, "I64": 8}


class RealShapes(Case):
    def make(self, name, *arguments):
        out = pathlib.Path(self.folder.name) / name
        subprocess.run([sys.executable, ROOT / "tools" / "make_real_shapes.py", "--out", out,
                        *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
        return out

    def tensors(self, folder):
        """Every tensor of the index by its shard's header; files end where their headers say."""
        found = {}
        index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
        for shard in sorted(set(index.values())):
            with open(folder / shard, "rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(size))
            end = 0
            for name, tensor in header.items():
                begin, end_of = tensor["data_offsets"]
                self.assertEqual(begin, end, name)
                wanted = math.prod(tensor["shape"]) * ITEM_BYTES[tensor["dtype"]]
                self.assertEqual(end_of - begin, wanted, name)
                self.assertEqual(index[name], shard)
                end = end_of
                found[name] = tensor
            self.assertEqual((folder / shard).stat().st_size, 8 + size + end)
        self.assertEqual(set(found), set(index))
        return found

    def disk_bytes(self, folder):
        return sum(path.stat().st_blocks * 512 for path in folder.iterdir())

    def check(self, folder, dense_limit):
        self.assertLess(self.disk_bytes(folder), dense_limit)
        line = self.lines("generate", folder, "--ids", "--prompt", "[1, 2, 3, 4, 5]", "--json",
                          "--max-tokens", 3, "--ignore-eos", "--logprobs")[0]
        self.assertEqual(len(line["ids"]), 3)
        self.assertTrue(all(math.isfinite(value) for value in line["logprobs"]), line)

    def test_v4(self):
        folder = self.make("v4", "--model", "v4", "--small", "--vocab", 512, "--dense-experts", 2)
        tensors = self.tensors(folder)
        self.assertEqual(tensors["layers.0.attn.wq_b.weight"]["shape"], [32768, 1024])
        self.assertEqual(tensors["layers.3.ffn.experts.7.w2.scale"]["shape"], [4096, 64])
        self.assertIn("layers.2.ffn.gate.tid2eid", tensors)
        self.assertIn("layers.3.ffn.gate.bias", tensors)
        self.check(folder, 1e9)

    def test_v41_with_sparse_engram_tables(self):
        folder = self.make("v41", "--model", "v41", "--small", "--vocab", 512)
        tensors = self.tensors(folder)
        # The row count of the published configuration's first table.
        self.assertEqual(tensors["layers.1.engram.embed.weight"]["shape"], [384006168, 256])
        self.assertEqual(tensors["layers.3.attn.wq_a.scale"]["shape"], [40, 160])
        self.check(folder, 1e9)

    def test_the_same_arguments_give_the_same_bytes(self):
        arguments = ("--model", "v4", "--small", "--layers", 1, "--vocab", 64)
        first, second = self.make("a", *arguments), self.make("b", *arguments)
        for path in sorted(first.iterdir()):
            self.assertEqual(path.read_bytes(), (second / path.name).read_bytes(), path.name)


if __name__ == "__main__":
    unittest.main()
