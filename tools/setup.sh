#!/usr/bin/env bash
# Installs the Debian packages that are missing, and only those, and says which.
#   tools/setup.sh [build] [test] [sanitize] [lint] [peers] [fresh]     (default: build)
# build: what the program needs. test: the test suite. sanitize: sanitizers, fuzzing, and readable
# stacks in their reports. lint: format and tidy checks. peers: the compiler of llama.cpp.
# fresh: what makes a bare tree.
# docs/dependencies.md gives the reason for each library.
# Nothing missing: no root, no network, a fraction of a second. No service is ever started.
set -euo pipefail

# shellcheck disable=SC2034  # the groups are used by name
build=(
  make clang-19 mold ccache cmake ninja-build pkg-config git ca-certificates python3 python3-pip
  libfmt-dev nlohmann-json3-dev libsimdjson-dev libxxhash-dev libssl-dev libpcre2-dev
  libutf8proc-dev liburing-dev libcli11-dev libtomlplusplus-dev libedit-dev
  libjpeg62-turbo-dev libpng-dev libwebp-dev
)
test=(libgtest-dev libgmock-dev libbenchmark-dev python3-venv)
sanitize=(libclang-rt-19-dev llvm-19)
lint=(clang-format-19 clang-tidy-19)
peers=(g++)
fresh=(debootstrap)

wanted=()
for group in "${@:-build}"; do
  case "$group" in
    build | test | sanitize | lint | peers | fresh)
      declare -n packages="$group"
      wanted+=("${packages[@]}")
      ;;
    *)
      echo "error: setup: unknown group '$group' (known: build test sanitize lint peers fresh)" >&2
      exit 2
      ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not a Debian system; install the equivalents of: ${wanted[*]}"
  exit 0
fi

# dpkg-query exits 1 when it does not know a package; its list of the installed ones still counts.
# Packages of several architectures are listed as name:arch by some formats, not by this one.
installed=" $(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
  sed -n 's/^installed //p' | tr '\n' ' ')" || true
missing=()
for package in "${wanted[@]}"; do
  [[ "$installed" == *" $package "* ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "setup: all ${#wanted[@]} packages of '${*:-build}' are here"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  else
    echo "error: setup: missing ${missing[*]}, and this user may not install them (run:" \
      "sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]})" >&2
    exit 1
  fi
fi

echo "setup: installing ${#missing[@]} of ${#wanted[@]} packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  # Quiet while it works, the whole log when it fails. Retries carry it over a flaky mirror.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=300 "$@" </dev/null >"$log" 2>&1 && return
  cat "$log" >&2
  echo "error: setup: apt-get $* failed (is the package mirror reachable?)" >&2
  exit 1
}
started=$SECONDS
apt update
apt install --no-install-recommends "${missing[@]}"
echo "setup: done in $((SECONDS - started)) s"
