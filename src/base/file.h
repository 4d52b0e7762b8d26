#pragma once

// Files: read-only mappings, aligned direct reads, atomic replacement.
//
// Errors name the path, the operation and errno's text (ErrorKind::io, or not_found for ENOENT).
// Threads: objects are plain values; distinct objects from distinct threads.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer {

// A whole file mapped read-only. An empty file maps to an empty span.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Hints; failures do not matter.
  void advise_sequential(size_t offset, size_t length) const;
  void advise_random(size_t offset, size_t length) const;  // a fault reads its page and no more
  void advise_done(size_t offset, size_t length) const;    // pages may be dropped

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A part of a file: data, or a hole, which takes no space on disk and reads as zeros.
struct FilePart {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool hole = false;
};
// What [offset, offset + bytes) of a file consists of, in order and without gaps. A file system
// that does not tell has data only.
Result<std::vector<FilePart>> file_parts(const std::string& path, uint64_t offset, uint64_t bytes);

// Random reads that bypass the page cache when the file system allows it (O_DIRECT; `direct()` says
// whether it does). offset, length and target are multiples of kAlignment when direct.
class DirectFile {
 public:
  static constexpr size_t kAlignment = 4096;
  static Result<DirectFile> open(const std::string& path);
  ~DirectFile();
  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&& other) noexcept;

  uint64_t size() const { return size_; }
  bool direct() const { return direct_; }
  // Reads exactly length bytes, or to the end of the file; returns the bytes read.
  Result<size_t> read(uint64_t offset, std::span<std::byte> target) const;

 private:
  DirectFile() = default;
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  bool direct_ = false;
};

// Whole small files; limit guards the allocation.
Result<std::string> read_file(const std::string& path, size_t limit_bytes = size_t{1} << 30);

// Writes beside the target, syncs, renames over it: a reader sees the old file or the new one, and
// a failure leaves the old one and no litter.
Result<void> write_file_atomic(const std::string& path, std::span<const std::byte> bytes);
Result<void> write_file_atomic(const std::string& path, std::string_view text);

}  // namespace deepinfer
