#include "recipe/output_parser.h"

#include <gtest/gtest.h>

#include "recipe/common_form.h"
#include "recipe/golden_cases.h"

namespace deepinfer::recipe {
namespace {

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
TEST(OutputParser, CutsAtEveryByteChangeNothing) {
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
