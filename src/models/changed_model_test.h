#pragma once

// ChangedModel: a copy of a tiny model whose files may be changed, for the tests of this folder;
// removed with the object.
//
//   ChangedModel model(tiny_model_path("llama"));
//   model.write("lm_head.weight", 2 * 70, std::string("\xC0\x7F", 2));  // a BF16 NaN
//   ModelRunner::open(model.path(), {})

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <sstream>
#include <string>

#include "models/model_runner.h"

namespace deepinfer::models {

class ChangedModel {
 public:
  // source: a folder of config.json, model.safetensors and what the family needs besides.
  explicit ChangedModel(const std::string& source)
      : folder_(std::filesystem::temp_directory_path() /
                ("deepinfer_changed_" + std::to_string(getpid()))),
        source_(source) {
    namespace fs = std::filesystem;
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const auto& file : fs::directory_iterator(source)) {
      if (!file.is_regular_file() || file.path().filename() == "golden.safetensors") continue;
      fs::copy_file(file.path(), folder_ / file.path().filename());
      fs::permissions(folder_ / file.path().filename(), fs::perms::owner_all);
    }
  }
  ~ChangedModel() { std::filesystem::remove_all(folder_); }
  ChangedModel(const ChangedModel&) = delete;
  ChangedModel& operator=(const ChangedModel&) = delete;

  std::string path() const { return folder_.string(); }

  // Overwrites bytes of a tensor from `offset` on.
  ChangedModel& write(const std::string& tensor, size_t offset, const std::string& bytes) {
    std::fstream file(folder_ / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset_of(tensor) + offset));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return *this;
  }
  // Replaces a part of config.json.
  ChangedModel& edit(const std::string& from, const std::string& to) {
    std::stringstream text;
    text << std::ifstream(folder_ / "config.json").rdbuf();
    std::string config = text.str();
    const size_t at = config.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    std::ofstream(folder_ / "config.json") << config.replace(at, from.size(), to);
    return *this;
  }
  ChangedModel& remove(const std::string& file) {
    std::filesystem::remove(folder_ / file);
    return *this;
  }

 private:
  uint64_t offset_of(const std::string& tensor) const {
    const weights::Checkpoint checkpoint = value_or_die(weights::Checkpoint::open(source_));
    for (const weights::NamedTensor& named : checkpoint.tensors()) {
      if (named.name == tensor) return named.file_offset;
    }
    ADD_FAILURE() << source_ << " has no tensor " << tensor;
    return 0;
  }

  std::filesystem::path folder_;
  std::string source_;
};

}  // namespace deepinfer::models
