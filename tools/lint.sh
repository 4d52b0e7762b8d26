#!/usr/bin/env bash
# Runs clang-tidy with the project's checks.
#   tools/lint.sh BUILD_DIR [--program]
# BUILD_DIR holds compile_commands.json. --program leaves tests and benchmarks out.
# A clean verdict is remembered by the hash of the preprocessed source and the settings, so that a
# second run looks only at what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/lint.sh BUILD_DIR [--program]}
scope=${2:-}
export build cache="${XDG_CACHE_HOME:-$HOME/.cache}/deepinfer/tidy"
mkdir -p "$cache"

tidy_one() {  # file, compile command
  local key command
  # The same command, asked for the preprocessed text: comments stay, they may hold NOLINT.
  command=$(sed -E 's/ -o [^ ]+/ /; s/ -c / -E -C -P /' <<<"$2")
  key=$({ cat .clang-tidy; eval "$command" 2>/dev/null; } | sha256sum | cut -d' ' -f1)
  [[ -e "$cache/$key" ]] && return
  if clang-tidy-19 --quiet --warnings-as-errors='*' -p "$build" "$1" 2>"$cache/$key.log"; then
    rm -f "$cache/$key.log"
    touch "$cache/$key"
  else
    grep -v ' warnings\? generated' "$cache/$key.log" >&2
    rm -f "$cache/$key.log"
    echo "lint: $1" >&2
    return 1
  fi
}
export -f tidy_one

python3 - "$build/compile_commands.json" "$scope" <<'PY' >"$build/tidy_list"
import json, os, sys
for entry in json.load(open(sys.argv[1])):
    path = os.path.relpath(entry["file"])
    aside = path.endswith(("_test.cpp", "_bench.cpp")) or path.startswith(("tests/", "bench/"))
    if path.startswith(("src/", "tests/")) and not (aside and sys.argv[2] == "--program"):
        print(path, entry["command"], sep="\0", end="\0")
PY
files=$(($(tr -cd '\0' <"$build/tidy_list" | wc -c) / 2))
started=$SECONDS
if ! xargs -0 -r -P "$(nproc)" -n 2 bash -c 'tidy_one "$@"' _ <"$build/tidy_list"; then
  echo "error: lint: clang-tidy found the above (docs: .clang-tidy)" >&2
  exit 1
fi
echo "lint: $files files are clean ($((SECONDS - started)) s)"
