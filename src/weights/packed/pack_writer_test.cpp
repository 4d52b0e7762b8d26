#include "weights/packed/pack_writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdio>

#include "weights/packed/packed.h"
#include "weights/tiny_files.h"

namespace deepinfer::weights {
namespace {

constexpr uint64_t kTable = 48'000'000, kTail = 32'000'000;

// "table": data at both ends and a hole between; "tail": a hole only, at the end of the file.
Checkpoint sparse_checkpoint(const TempFolder& folder) {
  std::string header =
      "{\"table\":{\"dtype\":\"U8\",\"shape\":[48000000],\"data_offsets\":[0,48000000]},"
      "\"tail\":{\"dtype\":\"U8\",\"shape\":[32000000],\"data_offsets\":[48000000,80000000]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string path = folder.write("model.safetensors", raw<uint64_t>(header.size()) + header);
  folder.write("config.json", "{}");
  const uint64_t begin = 8 + header.size();
  std::filesystem::resize_file(path, begin + kTable + kTail);
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  const std::string data(100'000, 'd');
  for (const uint64_t at : {begin, begin + kTable - data.size()}) {
    std::fseek(file, static_cast<long>(at), SEEK_SET);
    std::fwrite(data.data(), 1, data.size(), file);
  }
  std::fclose(file);
  return Checkpoint::open(folder.path()).value();
}

uint64_t bytes_on_disk(const std::string& path) {
  struct stat seen{};
  EXPECT_EQ(::stat(path.c_str(), &seen), 0) << path;
  return static_cast<uint64_t>(seen.st_blocks) * 512;
}

void expect_the_same(const Checkpoint& original, const std::string& packed) {
  const Checkpoint copy = Checkpoint::open(packed).value();
  for (const NamedTensor& tensor : original.tensors()) {
    const TensorView* other = copy.find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    ASSERT_EQ(other->bytes(), tensor.view.bytes());
    EXPECT_EQ(std::memcmp(other->data, tensor.view.data, tensor.view.bytes()), 0) << tensor.name;
  }
}

TEST(PackWriter, HolesStayHolesAndChecksumsAgree) {
  const TempFolder folder;
  const Checkpoint original = sparse_checkpoint(folder);
  const std::string out = folder.path() + "/packed";
  const std::unique_ptr<ThreadPool> threads = ThreadPool::create({.threads = 2}).value();
  ThreadPool& pool = *threads;
  const Result<PackSummary> summary = write_packed(original, {}, out, pool, {});
  ASSERT_TRUE(summary.ok()) << summary.error().text();
  const std::string file = out + "/" + kPackedFile;
  EXPECT_EQ(std::filesystem::file_size(file), summary.value().packed_bytes);
  expect_the_same(original, out);
  const Result<void> verified = verify_packed(out, pool, {});
  EXPECT_TRUE(verified.ok()) << verified.error().text();
  // A file system without holes would fill the original too.
  if (bytes_on_disk(folder.path() + "/model.safetensors") < kTable / 2) {
    EXPECT_LT(bytes_on_disk(file), 2'000'000u);
  }

  // A byte inside of the hole is seen.
  std::FILE* changed = std::fopen(file.c_str(), "r+b");
  std::fseek(changed, 20'000'000, SEEK_SET);
  std::fputc(1, changed);
  std::fclose(changed);
  const Result<void> wrong = verify_packed(out, pool, {});
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().text().find("table"), std::string::npos) << wrong.error().text();
}

TEST(PackWriter, AResumedRunClearsWhatLiesWhereAHoleBelongs) {
  const TempFolder folder;
  const Checkpoint original = sparse_checkpoint(folder);
  const std::string out = folder.path() + "/packed";
  const std::unique_ptr<ThreadPool> threads = ThreadPool::create({.threads = 1}).value();
  ThreadPool& pool = *threads;
  std::atomic<bool> cancel{false};
  // Tensors are written in the order of their names: the table is complete, the tail is not.
  const auto stop_after_table = [&](uint64_t done, uint64_t) { cancel = done >= kTable; };
  const Result<PackSummary> stopped = write_packed(
      original, {}, out, pool, {.target = {}, .progress = stop_after_table, .cancel = &cancel});
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().kind, ErrorKind::cancelled);
  std::FILE* partial = std::fopen((out + ".partial/" + kPackedFile).c_str(), "r+b");
  ASSERT_NE(partial, nullptr);
  std::fseek(partial, static_cast<long>(kTable + 10'000'000), SEEK_SET);
  std::fputs("left by a run that was interrupted", partial);
  std::fclose(partial);

  const Result<PackSummary> summary = write_packed(original, {}, out, pool, {});
  ASSERT_TRUE(summary.ok()) << summary.error().text();
  EXPECT_EQ(summary.value().resumed_tensors, 1u);
  expect_the_same(original, out);
  EXPECT_TRUE(verify_packed(out, pool, {}).ok());
}

}  // namespace
}  // namespace deepinfer::weights
