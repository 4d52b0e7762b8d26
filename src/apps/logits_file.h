#pragma once

// Writes logits as safetensors while they are computed: tensors logits.<index> of
// [positions, vocabulary] F32. The file appears under its name when finish() succeeded.
//
// Threads: one.

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace deepinfer::apps {

class LogitsFile {
 public:
  // positions: of each tensor, in the order in which their rows will come.
  static Result<LogitsFile> create(const std::string& path, const std::vector<size_t>& positions,
                                   size_t vocabulary);
  ~LogitsFile();
  LogitsFile(LogitsFile&& other) noexcept = default;
  LogitsFile& operator=(LogitsFile&&) = delete;

  void add_row(std::span<const float> logits);
  // Errors of earlier writes are reported here.
  Result<void> finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  LogitsFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace deepinfer::apps
