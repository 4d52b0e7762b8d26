#!/usr/bin/env bash
# Runs every libFuzzer program of BUILD_DIR on its seeds in tests/corpus, SECONDS in all.
#   tools/fuzz.sh BUILD_DIR SECONDS
# New inputs are kept in BUILD_DIR/corpus; a crashing input is named by libFuzzer and fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/fuzz.sh BUILD_DIR SECONDS}
seconds=${2:?usage: tools/fuzz.sh BUILD_DIR SECONDS}

mapfile -t programs < <(find "$build" -type f -name 'fuzz_*' -perm -u+x | sort)
if [[ ${#programs[@]} -eq 0 ]]; then
  echo "error: fuzz: $build holds no fuzz_* program (build the preset 'fuzz' first)" >&2
  exit 1
fi
each=$((seconds / ${#programs[@]}))
((each > 0)) || each=1
for program in "${programs[@]}"; do
  name=${program##*/fuzz_}
  mkdir -p "$build/corpus/$name"
  printf 'fuzz: %-24s %s s: ' "$name" "$each"
  log="$build/corpus/$name.log"
  if ! "$program" -max_total_time="$each" -max_len=65536 -rss_limit_mb=2048 -timeout=20 \
    -print_final_stats=1 -artifact_prefix="$build/corpus/$name.crash-" \
    "$build/corpus/$name" "tests/corpus/$name" >"$log" 2>&1; then
    echo "FAILED"
    tail -n 60 "$log" >&2
    exit 1
  fi
  sed -n 's/^stat::number_of_executed_units: *\([0-9]*\)/\1 runs, clean/p' "$log"
done
