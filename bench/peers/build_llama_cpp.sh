#!/usr/bin/env bash
# Builds llama.cpp, the peer of `make bench`, from the source distribution of a Python package.
#
#   bench/peers/build_llama_cpp.sh            prints the folder that holds the programs
#   JOBS=1 CXX=clang++-19 CC=clang-19 bench/peers/build_llama_cpp.sh
#   bench/peers/build_llama_cpp.sh --server   llama-server too, for many streams (no web pages)
#
# The result lies in ${XDG_CACHE_HOME:-~/.cache}/deepinfer/peers/llama.cpp (source/, build/bin/).
# A second call finds the finished build and returns at once; an interrupted one continues.
# Release, tuned for this machine's CPU (GGML_NATIVE), CPU backend only, OpenMP as upstream
# chooses it. Everything but the last line goes to stderr.
set -euo pipefail

readonly kVersion=0.3.36
readonly kSha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
targets=(llama-bench llama-batched-bench llama-simple)
server=OFF
if [[ "${1:-}" == --server ]]; then
  targets+=(llama-server)
  server=ON
fi

root="${XDG_CACHE_HOME:-$HOME/.cache}/deepinfer/peers/llama.cpp"
archive="$root/llama_cpp_python-$kVersion.tar.gz"
# g++ by default: Debian's clang brings no OpenMP runtime, and upstream's default needs one.
cxx="${CXX:-g++}"
cc="${CC:-gcc}"
stamp="$root/built-$kVersion"
if [[ $server == ON ]]; then stamp+=-server; fi
# A build for another CPU or by another compiler is not the peer this machine should be held to.
identity="$cxx $("$cxx" -dumpfullversion 2>/dev/null || "$cxx" -dumpversion) $(
  grep -m1 '^flags' /proc/cpuinfo | sha256sum | cut -c1-16)"

say() { printf '%s\n' "llama.cpp: $*" >&2; }
fail() {
  printf '%s\n' "error: llama.cpp: $*" >&2
  exit 1
}

checksum_of() { sha256sum "$1" | cut -d' ' -f1; }

fetch_source() {
  if [[ -f "$archive" && "$(checksum_of "$archive")" == "$kSha256" ]]; then return; fi
  rm -f "$archive"
  say "fetching the source distribution of llama-cpp-python $kVersion (77 MB)"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps \
    --no-binary llama-cpp-python --dest "$root" "llama-cpp-python==$kVersion" >&2 ||
    fail "pip could not fetch llama-cpp-python==$kVersion (is a package index reachable?)"
  local found
  found="$(checksum_of "$archive")"
  if [[ "$found" != "$kSha256" ]]; then
    rm -f "$archive"
    fail "$(basename "$archive") has sha256 $found, expected $kSha256"
  fi
}

unpack_source() {
  if [[ -f "$root/source/.complete-$kVersion" ]]; then return; fi
  say "unpacking"
  rm -rf "$root/source" "$root/source.partial"
  mkdir -p "$root/source.partial"
  tar -xzf "$archive" -C "$root/source.partial" --strip-components=3 \
    "llama_cpp_python-$kVersion/vendor/llama.cpp"
  touch "$root/source.partial/.complete-$kVersion"
  mv "$root/source.partial" "$root/source"
}

configure() {
  local launcher=()
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  local generator=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  # A build folder of another compiler cannot be configured again in place.
  if [[ -f "$root/identity" && "$(cat "$root/identity")" != "$identity" ]]; then
    rm -rf "$root/build"
  fi
  printf '%s' "$identity" >"$root/identity"
  cmake -S "$root/source" -B "$root/build" "${generator[@]}" "${launcher[@]}" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
    -DGGML_NATIVE=ON -DGGML_CCACHE=OFF -DBUILD_SHARED_LIBS=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
    "-DLLAMA_BUILD_SERVER=$server" -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
    -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_EXAMPLES=ON >"$root/configure.log" 2>&1 || {
    tail -n 20 "$root/configure.log" >&2
    fail "cmake failed (the whole log: $root/configure.log)"
  }
}

main() {
  mkdir -p "$root"
  exec 9>"$root/lock"
  flock 9 # two builds at once would write the same files
  if [[ -f "$stamp" && "$(cat "$stamp")" == "$identity" ]]; then
    printf '%s\n' "$root/build/bin"
    return
  fi
  fetch_source
  unpack_source
  configure
  local jobs="${JOBS:-$(nproc)}"
  say "building ${targets[*]} with $cxx, $jobs at a time (about 10 CPU minutes)"
  cmake --build "$root/build" --parallel "$jobs" --target "${targets[@]}" \
    >"$root/build.log" 2>&1 || {
    grep -E 'error|FAILED' "$root/build.log" | head -n 20 >&2
    fail "the build failed (the whole log: $root/build.log)"
  }
  printf '%s' "$identity" >"$stamp"
  say "done: $root/build/bin"
  printf '%s\n' "$root/build/bin"
}

main "$@"
