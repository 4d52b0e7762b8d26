// Parsed outputs equal the reference's, event by event, for every chunk size.

#include <gtest/gtest.h>

#include "recipe/answer_stream.h"
#include "recipe/common_form.h"
#include "recipe/golden_cases.h"
#include "recipe/golden_tokenizer.h"

namespace deepinfer::recipe {
namespace {

struct Parsed {
  Json deltas = Json::array();
  AnswerEvent end;
};

Json pair_json(const char* kind, const std::string& text) {
  return Json::Array{Json(kind), Json(text)};
}

Parsed deltas_of(const std::vector<AnswerEvent>& events) {
  Parsed parsed;
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case AnswerEvent::Kind::start:
        break;
      case AnswerEvent::Kind::content:
        parsed.deltas.push_back(pair_json("content", event.text));
        break;
      case AnswerEvent::Kind::reasoning:
        parsed.deltas.push_back(pair_json("reasoning", event.text));
        break;
      case AnswerEvent::Kind::call:
        parsed.deltas.push_back(pair_json("call", event.text));
        break;
      case AnswerEvent::Kind::arguments:
        parsed.deltas.push_back(pair_json("args", event.text));
        break;
      case AnswerEvent::Kind::end:
        parsed.end = event;
    }
  }
  return parsed;
}

// Chunks of `size` characters, one chunk for 0.
std::vector<EngineChunk> text_chunks(const std::string& text, size_t size) {
  std::vector<EngineChunk> chunks;
  size_t begin = 0, count = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    const bool starts = at == text.size() || (static_cast<uint8_t>(text[at]) & 0xC0) != 0x80;
    if (!starts) continue;
    if (at > begin && (at == text.size() || (size > 0 && count == size))) {
      chunks.push_back(TextChunk{text.substr(begin, at - begin)});
      begin = at;
      count = 0;
    }
    ++count;
  }
  return chunks;
}

std::vector<EngineChunk> token_chunks(const std::vector<int32_t>& ids, size_t size) {
  std::vector<EngineChunk> chunks;
  const size_t step = size > 0 ? size : ids.size();
  for (size_t at = 0; at < ids.size(); at += step) {
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(at);
    const auto end = ids.begin() + static_cast<ptrdiff_t>(std::min(at + step, ids.size()));
    chunks.push_back(TokenChunk{{begin, end}, {}});
  }
  return chunks;
}

Parsed parse(const ParsingOptions& options, const std::vector<EngineChunk>& chunks,
             const std::string& finish, const std::optional<text::Tokenizer>& tokenizer) {
  AnswerStream stream(options, options.stage != ThinkingStage::none, tokenizer,
                      [] { return std::string("*"); });
  std::vector<AnswerEvent> events;
  for (const EngineChunk& chunk : chunks) EXPECT_TRUE(stream.push(chunk, events).ok());
  if (finish == "stop") EXPECT_TRUE(stream.push(EngineFinish::stop, events).ok());
  if (finish == "length") EXPECT_TRUE(stream.push(EngineFinish::length, events).ok());
  if (finish == "content_filter")
    EXPECT_TRUE(stream.push(EngineFinish::content_filter, events).ok());
  stream.finish(events);
  return deltas_of(events);
}

std::string finish_name(AnswerFinish finish) {
  switch (finish) {
    case AnswerFinish::tool_calls:
      return "tool_calls";
    case AnswerFinish::length:
      return "length";
    case AnswerFinish::content_filter:
      return "content_filter";
    default:
      return "stop";
  }
}

class ParseGolden : public testing::Test {
 protected:
  // Runs all cases that have `key`, "text" or "tokens".
  void compare(const char* key, size_t wanted,
               const std::optional<text::Tokenizer>& tokenizer) const {
    size_t compared = 0;
    for (const JsonDocument& document : read_golden_cases("parse")) {
      const JsonValue& one = document.root();
      const JsonValue* value = one.find(key);
      if (value == nullptr) continue;
      ++compared;
      SCOPED_TRACE(one.get<std::string>("id").value());
      const ParsingOptions options = parsing_from_json(*one.find("options")).value();
      const std::string finish = one.get_or<std::string>("finish", "").value();
      for (const JsonMember& stream : one.find("streams")->members().value()) {
        SCOPED_TRACE(stream.key);
        const size_t size = stream.key == "whole" ? 0 : std::stoul(stream.key);
        std::vector<EngineChunk> chunks;
        if (value->is_string()) {
          chunks = text_chunks(value->as<std::string>().value(), size);
        } else {
          std::vector<int32_t> ids;
          for (const JsonValue& id : value->array().value()) ids.push_back(id.as<int>().value());
          chunks = token_chunks(ids, size);
        }
        const Parsed parsed = parse(options, chunks, finish, tokenizer);
        EXPECT_EQ(parsed.deltas.text(JsonStyle::spaced_python),
                  Json::from(stream.value).value().text(JsonStyle::spaced_python));
        if (const JsonValue* usage = one.find("usage")) compare_usage(parsed, *usage, stream.key);
        if (size == 0) compare_end(parsed, *one.find("expect"));
      }
    }
    EXPECT_EQ(compared, wanted);
  }

  static void compare_usage(const Parsed& parsed, const JsonValue& usage, const std::string& key) {
    const auto numbers = usage.find(key)->array().value();
    EXPECT_EQ(parsed.end.usage.completion_tokens, numbers[0].as<uint64_t>().value());
    if (!numbers[1].is_null())
      EXPECT_EQ(parsed.end.usage.reasoning_tokens, numbers[1].as<uint64_t>().value());
  }

  static void compare_end(const Parsed& parsed, const JsonValue& expect) {
    EXPECT_EQ(finish_name(parsed.end.finish), expect.get<std::string>("finish_reason").value());
    EXPECT_EQ(parsed.end.stop_sequence.value_or(""),
              expect.get_or<std::string>("stop_sequence", "").value());
  }
};

TEST_F(ParseGolden, TextsInEveryChunkSizeGiveTheReferencesEvents) {
  compare("text", 492, std::nullopt);
}

TEST_F(ParseGolden, TokensInEveryChunkSizeGiveTheReferencesEvents) {
  compare("tokens", 34, golden_tokenizer(DeepSeekVersion::v4));
}

// Joined texts of each kind; a name is joined by a line of its own.
Json joined(const std::vector<OutputEvent>& events) {
  std::string content, reasoning, calls, stop;
  for (const OutputEvent& event : events) {
    if (event.kind == OutputEvent::Kind::content) content += event.text;
    if (event.kind == OutputEvent::Kind::reasoning) reasoning += event.text;
    if (event.kind == OutputEvent::Kind::call) calls += "\x01" + event.text + "\x02";
    if (event.kind == OutputEvent::Kind::arguments) calls += event.text;
    if (event.kind == OutputEvent::Kind::stop) stop = event.text;
  }
  return Json::Array{Json(content), Json(reasoning), Json(calls), Json(stop)};
}

// Every golden text cut at every byte, even inside of characters, parses as the whole.
TEST_F(ParseGolden, CutsAtEveryByteChangeNothing) {
  for (const JsonDocument& document : read_golden_cases("parse")) {
    const JsonValue& one = document.root();
    if (one.find("text") == nullptr) continue;
    SCOPED_TRACE(one.get<std::string>("id").value());
    const ParsingOptions options = parsing_from_json(*one.find("options")).value();
    if (options.parse_json_output) continue;  // the number of spaces depends on the chunks
    const std::string text = one.get<std::string>("text").value();
    const auto run = [&](size_t step, size_t cut) {
      OutputParser parser(options);
      std::vector<OutputEvent> events;
      for (size_t at = 0; at < text.size();) {
        const size_t end = cut > at ? cut : std::min(text.size(), at + step);
        parser.push(std::string_view(text).substr(at, end - at), Spelling::any, events);
        at = end;
      }
      parser.finish(events);
      return joined(events);
    };
    const Json whole = run(text.size(), 0);
    EXPECT_EQ(run(1, 0), whole);
    for (size_t cut = 1; cut < text.size(); ++cut) ASSERT_EQ(run(text.size(), cut), whole) << cut;
  }
}

TEST(OutputParser, ControlTokensAreNoTextAndTextIsNoControlToken) {
  ParsingOptions options;
  options.stage = ThinkingStage::reasoning_start;
  options.stop_sequences = {"END", "</"};
  OutputParser parser(options);
  std::vector<OutputEvent> events;
  parser.push("a</think>b<\uFF5CDSML\uFF5C", Spelling::plain, events);  // looks like markers
  parser.push("</think>", Spelling::control, events);
  parser.push("x", Spelling::plain, events);
  parser.push("<EN/></think>", Spelling::control, events);  // no stop string in a control token
  parser.push("END", Spelling::plain, events);
  const Json wanted =
      Json::Array{Json("x<EN/>"), Json("a</think>b<\uFF5CDSML\uFF5C"), Json(""), Json("END")};
  EXPECT_EQ(joined(events).text(JsonStyle::compact), wanted.text(JsonStyle::compact));
}

TEST(OutputParser, InvalidBytesAreReplaced) {
  OutputParser parser(ParsingOptions{});
  std::vector<OutputEvent> events;
  parser.push("a\xFF", Spelling::any, events);
  parser.push("b\xE4\xB8", Spelling::any, events);
  parser.finish(events);
  EXPECT_EQ(joined(events), (Json::Array{Json("a\uFFFDb\uFFFD"), Json(""), Json(""), Json("")}));
}

}  // namespace
}  // namespace deepinfer::recipe
