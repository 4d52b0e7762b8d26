#!/usr/bin/env python3
"""The inner products of many rows keep their sums in registers.

Goal: a compiler that spills sums costs more speed than any blocking choice, so a build that spills
is broken. Method: disassemble the kernels, count vector moves to and from the stack in the bodies
of the largest row group; the sums of a block are 24 (AVX-512) or 12 (AVX2) registers.

Usage: no_spills_test.py OBJDUMP ARCHIVE
"""

import re
import subprocess
import sys

# object, symbol, most vector instructions that may touch the stack. A few at the edges of a block
# of AVX2 are harmless; one per sum and step would be a hundred.
BODIES = [
    ("matmul_avx512.cpp.o", r"tile_int8INS\w*_4Q4_0ELi12ELi2E", 0),
    ("matmul_avx512.cpp.o", r"tile_int8INS\w*_4Q8_0ELi12ELi2E", 0),
    ("matmul_avx512.cpp.o", r"tile_int8INS\w*_5Mxfp4ELi12ELi2E", 0),
    ("matmul_avx2.cpp.o", r"tile_int8INS\w*_4Q4_0ELi6ELi2E", 16),
    ("matmul_avx2.cpp.o", r"tile_int8INS\w*_4Q8_0ELi6ELi1E", 16),
    # Tiles of floats, all row groups in one function.
    ("matmul_avx512.cpp.o", r"for_each_f32_group_size\w*multiply_tiles\w*run_fp8", 0),
    ("matmul_avx2.cpp.o", r"for_each_f32_group_size\w*multiply_tiles\w*run_fp8", 0),
    ("latent_attention_avx512.cpp.o", r"score_blockILm12ELm2E", 0),
    ("latent_attention_avx512.cpp.o", r"weigh_blockILm8ELm3E", 0),
    ("latent_attention_avx2.cpp.o", r"score_blockILm6ELm2E", 0),
    ("latent_attention_avx2.cpp.o", r"weigh_blockILm4ELm3E", 0),
]


def functions(objdump, archive):
    """(object, symbol) -> lines of its code."""
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", archive], check=True,
                          capture_output=True, text=True).stdout
    member, symbol, code = "", "", {}
    for line in text.splitlines():
        head = re.match(r"(\S+\.o):\s+file format", line)
        if head:
            member, symbol = head.group(1), ""
        start = re.match(r"[0-9a-f]+ <(\S+)>:", line)
        if start:
            symbol = start.group(1)
            code[(member, symbol)] = []
        elif symbol:
            code[(member, symbol)].append(line)
    return code


def main():
    code = functions(sys.argv[1], sys.argv[2])
    failed = False
    for member, pattern, most in BODIES:
        found = [lines for (where, symbol), lines in code.items()
                 if where.endswith(member) and re.search(pattern, symbol)]
        if len(found) != 1:
            print(f"{member} {pattern}: {len(found)} functions, expected 1")
            failed = True
            continue
        stack = [l for l in found[0] if re.search(r"%[yz]mm", l) and re.search(r"\(%r[sb]p", l)]
        products = sum(bool(re.search("vpdpbusd|vpmaddubsw|vfmadd", l)) for l in found[0])
        print(f"{member} {pattern}: {products} products, {len(stack)} vector moves of the stack, "
              f"at most {most}")
        failed |= len(stack) > most or products == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
