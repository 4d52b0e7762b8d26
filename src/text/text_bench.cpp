// Tokenizer speed: MB/s of text per core. Needs tools/fetch_data.py v4-tokenizer.
//
//   text_bench --benchmark_filter=mixed

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace deepinfer::text {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::string& v4_json() {
  static const std::string json = [] {
    const char* base = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    const std::string cache = base != nullptr && *base != '\0'
                                  ? std::string(base)
                                  : std::string(home != nullptr ? home : "") + "/.cache";
    std::string text = read_text(cache + "/deepinfer/deepseek-v4-tokenizer.json");
    if (text.empty()) {
      std::fputs("error: no V4 tokenizer: run tools/fetch_data.py v4-tokenizer\n", stderr);
      std::exit(1);
    }
    return text;
  }();
  return json;
}

// The V4 vocabulary under another pre-tokenizer: what the splitter costs.
Tokenizer make_tokenizer(const char* pre) {
  if (pre == nullptr) return Tokenizer::from_json(v4_json(), "v4").value();
  auto json = nlohmann::json::parse(v4_json());
  TokenizerParts parts;
  parts.source = "v4";
  parts.pre = pre;
  parts.tokens.resize(json["model"]["vocab"].size());
  for (const auto& [token, id] : json["model"]["vocab"].items()) parts.tokens[id] = token;
  for (const auto& merge : json["model"]["merges"]) parts.merges.push_back(merge);
  return Tokenizer::from_parts(std::move(parts)).value();
}

std::string repeat(std::string_view unit, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += unit;
  return out;
}

// Prose and code of this tree, and the goldens' lines in many languages, in turn.
std::string mixed_text() {
  const std::string root = DEEPINFER_SOURCE_DIR;
  std::string out;
  for (const char* file : {"/src/text/tokenizer.h", "/src/text/split_rule.cpp", "/README.md",
                           "/src/text/tokenizer_json.cpp", "/tools/fetch_data.py"}) {
    out += read_text(root + file);
  }
  std::ifstream lines(root + "/tests/golden/tokenizer/v4.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto c = nlohmann::json::parse(line);
    if (c["group"] == "language" || c["group"] == "code" || c["group"] == "emoji") {
      out += c["text"].get<std::string>() + "\n";
    }
  }
  return out;
}

std::string english_text() { return read_text(std::string(DEEPINFER_SOURCE_DIR) + "/LICENSE"); }

std::string random_words() {  // never seen twice: nothing comes from the cache
  std::mt19937 random(1);
  std::string out;
  while (out.size() < 1'000'000) {
    const size_t length = 3 + random() % 9;
    for (size_t i = 0; i < length; ++i) out += static_cast<char>('a' + random() % 26);
    out += ' ';
  }
  return out;
}

std::string random_han() {
  std::mt19937 random(2);
  std::string out;
  while (out.size() < 1'000'000) {
    const uint32_t c = 0x4E00 + random() % 3000;
    out += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
            static_cast<char>(0x80 | (c & 63))};
  }
  return out;
}

void encode(benchmark::State& state, const char* pre, const std::string& text) {
  const Tokenizer tokenizer = make_tokenizer(pre);
  size_t count = 0;
  for (auto _ : state) {
    count = tokenizer.encode(text, SpecialTokens::recognise).value().size();
    benchmark::DoNotOptimize(count);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes_per_id"] = static_cast<double>(text.size()) / static_cast<double>(count);
}

void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::from_json(v4_json(), "v4").ok());
}

void decode(benchmark::State& state) {
  const Tokenizer tokenizer = make_tokenizer(nullptr);
  const auto ids = tokenizer.encode(mixed_text(), SpecialTokens::plain).value();
  size_t bytes = 0;
  for (auto _ : state) bytes += tokenizer.decode(ids, SkipSpecial::no).size();
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}

void stream(benchmark::State& state) {
  const Tokenizer tokenizer = make_tokenizer(nullptr);
  const auto ids = tokenizer.encode(mixed_text(), SpecialTokens::plain).value();
  size_t bytes = 0;
  for (auto _ : state) {
    StreamDecoder decoder(tokenizer, SkipSpecial::no);
    for (const int32_t id : ids) bytes += decoder.push(id).size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}

const bool kRegistered = [] {
  const auto add = [](const std::string& name, const char* pre, const std::string& text) {
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      encode(state, pre, text);
    })->Unit(benchmark::kMillisecond);
  };
  constexpr size_t kMegabyte = 1'000'000;
  const std::string mixed = repeat(mixed_text(), kMegabyte);
  add("mixed/v4", nullptr, mixed);
  add("mixed/smollm", "smollm", mixed);
  add("mixed/llama3", "llama-bpe", mixed);
  add("mixed/qwen2", "qwen2", mixed);
  add("english/v4", nullptr, repeat(english_text(), kMegabyte));
  add("random_words/v4", nullptr, random_words());
  add("random_han/v4", nullptr, random_han());
  for (const char* pre : {static_cast<const char*>(nullptr), "smollm", "qwen2"}) {
    const std::string under = std::string("/") + (pre == nullptr ? "v4" : pre);
    add("spaces" + under, pre, repeat(" ", kMegabyte));
    add("newlines" + under, pre, repeat("\n", kMegabyte));
    add("letter" + under, pre, repeat("a", kMegabyte));
    add("han" + under, pre, repeat("中", kMegabyte));
    add("marks" + under, pre, repeat("\u0301\u0323", kMegabyte));
    add("digits" + under, pre, repeat("7", kMegabyte));
    add("emoji" + under, pre, repeat("👩‍👩‍👧🏽", kMegabyte));
    add("controls" + under, pre, repeat("\x01", kMegabyte));
  }
  benchmark::RegisterBenchmark("load/v4", load)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("decode/v4", decode)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("stream/v4", stream)->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace deepinfer::text
