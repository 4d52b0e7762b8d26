// tokenizer.json files that are wrong or ask for what this program does not do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/text_data.h"
#include "text/tokenizer.h"

namespace deepinfer::text {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json small() {
  static const json file = json::parse(read_text(golden_path("tokenizer/gpt2/tokenizer.json")));
  return file;
}

// The error for the small tokenizer after `change`; fails the test when there is none.
Error error_after(const std::function<void(json&)>& change) {
  json file = small();
  change(file);
  const auto made = Tokenizer::from_json(file.dump(), "t.json");
  EXPECT_FALSE(made.ok()) << "was accepted";
  return made.ok() ? Error{} : made.error();
}

void expect_error(ErrorKind kind, const std::string& part,
                  const std::function<void(json&)>& change) {
  const Error error = error_after(change);
  EXPECT_EQ(error.kind, kind) << error.text();
  EXPECT_EQ(error.thing, "t.json");
  EXPECT_THAT(error.what, HasSubstr(part));
}

TEST(TokenizerJson, UnchangedFileIsAccepted) {
  const auto made = Tokenizer::from_json(small().dump(), "t.json");
  ASSERT_TRUE(made.ok()) << made.error().text();
  EXPECT_EQ(made.value().vocab_size(), 703u);
}

TEST(TokenizerJson, TextThatIsNoJsonIsCorrupt) {
  const std::string text = small().dump();
  for (const std::string& bad : {std::string(), std::string("{"), std::string("[]"),
                                 text.substr(0, text.size() / 2), std::string("\xff\xfe{}")}) {
    const auto made = Tokenizer::from_json(bad, "t.json");
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().kind, ErrorKind::corrupt);
  }
}

TEST(TokenizerJson, OtherAlgorithmsAreNamed) {
  const auto unsupported = ErrorKind::unsupported;
  expect_error(unsupported, "\"Unigram\"", [](json& f) { f["model"]["type"] = "Unigram"; });
  expect_error(unsupported, "byte_fallback", [](json& f) { f["model"]["byte_fallback"] = true; });
  expect_error(unsupported, "dropout", [](json& f) { f["model"]["dropout"] = 0.1; });
  expect_error(unsupported, "\"</w>\"", [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; });
  expect_error(unsupported, "\"Lowercase\"",
               [](json& f) { f["normalizer"] = {{"type", "Lowercase"}}; });
  expect_error(unsupported, "\"Metaspace\"",
               [](json& f) { f["pre_tokenizer"] = {{"type", "Metaspace"}}; });
  expect_error(unsupported, "no pre_tokenizer", [](json& f) { f["pre_tokenizer"] = nullptr; });
  expect_error(unsupported, "add_prefix_space",
               [](json& f) { f["pre_tokenizer"]["add_prefix_space"] = true; });
  expect_error(unsupported, "\"WordPiece\"",
               [](json& f) { f["decoder"] = {{"type", "WordPiece"}}; });
  expect_error(unsupported, "\"BertProcessing\"",
               [](json& f) { f["post_processor"] = {{"type", "BertProcessing"}}; });
  expect_error(unsupported, "lstrip", [](json& f) { f["added_tokens"][0]["lstrip"] = true; });
  expect_error(unsupported, "\"Removed\"", [](json& f) {
    f["pre_tokenizer"] = {{"type", "Split"}, {"behavior", "Removed"}, {"invert", true}};
  });
}

json split_on(const std::string& pattern) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", pattern}}}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

TEST(TokenizerJson, ExpressionsThatDoNotCompileAreQuoted) {
  expect_error(ErrorKind::unsupported, "(unclosed",
               [](json& f) { f["pre_tokenizer"] = split_on("(unclosed"); });
  expect_error(ErrorKind::unsupported, "limit",
               [](json& f) { f["pre_tokenizer"] = split_on(std::string(100'000, 'a')); });
}

TEST(TokenizerJson, ExpressionThatNeverEndsIsAnErrorOfTheText) {
  json file = small();
  file["pre_tokenizer"] = split_on("(?:(a+)+)+$");
  const auto made = Tokenizer::from_json(file.dump(), "t.json");
  ASSERT_TRUE(made.ok()) << made.error().text();
  std::vector<int32_t> ids = {7};
  const auto result = made.value().append(std::string(64, 'a') + "!", SpecialTokens::plain, ids);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::exhausted);
  EXPECT_EQ(ids, std::vector<int32_t>{7});
}

TEST(TokenizerJson, VocabularyThatContradictsItselfIsCorrupt) {
  const auto corrupt = ErrorKind::corrupt;
  expect_error(corrupt, "vocab", [](json& f) { f["model"]["vocab"] = json::array(); });
  expect_error(corrupt, "0..1999999", [](json& f) { f["model"]["vocab"]["x1"] = 2'000'000; });
  expect_error(corrupt, "0..1999999", [](json& f) { f["model"]["vocab"]["x1"] = -1; });
  expect_error(corrupt, "0..1999999", [](json& f) { f["model"]["vocab"]["x1"] = "7"; });
  expect_error(corrupt, "id 5 is given to", [](json& f) { f["model"]["vocab"]["x1"] = 5; });
  expect_error(corrupt, "no entry for byte 0x41", [](json& f) {
    f["model"]["vocab"].erase("A");
    f["model"]["merges"] = json::array();
  });
  expect_error(corrupt, "not in the vocabulary",
               [](json& f) { f["model"]["merges"][3] = "qqq x"; });
  expect_error(corrupt, "result \"qj\"", [](json& f) { f["model"]["merges"][3] = "q j"; });
  expect_error(corrupt, "not two sides", [](json& f) { f["model"]["merges"][3] = "a b c"; });
  expect_error(corrupt, "not two sides", [](json& f) { f["model"]["merges"][3] = "ab"; });
  expect_error(corrupt, "left side", [](json& f) { f["model"]["merges"][3] = " b"; });
  expect_error(corrupt, "merge 3", [](json& f) { f["model"]["merges"][3] = {"a", "b", "c"}; });
  expect_error(corrupt, "merges", [](json& f) { f["model"].erase("merges"); });
  const std::string twice = R"({"model": {"vocab": {"a": 1, "a": 2}, "merges": []}})";
  EXPECT_THAT(Tokenizer::from_json(twice, "t.json").error().what, HasSubstr("has the ids 1 and 2"));
}

TEST(TokenizerJson, ControlBytesWithoutAnEntryAreLeftOut) {
  json file = small();
  file["model"]["vocab"].erase("\u0104");  // byte 0x04
  const auto made = Tokenizer::from_json(file.dump(), "t.json");
  ASSERT_TRUE(made.ok()) << made.error().text();
  const auto ids = made.value().encode("!\x04!a\x04", SpecialTokens::plain);
  EXPECT_EQ(made.value().decode(ids.value(), SkipSpecial::no), "!!a");
  file["model"]["unk_token"] = "!";
  EXPECT_THAT(Tokenizer::from_json(file.dump(), "t.json").error().what,
              HasSubstr("no entry for byte 0x04"));
}

TEST(TokenizerJson, AddedTokensThatContradictAreCorrupt) {
  const auto corrupt = ErrorKind::corrupt;
  expect_error(corrupt, "no content", [](json& f) { f["added_tokens"][0].erase("content"); });
  expect_error(corrupt, "no id", [](json& f) { f["added_tokens"][0].erase("id"); });
  expect_error(corrupt, "empty", [](json& f) { f["added_tokens"][0]["content"] = ""; });
  expect_error(corrupt, "id 5 is given to", [](json& f) { f["added_tokens"][0]["id"] = 5; });
  expect_error(corrupt, "0..1999999", [](json& f) { f["added_tokens"][0]["id"] = 1ll << 40; });
  expect_error(corrupt, "comes twice",
               [](json& f) { f["added_tokens"][0]["content"] = f["added_tokens"][1]["content"]; });
  expect_error(ErrorKind::unsupported, "limit",
               [](json& f) { f["added_tokens"][0]["content"] = std::string(5000, 'x'); });
}

TEST(TokenizerJson, ConfigNamesTokensOfTheVocabulary) {
  const std::string text = small().dump();
  const auto made =
      Tokenizer::from_json(text, "t.json", R"({"bos_token": "<|begin|>", "add_bos_token": true})");
  ASSERT_TRUE(made.ok()) << made.error().text();
  EXPECT_TRUE(made.value().add_bos());
  EXPECT_EQ(made.value().bos_id(), made.value().token_to_id("<|begin|>"));
  EXPECT_EQ(made.value().eos_id(), std::nullopt);
  EXPECT_THAT(Tokenizer::from_json(text, "t.json", R"({"eos_token": "<|no|>"})").error().what,
              HasSubstr("eos_token: token \"<|no|>\""));
  EXPECT_THAT(Tokenizer::from_json(text, "t.json", R"({"add_bos_token": true})").error().what,
              HasSubstr("bos_token is not set"));
  EXPECT_FALSE(Tokenizer::from_json(text, "t.json", "{").ok());
}

TEST(TokenizerParts, BadArraysAreNamed) {
  TokenizerParts parts;
  parts.source = "m.gguf";
  parts.pre = "gpt-2";
  const auto error = [&](auto change) {
    TokenizerParts changed = parts;
    change(changed);
    const auto made = Tokenizer::from_parts(std::move(changed));
    EXPECT_FALSE(made.ok());
    return made.ok() ? std::string() : made.error().text();
  };
  const json vocab = small()["model"]["vocab"];
  parts.tokens.resize(vocab.size());
  for (const auto& [token, id] : vocab.items()) parts.tokens[id] = token;
  ASSERT_TRUE(Tokenizer::from_parts(parts).ok());

  EXPECT_THAT(error([](auto& p) { p.model = "llama"; }),
              HasSubstr("m.gguf: tokenizer model \"llama\""));
  EXPECT_THAT(error([](auto& p) { p.pre = "tekken"; }), HasSubstr("pre-tokenizer \"tekken\""));
  EXPECT_THAT(error([](auto& p) { p.token_types = {1, 1}; }), HasSubstr("2 token types for"));
  EXPECT_THAT(error([](auto& p) { p.token_types.assign(p.tokens.size(), 9); }),
              HasSubstr("has type 9"));
  EXPECT_THAT(error([](auto& p) { p.token_types.assign(p.tokens.size(), 6); }),
              HasSubstr("type 6 (byte)"));
  EXPECT_THAT(error([](auto& p) { p.tokens[3] = p.tokens[4]; }), HasSubstr("has the ids 3 and 4"));
  EXPECT_THAT(error([](auto& p) { p.tokens.clear(); }), HasSubstr("no entry for byte 0x20"));
  EXPECT_THAT(error([](auto& p) { p.merges = {"a zzzz"}; }), HasSubstr("merge 0 \"a zzzz\""));
  EXPECT_THAT(error([](auto& p) { p.eos_id = 70000; }), HasSubstr("eos_token_id 70000"));
  EXPECT_THAT(error([](auto& p) { p.bos_id = -1; }), HasSubstr("bos_token_id -1"));
  EXPECT_THAT(error([](auto& p) { p.add_bos = true; }), HasSubstr("bos_token_id is not set"));
}

}  // namespace
}  // namespace deepinfer::text
