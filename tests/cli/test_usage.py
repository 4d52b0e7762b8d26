"""Help, version, exit codes, options from all sources, bad usage."""

import unittest

from program import TINY, Case, environment, run


class Usage(Case):
    def test_version_names_commit_compiler_and_isa(self):
        text = self.ok("--version")
        for part in ("deepinfer 0.", "commit", "lang", "isa: ref"):
            self.assertIn(part, text)

    def test_every_command_has_help_with_an_example(self):
        overview = self.ok("--help")
        for command in ("generate", "chat", "score", "perplexity", "tokenize", "recipe",
                        "inspect", "plan", "bench", "selftest"):
            self.assertIn(command, overview)
            self.assertIn("deepinfer " + command, self.ok(command, "--help"))

    def test_no_command_is_bad_usage(self):
        self.assertEqual(run().returncode, 2)

    def test_unknown_words_are_named(self):
        self.fails(2, "frobnicate", says=["frobnicate", "generate"])
        self.fails(2, "generate", "--frobnicate", says=["--frobnicate", "--help"])
        self.fails(2, "inspect", TINY, "surplus", says=["surplus"])
        self.fails(2, "generate", TINY, "--daft", "none", says=["--daft"])
        self.fails(2, "generate", TINY, "--draft", "eagle", says=["--draft", "eagle"])

    def test_values_are_checked_with_both_values(self):
        for option, value in (("--threads", "0"), ("--threads", "10000"), ("--threads", "two"),
                              ("--isa", "sse9"), ("--numerics", "wild"), ("--kv", "f16"),
                              ("--max-tokens", "0"), ("--temperature", "-1"),
                              ("--temperature", "nan"), ("--top-p", "1.5"), ("--max-rows", "0")):
            with self.subTest(option=option, value=value):
                self.fails(2, "generate", TINY, "--ids", "--prompt", "1", f"{option}={value}",
                           says=[option[2:], value])

    def test_missing_value_is_bad_usage(self):
        self.fails(2, "generate", TINY, "--prompt", says=["--prompt"])

    def test_missing_model_is_named_with_the_aliases(self):
        self.fails(2, "inspect", "/no/such/model", says=["/no/such/model", "smollm2"])

    def test_default_model_comes_from_the_environment(self):
        out = self.ok("inspect", "--json", env=environment(DEEPINFER_HF_MODEL_DIR=TINY))
        self.assertIn('"vocab":512', out)


class Sources(Case):
    """Command line over environment over file."""

    def count(self, *arguments, env=None):
        line, = self.lines("generate", TINY, "--ids", "--prompt", "5", "--ignore-eos", "--json",
                           *arguments, env=env)
        return line["completion_tokens"]

    def test_precedence(self):
        config = self.file("c.toml", "max-tokens = 3\n")
        variable = environment(DEEPINFER_MAX_TOKENS=4)
        self.assertEqual(self.count("--config", config), 3)
        self.assertEqual(self.count("--config", config, env=variable), 4)
        self.assertEqual(self.count("--config", config, "--max-tokens", "5", env=variable), 5)
        self.assertEqual(self.count(env=environment(DEEPINFER_CONFIG=config)), 3)

    def test_a_file_may_serve_every_command(self):
        # rounds belongs to bench.
        config = self.file("c.toml", "max_tokens = 2\nrounds = 3\n")
        self.assertEqual(self.count("--config", config), 2)

    def test_bad_files_are_explained(self):
        self.fails(2, "generate", TINY, "--config", "/no/such.toml", says=["/no/such.toml"])
        broken = self.file("broken.toml", "max-tokens = = 3\n")
        self.fails(2, "generate", TINY, "--config", broken, says=["broken.toml"])
        unknown = self.file("unknown.toml", "colour = 3\n")
        self.fails(2, "generate", TINY, "--config", unknown, says=["colour"])
        wrong = self.file("wrong.toml", "max-tokens = 'many'\n")
        self.fails(2, "generate", TINY, "--config", wrong, says=["max-tokens"])

    def test_bad_variables_are_named(self):
        self.fails(2, "generate", TINY, "--ids", "--prompt", "5",
                   env=environment(DEEPINFER_THREADS=0), says=["DEEPINFER_THREADS"])
        # A variable that this command does not use disturbs nobody.
        self.ok("inspect", TINY, env=environment(DEEPINFER_THREADS=0))


if __name__ == "__main__":
    unittest.main()
