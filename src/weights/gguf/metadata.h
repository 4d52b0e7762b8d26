#pragma once

// Typed reads of GGUF metadata; every error names the file, the key, the value there and what was
// expected.
//
//   MetadataReader reader(checkpoint.metadata(), checkpoint.path());
//   const uint64_t layers = TRY(reader.integer("llama.block_count", 1, 1024));
//
// Ownership: the reader refers to the map, which must outlive it. Threads: any.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/checkpoint.h"

namespace deepinfer::weights {

using Metadata = std::map<std::string, MetadataValue, std::less<>>;

// "12", "\"llama\"", "an array of 49152 strings": for messages and `inspect`.
std::string metadata_text(const MetadataValue& value);

class MetadataReader {
 public:
  MetadataReader(const Metadata& metadata, std::string source)
      : metadata_(metadata), source_(std::move(source)) {}

  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  // "model.gguf: metadata llama.block_count".
  std::string thing(std::string_view key) const;

  // Whole numbers of either sign's type, within least .. most.
  Result<uint64_t> integer(std::string_view key, uint64_t least, uint64_t most) const;
  Result<uint64_t> integer_or(std::string_view key, uint64_t least, uint64_t most,
                              uint64_t fallback) const;
  // Finite numbers. An f32 is turned into the double of its shortest decimal, so that 1e-5 from
  // a file of 32-bit floats equals 1e-5 from a text.
  Result<double> number(std::string_view key) const;
  Result<double> number_or(std::string_view key, double fallback) const;
  Result<bool> flag_or(std::string_view key, bool fallback) const;
  Result<std::string> text(std::string_view key) const;
  Result<std::string> text_or(std::string_view key, std::string fallback) const;
  // Arrays; the pointer is into the map.
  Result<const std::vector<std::string>*> texts(std::string_view key) const;
  Result<const std::vector<int64_t>*> integers(std::string_view key) const;

 private:
  Result<const MetadataValue*> find(std::string_view key) const;
  Error mismatch(std::string_view key, const MetadataValue& value, std::string expected) const;

  const Metadata& metadata_;
  std::string source_;
};

}  // namespace deepinfer::weights
