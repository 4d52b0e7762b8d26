"""Tests of tools/golden_table.py with files as gtest writes them.

  python3 tests/golden_table_test.py
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools" / "golden_table.py"


def case(name, *figures):
    properties = "".join(f'<property name="{key}" value="{value}"/>' for key, value in figures)
    return f'<testcase name="{name}"><properties>{properties}</properties></testcase>'


def run(*cases):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "out.xml"
        path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>",
                        encoding="utf-8")
        return subprocess.run([sys.executable, TOOL, path], capture_output=True, text=True,
                              check=False)


class GoldenTable(unittest.TestCase):
    def test_the_worst_of_every_instruction_set_counts(self):
        done = run(case("Prompt/tiny_avx2", ("golden.a/tiny.x.y, largest", "2e-05 &lt;= 0.001"),
                        ("golden.a/tiny.rows, share", "0.995 &gt;= 0.99")),
                   case("Prompt/tiny_ref", ("golden.a/tiny.x.y, largest", "0.0005 &lt;= 0.001"),
                        ("golden.a/tiny.rows, share", "1 &gt;= 0.99")),
                   case("Other/avx512", ("seen", "golden")))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| a | tiny | x.y | largest | 0.0005 | ≤ 0.001 | 50 % |\n", done.stdout)
        self.assertIn("| a | tiny | rows | share | 0.995 | ≥ 0.99 | 50 % |\n", done.stdout)
        self.assertIn("2 figures; worst of ref, avx2;", done.stdout)

    def test_what_is_out_of_bounds_fails(self):
        for figure in ("0.002 &lt;= 0.001", "nan &lt;= 0.001", "0.9 &gt;= 0.99", "nan &gt;= 0.99"):
            done = run(case("a", ("golden.a/b.x, largest", figure)))
            self.assertEqual(done.returncode, 1, figure)
            self.assertIn("**fails**", done.stdout)

    def test_one_figure_has_one_tolerance(self):
        done = run(case("a", ("golden.a/b.x, largest", "1 &lt;= 2")),
                   case("b", ("golden.a/b.x, largest", "1 &lt;= 3")))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("two tolerances", done.stderr)

    def test_nothing_compared_fails(self):
        self.assertEqual(run(case("a", ("seen", "1 &lt;= 2"))).returncode, 1)


if __name__ == "__main__":
    unittest.main()
