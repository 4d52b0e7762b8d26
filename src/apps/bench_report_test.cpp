#include "apps/bench_report.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace deepinfer::apps {
namespace {

Measured example() {
  Measured measured;
  measured.name = "decode";
  measured.model = "smollm2";
  measured.unit = "tokens/s";
  measured.spread = spread_of({30, 10, 20});
  measured.limit = 40;
  measured.limit_name = "memory";
  measured.isa = "avx2";
  measured.threads = 2;
  measured.load = 0.25;
  measured.peers = {{"other", spread_of({10})}};
  return measured;
}

TEST(BenchReport, SpreadOfOddAndEvenCounts) {
  const Spread odd = spread_of({3, 1, 2});
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.most, 3);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
}

TEST(BenchReport, JsonHasTheFieldsThatScriptsRead) {
  const Result<JsonDocument> document = JsonDocument::parse(measured_json(example()), "line");
  ASSERT_TRUE(document.ok()) << document.error().text();
  const JsonValue& root = document.value().root();
  EXPECT_EQ(root.get<std::string>("name").value(), "decode");
  EXPECT_EQ(root.get<std::string>("unit").value(), "tokens/s");
  EXPECT_EQ(root.get<double>("value").value(), 20);
  EXPECT_EQ(root.get<double>("min").value(), 10);
  EXPECT_EQ(root.get<double>("max").value(), 30);
  EXPECT_EQ(root.get<double>("share").value(), 0.5);
  EXPECT_EQ(root.get<double>("load").value(), 0.25);
  const JsonValue* peer = root.find("peer");
  ASSERT_NE(peer, nullptr);
  EXPECT_EQ(peer->get<double>("ratio").value(), 2);
}

TEST(BenchReport, TextSaysWhenTheCacheHelps) {
  Measured measured = example();
  EXPECT_EQ(measured_text(measured).find("cache"), std::string::npos);
  measured.limit = 10;
  EXPECT_NE(measured_text(measured).find("cache"), std::string::npos);
}

TEST(BenchReport, ProfileSharesAddUpAndLimitsAreOfTheSlowerResource) {
  const std::vector<models::OperationTime> times = {
      {.name = "qkv", .seconds = 0.25, .calls = 2, .weight_bytes = 1000, .operations = 2000},
      {.name = "ffn",
       .seconds = 0.75,
       .calls = 2,
       .weight_bytes = 3000,
       .operations = 6000,
       .int8_unsigned = 5000}};
  // 0.1 s of memory against 0.2 s of fma; 0.3 s of memory against 0.1 + 0.125 s of products.
  const MachineLimits limits = {
      .read_bytes = 10'000, .f32 = 10'000, .int8_signed = 20'000, .int8_unsigned = 40'000};
  EXPECT_DOUBLE_EQ(floor_seconds(times[0], limits), 0.2);
  EXPECT_DOUBLE_EQ(floor_seconds(times[1], limits), 0.3);
  const std::string text = profile_text(times, limits);
  for (const char* wanted : {"25.0 %", "75.0 %", "80 %", "40 %", "50 %"}) {
    EXPECT_NE(text.find(wanted), std::string::npos) << wanted << " in\n" << text;
  }
}

}  // namespace
}  // namespace deepinfer::apps
