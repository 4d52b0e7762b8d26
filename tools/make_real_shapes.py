#!/usr/bin/env python3
"""Writes a checkpoint of the true V4.1-Flash or V4-Flash shape with random weights and few layers.

  tools/make_real_shapes.py --model v41 --out real-v41
  tools/make_real_shapes.py --model v4 --experts 256 --dense-experts 4 --out real-v4
  tools/make_real_shapes.py --model v41 --small --out small-v41     under 1 GB, for tests

One layer of each kind, in the official safetensors names, storage types and scales, with
config.json; V4.1 also gets engram.json, so that no tokenizer is needed. Widths, heads and top-k are
the real ones, vocabulary too unless --vocab says otherwise. The same arguments give the same bytes.
Needs nothing but Python.

Weights are of the size that keeps activations finite: FP8 codes follow a normal distribution, FP4
codes are uniform, every scale is a power of two; no code is NaN. Experts from --dense-experts on
and Engram tables are holes of sparse files, which read as zeros; the table rows that the ids of
--ids (default 1..32) address are written.
"""

import argparse
import json
import math
import os
import random
import statistics
import struct

POOL = (1 << 20) - 1  # bytes or values of a pool; odd, so that rows of a matrix differ

SHAPES = {
    "v41": dict(
        vocab=129280, hidden=5120, heads=64, head=512, q_lora=1280, o_lora=1024, groups=8,
        width=2304, experts=8, index_heads=32, index_dim=128, block=32,
        layers=[0, 0, 2, 2, 1, 1, 1], kv=[2, 4], index=[2, 4, 5], engram=[1],
        small=dict(layers=[0, 0, 2, 1], kv=[2, 3], index=[2, 3], engram=[1], vocab=2048,
                   dense=1),
    ),
    "v4": dict(
        vocab=129280, hidden=4096, heads=64, head=512, q_lora=1024, o_lora=1024, groups=8,
        width=2048, experts=8, index_heads=64, index_dim=128, block=128,
        layers=[0, 4, 128, 4, 128],
        small=dict(layers=[0, 4, 128, 4], vocab=2048, dense=1),
    ),
}
HASH_LAYERS = 3
PER_TOKEN = 6
STREAMS = 4
NGRAM, ENGRAM_HEADS, ENGRAM_DIM = 4, 8, 256
ENGRAM_VOCAB, CLASSES, PAD = 16000000, 99092, 2
# Of layer 1 of V4.1-Flash; other layers draw their own.
FLASH_MULTIPLIERS = [76632096046245, 4839876093313, 35959672319349, 73987337458391]
ITEM_BYTES = {"F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "BF16": 2, "F32": 4, "I64": 8}


def e4m3_values():
    out = []
    for code in range(127):
        exponent, mantissa = code >> 3, code & 7
        out.append(mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))
    return out


def normal_codes():
    """The E4M3 code nearest to each of 256 quantiles of the normal distribution, times 8."""
    values, normal = e4m3_values(), statistics.NormalDist()
    codes = bytearray()
    for index in range(256):
        x = 8.0 * normal.inv_cdf((index + 0.5) / 256)
        nearest = min(range(127), key=lambda code: abs(values[code] - abs(x)))
        codes.append(nearest | (0x80 if x < 0 else 0))
    return bytes(codes)


class Pools:
    """Random bytes of each storage type, made on first use and tiled over tensors."""

    def __init__(self, seed):
        self.seed = seed
        self.made = {}

    def of(self, dtype, sigma, mean, distinct):
        key = (dtype, sigma, mean, distinct)
        if key not in self.made:
            self.made[key] = self.make(random.Random(f"{self.seed} {key}"), *key)
        return self.made[key]

    def make(self, rng, dtype, sigma, mean, distinct):
        if dtype == "F8_E4M3":
            return rng.randbytes(POOL).translate(normal_codes())
        if dtype == "I8":  # two FP4 codes
            return rng.randbytes(POOL)
        if dtype == "F8_E8M0":
            middle = 127 + round(math.log2(sigma))
            return bytes(middle + step for step in rng.choices((-1, 0, 0), k=65537))
        if dtype == "I64":
            rows = [rng.sample(range(distinct), PER_TOKEN) for _ in range(4099)]
            return b"".join(struct.pack(f"<{PER_TOKEN}q", *row) for row in rows)
        floats = struct.pack("<131071f", *[rng.gauss(mean, sigma) for _ in range(131071)])
        if dtype == "F32":
            return floats
        halves = bytearray(len(floats) // 2)  # the upper halves of the floats
        halves[0::2] = floats[2::4]
        halves[1::2] = floats[3::4]
        return bytes(halves)


class Tensor:
    def __init__(self, name, dtype, shape, sigma=0.0, mean=0.0, hole=False, distinct=0):
        self.name, self.dtype, self.shape = name, dtype, shape
        self.sigma, self.mean, self.hole, self.distinct = sigma, mean, hole, distinct
        self.bytes = math.prod(shape) * ITEM_BYTES[dtype]


class Model:
    """The tensors of one checkpoint, in file order; groups stay in one shard."""

    def __init__(self, shape):
        self.s = shape
        self.groups = []

    def plain(self, name, dtype, shape, sigma, mean=0.0):
        self.groups.append([Tensor(name, dtype, shape, sigma, mean)])

    def norm(self, name, size):
        self.plain(name, "BF16", [size], 0.1, 1.0)

    def bf16(self, name, outputs, inputs):
        self.plain(name, "BF16", [outputs, inputs], 1.0 / math.sqrt(inputs))

    def fp8(self, name, outputs, inputs):
        block = self.s["block"]
        scales = [-(-outputs // block), -(-inputs // block)]
        self.groups.append([
            Tensor(name + ".weight", "F8_E4M3", [outputs, inputs]),
            # Codes have the deviation 8.
            Tensor(name + ".scale", "F8_E8M0", scales, 1.0 / math.sqrt(inputs) / 8),
        ])

    def fp4(self, name, outputs, inputs, hole):
        self.groups.append([
            Tensor(name + ".weight", "I8", [outputs, inputs // 2], hole=hole),
            # The 16 codes have a root mean square of 2.93.
            Tensor(name + ".scale", "F8_E8M0", [outputs, inputs // 32],
                   1.0 / math.sqrt(inputs) / 2.93, hole=hole),
        ])

    def hyper(self, prefix, outputs, scales):
        width = STREAMS * self.s["hidden"]
        self.plain(prefix + "_fn", "F32", [outputs, width], 1.0 / math.sqrt(width))
        self.plain(prefix + "_base", "F32", [outputs], 0.5)
        self.plain(prefix + "_scale", "F32", [scales], 0.1, 1.0)

    def attention(self, a):
        s = self.s
        self.fp8(a + "wq_a", s["q_lora"], s["hidden"])
        self.norm(a + "q_norm.weight", s["q_lora"])
        self.fp8(a + "wq_b", s["heads"] * s["head"], s["q_lora"])
        self.fp8(a + "wkv", s["head"], s["hidden"])
        self.norm(a + "kv_norm.weight", s["head"])
        self.plain(a + "attn_sink", "F32", [s["heads"]], 1.0)
        self.fp8(a + "wo_a", s["groups"] * s["o_lora"], s["heads"] // s["groups"] * s["head"])
        self.fp8(a + "wo_b", s["hidden"], s["groups"] * s["o_lora"])

    def v4_compressor(self, c, ratio, dim):
        width = dim * (2 if ratio == 4 else 1)
        self.plain(c + "ape", "F32", [ratio, width], 0.1)
        self.bf16(c + "wkv.weight", width, self.s["hidden"])
        self.bf16(c + "wgate.weight", width, self.s["hidden"])
        self.norm(c + "norm.weight", dim)

    def indexer(self, i):
        s = self.s
        self.fp8(i + "wq_b", s["index_heads"] * s["index_dim"], s["q_lora"])
        self.bf16(i + "weights_proj.weight", s["index_heads"], s["hidden"])

    def experts(self, f):
        s = self.s
        for e in range(s["experts"]):
            hole = e >= s["dense"]
            for name in ("w1", "w3"):
                self.fp4(f"{f}experts.{e}.{name}", s["width"], s["hidden"], hole)
            self.fp4(f"{f}experts.{e}.w2", s["hidden"], s["width"], hole)
        for name in ("w1", "w3"):
            self.fp8(f"{f}shared_experts.{name}", s["width"], s["hidden"])
        self.fp8(f + "shared_experts.w2", s["hidden"], s["width"])

    def block(self, p):
        self.norm(p + "attn_norm.weight", self.s["hidden"])
        self.norm(p + "ffn_norm.weight", self.s["hidden"])
        self.hyper(p + "hc_attn", 2 * STREAMS + STREAMS**2, 3)
        self.hyper(p + "hc_ffn", 2 * STREAMS + STREAMS**2, 3)
        self.attention(p + "attn.")
        self.bf16(p + "ffn.gate.weight", self.s["experts"], self.s["hidden"])
        self.experts(p + "ffn.")

    def ends(self):
        s = self.s
        self.plain("embed.weight", "BF16", [s["vocab"], s["hidden"]], 1.0)
        self.bf16("head.weight", s["vocab"], s["hidden"])
        self.norm("norm.weight", s["hidden"])

    def v4(self):
        s = self.s
        self.ends()
        self.hyper("hc_head", STREAMS, 1)
        for layer, ratio in enumerate(s["layers"]):
            p = f"layers.{layer}."
            self.block(p)
            if ratio:
                self.v4_compressor(p + "attn.compressor.", ratio, s["head"])
            if ratio == 4:
                self.indexer(p + "attn.indexer.")
                self.v4_compressor(p + "attn.indexer.compressor.", ratio, s["index_dim"])
            if layer < HASH_LAYERS:
                self.groups.append([Tensor(p + "ffn.gate.tid2eid", "I64", [s["vocab"], PER_TOKEN],
                                           distinct=s["experts"])])
            else:
                self.plain(p + "ffn.gate.bias", "F32", [s["experts"]], 0.1)

    def v41(self, primes):
        s = self.s
        self.ends()
        for layer, ratio in enumerate(s["layers"]):
            p = f"layers.{layer}."
            self.block(p)
            self.plain(p + "ffn.gate.bias", "F32", [s["experts"]], 0.1)
            self.plain(p + "ffn.gate.bias_vl", "F32", [s["experts"]], 0.1)
            if layer in s["kv"]:
                self.bf16(p + "attn.compressor.wkv.weight", s["head"], s["hidden"])
                self.norm(p + "attn.compressor.norm.weight", s["head"])
                if ratio == 2:
                    self.bf16(p + "attn.compressor.wgate.weight", s["head"], s["hidden"])
                self.bf16(p + "attn.indexer.wk.weight", s["index_dim"], s["head"])
                self.norm(p + "attn.indexer.k_norm.weight", s["index_dim"])
            if layer in s["index"]:
                self.indexer(p + "attn.indexer.")
            if layer in s["engram"]:
                rows = sum(primes[layer])
                self.groups.append([
                    Tensor(p + "engram.embed.weight", "F8_E4M3", [rows, ENGRAM_DIM], hole=True),
                    Tensor(p + "engram.embed.scale", "F8_E8M0", [rows, ENGRAM_DIM // 32],
                           hole=True),
                ])
                self.fp8(p + "engram.wkv", (STREAMS + 1) * s["hidden"],
                         (NGRAM - 1) * ENGRAM_HEADS * ENGRAM_DIM)
                self.plain(p + "engram.q_weight", "BF16", [STREAMS, s["hidden"]], 0.1, 1.0)
                self.plain(p + "engram.k_weight", "BF16", [STREAMS, s["hidden"]], 0.1, 1.0)


# --- Engram ------------------------------------------------------------------------------------


def engram_primes(layers):
    """Increasing primes from ENGRAM_VOCAB on, 24 for each layer, in the order n-gram, head."""
    found, number = [], ENGRAM_VOCAB | 1
    count = (NGRAM - 1) * ENGRAM_HEADS
    while len(found) < count * len(layers):
        if all(number % d for d in range(3, math.isqrt(number) + 1, 2)):
            found.append(number)
        number += 2
    return {layer: found[i * count : (i + 1) * count] for i, layer in enumerate(layers)}


def engram_multipliers(layer):
    if layer == 1:
        return FLASH_MULTIPLIERS
    rng = random.Random(f"multipliers {layer}")
    return [rng.randrange(0, (2**63 - 1) // CLASSES // 2) * 2 + 1 for _ in range(NGRAM)]


def engram_rows(ids, multipliers, primes, class_count):
    """The table rows that the ids address, one after the other from position 0."""
    classes, rows = [token % class_count for token in ids], set()
    for at in range(len(classes)):
        value = lambda back: classes[at - back] if at >= back else PAD
        mixed = value(0) * multipliers[0]
        for n in range(1, NGRAM):
            mixed ^= value(n) * multipliers[n]
            for head in range(ENGRAM_HEADS):
                index = (n - 1) * ENGRAM_HEADS + head
                rows.add(mixed % primes[index] + sum(primes[:index]))
    return sorted(rows)


# --- Files -------------------------------------------------------------------------------------


def shards_of(groups, most):
    """Groups in order; a new file when the next would pass `most` bytes that are no holes."""
    shards, size = [[]], 0
    for group in groups:
        dense = sum(t.bytes for t in group if not t.hole)
        if shards[-1] and size + dense > most:
            shards.append([])
            size = 0
        shards[-1] += group
        size += dense
    return shards


def write_shard(path, tensors, pools, seed, rows_of):
    header, offset = {}, 0
    for tensor in tensors:
        end = offset + tensor.bytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape,
                               "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=1 << 20) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            start = 8 + len(text) + header[tensor.name]["data_offsets"][0]
            file.seek(start)
            if tensor.hole:
                write_rows(file, start, tensor, pools, rows_of.get(tensor.name, []))
                continue
            pool = memoryview(pools.of(tensor.dtype, tensor.sigma, tensor.mean, tensor.distinct))
            rng = random.Random(f"{seed} {tensor.name}")
            item = 8 * PER_TOKEN if tensor.dtype == "I64" else ITEM_BYTES[tensor.dtype]
            position, left = rng.randrange(len(pool) // item) * item, tensor.bytes
            while left > 0:
                left -= file.write(pool[position : position + left])
                position = 0
        file.truncate(8 + len(text) + offset)


def write_rows(file, start, tensor, pools, rows):
    row_bytes = tensor.bytes // tensor.shape[0]
    for row in rows:
        pool = pools.of(tensor.dtype, 1.0 / 8, 0.0, 0)
        position = row * row_bytes % (len(pool) - row_bytes)
        file.seek(start + row * row_bytes)
        file.write(pool[position : position + row_bytes])


def config_of(options, s):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden",
                        "configs", {"v41": "deepseek-v4.1-flash", "v4": "deepseek-v4-flash"}[
                            options.model], "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    text = config.get("text_config", config)
    text.update(vocab_size=s["vocab"], num_hidden_layers=len(s["layers"]),
                n_routed_experts=s["experts"], compress_ratios=s["layers"],
                num_nextn_predict_layers=0)
    for key in [key for key in text if key.startswith("dspark_")]:
        del text[key]
    if options.model == "v41":
        first = next((i for i, ratio in enumerate(s["layers"]) if ratio == 1), None)
        text.update(kv_source_layer_ids=s["kv"], index_source_layer_ids=s["index"],
                    candidate_source_layer_id=first,
                    engram_compressed_vocab_size=s["classes"], engram_layer_ids=s["engram"],
                    engram_num_embeddings=[sum(p) for p in s["primes"].values()])
        config.pop("vision_config", None)
        config.pop("image_token_id", None)
    else:
        text["num_hash_layers"] = min(HASH_LAYERS, len(s["layers"]))
    return config


def shape_of(options):
    s = dict(SHAPES[options.model])
    small = s.pop("small")
    if options.small:
        s.update(small)
    for key, value in (("experts", options.experts), ("vocab", options.vocab)):
        if value is not None:
            s[key] = value
    s["dense"] = options.dense_experts if options.dense_experts is not None else s.get(
        "dense", s["experts"])
    if options.layers is not None:
        count = min(options.layers, len(s["layers"]))
        s["layers"] = s["layers"][:count]
        for key in ("kv", "index", "engram"):
            if key in s:
                s[key] = [layer for layer in s[key] if layer < count]
    return s


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)


def write_checkpoint(options):
    s, rows_of = shape_of(options), {}
    os.makedirs(options.out, exist_ok=True)
    model = Model(s)
    if options.model == "v41":
        s["classes"] = min(CLASSES, s["vocab"])
        s["primes"] = engram_primes(s["engram"])
        multipliers = {layer: engram_multipliers(layer) for layer in s["engram"]}
        for layer in s["engram"]:
            rows = engram_rows(options.ids, multipliers[layer], s["primes"][layer], s["classes"])
            rows_of[f"layers.{layer}.engram.embed.weight"] = rows
            rows_of[f"layers.{layer}.engram.embed.scale"] = rows
        model.v41(s["primes"])
        write_json(os.path.join(options.out, "engram.json"),
                   {"token_map": [token % s["classes"] for token in range(s["vocab"])],
                    "multipliers": multipliers, "primes": s["primes"]})
    else:
        model.v4()
    write_json(os.path.join(options.out, "config.json"), config_of(options, s))
    shards = shards_of(model.groups, int(options.shard_gb * 1e9))
    pools, names = Pools(options.seed), {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_shard(os.path.join(options.out, name), tensors, pools, options.seed, rows_of)
        names.update({tensor.name: name for tensor in tensors})
    total = sum(t.bytes for group in model.groups for t in group)
    holes = sum(t.bytes for group in model.groups for t in group if t.hole)
    write_json(os.path.join(options.out, "model.safetensors.index.json"),
               {"metadata": {"total_size": total}, "weight_map": names})
    print(f"{options.out}: {len(names)} tensors in {len(shards)} files, "
          f"{(total - holes) / 1e9:.3f} GB written, {holes / 1e9:.3f} GB of holes")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, required=True)
    parser.add_argument("--out", required=True, metavar="FOLDER")
    parser.add_argument("--experts", type=int, help="routed experts of a layer (8)")
    parser.add_argument("--dense-experts", type=int, metavar="N",
                        help="experts that are written; the others are holes (all)")
    parser.add_argument("--layers", type=int, help="only the first ones")
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--small", action="store_true", help="under 1 GB on disk")
    parser.add_argument("--ids", type=lambda text: [int(i) for i in text.split(",")],
                        default=list(range(1, 33)), help="whose Engram rows are written")
    parser.add_argument("--shard-gb", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    write_checkpoint(arguments())
