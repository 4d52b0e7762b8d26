#pragma once

// Reads the safetensors files below tests/golden, for the tests of every folder. It knows only the
// plain headers that Python's `safetensors` writes; a missing file or tensor fails the test.
//
//   GoldenFile golden("quant/ggml.safetensors");
//   std::span<const float> values = golden["Q4_0.values"].as<float>();  // [16, 32]

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace deepinfer {

struct GoldenTensor {
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> words;  // the bytes, aligned
  size_t size = 0;              // in bytes

  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(words.data()), size / sizeof(T)};
  }
};

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name)
      : path_(std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/" + name) {
    std::ifstream file(path_, std::ios::binary);
    std::stringstream content;
    content << file.rdbuf();
    const std::string bytes = content.str();
    uint64_t header_size = 0;
    if (bytes.size() >= 8) std::memcpy(&header_size, bytes.data(), 8);
    if (bytes.size() < 8 || header_size > bytes.size() - 8) {
      ADD_FAILURE() << path_ << " is missing or cut short";
      return;
    }
    read_header(bytes.substr(8, header_size), std::string_view(bytes).substr(8 + header_size));
  }

  bool has(const std::string& tensor) const { return tensors_.count(tensor) > 0; }

  const GoldenTensor& operator[](const std::string& tensor) const {
    static const GoldenTensor none;
    const auto found = tensors_.find(tensor);
    if (found != tensors_.end()) return found->second;
    ADD_FAILURE() << path_ << " has no tensor " << tensor;
    return none;
  }

 private:
  // {"name":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},...}
  void read_header(const std::string& header, std::string_view data) {
    constexpr std::string_view kDType = ":{\"dtype\":\"";
    for (size_t at = header.find(kDType); at != std::string::npos;
         at = header.find(kDType, at + 1)) {
      const size_t name_begin = header.rfind('"', at - 2) + 1;
      const std::string name = header.substr(name_begin, at - 1 - name_begin);
      const size_t dtype_begin = at + kDType.size();
      GoldenTensor tensor;
      tensor.dtype = header.substr(dtype_begin, header.find('"', dtype_begin) - dtype_begin);
      tensor.shape = numbers(header, header.find("\"shape\":[", at) + 9);
      const auto offsets = numbers(header, header.find("\"data_offsets\":[", at) + 16);
      if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size()) {
        ADD_FAILURE() << path_ << ": " << name << " lies outside of the file";
        return;
      }
      tensor.size = offsets[1] - offsets[0];
      tensor.words.resize((tensor.size + 7) / 8);
      if (tensor.size > 0) {
        std::memcpy(tensor.words.data(), data.data() + offsets[0], tensor.size);
      }
      tensors_[name] = std::move(tensor);
    }
  }

  // The numbers from `at` to the closing bracket.
  static std::vector<uint64_t> numbers(const std::string& text, size_t at) {
    std::vector<uint64_t> out;
    while (at < text.size() && text[at] != ']') {
      if (text[at] < '0' || text[at] > '9') {
        ++at;
        continue;
      }
      char* end = nullptr;
      out.push_back(std::strtoull(text.c_str() + at, &end, 10));
      at = static_cast<size_t>(end - text.c_str());
    }
    return out;
  }

  std::string path_;
  std::map<std::string, GoldenTensor> tensors_;
};

}  // namespace deepinfer
