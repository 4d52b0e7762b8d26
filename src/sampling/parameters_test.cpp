#include "sampling/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace deepinfer::sampling {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();

void expect_refused(const Parameters& parameters, const std::string& text, size_t vocab = 0) {
  const auto result = validate(parameters, vocab);
  ASSERT_FALSE(result.ok()) << text;
  EXPECT_EQ(result.error().kind, ErrorKind::invalid);
  EXPECT_THAT(result.error().text(), HasSubstr(text));
}

TEST(Validate, NamesFieldAndValue) {
  EXPECT_TRUE(validate({}).ok());
  const std::pair<Parameters, std::string> cases[] = {
      {{.temperature = -1.0f}, "temperature: -1"},
      {{.temperature = kNan}, "temperature: nan"},
      {{.temperature = kInfinity}, "temperature: inf"},
      {{.top_k = -3}, "top_k: -3"},
      {{.top_k = kMin}, "top_k: -2147483648"},
      {{.top_p = 0.0f}, "top_p: 0"},
      {{.top_p = 1.5f}, "top_p: 1.5"},
      {{.top_p = kNan}, "top_p: nan"},
      {{.min_p = -0.1f}, "min_p: -0.1"},
      {{.min_p = kNan}, "min_p: nan"},
      {{.repetition_penalty = 0.0f}, "repetition_penalty: 0"},
      {{.repetition_penalty = kInfinity}, "repetition_penalty: inf"},
      {{.repetition_penalty = kNan}, "repetition_penalty: nan"},
      {{.presence_penalty = 2.5f}, "presence_penalty: 2.5"},
      {{.presence_penalty = -kInfinity}, "presence_penalty: -inf"},
      {{.frequency_penalty = kNan}, "frequency_penalty: nan"},
      {{.top_logprobs = 1001}, "top_logprobs: 1001 is not 0 to 1000"},
      {{.top_logprobs = -1}, "top_logprobs: -1"},
      {{.top_logprobs = kMax}, "top_logprobs: 2147483647"},
      {{.banned_ids = {3, -1}}, "banned_ids: -1"},
      {{.logit_bias = {{-1, 0.0f}}}, "logit_bias: -1"},
      {{.logit_bias = {{4, kNan}}}, "logit_bias: nan for id 4"},
      {{.logit_bias = {{4, 100.5f}}}, "logit_bias: 100.5"},
      {{.generator = Generator::deepinfer, .force_top_k = -1}, "force_top_k: -1"},
  };
  for (const auto& [parameters, text] : cases) expect_refused(parameters, text);
}

TEST(Validate, RefusesImpossiblePairsByName) {
  expect_refused({.min_p = 0.1f, .generator = Generator::deepinfer}, "min_p: 0.1");
  expect_refused({.min_p = 0.1f, .generator = Generator::deepinfer}, "Generator::deepinfer");
  expect_refused({.force_top_k = 5}, "force_top_k: 5 needs Generator::deepinfer");
  expect_refused({.logit_bias = {{7, 1.0f}, {2, 1.0f}, {7, 2.0f}}}, "id 7 has two biases");
  expect_refused({.banned_ids = {2}, .logit_bias = {{2, 1.0f}}}, "id 2 is in banned_ids too");
}

TEST(Validate, IdsMustBeInTheVocabularyWhenItIsKnown) {
  EXPECT_TRUE(validate({.banned_ids = {kMax}}).ok());
  EXPECT_TRUE(validate({.banned_ids = {9}, .logit_bias = {{8, 1.0f}}}, 10).ok());
  expect_refused({.banned_ids = {10}}, "banned_ids: 10 is not an id of the vocabulary of 10", 10);
  expect_refused({.logit_bias = {{10, 1.0f}}}, "logit_bias: 10", 10);
}

TEST(Validate, LimitsAreAllowed) {
  EXPECT_TRUE(validate({.temperature = 1e30f,
                        .top_k = kMax,
                        .top_p = 1e-30f,
                        .min_p = 1.0f,
                        .repetition_penalty = 0.01f,
                        .presence_penalty = -2.0f,
                        .frequency_penalty = 2.0f,
                        .top_logprobs = kMaxTopLogprobs,
                        .logit_bias = {{0, -100.0f}}})
                  .ok());
}

}  // namespace
}  // namespace deepinfer::sampling
