#pragma once

// For tests: a folder with a random model of 512 tokens of context that reads text and messages
// (tests/golden/tiny_chat), and an Llm on it.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "llm/llm.h"

namespace deepinfer::llm {

class TinyChatModel {
 public:
  TinyChatModel() {
    namespace fs = std::filesystem;
    const fs::path golden = fs::path(DEEPINFER_SOURCE_DIR) / "tests" / "golden";
    const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / (std::string("deepinfer-") + test->test_suite_name() +
                                           test->name() + std::to_string(getpid()));
    fs::create_directories(folder_);
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy_file(golden / "llama" / "llama" / name, folder_ / name,
                    fs::copy_options::overwrite_existing);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
      fs::copy_file(golden / "tiny_chat" / name, folder_ / name,
                    fs::copy_options::overwrite_existing);
  }
  ~TinyChatModel() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TinyChatModel(const TinyChatModel&) = delete;
  TinyChatModel& operator=(const TinyChatModel&) = delete;

  std::unique_ptr<Llm> open(LlmOptions options = {}) const {
    options.pool.threads = 2;
    Result<std::unique_ptr<Llm>> llm = Llm::open(folder_.string(), options);
    EXPECT_TRUE(llm.ok()) << (llm.ok() ? "" : llm.error().text());
    return std::move(llm).value();
  }
  std::string path() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace deepinfer::llm
