#!/usr/bin/env python3
"""Many streams at once: deepinfer against llama.cpp, interleaved, as a Markdown table.

  bench/peers/many_streams.py smollm2                      16 streams, within 6 minutes
  bench/peers/many_streams.py dense-1b.Q4_0.gguf --streams 4 --rounds 3 --minutes 10

Two things are measured, with the same model, streams, prompts' lengths and threads:
  total    tokens/s of all streams together, prompts of 32 and answers of 64 tokens:
           `deepinfer bench batch` and `llama-batched-bench`
  gaps     time between a stream's tokens while long prompts arrive at random, 99th percentile and
           median: `deepinfer bench engine --mixed` in its process, `llama-server` over its sockets
           (both with random arrivals at the same mean rate)

The load beside a figure is what other processes took meanwhile. Standard library only.
"""

import argparse
import dataclasses
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import threading
import time

import compare
from contender_run import Failure, busy_seconds, own_seconds, run, uptime

PROMPT, TOKENS = 32, 64  # of the total; what `deepinfer bench batch` takes
MIXED_PROMPT, MIXED_TOKENS, LONG_PROMPT = 8, 160, 2048  # what `deepinfer bench engine` takes
START_SECONDS = 120


@dataclasses.dataclass
class Gaps:
    median: float  # ms
    p99: float
    longest: float
    prompts: int  # that arrived meanwhile
    others: float = 0.0  # cores

    @property
    def ratio(self):
        return self.p99 / self.median


def quantile(ascending, q):
    place = q * (len(ascending) - 1)
    return ascending[min(len(ascending) - 1, int(place) + (place != int(place)))]


# --- Total tokens/s --------------------------------------------------------------------------


class Ours:
    name = "deepinfer"

    def __init__(self, options):
        self.options = options

    def bench(self, model, kind, *rest):
        command = [self.options.program, "bench", kind, model.name_for_us, "--rounds", "1"]
        command += ["--threads", self.options.threads, "--json", *rest]
        stdout, _, others = run(command, f"{self.name} bench {kind}")
        return compare.json_lines(stdout, self.name), others

    def total(self, model):
        streams = self.options.streams
        lines, others = self.bench(model, "batch", "--streams", str(streams))
        line = next((x for x in lines if x.get("name") == f"batch {streams}"), None)
        if line is None:
            raise Failure(f"{self.name}: no line named batch {streams}")
        return compare.Sample(float(line["median"]), others, line)

    def gaps(self, model, _seed):
        lines, others = self.bench(model, "engine", "--mixed")
        line = next((x for x in lines if x.get("name") == "engine mixed"), None)
        if line is None:
            raise Failure(f"{self.name}: no line named engine mixed")
        return Gaps(
            line["median_gap_ms"],
            line["p99_gap_ms"],
            line["longest_gap_ms"],
            int(line["prompts"]),
            others,
        )


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.prefill = 0.0  # tokens/s of one long prompt: sets the rate of arrivals

    def total(self, model):
        streams = self.options.streams
        program = self.folder / "llama-batched-bench"
        command = [program, "-m", model.path, "-t", self.options.threads]
        command += ["-c", streams * (PROMPT + TOKENS) + 64, "-b", 512, "-ub", 512]
        command += ["-npp", PROMPT, "-ntg", TOKENS, "-npl", streams, "--output-format", "jsonl"]
        stdout, _, others = run(command, self.name)
        found = [x for x in stdout.splitlines() if x.startswith("{")]
        if not found:
            raise Failure(f"{self.name}: no result of llama-batched-bench")
        return compare.Sample(float(json.loads(found[-1])["speed_tg"]), others, {})

    def gaps(self, model, seed):
        streams = self.options.streams
        slots = streams + 8
        with Server(self.folder, model, self.options.threads, slots) as server:
            if not self.prefill:
                began = time.monotonic()
                server.complete(long_prompt(0), 1)
                self.prefill = LONG_PROMPT / (time.monotonic() - began)
            busy, own, start = busy_seconds(), own_seconds(), uptime()
            gaps = self.mixed(server, streams, seed)
            elapsed = max(uptime() - start, 0.01)
            # The server's own time is unknown while it runs; it is about all threads' of it.
            used = own_seconds() - own + elapsed * self.options.threads
            gaps.others = max(0.0, busy_seconds() - busy - used) / elapsed
            return gaps

    def mixed(self, server, streams, seed):
        times = [[] for _ in range(streams)]
        clients = [
            threading.Thread(
                target=server.complete, args=(stream_prompt(i), MIXED_TOKENS, times[i].append)
            )
            for i in range(streams)
        ]
        for client in clients:
            client.start()
        # A third of what the server can read, as `deepinfer bench engine` does.
        rate = self.prefill / LONG_PROMPT / 3
        dice, prompts, readers = random.Random(seed), 0, []
        due = time.monotonic() + dice.expovariate(rate)
        while any(client.is_alive() for client in clients):
            time.sleep(0.005)
            if time.monotonic() < due:
                continue
            due += dice.expovariate(rate)
            prompts += 1
            reader = threading.Thread(target=server.complete, args=(long_prompt(prompts), 1))
            reader.start()
            readers.append(reader)
        for reader in readers:
            reader.join()
        if any(len(one) < 2 for one in times):
            raise Failure(f"{self.name}: a stream of llama-server has no tokens")
        all_gaps = sorted(1e3 * (b - a) for one in times for a, b in zip(one, one[1:]))
        return Gaps(statistics.median(all_gaps), quantile(all_gaps, 0.99), all_gaps[-1], prompts)


def stream_prompt(index):
    return [(17 + 31 * index + 7 * i) % 4000 + 20 for i in range(MIXED_PROMPT)]


def long_prompt(index):
    return [(index * 1009 + i * 2654435761) % 4000 + 20 for i in range(LONG_PROMPT)]


class Server:
    """llama-server on a free port, with ids in and a stream of events out."""

    def __init__(self, folder, model, threads, slots):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        context = slots * (LONG_PROMPT + 64)
        command = [folder / "llama-server", "-m", model.path, "-t", threads, "-np", slots]
        command += ["-c", context, "--host", "127.0.0.1", "--port", self.port, "-b", 512]
        self.process = subprocess.Popen(
            [str(x) for x in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __enter__(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.2)
        self.__exit__()
        raise Failure("llama.cpp: llama-server did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def complete(self, ids, tokens, on_token=None):
        body = {
            "prompt": ids,
            "n_predict": tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "cache_prompt": False,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request(
            "POST", "/completion", json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        for line in response:
            if line.startswith(b"data:") and on_token and b'"stop":true' not in line:
                on_token(time.monotonic())
        connection.close()


# --- Rounds and the table --------------------------------------------------------------------


def sample_rounds(options, end, measure, contenders, failures):
    """Samples by contender, taken in turn; a peer that fails is left out and named."""
    samples = {contender.name: [] for contender in contenders}
    taken, begin = 0, uptime()
    while taken < options.rounds and (
        taken == 0 or uptime() + (uptime() - begin) / taken < end
    ):
        taken += 1
        for contender in contenders:
            if samples[contender.name] is None:
                continue
            try:
                samples[contender.name].append(measure(contender, taken))
            except Failure as failure:
                if isinstance(contender, Ours):
                    raise
                samples[contender.name] = None
                failures.append(str(failure))
    return {name: values for name, values in samples.items() if values}


def total_rows(model, streams, samples):
    mine = statistics.median(x.speed for x in samples[Ours.name])
    for name, values in samples.items():
        speeds = [x.speed for x in values]
        ratio = "" if name == Ours.name else f"{mine / statistics.median(speeds):.2f}"
        others = statistics.median(x.others for x in values)
        yield (
            f"| {model.title} | {streams} | {name} | {statistics.median(speeds):.1f} "
            f"({min(speeds):.1f} – {max(speeds):.1f}) | {ratio} | {others:.2f} |"
        )


def gap_rows(model, streams, samples):
    for name, values in samples.items():

        def middle(of, values=values):
            return statistics.median(of(x) for x in values)

        yield (
            f"| {model.title} | {streams} | {name} | {middle(lambda x: x.median):.1f} | "
            f"{middle(lambda x: x.p99):.1f} | {middle(lambda x: x.ratio):.2f} | "
            f"{middle(lambda x: x.longest):.0f} | {middle(lambda x: x.prompts):.0f} | "
            f"{middle(lambda x: x.others):.2f} |"
        )


def peer_folder(options):
    if options.peer_bin:
        return options.peer_bin
    built = subprocess.run(
        [compare.HERE / "build_llama_cpp.sh", "--server"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        raise Failure("llama.cpp could not be built (--no-peers leaves it out)")
    return pathlib.Path(built.stdout.strip())


def measure(options):
    model = compare.model_of(options.model, options.program)
    model.load_page_cache()
    contenders = [Ours(options)]
    if not options.no_peers:
        contenders.append(LlamaCpp(options, peer_folder(options)))
    start, failures = uptime(), []
    total = sample_rounds(
        options,
        start + 30 * options.minutes,
        lambda contender, _: contender.total(model),
        contenders,
        failures,
    )
    print("| model | streams | program | tokens/s, median (min – max) | ours / theirs | others |")
    print("|---|---|---|---|---|---|")
    print(*total_rows(model, options.streams, total), sep="\n", flush=True)
    if options.total_only:
        return failures
    gaps = sample_rounds(
        options,
        start + 60 * options.minutes,
        lambda contender, taken: contender.gaps(model, taken),
        contenders,
        failures,
    )
    print(
        "\n| model | streams | program | gap ms, median | p99 | p99 / median | longest "
        "| prompts | others |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    print(*gap_rows(model, options.streams, gaps), sep="\n")
    return failures


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL", help="GGUF file or alias")
    parser.add_argument("--program", default="deepinfer", help="our program")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=6, help="no new round after that long")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--total-only", action="store_true", help="without the gaps")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument(
        "--peer-bin",
        type=pathlib.Path,
        metavar="FOLDER",
        help="holds llama-batched-bench and llama-server; else they are built",
    )
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1 or options.streams < 1:
        parser.error("--rounds, --threads and --streams must be at least 1")
    if options.streams != 16 and not options.total_only:
        parser.error("gaps are measured with 16 streams: --total-only leaves them out")
    return options


def main():
    try:
        failures = measure(arguments())
    except Failure as failure:
        sys.exit(f"error: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)


if __name__ == "__main__":
    main()
