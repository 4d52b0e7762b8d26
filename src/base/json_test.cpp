#include "base/json.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/json_writer.h"

namespace deepinfer {
namespace {

JsonDocument parse(const std::string& text) {
  Result<JsonDocument> document = JsonDocument::parse(text, "doc");
  if (!document.ok()) ADD_FAILURE() << document.error().text();
  return std::move(document).value();
}

std::string failure(const std::string& text, const JsonLimits& limits = {}) {
  Result<JsonDocument> document = JsonDocument::parse(text, "doc", limits);
  EXPECT_FALSE(document.ok()) << text;
  return document.ok() ? "" : document.error().text();
}

TEST(Json, ReadsEveryKind) {
  const JsonDocument json =
      parse(R"({"a": [1, -2.5, true, null, "x\u00e9\ud83d\ude00\n"], "b": {"c": {}}, "d": []})");
  const JsonValue& root = json.root();
  const auto items = root.get<std::string>("d");
  EXPECT_FALSE(items.ok());
  const auto array = root.member("a").value()->array().value();
  ASSERT_EQ(array.size(), 5u);
  EXPECT_EQ(array[0].as<int64_t>().value(), 1);
  EXPECT_EQ(array[1].as<double>().value(), -2.5);
  EXPECT_TRUE(array[2].as<bool>().value());
  EXPECT_TRUE(array[3].is_null());
  EXPECT_EQ(array[4].as<std::string_view>().value(), "x\xc3\xa9\xf0\x9f\x98\x80\n");
  EXPECT_EQ(root.members().value().size(), 3u);
  EXPECT_EQ(root.members().value()[1].key, "b");
  EXPECT_TRUE(root.find("b")->find("c")->members().value().empty());
  EXPECT_EQ(root.find("nothing"), nullptr);
  EXPECT_EQ(array[0].find("a"), nullptr);
}

TEST(Json, ReadsLoneScalars) {
  EXPECT_EQ(parse(" 12 ").root().as<int>().value(), 12);
  EXPECT_EQ(parse("\"s\"").root().as<std::string>().value(), "s");
  EXPECT_TRUE(parse("null").root().is_null());
  EXPECT_FALSE(parse("false").root().as<bool>().value());
  EXPECT_EQ(parse("[]").root().array().value().size(), 0u);
}

TEST(Json, IntegersOfEverySize) {
  const JsonDocument json = parse(
      "[9223372036854775807, -9223372036854775808, 18446744073709551615,"
      " 1000000000000000019884624838656, 1e3, 4096.0, 0.5, -1]");
  const auto v = json.root().array().value();
  EXPECT_EQ(v[0].as<int64_t>().value(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(v[1].as<int64_t>().value(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(v[2].as<uint64_t>().value(), std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(v[2].as<int64_t>().ok());
  EXPECT_EQ(v[3].as<double>().value(), 1000000000000000019884624838656.0);
  EXPECT_FALSE(v[3].as<int64_t>().ok());
  EXPECT_EQ(v[4].as<int>().value(), 1000);
  EXPECT_EQ(v[5].as<uint32_t>().value(), 4096u);
  EXPECT_FALSE(v[6].as<int>().ok());
  EXPECT_FALSE(v[7].as<uint64_t>().ok());
  EXPECT_FALSE(v[7].as<uint32_t>().ok());
  EXPECT_FALSE(v[0].as<int>().ok());
}

TEST(Json, ErrorsNameThePathAndBothTypes) {
  const JsonDocument json =
      parse(R"({"rope": {"factors": [1, "8", {}]}, "layers": 3000000000, "name": 5})");
  const JsonValue& root = json.root();
  const JsonValue& text = root.find("rope")->find("factors")->array().value()[1];
  EXPECT_EQ(text.path(), "rope.factors[1]");
  EXPECT_EQ(text.as<double>().error().text(),
            "doc: rope.factors[1]: expected a number, found the string \"8\"");
  EXPECT_EQ(root.get<int>("layers").error().text(),
            "doc: layers: expected a whole number from -2147483648 to 2147483647, "
            "found the number 3000000000");
  EXPECT_EQ(root.get<std::string>("name").error().text(),
            "doc: name: expected a string, found the number 5");
  EXPECT_EQ(root.get<int>("heads").error().text(), "doc: the field \"heads\" is missing");
  EXPECT_EQ(root.find("name")->member("x").error().text(),
            "doc: name: expected an object, found the number 5");
  EXPECT_EQ(root.find("rope")->as<bool>().error().text(),
            "doc: rope: expected true or false, found an object");
}

TEST(Json, PathsSurviveAMoveOfTheDocument) {
  JsonDocument first = parse(R"({"a": {"b": "x"}})");
  const JsonDocument second = std::move(first);
  EXPECT_EQ(second.root().find("a")->find("b")->as<int>().error().thing, "doc: a.b");
}

TEST(Json, FallbacksCoverAbsentAndNull) {
  const JsonDocument json = parse(R"({"a": null, "b": 2})");
  EXPECT_EQ(json.root().get_or<int>("a", 7).value(), 7);
  EXPECT_EQ(json.root().get_or<int>("b", 7).value(), 2);
  EXPECT_EQ(json.root().get_or<int>("c", 7).value(), 7);
  EXPECT_FALSE(json.root().get_or<std::string>("b", "x").ok());
}

TEST(Json, TheLastOfEqualKeysCountsAndLargeObjectsAreSearched) {
  EXPECT_EQ(parse(R"({"a": 1, "a": 2})").root().get<int>("a").value(), 2);
  std::string text = "{";
  for (int i = 0; i < 1000; ++i) text += fmt::format("\"key{}\": {}, ", i, i);
  text += "\"key5\": -5}";
  const JsonDocument json = parse(text);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(json.root().get<int>(fmt::format("key{}", i)).value(), i == 5 ? -5 : i);
  }
  EXPECT_EQ(json.root().find("key"), nullptr);
  EXPECT_EQ(json.root().find("zzz"), nullptr);
}

TEST(Json, MalformedTextIsAnError) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "}",
                           "[1,",
                           "[1 2]",
                           "[1,]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "[1] [2]",
                           "{} x",
                           "1 2",
                           "tru",
                           "nul",
                           "[01]",
                           "[1.]",
                           "[.5]",
                           "[+1]",
                           "[-]",
                           "[1e]",
                           "\"abc",
                           "[\"\\x\"]",
                           "[\"\\ud800\"]",
                           "[\"\t\"]",
                           "[\"\xff\"]",
                           "'a'",
                           "[NaN]",
                           "[Infinity]",
                           "[1e400]",
                           "[1,,2]",
                           "{\"a\" 1}",
                           "{\"a\":1 \"b\":2}",
                           "[}",
                           "{]",
                           "[123456789012345678901234567890x]",
                           "[nullx]",
                           "[truefalse]"}) {
    const std::string error = failure(text);
    EXPECT_EQ(error.compare(0, 5, "doc: "), 0) << text << ": " << error;
  }
}

TEST(Json, LimitsAreNamed) {
  EXPECT_EQ(failure("[[[1]]]", {.depth = 3}), "doc: is nested more than 3 deep");
  EXPECT_EQ(failure("[1, 2, 3]", {.values = 3}), "doc: has more than 3 values");
  EXPECT_EQ(failure("[1, 2, 3]", {.bytes = 8}), "doc: has 9 bytes, the limit is 8");
  EXPECT_TRUE(JsonDocument::parse("[[[1]]]", "doc", {.depth = 4}).ok());
  const std::string deep(200'000, '[');
  EXPECT_FALSE(JsonDocument::parse(deep, "doc").ok());
  EXPECT_FALSE(JsonDocument::parse(deep + std::string(200'000, ']'), "doc").ok());
}

TEST(Json, EveryTruncationIsAnErrorAndNoCrash) {
  const std::string text = R"({"a": [1, {"b": "c\u00e9"}, 2.5e3], "d": null, "e": [true, false]})";
  for (size_t length = 0; length < text.size(); ++length) failure(text.substr(0, length));
}

TEST(Json, MissingFilesAreNamed) {
  EXPECT_EQ(JsonDocument::read("/no/such.json").error().kind, ErrorKind::not_found);
  EXPECT_EQ(JsonDocument::read("/proc/self").error().kind, ErrorKind::io);
}

TEST(JsonWriter, WritesNestedValues) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.member("index", 3);
  json.member("ok", true);
  json.key("ids");
  json.begin_array();
  for (uint64_t id : {uint64_t{0}, std::numeric_limits<uint64_t>::max()}) json.value(id);
  json.begin_object();
  json.end_object();
  json.end_array();
  json.key("none");
  json.null();
  json.member("low", std::numeric_limits<int64_t>::min());
  EXPECT_FALSE(json.complete());
  json.end_object();
  EXPECT_TRUE(json.complete());
  EXPECT_EQ(out,
            "{\"index\":3,\"ok\":true,\"ids\":[0,18446744073709551615,{}],\"none\":null,"
            "\"low\":-9223372036854775808}");
}

TEST(JsonWriter, EscapesAndRepairsText) {
  std::string out;
  append_json_string(out, std::string_view("a\"\\\n\t\x01\x7f\0z", 9));
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\t\\u0001\x7f\\u0000z\"");
  for (const std::string& broken : {"\xff", "\xc3", "\xe2\x82", "\xed\xa0\x80", "\xc0\xaf",
                                    "\xf5\x80\x80\x80", "\xf0\x9f\x98"}) {
    out.clear();
    append_json_string(out, "a" + broken + "b");
    EXPECT_TRUE(JsonDocument::parse(out, "doc").ok()) << out;
    EXPECT_NE(out.find("\xef\xbf\xbd"), std::string::npos);
  }
  out.clear();
  append_json_string(out, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(out, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

TEST(JsonWriter, NumbersComeBackExactly) {
  uint64_t state = 1;
  for (int i = 0; i < 20'000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double number = std::bit_cast<double>(state ^ (state >> 29));
    std::string out;
    JsonWriter(out).value(number);
    if (!std::isfinite(number)) {
      ASSERT_EQ(out, "null");
      continue;
    }
    ASSERT_EQ(parse(out).root().as<double>().value(), number) << out;
  }
  std::string out;
  JsonWriter(out).value(0.1f);
  const JsonDocument zero = parse("-0.0");
  EXPECT_TRUE(std::signbit(zero.root().as<double>().value()));
  std::string negative;
  JsonWriter(negative).value(-0.0);
  EXPECT_EQ(negative, "-0.0");
  EXPECT_EQ(out, "0.1") << "a float takes the digits of a float";
}

TEST(JsonWriterDeathTest, MisuseIsABug) {
  std::string out;
  EXPECT_DEATH(
      {
        JsonWriter json(out);
        json.begin_object();
        json.value(1);
      },
      "needs a key");
  EXPECT_DEATH(
      {
        JsonWriter json(out);
        json.end_array();
      },
      "without its begin");
  EXPECT_DEATH(
      {
        JsonWriter json(out);
        json.value(1);
        json.value(2);
      },
      "two values");
  EXPECT_DEATH(
      {
        JsonWriter json(out);
        json.begin_array();
        json.key("a");
      },
      "outside of an object");
}

}  // namespace
}  // namespace deepinfer
