#pragma once

// Fields: the members of one JSON object of a model's configuration, read with a name in every
// error. null counts as absent, as transformers has it. Internal to the folder.
//
//   simdjson::dom::parser parser;                       // must outlive the fields
//   const Fields fields = TRY(parse_fields(parser, json, "config.json"));
//   config.layers = TRY(fields.count("num_hidden_layers", kLayerLimit));
//
// Threads: plain values.

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/model_config.h"

namespace deepinfer::weights {

class Fields {
 public:
  Fields(simdjson::dom::object fields, std::string source)
      : fields_(fields), source_(std::move(source)) {}

  const std::string& source() const { return source_; }
  // "config.json: hidden_size".
  std::string thing(std::string_view key) const;
  std::optional<simdjson::dom::element> find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key).has_value(); }

  // The error of a value that is not what was expected; both are named.
  Error mismatch(std::string_view key, const simdjson::dom::element& value,
                 const std::string& expected) const;
  // The same for two fields that contradict each other.
  Error conflict(std::string_view key, const std::string& what) const;

  // Whole numbers within least .. most (count: from 1). Without _or a missing field is an error.
  Result<uint64_t> whole(std::string_view key, uint64_t least, uint64_t most) const;
  Result<uint32_t> count(std::string_view key, uint64_t most) const;
  Result<uint32_t> count_or(std::string_view key, uint64_t most, uint32_t fallback) const;
  // From 0; fallback when absent.
  Result<uint32_t> amount_or(std::string_view key, uint64_t most, uint32_t fallback) const;
  // Finite numbers.
  Result<double> number(std::string_view key) const;
  Result<double> number_or(std::string_view key, double fallback) const;
  Result<double> positive(std::string_view key) const;
  Result<bool> flag_or(std::string_view key, bool fallback) const;
  Result<std::string> text_or(std::string_view key, std::string_view fallback) const;

  // A list of whole numbers from 0 to most, of at most `longest` items; empty when absent.
  Result<std::vector<uint32_t>> amounts(std::string_view key, uint64_t most, size_t longest) const;
  // One id or a list of ids without repeats; none when absent.
  Result<std::vector<uint32_t>> ids(std::string_view key) const;
  // The object under key; nullopt when absent.
  Result<std::optional<Fields>> child(std::string_view key) const;

  // Options with one value that this program computes; absent counts as that value.
  Result<void> require_flag(std::string_view key, bool only) const;
  Result<void> require_text(std::string_view key, std::string_view only) const;
  Result<void> require_number(std::string_view key, double only) const;

 private:
  Result<uint32_t> id(std::string_view key, const simdjson::dom::element& value) const;

  simdjson::dom::object fields_;
  std::string source_;
};

// The members of a text that is one JSON object of at most 16 MiB.
Result<Fields> parse_fields(simdjson::dom::parser& parser, std::string_view json,
                            const std::string& source);

// The family that architectures or model_type name; both must agree. Unknown: unsupported.
Result<Family> read_family(const Fields& fields);

}  // namespace deepinfer::weights
