// Small tokenizers of each family against the ids of the reference library
// (tools/make_tokenizer_goldens.py).

#include <gtest/gtest.h>

#include <random>

#include "tests/text_data.h"
#include "text/regex_splitter.h"
#include "text/split_rule.h"
#include "text/tokenizer.h"

namespace deepinfer::text {
namespace {

using Ids = std::vector<int32_t>;

std::string file_of(const std::string& family, const std::string& name) {
  return golden_path("tokenizer/" + family + "/" + name);
}

// The same tokenizer, handed over as GGUF would.
TokenizerParts parts_of(const std::string& family, const std::string& pre) {
  const auto json = nlohmann::json::parse(read_text(file_of(family, "tokenizer.json")));
  TokenizerParts parts;
  parts.source = family;
  parts.pre = pre;
  parts.tokens.resize(json["model"]["vocab"].size());
  parts.token_types.resize(parts.tokens.size(), 1);
  for (const auto& [token, id] : json["model"]["vocab"].items()) parts.tokens[id] = token;
  for (const auto& token : json["added_tokens"]) {
    const size_t id = token["id"];
    if (id >= parts.tokens.size()) {
      parts.tokens.resize(id + 1);
      parts.token_types.resize(id + 1);
    }
    parts.tokens[id] = token["content"];
    parts.token_types[id] = token["special"] ? 3 : 4;
  }
  for (const auto& merge : json["model"]["merges"]) {
    parts.merges.push_back(merge.is_string()
                               ? merge.get<std::string>()
                               : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return parts;
}

class FamilyGolden : public testing::TestWithParam<const char*> {
 protected:
  static void compare(const Tokenizer& tokenizer, bool same_text_back) {
    const auto texts = read_json_lines(golden_path("tokenizer/texts.jsonl"));
    const auto cases = read_json_lines(file_of(GetParam(), "ids.jsonl"));
    ASSERT_EQ(texts.size(), cases.size());
    ASSERT_GT(cases.size(), 300u);
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::string text = texts[i]["text"];
      const Ids expected = cases[i]["ids"];
      const Ids plain = cases[i].contains("plain") ? cases[i]["plain"].get<Ids>() : expected;
      EXPECT_EQ(tokenizer.encode(text, SpecialTokens::recognise).value(), expected)
          << "line " << i + 1 << " " << texts[i];
      EXPECT_EQ(tokenizer.encode(text, SpecialTokens::plain).value(), plain)
          << "line " << i + 1 << " " << texts[i];
      if (same_text_back) {
        EXPECT_EQ(tokenizer.decode(expected, SkipSpecial::no), text);
      }
    }
  }
};

TEST_P(FamilyGolden, JsonGivesTheReferencesIds) {
  const std::string path = file_of(GetParam(), "tokenizer.json");
  const auto tokenizer = Tokenizer::from_json(read_text(path), path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
  compare(tokenizer.value(), GetParam() != std::string("qwen2"));
}

TEST_P(FamilyGolden, ArraysGiveTheReferencesIds) {
  const std::string family = GetParam();
  if (family == "regex") return;  // has no name in GGUF
  const std::string pre = family == "gpt2" ? "gpt-2" : family == "llama3" ? "llama-bpe" : family;
  TokenizerParts parts = parts_of(family, pre);
  parts.add_bos = false;
  const auto tokenizer = Tokenizer::from_parts(std::move(parts));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
  compare(tokenizer.value(), family != "qwen2");
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGolden,
                         testing::Values("gpt2", "smollm", "llama3", "qwen2", "regex"),
                         [](const auto& family) { return std::string(family.param); });

TEST(FamilyGolden, Llama3WantsBosFromItsTemplate) {
  const std::string path = file_of("llama3", "tokenizer.json");
  const Tokenizer tokenizer = Tokenizer::from_json(read_text(path), path).value();
  EXPECT_TRUE(tokenizer.add_bos());
  EXPECT_EQ(tokenizer.bos_id(), tokenizer.token_to_id("<|begin|>"));
  const auto explicit_no = Tokenizer::from_json(
      read_text(path), path, R"({"add_bos_token": false, "eos_token": {"content": "<|end|>"}})");
  ASSERT_TRUE(explicit_no.ok()) << explicit_no.error().text();
  EXPECT_FALSE(explicit_no.value().add_bos());
  EXPECT_EQ(explicit_no.value().eos_id(), tokenizer.token_to_id("<|end|>"));
}

// The hand-written splitters against the expressions that they stand for, on random texts.
struct Pair {
  const char* name;
  SplitRule rule;
  std::vector<std::string> patterns;
};

const std::vector<Pair>& pairs() {
  static const std::string gpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  static const std::string tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::string head = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  static const std::vector<Pair> all = {
      {"gpt2", SplitRule::gpt2, {gpt2}},
      {"smollm", SplitRule::smollm, {R"(\p{N})", gpt2}},
      {"llama3", SplitRule::llama3, {head + R"(\p{N}{1,3})" + tail}},
      {"qwen2", SplitRule::qwen2, {head + R"(\p{N})" + tail}},
      {"deepseek",
       SplitRule::deepseek_v3,
       {R"(\p{N}{1,3})", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
        R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
  };
  return all;
}

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> units = {
      "a",      "Z",      "s",      "t",      "re",     "LL",     "'",      "'s",     "'D",
      "ſ",      "é",      "ß",      "ж",      "中",     "の",     "\u3099", "\u3040", "々",
      "ー",     "゠",     "・",     "1",      "23",     "½",      "٣",      "Ⅷ",      " ",
      "  ",     "\n",     "\r",     "\t",     "\v",     "!",      ".",      "_",      "$",
      "\u0301", "\u0323", "\u00a0", "😀",     "\u200d", "\u3000", "\u0085", "\u2028", "\u180e",
      "\u200b", "\x01",   "\x1c",   "\u00ad", "。",     "«",      "€"};
  std::string out;
  for (size_t n = 1 + random() % 24; n > 0; --n) out += units[random() % units.size()];
  return out;
}

TEST(SplitRule, CutsAsItsExpressionsDo) {
  std::mt19937 random(11);
  for (const Pair& pair : pairs()) {
    const RegexSplitter regex = RegexSplitter::create(pair.patterns, pair.name).value();
    for (int i = 0; i < 5000; ++i) {
      const std::string text = random_text(random);
      std::vector<uint32_t> expected, ends;
      ASSERT_TRUE(regex.split(text, expected).ok());
      size_t at = 0;
      while (at < text.size()) at = split_some(pair.rule, text, at, ends);
      ASSERT_EQ(ends, expected) << pair.name << " " << nlohmann::json(text).dump(-1, ' ', true);
    }
  }
}

}  // namespace
}  // namespace deepinfer::text
