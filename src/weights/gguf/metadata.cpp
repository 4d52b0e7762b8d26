#include "weights/gguf/metadata.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "weights/tensor_table.h"

namespace deepinfer::weights {
namespace {

template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return fmt::format("\"{}\"", printable(value));
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return fmt::format("an array of {} strings", value.size());
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return fmt::format("an array of {} integers", value.size());
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return fmt::format("an array of {} floats", value.size());
  } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
    return fmt::format("an array of {} bools", value.size());
  } else {
    return fmt::format("{}", value);
  }
}

double shortest_decimal(double value) {
  const float narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  std::array<char, 64> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), narrow);
  double wide = value;
  std::from_chars(text.data(), written.ptr, wide);
  return wide;
}

}  // namespace

std::string metadata_text(const MetadataValue& value) {
  return std::visit([](const auto& held) { return text_of(held); }, value);
}

std::string MetadataReader::thing(std::string_view key) const {
  return fmt::format("{}: metadata {}", source_, printable(key));
}

Result<const MetadataValue*> MetadataReader::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return Error::corrupt(thing(key), "is missing");
  return &found->second;
}

Error MetadataReader::mismatch(std::string_view key, const MetadataValue& value,
                               std::string expected) const {
  return Error::corrupt(thing(key),
                        fmt::format("is {}, expected {}", metadata_text(value), expected));
}

Result<uint64_t> MetadataReader::integer(std::string_view key, uint64_t least,
                                         uint64_t most) const {
  const MetadataValue* value = TRY(find(key));
  if (const uint64_t* held = std::get_if<uint64_t>(value)) {
    if (*held >= least && *held <= most) return *held;
  }
  if (const int64_t* held = std::get_if<int64_t>(value)) {
    if (*held >= 0 && static_cast<uint64_t>(*held) >= least &&
        static_cast<uint64_t>(*held) <= most) {
      return static_cast<uint64_t>(*held);
    }
  }
  return mismatch(key, *value, fmt::format("a whole number from {} to {}", least, most));
}

Result<uint64_t> MetadataReader::integer_or(std::string_view key, uint64_t least, uint64_t most,
                                            uint64_t fallback) const {
  if (!has(key)) return fallback;
  return integer(key, least, most);
}

Result<double> MetadataReader::number(std::string_view key) const {
  const MetadataValue* value = TRY(find(key));
  if (const double* held = std::get_if<double>(value)) {
    if (std::isfinite(*held)) return shortest_decimal(*held);
  }
  if (const uint64_t* held = std::get_if<uint64_t>(value)) return static_cast<double>(*held);
  if (const int64_t* held = std::get_if<int64_t>(value)) return static_cast<double>(*held);
  return mismatch(key, *value, "a finite number");
}

Result<double> MetadataReader::number_or(std::string_view key, double fallback) const {
  if (!has(key)) return fallback;
  return number(key);
}

Result<bool> MetadataReader::flag_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const MetadataValue* value = TRY(find(key));
  if (const bool* held = std::get_if<bool>(value)) return *held;
  return mismatch(key, *value, "true or false");
}

Result<std::string> MetadataReader::text(std::string_view key) const {
  const MetadataValue* value = TRY(find(key));
  if (const std::string* held = std::get_if<std::string>(value)) return *held;
  return mismatch(key, *value, "a string");
}

Result<std::string> MetadataReader::text_or(std::string_view key, std::string fallback) const {
  if (!has(key)) return fallback;
  return text(key);
}

Result<const std::vector<std::string>*> MetadataReader::texts(std::string_view key) const {
  const MetadataValue* value = TRY(find(key));
  if (const auto* held = std::get_if<std::vector<std::string>>(value)) return held;
  return mismatch(key, *value, "an array of strings");
}

Result<const std::vector<int64_t>*> MetadataReader::integers(std::string_view key) const {
  const MetadataValue* value = TRY(find(key));
  if (const auto* held = std::get_if<std::vector<int64_t>>(value)) return held;
  return mismatch(key, *value, "an array of integers");
}

}  // namespace deepinfer::weights
