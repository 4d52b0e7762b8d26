"""Runs the built program for the tests of this folder. Standard library only."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden"
TINY = GOLDEN / "llama" / "llama"  # vocabulary 512, no tokenizer
PROGRAM = os.environ.get("DEEPINFER_PROGRAM", str(ROOT / "build" / "release" / "deepinfer"))


def environment(**changes):
    """The caller's variables without ours; None removes one."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DEEPINFER_")}
    kept.pop("NO_COLOR", None)
    for name, value in changes.items():
        kept.pop(name, None)
        if value is not None:
            kept[name] = str(value)
    return kept


def run(*arguments, stdin="", env=None, wrap=()):
    """wrap: words before the program, e.g. a shell that sets a limit first."""
    return subprocess.run(
        [*wrap, PROGRAM, *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env or environment(),
        timeout=900,
        check=False,
    )


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="deepinfer-cli-")
        self.addCleanup(self.folder.cleanup)

    def file(self, name, content):
        path = pathlib.Path(self.folder.name) / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def ok(self, *arguments, **keywords):
        """stdout of a run that must succeed."""
        done = run(*arguments, **keywords)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout.decode()

    def lines(self, *arguments, **keywords):
        return [json.loads(line) for line in self.ok(*arguments, **keywords).splitlines()]

    def fails(self, code, *arguments, says=(), **keywords):
        """A run that must end with this code and one error line that holds all of `says`."""
        done = run(*arguments, **keywords)
        text = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, code, text + done.stdout.decode(errors="replace"))
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, text)
        for part in says:
            self.assertIn(part, errors[0])
        self.assertNotIn("\033", text)
        return done
