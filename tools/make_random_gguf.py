#!/usr/bin/env python3
# Budget: one generator; its shapes and block formats are tables.
"""Writes a GGUF file of a realistic shape with random weights, for speed measurements.

  tools/make_random_gguf.py --shape dense-1b --type Q4_0 --out dense-1b.Q4_0.gguf
  tools/make_random_gguf.py --shape v4-flash-8 --type MXFP4 --out v4-flash-8.gguf

The text such a model generates is noise, but activations stay finite and of ordinary size, so
every kernel does ordinary work, and any program that reads GGUF loads the file. One type holds
all matrices (embedding and output too, unless --embedding-type says otherwise); norms are F32.
Models with experts store those in --type and the rest in --embedding-type (default Q8_0).
The same arguments always give the same bytes. Needs nothing but Python; memory stays small.

How the weights are made: for each standard deviation a pool of random blocks, tiled over the
tensor from a random start. The pool's block count is odd and the blocks of a row are a power of
two, so no two rows of a matrix are equal before as many rows as the pool has blocks (equal rows
of the output matrix would give ties between tokens).

To add a shape: write a function that returns a Model and list it in SHAPES.
"""

import argparse
import dataclasses
import math
import os
import random
import struct
import sys

ALIGNMENT = 32  # bytes; where the data section and each tensor start
POOL_BLOCKS = (1 << 17) - 1  # blocks of 32 or 256 values; odd, see above
POOL_VALUES = (1 << 21) - 1  # the same for types without blocks
SCALE_STEPS = 256  # distinct block scales in a pool, from 0.7 to 1.3 of the wanted one


# --- Block formats -------------------------------------------------------------------------
# Each maker returns one pool: `count` blocks whose values have the standard deviation sigma.


def half(value):
    return struct.pack("<e", value)


def scales_around(base):
    """Block scales as F16 bytes, spread evenly over 0.7 … 1.3 of base."""
    step = 0.6 / (SCALE_STEPS - 1)
    return [half(base * (0.7 + step * i)) for i in range(SCALE_STEPS)]


def blocks_of(rng, heads, code_bytes, count, clean=None):
    """count blocks: one of the heads (256 of them), then random codes."""
    codes = rng.randbytes(count * code_bytes)
    if clean:
        codes = codes.translate(clean)
    picks = rng.randbytes(count)
    parts = []
    for i, pick in enumerate(picks):
        parts.append(heads[pick])
        parts.append(codes[i * code_bytes : (i + 1) * code_bytes])
    return b"".join(parts)


def make_q4_0(rng, sigma, count):
    # d * (q - 8), q uniform in 0…15: deviation 4.61 d. Half of the scales are negative, as real
    # quantisers write them: it makes the mean 0, which codes of -8…7 alone do not.
    heads = scales_around(sigma / 4.61)
    heads[::2] = [half(-struct.unpack("<e", head)[0]) for head in heads[::2]]
    return blocks_of(rng, heads, 16, count)


def make_q4_1(rng, sigma, count):
    # d * q + m with m = -7.5 d, so that the mean is 0.
    step = 0.6 / (SCALE_STEPS - 1)
    ds = [sigma / 4.61 * (0.7 + step * i) for i in range(SCALE_STEPS)]
    return blocks_of(rng, [half(d) + half(-7.5 * d) for d in ds], 16, count)


def make_q8_0(rng, sigma, count):
    # d * q, q uniform in -127…127: deviation 73.3 d. Quantisers never write -128.
    clean = bytes(0x81 if i == 0x80 else i for i in range(256))
    return blocks_of(rng, scales_around(sigma / 73.3), 32, count, clean)


def make_mxfp4(rng, sigma, count):
    # 2^(e - 127) * code; the 16 E2M1 codes have a root mean square of 2.93.
    e = round(math.log2(sigma / 2.93)) + 127
    return blocks_of(rng, [bytes([e - 1 + i % 3]) for i in range(SCALE_STEPS)], 16, count)


def packed_6_bit(pairs):
    """Eight (scale, minimum) pairs of 6 bits in the 12 bytes of a Q4_K block."""
    out = bytearray(12)
    for j in range(4):
        scale, minimum = pairs[j]
        scale_hi, minimum_hi = pairs[j + 4]
        out[j] = scale | (scale_hi >> 4) << 6
        out[j + 4] = minimum | (minimum_hi >> 4) << 6
        out[j + 8] = (scale_hi & 15) | (minimum_hi & 15) << 4
    return bytes(out)


def make_q4_k(rng, sigma, count):
    # d * s * q - dmin * m with m = s and dmin = 7.5 d (mean 0); s uniform in 32…63 (rms 48.4).
    heads = []
    for index in range(SCALE_STEPS):
        d = sigma / (4.61 * 48.4) * (0.7 + 0.6 * index / (SCALE_STEPS - 1))
        scales = [rng.randrange(32, 64) for _ in range(8)]
        heads.append(half(d) + half(7.5 * d) + packed_6_bit([(s, s) for s in scales]))
    return blocks_of(rng, heads, 128, count)


def make_q6_k(rng, sigma, count):
    # d * s * (q - 32): deviation 18.5 d s; the 16 signed scales have magnitudes 64…127 (rms 97).
    tails = []
    for d in scales_around(sigma / (18.5 * 97.0)):
        scales = [rng.randrange(64, 128) * rng.choice((-1, 1)) for _ in range(16)]
        tails.append(struct.pack("<16b", *scales) + d)
    # The head comes last in this format: the codes of the next block stand before it.
    data = blocks_of(rng, tails, 192, count)
    tail_bytes = len(tails[0])
    return data[tail_bytes:] + data[:tail_bytes]


def normal_values(rng, sigma, count):
    return [rng.gauss(0.0, sigma) for _ in range(count)]


def make_f32(rng, sigma, count):
    return struct.pack(f"<{count}f", *normal_values(rng, sigma, count))


def make_f16(rng, sigma, count):
    return struct.pack(f"<{count}e", *normal_values(rng, sigma, count))


def make_bf16(rng, sigma, count):
    full = make_f32(rng, sigma, count)  # the upper halves of the F32 values
    out = bytearray(count * 2)
    out[0::2] = full[2::4]
    out[1::2] = full[3::4]
    return bytes(out)


EXPERTS_USED = 6


def make_expert_ids(rng, experts, count):
    """Rows of distinct expert ids, as hash layers keep them for each token; experts: how many."""
    rows = [rng.sample(range(int(experts)), EXPERTS_USED) for _ in range(4099)]
    return b"".join(struct.pack(f"<{EXPERTS_USED}i", *row) for row in rows)


@dataclasses.dataclass(frozen=True)
class BlockType:
    id: int  # ggml_type
    file_type: int  # general.file_type of a file mostly in this type
    values: int  # in a block
    bytes: int  # of a block
    make: object


TYPES = {
    "F32": BlockType(0, 0, 1, 4, make_f32),
    "F16": BlockType(1, 1, 1, 2, make_f16),
    "Q4_0": BlockType(2, 2, 32, 18, make_q4_0),
    "Q4_1": BlockType(3, 3, 32, 20, make_q4_1),
    "Q8_0": BlockType(8, 7, 32, 34, make_q8_0),
    "Q4_K": BlockType(12, 14, 256, 144, make_q4_k),
    "Q6_K": BlockType(14, 18, 256, 210, make_q6_k),
    "I32": BlockType(26, 0, 1, 4, make_expert_ids),
    "BF16": BlockType(30, 32, 1, 2, make_bf16),
    "MXFP4": BlockType(39, 38, 32, 17, make_mxfp4),
}


# --- Model shapes --------------------------------------------------------------------------


ZEROS = -1.0


@dataclasses.dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple  # fastest dimension first, as in the file: (inputs, outputs)
    type: str
    sigma: float  # standard deviation; 0 means all ones, ZEROS all zeros

    @property
    def value_count(self):
        return math.prod(self.shape)

    @property
    def byte_count(self):
        block = TYPES[self.type]
        if self.shape[0] % block.values != 0:
            sys.exit(
                f"error: {self.name}: rows of {self.shape[0]} values do not divide into "
                f"{self.type} blocks of {block.values}"
            )
        return self.value_count // block.values * block.bytes


@dataclasses.dataclass(frozen=True)
class Model:
    architecture: str
    metadata: dict  # keys below the architecture's prefix
    vocabulary: int  # tokens
    tensors: list


def matrix(name, inputs, outputs, kind):
    # A row of deviation 1/sqrt(inputs) keeps the size of a normalised input.
    return Tensor(name, (inputs, outputs), kind, 1.0 / math.sqrt(inputs))


def norm(name, size):
    return Tensor(name, (size,), "F32", 0.0)


def dense(options, hidden, layers, heads, kv_heads, head_size, ffn, vocabulary):
    """A Llama: grouped-query attention, SwiGLU, an output matrix of its own."""
    kind, edge = options.type, options.embedding_type
    tensors = [
        Tensor("token_embd.weight", (hidden, vocabulary), edge, 0.02),
        norm("output_norm.weight", hidden),
        matrix("output.weight", hidden, vocabulary, edge),
    ]
    for layer in range(layers):
        prefix = f"blk.{layer}."
        tensors += [
            norm(prefix + "attn_norm.weight", hidden),
            matrix(prefix + "attn_q.weight", hidden, heads * head_size, kind),
            matrix(prefix + "attn_k.weight", hidden, kv_heads * head_size, kind),
            matrix(prefix + "attn_v.weight", hidden, kv_heads * head_size, kind),
            matrix(prefix + "attn_output.weight", heads * head_size, hidden, kind),
            norm(prefix + "ffn_norm.weight", hidden),
            matrix(prefix + "ffn_gate.weight", hidden, ffn, kind),
            matrix(prefix + "ffn_up.weight", hidden, ffn, kind),
            matrix(prefix + "ffn_down.weight", ffn, hidden, kind),
        ]
    metadata = {
        "block_count": layers,
        "context_length": 8192,
        "embedding_length": hidden,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": head_size,
        "rope.freq_base": 500000.0,
        "vocab_size": vocabulary,
    }
    return Model("llama", metadata, vocabulary, tensors)


def v4_attention(prefix, ratio, edge):
    """Attention of one layer of V4-Flash with its compressor and, for ratio 4, its indexer."""
    hidden, head, groups, rank, index_heads, index_head = 4096, 512, 8, 1024, 64, 128
    tensors = [
        norm(prefix + "attn_norm.weight", hidden),
        Tensor(prefix + "attn_sinks.weight", (64,), "F32", ZEROS),
        matrix(prefix + "attn_q_a.weight", hidden, 1024, edge),
        norm(prefix + "attn_q_a_norm.weight", 1024),
        matrix(prefix + "attn_q_b.weight", 1024, 64 * head, edge),
        matrix(prefix + "attn_kv.weight", hidden, head, edge),
        norm(prefix + "attn_kv_a_norm.weight", head),
        matrix(prefix + "attn_output_a.weight", 64 // groups * head, groups * rank, edge),
        matrix(prefix + "attn_output_b.weight", groups * rank, hidden, edge),
    ]
    parts = [("attn_compressor_", head)] if ratio else []
    if ratio == 4:
        tensors += [
            matrix(prefix + "indexer.proj.weight", hidden, index_heads, edge),
            matrix(prefix + "indexer.attn_q_b.weight", 1024, index_heads * index_head, edge),
        ]
        parts.append(("indexer_compressor_", index_head))
    for name, size in parts:
        width = size * (2 if ratio == 4 else 1)
        tensors += [
            matrix(prefix + name + "kv.weight", hidden, width, edge),
            matrix(prefix + name + "gate.weight", hidden, width, edge),
            Tensor(prefix + name + "ape.weight", (width, ratio), "F32", 0.02),
            norm(prefix + name + "norm.weight", size),
        ]
    return tensors


def v4_experts(prefix, layer, experts, vocabulary, kind, edge):
    hidden, width = 4096, 2048
    tensors = [matrix(prefix + "ffn_gate_inp.weight", hidden, experts, "F32")]
    if layer < 3:
        ids = Tensor(prefix + "ffn_gate_tid2eid.weight", (EXPERTS_USED, vocabulary), "I32",
                     float(experts))
        tensors.append(ids)
    else:
        tensors.append(Tensor(prefix + "exp_probs_b.bias", (experts,), "F32", ZEROS))
    tensors.append(norm(prefix + "ffn_norm.weight", hidden))
    for name, inputs, outputs in (("gate", hidden, width), ("up", hidden, width),
                                  ("down", width, hidden)):
        sigma = 1.0 / math.sqrt(inputs)
        tensors += [
            Tensor(f"{prefix}ffn_{name}_exps.weight", (inputs, outputs, experts), kind, sigma),
            matrix(f"{prefix}ffn_{name}_shexp.weight", inputs, outputs, edge),
        ]
    return tensors


def v4_flash(options, layers, experts, vocabulary):
    """The first layers of DeepSeek-V4-Flash in its true widths, with fewer experts."""
    hidden, streams, mixes = 4096, 4, 24
    kind, edge = options.type, options.embedding_type
    ratios = [0, 0, *[4, 128] * layers][:layers]
    tensors = [
        Tensor("token_embd.weight", (hidden, vocabulary), edge, 0.02),
        norm("output_norm.weight", hidden),
        matrix("output.weight", hidden, vocabulary, edge),
        matrix("output_hc_fn.weight", streams * hidden, streams, "F32"),
        Tensor("output_hc_base.weight", (streams,), "F32", ZEROS),
        norm("output_hc_scale.weight", 1),
    ]
    for layer, ratio in enumerate(ratios):
        prefix = f"blk.{layer}."
        tensors += v4_attention(prefix, ratio, edge)
        for part in ("attn", "ffn"):
            tensors += [
                matrix(f"{prefix}hc_{part}_fn.weight", streams * hidden, mixes, "F32"),
                Tensor(f"{prefix}hc_{part}_base.weight", (mixes,), "F32", ZEROS),
                norm(f"{prefix}hc_{part}_scale.weight", 3),
            ]
        tensors += v4_experts(prefix, layer, experts, vocabulary, kind, edge)
    metadata = {
        "block_count": layers,
        "context_length": 65536,
        "embedding_length": hidden,
        "feed_forward_length": 2048,
        "attention.head_count": 64,
        "attention.head_count_kv": 1,
        "attention.key_length": 512,
        "attention.value_length": 512,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.q_lora_rank": 1024,
        "attention.sliding_window": 128,
        "attention.output_group_count": 8,
        "attention.output_lora_rank": 1024,
        "attention.compress_rope_freq_base": 160000.0,
        "attention.compress_ratios": ratios,
        "attention.indexer.head_count": 64,
        "attention.indexer.key_length": 128,
        "attention.indexer.top_k": 512,
        "rope.dimension_count": 64,
        "rope.freq_base": 10000.0,
        "hyper_connection.count": streams,
        "hyper_connection.sinkhorn_iterations": 20,
        "hyper_connection.epsilon": 1e-6,
        "hash_layer_count": 3,
        "expert_count": experts,
        "expert_used_count": EXPERTS_USED,
        "expert_shared_count": 1,
        "expert_feed_forward_length": 2048,
        "expert_weights_scale": 1.5,
        "expert_weights_norm": True,
        "expert_gating_func": 4,  # square root of softplus
        "swiglu_clamp_exp": [10.0] * layers,
        "swiglu_clamp_shexp": [10.0] * layers,
        "vocab_size": vocabulary,
    }
    return Model("deepseek4", metadata, vocabulary, tensors)


SHAPES = {
    # Llama-3.2-1B with an untied output: 1.24 B parameters are read for each token.
    "dense-1b": lambda o: dense(o, 2048, 16, 32, 8, 64, 8192, 128256),
    # Eight layers of V4-Flash with 32 experts each: 6.4 GB with MXFP4 experts.
    "v4-flash-8": lambda o: v4_flash(o, 8, 32, 129280),
    # Its first four layers with 8 experts and a small vocabulary: 1 GB.
    "v4-flash-4": lambda o: v4_flash(o, 4, 8, 2048),
    # For tests of programs and scripts, a megabyte or two.
    "dense-tiny": lambda o: dense(o, 256, 2, 4, 2, 64, 512, 1024),
}


# --- Vocabulary ----------------------------------------------------------------------------


def byte_letters():
    """The printable letter that stands for each byte in byte-level BPE (GPT-2's table)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, spare = {byte: chr(byte) for byte in plain}, 0x100
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(spare)
            spare += 1
    return [letters[byte] for byte in range(256)]


def vocabulary_of(size):
    """Returns (tokens, types, merges): bytes, English letter pairs, made-up words, one end."""
    tokens = byte_letters()
    space = tokens[0x20]
    common = "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou"
    merges = [tuple(pair) for pair in common.split()]
    merges += [(space, letter) for letter in "tasowicbphfdmrelnguvyjkqxz"]
    tokens += [left + right for left, right in merges]
    syllables = [c + v for c in "bdfgjklmnprstvz" for v in "aeiou"]
    count = len(syllables)
    for index in range(size - len(tokens) - 1):
        # Three syllables, spread over the alphabet; no merge leads to these.
        spread = index * 48271 % count**3
        word = "".join(syllables[spread // count**k % count] for k in range(3))
        tokens.append(space + word)
    tokens.append("<|end|>")
    types = [1] * (size - 1) + [3]  # normal …, control
    if len(tokens) != size or len(set(tokens)) != size:
        sys.exit(f"error: vocabulary: {len(set(tokens))} distinct tokens made, {size} wanted")
    return tokens, types, [f"{left} {right}" for left, right in merges]


# --- The file ------------------------------------------------------------------------------

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
ITEM_FORMATS = {U32: "I", I32: "i", F32: "f"}


def text(value):
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def entry(key, value):
    """One metadata pair."""
    if isinstance(value, bool):
        return text(key) + struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", U32, value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", F32, value)
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    item = {str: STRING, float: F32, int: I32}[type(value[0])]
    head = text(key) + struct.pack("<IIQ", ARRAY, item, len(value))
    if item == STRING:
        return head + b"".join(text(v) for v in value)
    return head + struct.pack(f"<{len(value)}{ITEM_FORMATS[item]}", *value)


def aligned(offset):
    return -(-offset // ALIGNMENT) * ALIGNMENT


def header_of(model, name, file_type):
    """Everything before the tensor data, padded to the alignment."""
    tokens, types, merges = vocabulary_of(model.vocabulary)
    end = model.vocabulary - 1
    metadata = {
        "general.architecture": model.architecture,
        "general.name": name,
        "general.file_type": file_type,
        "general.alignment": ALIGNMENT,
        **{f"{model.architecture}.{key}": value for key, value in model.metadata.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": end,
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.ggml.add_bos_token": False,
    }
    out = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(model.tensors), len(metadata)))
    for key, value in metadata.items():
        out += entry(key, value)
    offset = 0
    for tensor in model.tensors:
        shape = tensor.shape
        out += text(tensor.name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        out += struct.pack("<IQ", TYPES[tensor.type].id, offset)
        offset = aligned(offset + tensor.byte_count)
    return bytes(out).ljust(aligned(len(out)), b"\0")


class Pools:
    """The random blocks of each (type, deviation), made on first use."""

    def __init__(self, seed, largest):
        self.seed = seed
        self.largest = largest  # values of the largest tensor: no pool need hold more
        self.pools = {}

    def of(self, tensor):
        key = (tensor.type, tensor.sigma)
        if key not in self.pools:
            rng = random.Random(f"{self.seed} {key}")
            block = TYPES[tensor.type]
            most = POOL_VALUES if block.values == 1 else POOL_BLOCKS
            count = min(most, self.largest // block.values | 1)  # odd
            self.pools[key] = block.make(rng, tensor.sigma, count)
        return self.pools[key]


def write_tensor(file, tensor, pools, rng):
    left = tensor.byte_count
    if tensor.sigma in (0.0, ZEROS):
        value = 1.0 if tensor.sigma == 0.0 else 0.0
        file.write(struct.pack("<f", value) * tensor.value_count)
    else:
        pool = memoryview(pools.of(tensor))
        block = EXPERTS_USED * 4 if tensor.type == "I32" else TYPES[tensor.type].bytes
        position = rng.randrange(len(pool) // block) * block
        while left > 0:
            part = pool[position : position + left]
            file.write(part)
            left -= len(part)
            position = 0
    file.write(b"\0" * (aligned(tensor.byte_count) - tensor.byte_count))


def write_file(path, model, name, file_type, seed):
    pools = Pools(seed, max(t.value_count for t in model.tensors))
    partial = f"{path}.partial"  # a reader never meets half a file
    try:
        with open(partial, "wb", buffering=1 << 20) as file:
            file.write(header_of(model, name, file_type))
            for tensor in model.tensors:
                rng = random.Random(f"{seed} {tensor.name}")
                write_tensor(file, tensor, pools, rng)
        os.replace(partial, path)
    except OSError as error:
        if os.path.exists(partial):
            os.remove(partial)
        sys.exit(f"error: {path}: {error.strerror}")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    types = [name for name in TYPES if name not in ("F32", "I32")] + ["F32"]
    parser.add_argument("--shape", choices=SHAPES, default="dense-1b")
    parser.add_argument("--type", choices=types, required=True, help="of the matrices")
    parser.add_argument("--embedding-type", choices=types, help="default: --type; v4 shapes: Q8_0")
    parser.add_argument("--out", required=True, metavar="FILE")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    edge = "Q8_0" if options.shape.startswith("v4") else options.type
    options.embedding_type = options.embedding_type or edge
    return options


def main():
    options = arguments()
    model = SHAPES[options.shape](options)
    # Programs that compare answers know random weights by this name.
    name = f"random {options.shape} {options.type}"
    write_file(options.out, model, name, TYPES[options.type].file_type, options.seed)
    parameters = sum(t.value_count for t in model.tensors)
    size = os.path.getsize(options.out)
    print(f"{options.out}: {parameters / 1e9:.3f} B parameters, {size / 1e9:.3f} GB")


if __name__ == "__main__":
    main()
