"""Runs contenders, and tells what other processes took of the machine meanwhile (/proc/stat, less
the contender's own time). Standard library only."""

import os
import resource
import subprocess


class Failure(Exception):
    """A contender did not deliver; the text says which and why."""


def busy_seconds():
    """CPU seconds all processes have used since boot, stolen time included."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(x) for x in file.readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    total = 0.0
    for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def uptime():
    with open("/proc/uptime", encoding="ascii") as file:
        return float(file.read().split()[0])


def run(command, name):
    """Runs a contender; returns (stdout, stderr, cores other processes kept busy)."""
    busy, own, start = busy_seconds(), own_seconds(), uptime()
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise Failure(f"{name}: {command[0]}: {error.strerror}") from error
    elapsed = max(uptime() - start, 0.01)
    others = max(0.0, (busy_seconds() - busy) - (own_seconds() - own)) / elapsed
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        told = [line for line in lines if "error" in line.lower()] or lines
        raise Failure(f"{name}: exit code {done.returncode}: {told[-1].strip()}")
    return done.stdout, done.stderr, others
