#pragma once

// Model files of a few bytes for the tests of this folder, well-formed or lying on request.
//
//   GgufBuilder gguf;
//   gguf.text("general.architecture", "llama").tensor({"x", DType::f32, {2, 4}});
//   const std::string file = gguf.build();
//
// Threads: plain values.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace deepinfer::weights {

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <class T>
std::string raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

// A folder of its own for one test, empty at first and removed at the end.
class TempFolder {
 public:
  TempFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "weights_" + std::to_string(getpid()) + "_" +
            test->test_suite_name() + "_" + test->name();
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& content) const {
    const std::string target = path_ + "/" + name;
    std::ofstream(target, std::ios::binary) << content;
    return target;
  }

 private:
  std::string path_;
};

struct TinyTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<uint64_t> shape;  // outermost first
  char fill = 1;                // every byte of the data

  std::string data() const {
    const Shape checked = Shape::create(shape).value();
    return std::string(row_bytes(dtype, checked.row_elements()) * checked.rows(), fill);
  }
};

// header as it is, or padded with blanks to a multiple of 8 bytes.
inline std::string safetensors_file(std::string header, const std::string& data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return raw<uint64_t>(header.size()) + header + data;
}

inline std::string safetensors_file(const std::vector<TinyTensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const TinyTensor& tensor : tensors) {
    std::string shape;
    for (const uint64_t dim : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(dim);
    }
    const size_t begin = data.size();
    data += tensor.data();
    header += ",\"" + tensor.name + "\":{\"dtype\":\"" +
              std::string(dtype_info(tensor.dtype).name) + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) +
              "]}";
  }
  return safetensors_file(header + "}", data);
}

// Type numbers of values and of the few tensor dtypes that tests write.
enum GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

class GgufBuilder {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;
  uint64_t extra_tensors = 0;   // claimed and not there
  uint64_t extra_metadata = 0;  // claimed and not there

  static std::string string(std::string_view text) {
    return raw<uint64_t>(text.size()) + std::string(text);
  }

  GgufBuilder& value(std::string_view key, uint32_t type, const std::string& bytes) {
    metadata_ += string(key) + raw(type) + bytes;
    ++metadata_count_;
    return *this;
  }
  GgufBuilder& text(std::string_view key, std::string_view text) {
    return value(key, kString, string(text));
  }
  GgufBuilder& u32(std::string_view key, uint32_t number) { return value(key, kU32, raw(number)); }
  GgufBuilder& f32(std::string_view key, float number) { return value(key, kF32, raw(number)); }
  GgufBuilder& flag(std::string_view key, bool flag) { return value(key, kBool, raw(flag)); }
  GgufBuilder& texts(std::string_view key, const std::vector<std::string>& items) {
    std::string bytes = raw<uint32_t>(kString) + raw<uint64_t>(items.size());
    for (const std::string& item : items) bytes += string(item);
    return value(key, kArray, bytes);
  }
  template <class T>
  GgufBuilder& array(std::string_view key, uint32_t type, const std::vector<T>& items) {
    std::string bytes = raw(type) + raw<uint64_t>(items.size());
    for (const T item : items) bytes += raw(item);
    return value(key, kArray, bytes);
  }

  // A line of the table with no data of its own; dims innermost first.
  GgufBuilder& line(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                    uint64_t offset) {
    table_ += string(name) + raw<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) table_ += raw(dim);
    table_ += raw(type) + raw(offset);
    ++tensor_count_;
    return *this;
  }
  GgufBuilder& tensor(const TinyTensor& tensor) {
    return stored(tensor.name, tensor.dtype, tensor.shape, tensor.data());
  }
  // shape outermost first.
  GgufBuilder& stored(std::string_view name, DType dtype, const std::vector<uint64_t>& shape,
                      const std::string& bytes) {
    const uint64_t offset = data_.size();
    data_ += bytes;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
    return line(name, {shape.rbegin(), shape.rend()}, number(dtype), offset);
  }
  GgufBuilder& data(size_t bytes) {
    data_.resize(data_.size() + bytes, '\7');
    return *this;
  }

  std::string head() const {
    return "GGUF" + raw(version) + raw<uint64_t>(tensor_count_ + extra_tensors) +
           raw<uint64_t>(metadata_count_ + extra_metadata) + metadata_ + table_;
  }
  std::string build() const {
    std::string out = head();
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data_;
  }

 private:
  static uint32_t number(DType dtype) {
    switch (dtype) {
      case DType::f32:
        return 0;
      case DType::f16:
        return 1;
      case DType::q4_0:
        return 2;
      case DType::q8_0:
        return 8;
      case DType::i32:
        return 26;
      case DType::bf16:
        return 30;
      case DType::mxfp4:
        return 39;
      default:
        ADD_FAILURE() << "no number for " << dtype_info(dtype).name;
        return 0;
    }
  }

  std::string metadata_;
  std::string table_;
  std::string data_;
  uint64_t metadata_count_ = 0;
  uint64_t tensor_count_ = 0;
};

// The kind by its name in the files of cases.
inline std::string kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid:
      return "invalid";
    case ErrorKind::not_found:
      return "not_found";
    case ErrorKind::corrupt:
      return "corrupt";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::exhausted:
      return "exhausted";
    default:
      return "other";
  }
}

// The result is an error of this kind whose text holds every part.
template <class T>
void expect_error(const Result<T>& result, std::string_view kind,
                  const std::vector<std::string>& parts) {
  ASSERT_FALSE(result.ok());
  const std::string text = result.error().text();
  EXPECT_EQ(kind_name(result.error().kind), kind) << text;
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
  }
}

}  // namespace deepinfer::weights
