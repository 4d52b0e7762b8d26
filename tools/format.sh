#!/usr/bin/env bash
# Formats every C++ file of the project with clang-format; with --check it only names the ones
# that differ, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(-i)
[[ "${1:-}" == "--check" ]] && mode=(--dry-run --Werror)
mapfile -d '' files < <(find src tests bench -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.inc' -o -name '*.cu' \) -print0 | sort -z)
if ! printf '%s\0' "${files[@]}" |
  xargs -0 -P "$(nproc)" -n 16 clang-format-19 --style=file "${mode[@]}"; then
  echo "error: format: the files above differ from .clang-format (run: make format)" >&2
  exit 1
fi
[[ "${mode[0]}" == -i ]] || echo "format: ${#files[@]} files agree with .clang-format"
