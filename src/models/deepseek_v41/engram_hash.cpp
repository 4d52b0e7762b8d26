#include "models/deepseek_v41/engram_hash.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "models/deepseek_v41/numpy_random.h"
#include "weights/deepseek/engram_primes.h"

namespace deepinfer::models {
namespace {

constexpr uint64_t kLargestProduct = (uint64_t{1} << 63) - 1;

std::vector<uint64_t> draw_multipliers(const weights::EngramConfig& config, uint32_t layer) {
  NumpyRandom random(uint64_t{10007} * layer);
  const uint64_t bound = std::max<uint64_t>(1, kLargestProduct / config.compressed_vocab / 2);
  std::vector<uint64_t> out(config.max_ngram);
  for (uint64_t& multiplier : out) multiplier = random.below(bound) * 2 + 1;
  return out;
}

Result<std::vector<uint64_t>> read_numbers(const JsonValue& root, const char* field, uint32_t layer,
                                           size_t count, const std::string& source) {
  const JsonValue* map = TRY(root.member(field));
  const JsonValue* list = TRY(map->member(std::to_string(layer)));
  const std::span<const JsonValue> values = TRY(list->array());
  const std::string where = source + ": " + field + " of layer " + std::to_string(layer);
  if (values.size() != count) {
    return Error::invalid(where, "there are " + std::to_string(values.size()) +
                                     ", the configuration needs " + std::to_string(count));
  }
  std::vector<uint64_t> out;
  for (const JsonValue& value : values) {
    out.push_back(TRY(value.unsigned_integer()));
    if (out.back() == 0) return Error::invalid(where, "0 is no such number");
  }
  return out;
}

Result<void> check_config(const weights::EngramConfig& config) {
  if (config.max_ngram < 2 || config.max_ngram > weights::kEngramNgramLimit || config.heads == 0 ||
      config.heads > weights::kEngramHeadLimit) {
    return Error::unsupported("engram",
                              "n-grams of " + std::to_string(config.max_ngram) + " and " +
                                  std::to_string(config.heads) + " heads: 2 to " +
                                  std::to_string(weights::kEngramNgramLimit) + " and 1 to " +
                                  std::to_string(weights::kEngramHeadLimit) + " are possible");
  }
  if (config.vocab < 2 || config.vocab > weights::kEngramVocabLimit ||
      config.compressed_vocab == 0) {
    return Error::invalid("engram", "engram_vocab_size " + std::to_string(config.vocab) +
                                        ", engram_compressed_vocab_size " +
                                        std::to_string(config.compressed_vocab) + ": out of range");
  }
  return {};
}

}  // namespace

Result<void> EngramHash::check_map(const weights::EngramConfig& config, uint32_t vocab) const {
  if (token_map_.size() != vocab) {
    return Error::invalid("engram token map", "it has " + std::to_string(token_map_.size()) +
                                                  " ids, the vocabulary " + std::to_string(vocab));
  }
  for (size_t id = 0; id < token_map_.size(); ++id) {
    if (token_map_[id] < 0 || static_cast<uint32_t>(token_map_[id]) >= config.compressed_vocab) {
      return Error::invalid("engram token map", "id " + std::to_string(id) + " has the class " +
                                                    std::to_string(token_map_[id]) +
                                                    ", engram_compressed_vocab_size is " +
                                                    std::to_string(config.compressed_vocab));
    }
  }
  if (config.pad_id >= vocab) {
    return Error::invalid(
        "engram_pad_token_id",
        std::to_string(config.pad_id) + " is outside the vocabulary of " + std::to_string(vocab));
  }
  return {};
}

Result<EngramHash> EngramHash::create(const weights::EngramConfig& config, uint32_t vocab,
                                      std::vector<int32_t> token_map) {
  TRY(check_config(config));
  EngramHash hash;
  hash.ngram_ = config.max_ngram;
  hash.heads_ = config.heads;
  hash.token_map_ = std::move(token_map);
  TRY(hash.check_map(config, vocab));
  hash.pad_class_ = hash.token_map_[config.pad_id];
  std::vector<std::vector<uint64_t>> primes = weights::engram_primes(config);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    hash.layers_.push_back({draw_multipliers(config, config.layers[i]), std::move(primes[i])});
  }
  return hash;
}

Result<EngramHash> EngramHash::parse(const weights::EngramConfig& config, uint32_t vocab,
                                     const std::string& json, const std::string& source) {
  TRY(check_config(config));
  const JsonDocument document = TRY(JsonDocument::parse(json, source));
  const JsonValue& root = document.root();
  const JsonValue* map = TRY(root.member("token_map"));
  EngramHash hash;
  hash.ngram_ = config.max_ngram;
  hash.heads_ = config.heads;
  for (const JsonValue& value : TRY(map->array())) {
    const int64_t number = TRY(value.integer());
    if (number < 0 || number > INT32_MAX) {
      return Error::invalid(source + ": token_map", std::to_string(number) + " is no class");
    }
    hash.token_map_.push_back(static_cast<int32_t>(number));
  }
  TRY(hash.check_map(config, vocab));
  hash.pad_class_ = hash.token_map_[config.pad_id];
  for (uint32_t layer : config.layers) {
    Layer numbers;
    numbers.multipliers = TRY(read_numbers(root, "multipliers", layer, hash.ngram_, source));
    numbers.primes = TRY(read_numbers(root, "primes", layer, hash.rows_per_position(), source));
    for (uint64_t multiplier : numbers.multipliers) {
      if (multiplier > kLargestProduct / config.compressed_vocab) {
        return Error::invalid(source + ": multipliers of layer " + std::to_string(layer),
                              std::to_string(multiplier) + " overflows with " +
                                  std::to_string(config.compressed_vocab) + " classes");
      }
    }
    hash.layers_.push_back(std::move(numbers));
  }
  return hash;
}

uint64_t EngramHash::table_rows(size_t layer) const {
  uint64_t rows = 0;
  for (uint64_t prime : layers_[layer].primes) rows += prime;
  return rows;
}

void EngramHash::rows(size_t layer, std::span<const int32_t> classes, uint64_t* out) const {
  check(classes.size() == ngram_, "classes of an n-gram");
  const Layer& numbers = layers_[layer];
  const auto value = [&](size_t i, bool& dead) {
    dead = dead || classes[i] == kDead;
    return static_cast<uint64_t>(dead ? pad_class_ : classes[i]) * numbers.multipliers[i];
  };
  bool dead = false;
  uint64_t hash = value(0, dead), offset = 0;
  size_t at = 0;
  for (size_t n = 1; n < ngram_; ++n) {
    hash ^= value(n, dead);
    for (size_t head = 0; head < heads_; ++head, ++at) {
      out[at] = hash % numbers.primes[at] + offset;
      offset += numbers.primes[at];
    }
  }
}

}  // namespace deepinfer::models
