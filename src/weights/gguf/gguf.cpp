#include "weights/gguf/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace deepinfer::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as it lies in memory");

// The value types of metadata, as the specification numbers them.
enum class ValueType : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};
constexpr uint32_t kValueTypeCount = 13;
constexpr std::array<std::string_view, kValueTypeCount> kValueTypeNames = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
// The fewest bytes a value of the type takes in the file.
constexpr std::array<uint64_t, kValueTypeCount> kValueTypeBytes = {1, 1, 2,  2, 4, 4, 4,
                                                                   1, 8, 12, 8, 8, 8};
constexpr uint64_t kSmallestKeyValue = 13;  // length of the key, type, one byte
constexpr uint64_t kSmallestTensor = 24;    // length of the name, rank, type, offset

struct TensorType {
  uint32_t number;
  std::string_view name;
  std::optional<DType> dtype;  // nullopt: a type ggml has and this program does not read
};
constexpr std::array kTensorTypes = {
    TensorType{0, "F32", DType::f32},          TensorType{1, "F16", DType::f16},
    TensorType{2, "Q4_0", DType::q4_0},        TensorType{3, "Q4_1", DType::q4_1},
    TensorType{6, "Q5_0", DType::q5_0},        TensorType{7, "Q5_1", DType::q5_1},
    TensorType{8, "Q8_0", DType::q8_0},        TensorType{9, "Q8_1", std::nullopt},
    TensorType{10, "Q2_K", DType::q2_k},       TensorType{11, "Q3_K", DType::q3_k},
    TensorType{12, "Q4_K", DType::q4_k},       TensorType{13, "Q5_K", DType::q5_k},
    TensorType{14, "Q6_K", DType::q6_k},       TensorType{15, "Q8_K", std::nullopt},
    TensorType{16, "IQ2_XXS", DType::iq2_xxs}, TensorType{17, "IQ2_XS", DType::iq2_xs},
    TensorType{18, "IQ3_XXS", DType::iq3_xxs}, TensorType{19, "IQ1_S", std::nullopt},
    TensorType{20, "IQ4_NL", DType::iq4_nl},   TensorType{21, "IQ3_S", DType::iq3_s},
    TensorType{22, "IQ2_S", DType::iq2_s},     TensorType{23, "IQ4_XS", DType::iq4_xs},
    TensorType{24, "I8", DType::i8},           TensorType{25, "I16", DType::i16},
    TensorType{26, "I32", DType::i32},         TensorType{27, "I64", DType::i64},
    TensorType{28, "F64", DType::f64},         TensorType{29, "IQ1_M", std::nullopt},
    TensorType{30, "BF16", DType::bf16},       TensorType{34, "TQ1_0", std::nullopt},
    TensorType{35, "TQ2_0", std::nullopt},     TensorType{39, "MXFP4", DType::mxfp4},
    TensorType{40, "NVFP4", DType::nvfp4},     TensorType{41, "Q1_0", std::nullopt},
};

Result<DType> dtype_of_number(uint32_t number, const std::string& thing) {
  for (const TensorType& type : kTensorTypes) {
    if (type.number != number) continue;
    if (type.dtype) return *type.dtype;
    return Error::unsupported(thing, fmt::format("is stored as {} (type {}), which this program "
                                                 "does not read",
                                                 type.name, number));
  }
  return Error::unsupported(thing, fmt::format("has the unknown type number {}", number));
}

// Reads forward through the head; every read is checked against what is left.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& source)
      : bytes_(bytes), source_(source) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }
  const std::string& source() const { return source_; }

  template <class T>
  Result<T> number(std::string_view what) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (left() < sizeof(T)) return cut(what, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  Result<std::string_view> string(std::string_view what, uint64_t limit) {
    const uint64_t length = TRY(number<uint64_t>(what));
    if (length > left()) return cut(what, length);
    if (length > limit) {
      return Error::exhausted(source_, fmt::format("{} at byte {} is {} bytes long, the limit is "
                                                   "{}",
                                                   what, position_, length, limit));
    }
    const char* text = reinterpret_cast<const char*>(bytes_.data() + position_);
    position_ += length;
    return std::string_view(text, length);
  }

 private:
  Error cut(std::string_view what, uint64_t need) const {
    const char* end = bytes_.size() == kGgufHeadLimit ? "the limit of the head" : "the end";
    return Error::corrupt(source_, fmt::format("{} at byte {} needs {} bytes, {} is {} bytes away",
                                               what, position_, need, end, left()));
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
  uint64_t position_ = 0;
};

Result<bool> read_bool(Cursor& cursor, const std::string& what) {
  const uint8_t value = TRY(cursor.number<uint8_t>(what));
  if (value > 1) {
    return Error::corrupt(cursor.source(), fmt::format("{} is {}, a bool is 0 or 1", what, value));
  }
  return value == 1;
}

template <class T>
Result<int64_t> read_integer(Cursor& cursor, const std::string& what) {
  const T value = TRY(cursor.number<T>(what));
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Error::unsupported(cursor.source(),
                                fmt::format("{} holds {}, the limit is 2^63 - 1", what, value));
    }
  }
  return static_cast<int64_t>(value);
}

template <class T, class Read>
Result<MetadataValue> read_elements(uint64_t count, Read read) {
  std::vector<T> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) values.push_back(TRY(read()));
  return MetadataValue(std::in_place_type<std::vector<T>>, std::move(values));
}

template <class T>
Result<MetadataValue> read_integers(Cursor& cursor, uint64_t count, const std::string& what) {
  return read_elements<int64_t>(count, [&] { return read_integer<T>(cursor, what); });
}

template <class T>
Result<MetadataValue> read_floats(Cursor& cursor, uint64_t count, const std::string& what) {
  return read_elements<double>(
      count, [&]() -> Result<double> { return static_cast<double>(TRY(cursor.number<T>(what))); });
}

Result<ValueType> read_type(Cursor& cursor, const std::string& what) {
  const uint32_t number = TRY(cursor.number<uint32_t>(what));
  if (number >= kValueTypeCount) {
    return Error::corrupt(cursor.source(), fmt::format("{} has the value type {}, the last is {}",
                                                       what, number, kValueTypeCount - 1));
  }
  return static_cast<ValueType>(number);
}

Result<MetadataValue> read_array(Cursor& cursor, const std::string& what) {
  const ValueType type = TRY(read_type(cursor, what));
  const uint64_t count = TRY(cursor.number<uint64_t>(what));
  if (type == ValueType::array) {
    return Error::unsupported(cursor.source(), fmt::format("{} is an array of arrays", what));
  }
  const size_t index = static_cast<size_t>(type);
  if (count > cursor.left() / kValueTypeBytes[index]) {
    return Error::corrupt(cursor.source(),
                          fmt::format("{} is an array of {} {}, {} bytes are left", what, count,
                                      kValueTypeNames[index], cursor.left()));
  }
  if (count > kGgufArrayLimit) {
    return Error::exhausted(cursor.source(), fmt::format("{} is an array of {} values, the limit "
                                                         "is {}",
                                                         what, count, kGgufArrayLimit));
  }
  switch (type) {
    case ValueType::u8:
      return read_integers<uint8_t>(cursor, count, what);
    case ValueType::i8:
      return read_integers<int8_t>(cursor, count, what);
    case ValueType::u16:
      return read_integers<uint16_t>(cursor, count, what);
    case ValueType::i16:
      return read_integers<int16_t>(cursor, count, what);
    case ValueType::u32:
      return read_integers<uint32_t>(cursor, count, what);
    case ValueType::i32:
      return read_integers<int32_t>(cursor, count, what);
    case ValueType::u64:
      return read_integers<uint64_t>(cursor, count, what);
    case ValueType::i64:
      return read_integers<int64_t>(cursor, count, what);
    case ValueType::f32:
      return read_floats<float>(cursor, count, what);
    case ValueType::f64:
      return read_floats<double>(cursor, count, what);
    case ValueType::boolean:
      return read_elements<bool>(count, [&] { return read_bool(cursor, what); });
    case ValueType::string:
      return read_elements<std::string>(count, [&]() -> Result<std::string> {
        return std::string(TRY(cursor.string(what, kGgufHeadLimit)));
      });
    case ValueType::array:
      break;
  }
  check(false, "every value type is handled");
  return MetadataValue(false);
}

template <class T>
MetadataValue value_of(T value) {
  return MetadataValue(std::in_place_type<T>, std::move(value));
}

Result<MetadataValue> read_value(Cursor& cursor, ValueType type, const std::string& what) {
  switch (type) {
    case ValueType::u8:
      return value_of<uint64_t>(TRY(cursor.number<uint8_t>(what)));
    case ValueType::u16:
      return value_of<uint64_t>(TRY(cursor.number<uint16_t>(what)));
    case ValueType::u32:
      return value_of<uint64_t>(TRY(cursor.number<uint32_t>(what)));
    case ValueType::u64:
      return value_of<uint64_t>(TRY(cursor.number<uint64_t>(what)));
    case ValueType::i8:
      return value_of<int64_t>(TRY(cursor.number<int8_t>(what)));
    case ValueType::i16:
      return value_of<int64_t>(TRY(cursor.number<int16_t>(what)));
    case ValueType::i32:
      return value_of<int64_t>(TRY(cursor.number<int32_t>(what)));
    case ValueType::i64:
      return value_of<int64_t>(TRY(cursor.number<int64_t>(what)));
    case ValueType::f32:
      return value_of<double>(TRY(cursor.number<float>(what)));
    case ValueType::f64:
      return value_of<double>(TRY(cursor.number<double>(what)));
    case ValueType::boolean:
      return value_of<bool>(TRY(read_bool(cursor, what)));
    case ValueType::string:
      return value_of<std::string>(std::string(TRY(cursor.string(what, kGgufHeadLimit))));
    case ValueType::array:
      return read_array(cursor, what);
  }
  check(false, "every value type is handled");
  return MetadataValue(false);
}

Result<void> read_metadata(Cursor& cursor, uint64_t count, GgufHead& head) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view key =
        TRY(cursor.string(fmt::format("metadata key {}", i), kGgufKeyLimit));
    if (key.empty()) {
      return Error::corrupt(cursor.source(), fmt::format("metadata key {} is empty", i));
    }
    const std::string what = fmt::format("metadata {}", printable(key));
    const ValueType type = TRY(read_type(cursor, what));
    MetadataValue value = TRY(read_value(cursor, type, what));
    if (!head.metadata.emplace(std::string(key), std::move(value)).second) {
      return Error::corrupt(cursor.source(), fmt::format("{} is there twice", what));
    }
  }
  return {};
}

Result<uint64_t> read_alignment(const GgufHead& head, const std::string& source) {
  const auto found = head.metadata.find("general.alignment");
  if (found == head.metadata.end()) return uint64_t{kGgufDefaultAlignment};
  const uint64_t* value = std::get_if<uint64_t>(&found->second);
  if (value == nullptr) {
    return Error::corrupt(source, "metadata general.alignment is not an unsigned integer");
  }
  if (*value < 8 || *value > kGgufAlignmentLimit || !std::has_single_bit(*value)) {
    return Error::corrupt(source, fmt::format("metadata general.alignment is {}, expected a power "
                                              "of two from 8 to {}",
                                              *value, kGgufAlignmentLimit));
  }
  return *value;
}

// Reads one line of the table; begin is still counted from the start of the data.
Result<TableEntry> read_tensor(Cursor& cursor, uint64_t index) {
  TableEntry entry;
  entry.name = std::string(
      TRY(cursor.string(fmt::format("name of tensor {}", index), kGgufTensorNameLimit)));
  if (entry.name.empty()) {
    return Error::corrupt(cursor.source(), fmt::format("the name of tensor {} is empty", index));
  }
  const std::string thing = tensor_thing(cursor.source(), entry.name);
  const std::string what = fmt::format("tensor {}", printable(entry.name));
  const uint32_t rank = TRY(cursor.number<uint32_t>(what));
  if (rank > Shape::kMaxRank) {
    return Error::unsupported(thing,
                              fmt::format("has rank {}, the limit is {}", rank, Shape::kMaxRank));
  }
  std::array<uint64_t, Shape::kMaxRank> dims{};
  for (uint32_t axis = 0; axis < rank; ++axis) {
    dims[rank - 1 - axis] = TRY(cursor.number<uint64_t>(what));
  }
  Result<Shape> shape = Shape::create(std::span(dims).first(rank));
  if (!shape.ok()) return Error::corrupt(thing, shape.error().text());
  entry.shape = shape.value();
  const uint32_t type = TRY(cursor.number<uint32_t>(what));
  entry.dtype = TRY(dtype_of_number(type, thing));
  entry.bytes = TRY(tensor_bytes(entry.dtype, entry.shape, thing));
  entry.begin = TRY(cursor.number<uint64_t>(what));
  return entry;
}

Result<void> place_tensors(GgufHead& head, uint64_t head_end, uint64_t file_size,
                           const std::string& source) {
  if (head.tensors.empty()) return {};
  // head_end <= kGgufHeadLimit, so rounding up cannot overflow.
  const uint64_t data_begin = (head_end + head.alignment - 1) / head.alignment * head.alignment;
  const uint64_t data_bytes = file_size > data_begin ? file_size - data_begin : 0;
  for (TableEntry& entry : head.tensors) {
    const std::string thing = tensor_thing(source, entry.name);
    if (entry.begin % head.alignment != 0) {
      return Error::corrupt(thing, fmt::format("offset {} is not a multiple of the alignment {}",
                                               entry.begin, head.alignment));
    }
    if (entry.begin > data_bytes || entry.bytes > data_bytes - entry.begin) {
      return Error::corrupt(
          thing, fmt::format("{} of shape {} takes {} bytes at offset {}, the file has {} bytes of "
                             "data",
                             dtype_info(entry.dtype).name, entry.shape.text(), entry.bytes,
                             entry.begin, data_bytes));
    }
    entry.begin += data_begin;
  }
  return check_extents(head.tensors, std::min(data_begin, file_size), file_size, Holes::allowed,
                       source);
}

Result<uint32_t> read_version(Cursor& cursor) {
  const auto magic = TRY((cursor.number<std::array<char, 4>>("the magic number")));
  const std::string_view text(magic.data(), magic.size());
  if (text != "GGUF") {
    return Error::corrupt(
        cursor.source(),
        fmt::format("starts with \"{}\", a GGUF file with \"GGUF\"", printable(text)));
  }
  const uint32_t version = TRY(cursor.number<uint32_t>("the version"));
  if ((version & 0xffff) == 0 && version != 0) {
    return Error::unsupported(
        cursor.source(),
        fmt::format("is a big-endian GGUF file of version {}", __builtin_bswap32(version)));
  }
  if (version != 2 && version != 3) {
    return Error::unsupported(cursor.source(),
                              fmt::format("is GGUF version {}, known are 2 and 3", version));
  }
  return version;
}

}  // namespace

Result<GgufHead> parse_gguf(std::span<const std::byte> bytes, uint64_t file_size,
                            const std::string& source) {
  check(file_size >= bytes.size(), "a file is not shorter than its beginning");
  Cursor cursor(bytes.first(std::min<uint64_t>(bytes.size(), kGgufHeadLimit)), source);
  GgufHead head;
  head.version = TRY(read_version(cursor));
  const uint64_t tensor_count = TRY(cursor.number<uint64_t>("the tensor count"));
  const uint64_t metadata_count = TRY(cursor.number<uint64_t>("the metadata count"));
  if (metadata_count > cursor.left() / kSmallestKeyValue) {
    return Error::corrupt(source, fmt::format("says it has {} metadata entries, {} bytes are left",
                                              metadata_count, cursor.left()));
  }
  if (tensor_count > cursor.left() / kSmallestTensor) {
    return Error::corrupt(source, fmt::format("says it has {} tensors, {} bytes are left",
                                              tensor_count, cursor.left()));
  }
  TRY(read_metadata(cursor, metadata_count, head));
  head.alignment = TRY(read_alignment(head, source));
  for (uint64_t i = 0; i < tensor_count; ++i) {
    head.tensors.push_back(TRY(read_tensor(cursor, i)));
  }
  TRY(place_tensors(head, cursor.position(), file_size, source));
  return head;
}

}  // namespace deepinfer::weights
