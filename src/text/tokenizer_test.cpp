// Properties of encoding, decoding and streaming that hold for any tokenizer.

#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "tests/text_data.h"
#include "text/normal_form.h"
#include "text/stream_decoder.h"
#include "text/utf8.h"

namespace deepinfer::text {
namespace {

using Ids = std::vector<int32_t>;

Tokenizer family(const std::string& name) {
  const std::string path = golden_path("tokenizer/" + name + "/tokenizer.json");
  return Tokenizer::from_json(read_text(path), path).value();
}

TEST(Tokenizer, InvalidUtf8NamesTheByte) {
  const Tokenizer tokenizer = family("gpt2");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"ab\xff", "byte 2 (0xFF)"},
      {"\xc3\xa9\xc3", "byte 2 (0xC3)"},
      {"\xed\xa0\x80", "byte 0 (0xED)"},
      {"x\xe4\xb8y", "byte 1 (0xE4)"},
      {"\xf4\x90\x80\x80", "byte 0"},
      {"\xc0\x80", "byte 0 (0xC0)"},
      {std::string(100, 'a') + "\x80", "byte 100 (0x80)"}};
  for (const auto& [text, part] : cases) {
    const auto ids = tokenizer.encode(text, SpecialTokens::recognise);
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().kind, ErrorKind::invalid);
    EXPECT_THAT(ids.error().what, testing::HasSubstr(part));
  }
}

// A tokenizer of random merges over few letters, where long pieces have many ways to merge.
struct RandomBpe {
  TokenizerParts parts;
  std::vector<std::pair<std::string, std::string>> merges;

  explicit RandomBpe(std::mt19937& random, std::string_view letters) {
    const auto json =
        nlohmann::json::parse(read_text(golden_path("tokenizer/gpt2/tokenizer.json")));
    parts.pre = "gpt-2";
    parts.tokens.resize(256);  // the byte alphabet comes first
    for (const auto& [token, id] : json["model"]["vocab"].items()) {
      if (id < 256) parts.tokens[id] = token;
    }
    std::vector<std::string> known;
    for (const char c : letters) known.emplace_back(1, c);
    for (int i = 0; i < 60; ++i) {
      const std::string left = known[random() % known.size()];
      const std::string right = known[random() % known.size()];
      if (left.size() + right.size() > 12) continue;
      if (std::find(merges.begin(), merges.end(), std::pair(left, right)) != merges.end()) continue;
      merges.emplace_back(left, right);
      parts.merges.push_back(left + " " + right);
      if (std::find(known.begin(), known.end(), left + right) == known.end()) {
        known.push_back(left + right);
        parts.tokens.push_back(left + right);
      }
    }
  }

  // The definition, word for word.
  std::vector<std::string> merge(const std::string& piece) const {
    std::vector<std::string> symbols;
    for (const char c : piece) symbols.emplace_back(1, c);
    while (true) {
      size_t best_rank = merges.size(), best = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto at =
            std::find(merges.begin(), merges.end(), std::pair(symbols[i], symbols[i + 1]));
        const auto rank = static_cast<size_t>(at - merges.begin());
        if (rank < best_rank) {
          best_rank = rank;
          best = i;
        }
      }
      if (best_rank == merges.size()) return symbols;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
  }
};

TEST(Tokenizer, MergesByTheDefinitionAtEveryLength) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const std::string letters = round % 2 ? "ab" : "abcde";
    const RandomBpe bpe(random, letters);
    const Tokenizer tokenizer = Tokenizer::from_parts(bpe.parts).value();
    for (const size_t length : {1, 2, 7, 8, 9, 31, 32, 33, 47, 48, 49, 64, 150}) {
      for (int repeat = 0; repeat < 3; ++repeat) {  // the later ones may come from the cache
        std::string piece;
        for (size_t i = 0; i < length; ++i) piece += letters[random() % letters.size()];
        Ids expected;
        for (const auto& symbol : bpe.merge(piece)) {
          expected.push_back(tokenizer.token_to_id(symbol).value());
        }
        EXPECT_EQ(tokenizer.encode(piece, SpecialTokens::plain).value(), expected) << piece;
        EXPECT_EQ(tokenizer.encode(piece, SpecialTokens::plain).value(), expected) << piece;
      }
    }
  }
}

// A quadratic step would take hours here: the test then fails by ctest's limit.
TEST(Tokenizer, MegabyteOfAnyOneThingComesBack) {
  for (const char* name : {"gpt2", "smollm", "llama3", "qwen2", "regex"}) {
    const Tokenizer tokenizer = family(name);
    for (const std::string unit :
         {" ", "\n", "a", "中", "\u0323", "7", "😀", "\x01", "'", "a1 ", "<"}) {
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      const auto ids = tokenizer.encode(text, SpecialTokens::recognise);
      ASSERT_TRUE(ids.ok()) << name << " " << unit << " " << ids.error().text();
      EXPECT_TRUE(tokenizer.decode(ids.value(), SkipSpecial::no) == text) << name << " " << unit;
    }
  }
}

// More pieces than the cache has places: each place is taken over many times.
TEST(Tokenizer, PiecesThatShareAPlaceInTheCacheStayApart) {
  const Tokenizer tokenizer = family("gpt2");
  std::mt19937 random(13);
  std::string text;
  for (int i = 0; i < 100'000; ++i) {
    const size_t length = 1 + random() % 6;
    for (size_t n = 0; n < length; ++n) text += static_cast<char>('a' + random() % 26);
    text += ' ';
  }
  const Ids ids = tokenizer.encode(text, SpecialTokens::plain).value();
  EXPECT_TRUE(tokenizer.decode(ids, SkipSpecial::no) == text);
  EXPECT_EQ(tokenizer.encode(text, SpecialTokens::plain).value(), ids);
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const Tokenizer tokenizer = family("llama3");
  const auto texts = read_json_lines(golden_path("tokenizer/texts.jsonl"));
  const auto cases = read_json_lines(golden_path("tokenizer/llama3/ids.jsonl"));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < cases.size(); ++i) {
        const size_t at = (i * 7 + t * 83) % cases.size();
        const auto ids =
            tokenizer.encode(texts[at]["text"].get<std::string>(), SpecialTokens::recognise);
        if (ids.value() != cases[at]["ids"].get<Ids>()) ++wrong[t];
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

TEST(Tokenizer, AppendKeepsWhatIsThere) {
  const Tokenizer tokenizer = family("gpt2");
  Ids ids = {1, 2};
  ASSERT_TRUE(tokenizer.append("a", SpecialTokens::plain, ids).ok());
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_FALSE(tokenizer.append("abc\xff", SpecialTokens::plain, ids).ok());
  EXPECT_EQ(ids.size(), 3u);
}

TEST(Tokenizer, EmptyTextHasNoIds) {
  EXPECT_TRUE(family("regex").encode("", SpecialTokens::recognise).value().empty());
  EXPECT_TRUE(family("qwen2").encode("", SpecialTokens::plain).value().empty());
}

Ids byte_ids(const Tokenizer& tokenizer, std::string_view bytes) {
  Ids ids;
  for (const char byte : bytes) ids.push_back(tokenizer.token_to_id({&byte, 1}).value());
  return ids;
}

TEST(StreamDecoder, PushesAndFlushGiveDecodeOnAnyBytes) {
  const Tokenizer tokenizer = family("gpt2");
  const int32_t end = tokenizer.token_to_id("<|end|>").value();
  std::mt19937 random(9);
  const std::string bytes = "ab\xe4\xb8\xad\xf0\x9f\x98\x80\xff\xc3\xa9\xef\xbf\xbd\xed\xa0";
  for (int round = 0; round < 2000; ++round) {
    Ids ids;
    for (size_t n = random() % 12; n > 0; --n) {
      const char byte = bytes[random() % bytes.size()];
      ids.push_back(random() % 9 == 0 ? end : tokenizer.token_to_id({&byte, 1}).value());
    }
    for (const SkipSpecial skip : {SkipSpecial::no, SkipSpecial::yes}) {
      StreamDecoder decoder(tokenizer, skip);
      std::string all;
      for (const int32_t id : ids) {
        const std::string text = decoder.push(id);
        EXPECT_FALSE(text.ends_with(kReplacement));
        EXPECT_EQ(text.empty(), decoder.waiting() > 0);
        all += text;
      }
      all += decoder.flush();
      EXPECT_EQ(all, tokenizer.decode(ids, skip));
      EXPECT_EQ(find_invalid_utf8(all), all.size());
    }
  }
}

TEST(StreamDecoder, LongWaitCostsNoMoreThanItsBytes) {
  const Tokenizer tokenizer = family("gpt2");
  StreamDecoder decoder(tokenizer, SkipSpecial::no);
  const int32_t stray = byte_ids(tokenizer, "\xff")[0];
  for (int i = 0; i < 300'000; ++i) ASSERT_EQ(decoder.push(stray), "");
  EXPECT_EQ(decoder.waiting(), 300'000u);
  const std::string text = decoder.push(byte_ids(tokenizer, "x")[0]);
  EXPECT_EQ(text.size(), 3u * 300'000 + 1);
  EXPECT_EQ(decoder.waiting(), 0u);
}

TEST(StreamDecoder, FlushShowsACutCharacter) {
  const Tokenizer tokenizer = family("gpt2");
  StreamDecoder decoder(tokenizer, SkipSpecial::no);
  for (const int32_t id : byte_ids(tokenizer, "\xf0\x9f\x98")) EXPECT_EQ(decoder.push(id), "");
  EXPECT_EQ(decoder.flush(), kReplacement);
  EXPECT_EQ(decoder.flush(), "");
}

TEST(Utf8, ReplacesMaximalInvalidParts) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\xe4\xb8\x41", "\uFFFDA"},
      {"\xf0\x9f\x98\xff", "\uFFFD\uFFFD"},
      {"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xc0\xaf", "\uFFFD\uFFFD"},
      {"\xf5\x80", "\uFFFD\uFFFD"},
      {"\xe0\x80\x80x", "\uFFFD\uFFFD\uFFFDx"},
      {"a\x80"
       "b",
       "a\uFFFD"
       "b"}};
  for (const auto& [bytes, expected] : cases) {
    std::string text;
    EXPECT_EQ(append_replacing_invalid(bytes, text), bytes.size());
    EXPECT_EQ(text, expected);
  }
  std::string text;
  EXPECT_EQ(append_replacing_invalid("ab\xf0\x9f\x98", text), 2u);
  EXPECT_EQ(text, "ab");
}

TEST(NormalForm, ComposesCanonically) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"e\u0301", "\u00e9"},
      {"x e\u0301 y", "x \u00e9 y"},
      {"\u0301e", "\u0301e"},
      {"a\u0323\u0302", "\u1ead"},
      {"a\u0302\u0323", "\u1ead"},
      {"\u212b", "\u00c5"},
      {"\u1100\u1161\u11a8", "\uac01"},
      {"\u0958", "\u0915\u093c"},
      {"\ufb01", "\ufb01"},
      {"\u0344", "\u0308\u0301"},
      {"中e\u0301e\u0301", "中\u00e9\u00e9"},
      {"\uac00\u11a8", "\uac01"}};
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(to_nfc(text), expected);
    EXPECT_EQ(to_nfc(expected), expected);
    if (text != expected) {
      EXPECT_FALSE(is_surely_nfc(text));
    }
  }
  EXPECT_TRUE(is_surely_nfc("plain, é, 中文, 한국어, 😀"));
}

TEST(NormalForm, LongRunsOfMarksAreOrdered) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += "\u0302\u0323";
  const std::string composed = to_nfc(text);
  EXPECT_EQ(composed.size(), 3u + 2u * 399'998);  // dot below and circumflex join: U+1EAD
  EXPECT_TRUE(composed.starts_with("\u1ead\u0323\u0323"));
  EXPECT_TRUE(composed.ends_with("\u0302\u0302"));
}

}  // namespace
}  // namespace deepinfer::text
