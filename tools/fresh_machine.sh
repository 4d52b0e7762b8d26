#!/usr/bin/env bash
# Tries what a newcomer types, on a bare Debian 12: a tree made by debootstrap, the committed
# project copied in, then `make run` (and with --test `make test`) inside it, timed.
#   tools/fresh_machine.sh [--test] [--keep] [--command 'make build'] [--cache FOLDER]
# --command runs that instead of `make run`. --keep leaves the tree for a look. The bare tree is
# kept as a tarball in FOLDER (default ~/.cache/deepinfer/fresh) and made again after a week.
# Needs root and debootstrap. Package mirror, apt and pip settings, certificates and name servers
# are those of this machine; nothing else of it is seen inside.
set -euo pipefail
cd "$(dirname "$0")/.."

commands=()
keep=no
cache="${XDG_CACHE_HOME:-$HOME/.cache}/deepinfer/fresh"
run="make run"
test=""
while [[ $# -gt 0 ]]; do
  case "$1" in
    --test) test="make test" ;;
    --keep) keep=yes ;;
    --command) run=${2:?--command needs a command}; shift ;;
    --cache) cache=${2:?--cache needs a folder}; shift ;;
    *)
      echo "error: fresh_machine: unknown option '$1' (see the head of $0)" >&2
      exit 2
      ;;
  esac
  shift
done
commands=("$run")
[[ -z "$test" ]] || commands+=("$test")
[[ $(id -u) -eq 0 ]] || { echo "error: fresh_machine: needs root (chroot, mount)" >&2; exit 1; }
command -v debootstrap >/dev/null ||
  { echo "error: fresh_machine: no debootstrap (run: tools/setup.sh fresh)" >&2; exit 1; }

root=$(mktemp -d "${TMPDIR:-/var/tmp}/deepinfer-fresh.XXXXXX")
chmod 755 "$root"  # apt downloads as its own user
cleanup() {
  # Deepest first; a mount that is still in use is let go of when its last user ends.
  awk -v root="$root/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r |
    while read -r place; do umount "$place" 2>/dev/null || umount -l "$place"; done
  if grep -qF " $root/" /proc/mounts; then
    echo "error: fresh_machine: mounts left below $root, not removed" >&2
  elif [[ "$keep" == yes ]]; then
    echo "fresh_machine: the tree is kept in $root"
  else
    rm -rf --one-file-system "$root"
  fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The Debian sources of this machine: "uri suite component", one a line.
sources() {
  apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' | sed -n 's/^Debian //p' | awk '$2 ~ /^bookworm/' | sort -u
}

make_tree() {
  local mirror
  mirror=$(sources | awk '$2 == "bookworm" { print $1; exit }')
  if [[ -z "$mirror" ]]; then
    echo "error: fresh_machine: apt knows no Debian 12 mirror (bookworm)" >&2
    exit 1
  fi
  mkdir -p "$cache"
  if [[ -z $(find "$cache" -name base.tar -mtime -7) ]]; then
    echo "fresh_machine: debootstrap bookworm (minbase)"
    debootstrap --variant=minbase --include=ca-certificates bookworm "$root" "$mirror" \
      >"$cache/debootstrap.log" 2>&1 || { tail -n 20 "$cache/debootstrap.log" >&2; exit 1; }
    rm -f "$root"/var/cache/apt/archives/*.deb
    tar -C "$root" -cf "$cache/base.tar.part" . && mv "$cache/base.tar.part" "$cache/base.tar"
  else
    tar -C "$root" -xpf "$cache/base.tar"
  fi
}

# How this machine reaches its mirrors, so that the tree can do the same.
copy_settings() {
  rm -f "$root/etc/apt/sources.list" "$root"/etc/apt/sources.list.d/*
  sources | sed 's/^/deb /' >"$root/etc/apt/sources.list"
  apt-config dump | grep -E '^Acquire::(http|https|ftp|Check-|Retries|ForceIPv|Queue)' \
    >"$root/etc/apt/apt.conf.d/90host" || true
  local file
  for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt \
    /etc/apt/auth.conf; do
    [[ -e "$file" ]] && install -D -m 644 "$(readlink -f "$file")" "$root$file"
  done
  for file in /usr/local/share/ca-certificates /etc/apt/auth.conf.d; do
    [[ -d "$file" ]] && mkdir -p "$root$file" && cp -rL "$file/." "$root$file/"
  done
  for file in .config/pip/pip.conf .pip/pip.conf .netrc; do
    [[ -e "$HOME/$file" ]] && install -D -m 600 "$HOME/$file" "$root/root/$file"
  done
  return 0
}

inside() {  # command
  # Only what a login would set, and how to reach the mirrors.
  local variables=(HOME=/root TERM=dumb LANG=C.UTF-8
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  local name
  for name in $(compgen -e); do
    case "$name" in
      PIP_FIND_LINKS) ;;  # a folder of this machine
      PIP_* | *_proxy | *_PROXY | SSL_CERT_FILE | REQUESTS_CA_BUNDLE)
        variables+=("$name=${!name}")
        ;;
    esac
  done
  chroot "$root" env -i "${variables[@]}" bash -c "cd /root/deepinfer && $1"
}

started=$SECONDS
make_tree
copy_settings
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys" && mount --make-rslave "$root/sys"
mount --rbind /dev "$root/dev" && mount --make-rslave "$root/dev"
mkdir -p "$root/root/deepinfer"
git archive HEAD | tar -x -C "$root/root/deepinfer"
echo "fresh_machine: bare tree ready after $((SECONDS - started)) s"

# A newcomer has git and make, or gets them with the clone.
started=$SECONDS
inside "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y \
  --no-install-recommends git make" >"$cache/apt.log" 2>&1 </dev/null ||
  { tail -n 20 "$cache/apt.log" >&2; exit 1; }
echo "fresh_machine: git and make installed after $((SECONDS - started)) s"

summary=()
for command in "${commands[@]}"; do
  echo "fresh_machine: \$ $command"
  started=$SECONDS
  inside "$command" </dev/null
  summary+=("$command: $((SECONDS - started)) s")
done
printf 'fresh_machine: %s\n' "${summary[@]}"
