#pragma once

// DiskReader: many byte ranges of a few files, read at once.
//
//   auto reader = TRY(DiskReader::open({"model.safetensors"}, {}));
//   TRY(reader->read({{.file = 0, .offset = 4096, .bytes = n, .target = p}}));
//
// Reads go through io_uring when the kernel lets us, else through pread on threads of its own; the
// bytes are the same. With `direct` the page cache is bypassed where the file system allows it, so
// that weights are not held twice: the aligned range around each read then goes to a bounce buffer.
//
// Errors (io): the first failing range, named by file and offset, with errno's text or "ends at
// byte N". A file that failed is opened again by its path at the next read(): it recovers when the
// file is back, and a file put in its place is found.
//
// Threads: read() from one thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace deepinfer::weights {

struct DiskRange {
  uint32_t file = 0;  // index into the paths given to open()
  uint64_t offset = 0;
  size_t bytes = 0;
  std::byte* target = nullptr;  // [bytes]
};

class DiskReader {
 public:
  enum class Engine : uint8_t { automatic, uring, pread };
  struct Options {
    Engine engine = Engine::automatic;
    bool direct = true;                    // bypass the page cache for ranges of 64 KiB and more
    size_t queue_depth = 16;               // pieces in flight
    size_t piece_bytes = size_t{1} << 20;  // a longer range is read in pieces
  };

  // Fails when a file cannot be opened, or Engine::uring was asked for and the kernel refuses.
  static Result<std::unique_ptr<DiskReader>> open(std::vector<std::string> paths,
                                                  const Options& options);
  ~DiskReader();
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  // All ranges, complete, or the error of one of them (targets are then undefined).
  Result<void> read(std::span<const DiskRange> ranges);

  Engine engine() const;  // never automatic

 private:
  struct State;
  explicit DiskReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::weights
