#pragma once

// PagePool: a fixed number of equal pages, and SequenceCache: the pages of one sequence.
//
// Invariants (check_invariants() asserts the first two, SequenceCache keeps the third):
//   1. a page is free, or held by exactly one SequenceCache;
//   2. free pages + held pages == page_count;
//   3. a SequenceCache holds ceil(length / 128) pages or more, never fewer.
//
// Memory is reserved at create() and touched when first used. A page keeps what its last holder
// wrote: readers look at entries below length only.
//
// Threads: the engine's thread; the bytes of a page may be written by workers during a step.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "cache/layout.h"
#include "tensor/tensor.h"

namespace deepinfer::cache {

enum class PageId : uint32_t {};

class PagePool {
 public:
  // Fails (invalid) when page_count or a page is empty or a stream is no multiple of 64 bytes, and
  // (exhausted) when page_count pages cannot be reserved, naming both numbers.
  static Result<std::unique_ptr<PagePool>> create(CacheLayout layout, size_t page_count);

  const CacheLayout& layout() const { return layout_; }
  size_t page_count() const { return held_.size(); }
  size_t page_bytes() const { return page_bytes_; }
  size_t free_count() const { return free_.size(); }

  Result<PageId> allocate();  // exhausted when none is free
  void release(PageId page);  // requires: held
  std::byte* page(PageId page) { return bytes_.data() + static_cast<size_t>(page) * page_bytes_; }
  // Byte offset of a growing stream in a page.
  size_t stream_offset(size_t stream) const { return offsets_[stream]; }

  void check_invariants() const;

 private:
  PagePool() = default;
  CacheLayout layout_;
  std::vector<size_t> offsets_;  // [growing streams]
  size_t page_bytes_ = 0;
  Buffer bytes_;              // [page_count][page_bytes]
  std::vector<PageId> free_;  // last one is handed out next
  std::vector<bool> held_;    // [page_count]
};

// Returns its pages when destroyed; the pool must outlive it. Movable.
class SequenceCache {
 public:
  explicit SequenceCache(PagePool* pool);
  ~SequenceCache();
  SequenceCache(SequenceCache&& other) noexcept;
  SequenceCache& operator=(SequenceCache&& other) noexcept;

  // Makes room for `tokens` in all; on failure (exhausted) nothing changed.
  Result<void> reserve(uint64_t tokens);

  // Tokens whose entries stand. set_length() below the present length forgets the rest (a rejected
  // draft); entries beyond are rewritten by the rows that take their positions. Requires room.
  uint64_t length() const { return length_; }
  void set_length(uint64_t length);

  // Growing stream `stream` of the page that holds tokens [128 * index, 128 * index + 128).
  std::byte* page(size_t index, size_t stream) const {
    return pool_->page(pages_[index]) + pool_->stream_offset(stream);
  }
  size_t page_count() const { return pages_.size(); }
  std::byte* frontier() { return frontier_.data(); }

 private:
  void release_pages();

  PagePool* pool_ = nullptr;
  std::vector<PageId> pages_;
  Buffer frontier_;
  uint64_t length_ = 0;
};

}  // namespace deepinfer::cache
