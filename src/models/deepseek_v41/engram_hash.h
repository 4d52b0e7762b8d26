#pragma once

// EngramHash: which rows of an Engram table a position reads: a hash of the last 2, 3, .. ids, one
// row per hash head. Source: spec v41.md 4.8.
//
//   c = class_of(id); an image position is kDead
//   v_i = c of i positions ago; the pad's class before position 0 and from the first image
//         position backwards (i = 0 included)
//   h_1 = v_0 m_0;  h_n = h_{n-1} xor v_{n-1} m_{n-1}
//   row(n, head) = h_n mod prime[n][head] + sum of the primes before it
//
// A folder may hold engram.json: {"token_map": [vocab], "multipliers": {"<layer>": [ngram]},
// "primes": {"<layer>": [(ngram - 1) * heads]}}. Without it the token map comes from the caller,
// who knows the tokenizer, and the numbers from numpy's PCG64 as the official code draws them.
//
// Threads: read-only after create().

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::models {

class EngramHash {
 public:
  static constexpr int32_t kDead = -1;

  // token_map [vocab]: the class of each id, 0 .. compressed_vocab - 1. Fails (invalid) naming the
  // field and both values.
  static Result<EngramHash> create(const weights::EngramConfig& config, uint32_t vocab,
                                   std::vector<int32_t> token_map);
  // From the text of engram.json. source is the file's path.
  static Result<EngramHash> parse(const weights::EngramConfig& config, uint32_t vocab,
                                  const std::string& json, const std::string& source);

  int32_t class_of(int32_t id) const { return token_map_[static_cast<size_t>(id)]; }
  size_t ngram() const { return ngram_; }
  size_t rows_per_position() const { return (ngram_ - 1) * heads_; }
  // Rows of the table of the layer'th Engram layer: the sum of its primes.
  uint64_t table_rows(size_t layer) const;
  const std::vector<uint64_t>& primes(size_t layer) const { return layers_[layer].primes; }
  const std::vector<uint64_t>& multipliers(size_t layer) const {
    return layers_[layer].multipliers;
  }

  // classes [ngram]: of the position, the one before, ..; kDead also before position 0.
  // out [rows_per_position()].
  void rows(size_t layer, std::span<const int32_t> classes, uint64_t* out) const;

 private:
  struct Layer {
    std::vector<uint64_t> multipliers;  // [ngram]
    std::vector<uint64_t> primes;       // [(ngram - 1) * heads]
  };
  EngramHash() = default;
  Result<void> check_map(const weights::EngramConfig& config, uint32_t vocab) const;

  size_t ngram_ = 0;
  size_t heads_ = 0;
  int32_t pad_class_ = 0;
  std::vector<int32_t> token_map_;  // [vocab]
  std::vector<Layer> layers_;
};

}  // namespace deepinfer::models
