#!/usr/bin/env python3
"""Measures deepinfer against llama.cpp in one run, interleaved, and prints a Markdown report.

  bench/peers/compare.py smollm2 dense-1b.Q4_0.gguf
  bench/peers/compare.py smollm2 --peer "ik=path/to/llama-bench -rtr 1" --out docs/benchmarks.md
  bench/peers/compare.py v4-flash-8.gguf --rounds 3 --minutes 7      at least one round
  bench/peers/compare.py --smoke            one round, a tiny model made here, no peers

Each round runs every contender once: ours, peer, ours, peer … Our program prints the machine's
limit in every sample, so limit and share belong to the same minute as the speed. The load beside
a figure is what other processes took of the machine during the samples (/proc/stat, less the
contender's own time). Before timing, greedy answers are compared; random weights have no answer
worth comparing, there loading is enough.

A peer is any llama-bench: it understands -m -p -n -t -r -o json. Standard library only.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import platform
import re
import shlex
import statistics
import struct
import subprocess
import sys
import tempfile

from contender_run import Failure, run, uptime

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KINDS = {"prefill": "prefill 512", "decode": "decode 64"}
PEER_LENGTHS = {"prefill": ["-p", "512", "-n", "0"], "decode": ["-p", "0", "-n", "64"]}
PROMPTS = ("The capital of France is", "Once upon a time there was a", "def fibonacci(n):")
ANSWER_TOKENS = 16
BEGIN, END = "<!-- compare.py: begin -->", "<!-- compare.py: end -->"


@dataclasses.dataclass
class Sample:
    speed: float  # tokens/s
    others: float  # cores that other processes kept busy meanwhile
    details: dict  # our program's JSON line; empty for peers


class Ours:
    name = "deepinfer"

    def __init__(self, options):
        self.program = options.program
        self.threads = options.threads
        self.extra = shlex.split(options.program_options)

    def bench(self, kind, *rest):
        command = [self.program, "bench", kind, *rest, "--threads", self.threads]
        return run([*command, "--json", *self.extra], f"{self.name} bench {kind}")

    def measure(self, kind, model):
        # One sample after a warm-up, as of llama-bench: the rounds are ours.
        stdout, _, others = self.bench(kind, model.name_for_us, "--rounds", "1")
        lines = json_lines(stdout, f"{self.name} bench {kind}")
        line = next((x for x in lines if x.get("name") == kind), None)
        if line is None:
            raise Failure(f"{self.name} bench {kind}: no line named {kind} among {len(lines)}")
        if line.get("unit") != "tokens/s":
            raise Failure(f"{self.name} bench {kind}: unit {line.get('unit')}, wanted tokens/s")
        return Sample(float(line.get("median", line.get("value"))), others, line)

    def limits(self):
        stdout, _, _ = self.bench("limits")
        return json_lines(stdout, f"{self.name} bench limits")

    def kernels(self, model):
        """What --explain says about the kernels chosen, without the timed samples."""
        _, stderr, _ = run(
            [self.program, "bench", "decode", model.name_for_us, "--threads", self.threads]
            + ["--rounds", "1", "--json", "--explain", *self.extra],
            f"{self.name} bench decode --explain",
        )
        return [line.rstrip() for line in stderr.splitlines() if line.strip()]

    def answer(self, model, prompt):
        stdout, _, _ = run(
            [self.program, "generate", model.name_for_us, "--prompt", prompt, "--numerics", "fast"]
            + ["--temperature", "0", "--max-tokens", ANSWER_TOKENS, "--threads", self.threads]
            + ["--json"],
            f"{self.name} generate",
        )
        return json_lines(stdout, f"{self.name} generate")[0]["text"]


class Peer:
    def __init__(self, name, command, threads):
        self.name = name
        self.command = command  # llama-bench and its options
        self.threads = threads

    def measure(self, kind, model):
        stdout, _, others = run(
            [*self.command, "-m", model.path, *PEER_LENGTHS[kind]]
            + ["-t", self.threads, "-r", "1", "-o", "json"],
            self.name,
        )
        try:
            start = stdout.index("[")  # some builds print notes first
            results = json.loads(stdout[start:])
            return Sample(float(results[0]["avg_ts"]), others, {})
        except (ValueError, KeyError, IndexError) as error:
            raise Failure(f"{self.name}: no llama-bench result in {stdout[:80]!r}") from error

    def answer(self, model, prompt):
        """Greedy text after the prompt, a little longer than ours; None without llama-simple."""
        program = pathlib.Path(self.command[0]).with_name("llama-simple")
        if not program.exists():
            return None
        count = str(ANSWER_TOKENS + 32)  # some builds count the prompt in
        forms = ([prompt], ["-p", prompt, "-t", self.threads])
        for form in forms:
            try:
                stdout, stderr, _ = run([program, "-m", model.path, "-n", count, *form], self.name)
            except Failure:
                continue
            # Some builds answer on stderr, or show a token like <|begin|> before the prompt.
            _, found, text = (stdout if prompt in stdout else stderr).partition(prompt)
            if found:
                return text
        return None


def json_lines(stdout, name):
    try:
        lines = [json.loads(line) for line in stdout.splitlines() if line.strip()]
    except ValueError as error:
        raise Failure(f"{name}: not JSON lines: {stdout[:80]!r}") from error
    if not lines:
        raise Failure(f"{name}: printed nothing")
    return lines


# --- Models --------------------------------------------------------------------------------


@dataclasses.dataclass
class Model:
    name_for_us: str  # path or alias
    path: pathlib.Path  # the GGUF file

    @property
    def title(self):
        return self.path.stem

    @property
    def is_random(self):
        # tools/make_random_gguf.py writes a general.name that begins with this word.
        with open(self.path, "rb") as file:
            head = file.read(1 << 16)
        at = head.find(b"general.name")
        if at < 0:
            return False
        at += len(b"general.name") + 4  # the type, a string
        (length,) = struct.unpack_from("<Q", head, at)
        return head[at + 8 : at + 8 + length].startswith(b"random ")

    def load_page_cache(self):
        """Reads the file once, so that the first sample is not a measurement of the disk."""
        with open(self.path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def model_of(argument, program):
    path = pathlib.Path(argument)
    if path.is_file():
        return Model(argument, path)
    # An alias: asking for its description makes the program fetch it into its cache.
    run([program, "inspect", argument, "--json"], f"deepinfer inspect {argument}")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    wanted = re.sub(r"[^a-z0-9]", "", argument.lower())
    for found in sorted((cache / "deepinfer").rglob("*.gguf")):
        if wanted in re.sub(r"[^a-z0-9]", "", found.name.lower()):
            return Model(argument, found)
    raise Failure(f"{argument}: neither a GGUF file nor a cached alias")


# --- Comparing -----------------------------------------------------------------------------


def compare_answers(ours, peers, model):
    """One sentence for each peer: equal, or where the first difference is."""
    if model.is_random:
        return [f"{model.title}: random weights; loaded by every contender listed below."]
    mine = {prompt: ours.answer(model, prompt) for prompt in PROMPTS}
    sentences = []
    for peer in peers:
        equal, differing = 0, []
        for prompt, text in mine.items():
            theirs = peer.answer(model, prompt)
            if theirs is None:
                break
            if theirs.startswith(text):
                equal += 1
                continue
            same = len(os.path.commonprefix([text, theirs]))
            differing.append(
                f"after {prompt!r} the first difference is at character {same}: "
                f"{text[same : same + 24]!r} against {theirs[same : same + 24]!r}"
            )
        if equal + len(differing) < len(mine):
            sentences.append(f"{model.title}: {peer.name} has no llama-simple; not compared.")
            continue
        told = f"{equal} of {len(mine)} greedy answers of {ANSWER_TOKENS} tokens equal"
        sentences.append(f"{model.title}: {'; '.join([f'{told} to {peer.name}', *differing])}.")
    return sentences


def measure_rounds(contenders, kind, model, rounds, failures, end=math.inf):
    """Samples by contender, taken in turn, until `rounds` or, after the first, no round would end
    before the uptime `end`. A peer that fails is left out and named."""
    samples = {contender.name: [] for contender in contenders}
    failed = set()
    taken, begin = 0, uptime()
    while taken < rounds and (taken == 0 or uptime() + (uptime() - begin) / taken < end):
        taken += 1
        for contender in contenders:
            if contender.name in failed:
                continue
            try:
                sample = contender.measure(kind, model)
            except Failure as failure:
                if isinstance(contender, Ours):
                    raise
                failed.add(contender.name)
                failures.append(f"{model.title}, {KINDS[kind]}: {failure}")
                continue
            samples[contender.name].append(sample)
            note = f"{model.title} {kind} {taken}/{rounds} {contender.name}"
            print(
                f"{note}: {sample.speed:.1f} tokens/s, others {sample.others:.2f} cores",
                file=sys.stderr,
            )
    return {name: values for name, values in samples.items() if len(values) == taken}


# --- Reporting -----------------------------------------------------------------------------


def digits(value):
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def spread(values):
    values = sorted(values)
    return f"{digits(statistics.median(values))} ({digits(values[0])}–{digits(values[-1])})"


def rows_of(model, kind, samples):
    """The table's rows: ours first, then each peer with the ratio ours / peer."""
    mine = samples[Ours.name]
    mine_speed = statistics.median(s.speed for s in mine)
    limits = [s.details["limit"] for s in mine if s.details.get("limit")]
    limit = statistics.median(limits) if limits else None
    rows = []
    for name, taken in samples.items():
        speeds = [s.speed for s in taken]
        median = statistics.median(speeds)
        if name == Ours.name:
            shares = [s.details["share"] for s in mine if s.details.get("share") is not None]
            share = statistics.median(shares) if shares else None
            ratio = "1"
        else:
            share = median / limit if limit else None
            pairs = [a.speed / b.speed for a, b in zip(mine, taken)]
            ratio = f"**{mine_speed / median:.2f}** ({min(pairs):.2f}–{max(pairs):.2f})"
        loads = [s.others for s in taken]
        rows.append(
            [model.title, KINDS[kind], name, spread(speeds), ratio]
            + [digits(limit) if limit else "–", f"{share:.0%}" if share is not None else "–"]
            + [f"{statistics.median(loads):.2f} ({max(loads):.2f})"]
        )
    return rows


def table(rows):
    head = ["model", "measure", "program", "tokens/s: median (min–max)", "ours / theirs"]
    head += ["limit, tokens/s", "share of limit", "other load, cores: median (max)"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---|" + "---:|" * (len(head) - 3)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def first_match(path, pattern, default):
    try:
        found = re.search(pattern, pathlib.Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return default
    return found.group(1).strip() if found else default


def machine(options):
    cpu = first_match("/proc/cpuinfo", r"^model name\s*:\s*(.+)$", platform.machine())
    memory = int(first_match("/proc/meminfo", r"^MemTotal:\s+(\d+)", "0")) / (1 << 20)
    cache = first_match("/sys/devices/system/cpu/cpu0/cache/index3/size", r"^(\S+)", "unknown")
    rounds = "1 round" if options.rounds == 1 else f"{options.rounds} rounds"
    if options.minutes < math.inf:
        rounds += f" or what {options.minutes:g} minutes allow"
    return (
        f"{cpu}, {len(os.sched_getaffinity(0))} cores, L3 {cache}, {memory:.0f} GiB memory, "
        f"Linux {platform.release()}; {options.threads} threads, {rounds}"
    )


def limit_sentence(lines):
    parts = []
    for line in lines:
        value = line.get("median", line.get("value"))
        if isinstance(value, (int, float)):
            parts.append(f"{line.get('name')} {digits(value)} {line.get('unit', '')}".strip())
    return ", ".join(parts) or "none printed"


def report(options, results):
    isas = sorted({str(isa) for isa in results["isas"]})
    lines = [
        f"Machine: {machine(options)}. ISA: {', '.join(isas)}.",
        "",
        f"Limits measured before the first round: {limit_sentence(results['limits'])}.",
        "",
        table(results["rows"]),
        "",
        "Rounds are interleaved (each runs every program once); the ratio is that of the medians, "
        "in brackets the lowest and highest of the single rounds. The limit is measured inside "
        "each of our samples. Peers whose threads spin (OpenMP) collapse when other processes need "
        "a core: where the other load is above 0.2 cores the ratio flatters us.",
    ]
    lines += ["", *[f"- {sentence}" for sentence in results["answers"]]]
    lines += [f"- failed: {failure}" for failure in results["failures"]]
    for title, kernels in results["kernels"].items():
        lines += ["", f"Kernels that ran for {title}:", "", "```text", *kernels, "```"]
    return "\n".join(lines) + "\n"


def write_report(path, text):
    """Puts the report between the markers of the file, or at its end when it has none."""
    file = pathlib.Path(path)
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    block = f"{BEGIN}\n{text}{END}\n"
    if BEGIN in old and END in old:
        before, _, rest = old.partition(BEGIN)
        _, _, after = rest.partition(END)
        new = before + block + after.lstrip("\n")
    else:
        new = (old.rstrip("\n") + "\n\n" if old else "") + block
    file.write_text(new, encoding="utf-8")


# --- Main ----------------------------------------------------------------------------------


def peers_of(options):
    if options.smoke or options.no_peers:
        return []
    peers = []
    if not options.no_llama_cpp:
        built = subprocess.run(
            [HERE / "build_llama_cpp.sh"], stdout=subprocess.PIPE, text=True, check=False
        )
        if built.returncode != 0:
            raise Failure("llama.cpp could not be built (--no-llama-cpp leaves it out)")
        bench = pathlib.Path(built.stdout.strip()) / "llama-bench"
        peers.append(Peer("llama.cpp", [bench], options.threads))
    for text in options.peer:
        name, equals, command = text.partition("=")
        if not equals or not command:
            raise Failure(f"--peer {text}: wanted NAME=PATH_TO_llama-bench [options]")
        peers.append(Peer(name, shlex.split(command), options.threads))
    return peers


def compare(options, arguments):
    ours, peers = Ours(options), peers_of(options)
    models = [model_of(argument, options.program) for argument in arguments]
    results = {"rows": [], "answers": [], "failures": [], "kernels": {}, "isas": set()}
    results["limits"] = ours.limits()
    kinds = options.measure.split(",")
    parts = [(model, kind) for model in models for kind in kinds]
    start, total = uptime(), 60 * options.minutes
    for model in models:
        model.load_page_cache()
        results["answers"] += compare_answers(ours, peers, model)
        results["kernels"][model.title] = ours.kernels(model)
        for kind in kinds:
            # Of what is left, an equal share for each part to come.
            left = len(parts) - parts.index((model, kind))
            end = uptime() + (start + total - uptime()) / left
            samples = measure_rounds(
                [ours, *peers], kind, model, options.rounds, results["failures"], end
            )
            results["isas"] |= {s.details.get("isa", "?") for s in samples[Ours.name]}
            results["rows"] += rows_of(model, kind, samples)
    text = report(options, results)
    print(text, end="")
    if options.out:
        write_report(options.out, text)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="GGUF file or alias")
    parser.add_argument("--program", default="deepinfer", help="our program")
    parser.add_argument("--program-options", default="", help="more options for our bench runs")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=CMD")
    parser.add_argument("--no-llama-cpp", action="store_true", help="without the default peer")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="fewer rounds rather than more time"
    )
    parser.add_argument("--measure", default="prefill,decode")
    parser.add_argument("--out", metavar="FILE", help="Markdown file that takes the report")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    unknown = [kind for kind in options.measure.split(",") if kind not in KINDS]
    if unknown:
        parser.error(f"--measure {unknown[0]}: wanted {' or '.join(KINDS)}")
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    if not options.models and not options.smoke:
        parser.error("at least one MODEL is needed")
    if options.smoke:
        options.rounds = 1
    return options


def main():
    options = arguments()
    try:
        if options.smoke and not options.models:
            with tempfile.TemporaryDirectory() as folder:
                tiny = f"{folder}/dense-tiny.Q4_0.gguf"
                maker = [ROOT / "tools" / "make_random_gguf.py", "--shape", "dense-tiny"]
                run([sys.executable, *maker, "--type", "Q4_0", "--out", tiny], "make_random_gguf")
                compare(options, [tiny])
        else:
            compare(options, options.models)
    except Failure as failure:
        sys.exit(f"error: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
