"""Writes the seed corpora of the fuzz targets in src/weights: small files, good and broken.

    python3 tools/make_corpus.py            # into tests/corpus/{gguf,safetensors,hf_config}

Every file is a pure function of this script, so running it again changes nothing.
"""

import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "corpus"

# Value types of GGUF metadata by number, with struct's letters.
SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, content):
    if kind == STRING:
        return text(content)
    if kind == ARRAY:
        inner, items = content
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, i) for i in items)
    return struct.pack("<" + SCALARS[kind], content)


def gguf(metadata, tensors, version=3, alignment=32, data=256):
    """metadata: (key, type, content); tensors: (name, dims innermost first, type, offset)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, kind, content in metadata:
        out += text(key) + struct.pack("<I", kind) + value(kind, content)
    for name, dims, kind, offset in tensors:
        out += text(name) + struct.pack("<I", len(dims))
        out += b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)
    return out + b"\0" * (-len(out) % alignment) + bytes(i % 251 for i in range(data))


MODEL = [
    ("general.architecture", STRING, "llama"),
    ("llama.block_count", U32, 1),
    ("llama.context_length", U32, 64),
    ("llama.embedding_length", U32, 32),
    ("llama.feed_forward_length", U32, 64),
    ("llama.attention.head_count", U32, 2),
    ("llama.attention.head_count_kv", U32, 1),
    ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
    ("llama.rope.scaling.type", STRING, "yarn"),
    ("llama.rope.scaling.factor", F32, 4.0),
    ("tokenizer.ggml.model", STRING, "gpt2"),
    ("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "b", b"\xff"])),
    ("tokenizer.ggml.token_type", ARRAY, (5, [1, 3, 6])),
    ("tokenizer.ggml.eos_token_id", U32, 1),
]
ALL_TYPES = [(f"k.{kind}", kind, 1) for kind in SCALARS] + [
    (f"a.{kind}", ARRAY, (kind, [0, 1])) for kind in SCALARS
]
TENSORS = [("token_embd.weight", [32, 3], 2, 0), ("output_norm.weight", [32], 0, 64)]


def gguf_seeds():
    whole = gguf(MODEL, TENSORS)
    return {
        "model": whole,
        "version2": gguf(MODEL[:1], TENSORS, version=2),
        "version1": gguf([], [], version=1),
        "big_endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
        "types": gguf(ALL_TYPES, []),
        "alignment": gguf([("general.alignment", U32, 8)], [("x", [2], 0, 8)], alignment=8),
        "bad_alignment": gguf([("general.alignment", U32, 12)], [("x", [2], 0, 0)]),
        "split": gguf([("split.no", 2, 0), ("split.count", 2, 2)], []),
        "nested_array": gguf([("n", ARRAY, (ARRAY, [(U32, [1])]))], []),
        "huge_counts": b"GGUF" + struct.pack("<IQQ", 3, 1 << 62, 1 << 62),
        "huge_array": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k")
        + struct.pack("<IIQ", ARRAY, U32, 1 << 61),
        "huge_string": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", (1 << 64) - 8),
        "huge_dims": gguf([], [("x", [1 << 62, 1 << 62, 4], 0, 0)]),
        "rank5": gguf([], [("x", [1, 1, 1, 1, 1], 0, 0)]),
        "overlap": gguf([], [("x", [16], 0, 0), ("y", [16], 0, 32)]),
        "outside": gguf([], [("x", [64], 0, 32)]),
        "unaligned": gguf([], [("x", [4], 0, 4)]),
        "no_blocks": gguf([], [("x", [33], 2, 0)]),
        "unknown_type": gguf([], [("x", [32], 99, 0)]),
        "experts": gguf([], [("blk.0.ffn_gate_exps.weight", [32, 2, 3], 39, 0)]),
        "duplicate": gguf([("k", BOOL, True), ("k", BOOL, True)], []),
        "truncated": whole[: len(whole) // 3],
    }


def safetensors(header, data=64):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + bytes(data)


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    whole = safetensors(
        {
            "__metadata__": {"format": "pt"},
            "a": tensor("F32", [2, 4], 0, 32),
            "b": tensor("BF16", [16], 32, 64),
        }
    )
    return {
        "model": whole,
        "empty": safetensors({}, 0),
        "scalar": safetensors({"s": tensor("F64", [], 0, 8)}, 8),
        "zero": safetensors({"z": tensor("I64", [0, 3], 0, 0)}, 0),
        "fp4": safetensors({"q": tensor("F4", [8, 16], 0, 64)}),
        "overlap": safetensors({"a": tensor("U8", [64], 0, 64), "b": tensor("U8", [32], 32, 64)}),
        "hole": safetensors({"a": tensor("U8", [32], 32, 64)}),
        "trailing": safetensors({"a": tensor("U8", [32], 0, 32)}),
        "reversed": safetensors({"a": tensor("U8", [32], 64, 32)}),
        "wrong_size": safetensors({"a": tensor("F32", [32], 0, 64)}),
        "unknown_dtype": safetensors({"a": tensor("F6_E2M3", [64], 0, 64)}),
        "rank5": safetensors({"a": tensor("U8", [1, 1, 1, 1, 64], 0, 64)}),
        "huge_dims": safetensors({"a": tensor("U8", [1 << 40, 1 << 40], 0, 64)}),
        "negative": safetensors({"a": tensor("U8", [-64], 0, 64)}),
        "duplicate": safetensors(
            b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
            b'"a":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}}'
        ),
        "not_json": safetensors(b'{"a":'),
        "long_header": struct.pack("<Q", 1 << 40) + b"{}",
        "short_header": b"\x08\0\0",
        "truncated": whole[:60],
    }


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "bos_token_id": 0,
    "eos_token_id": [1, 2],
}
SCALINGS = {
    "linear": {"type": "linear", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.7},
}


def config_seeds():
    seeds = {"plain": CONFIG, "nothing": {}, "no_heads": {**CONFIG, "num_attention_heads": 0}}
    for name, scaling in SCALINGS.items():
        seeds[name] = {**CONFIG, "rope_scaling": scaling}
    seeds["parameters"] = {**CONFIG, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    seeds["qwen3"] = {**CONFIG, "architectures": ["Qwen3ForCausalLM"], "head_dim": 32}
    return {name: json.dumps(config).encode() for name, config in seeds.items()}


def main():
    for folder, seeds in [
        ("gguf", gguf_seeds()),
        ("safetensors", safetensors_seeds()),
        ("hf_config", config_seeds()),
    ]:
        (ROOT / folder).mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (ROOT / folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
