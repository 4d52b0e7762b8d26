#pragma once

// PagePool: a fixed number of equal pages with reference counts, and SequenceCache: the pages of
// one sequence.
//
// Invariants (PagePool::check_invariants() asserts the first two, SequenceCache keeps the others):
//   1. a page is free and has no reference, or is held and has one for each of its holders: a
//      sequence, the prefix tree, a lease of the prefix tree;
//   2. free pages + held pages == page_count;
//   3. a SequenceCache holds ceil(length / 128) pages or more, never fewer;
//   4. two sequences share complete pages only: adopt() and fork() copy the page that goes on being
//      written. A page may be written at positions that no other holder reads.
//
// Memory is reserved at create() and touched when first used. A page keeps what its last holder
// wrote: readers look at entries below length only.
//
// Threads: the engine's thread; the bytes of a page may be written by workers during a step, so
// what copies pages (adopt, fork) runs between steps.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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
  size_t page_count() const { return references_.size(); }
  size_t page_bytes() const { return page_bytes_; }
  size_t free_count() const { return free_.size(); }

  Result<PageId> allocate();               // with one reference; exhausted when none is free
  void retain(PageId page);                // one reference more; requires: held
  void release(PageId page);               // one fewer, the last one frees; requires: held
  uint32_t references(PageId page) const;  // 0: free
  // Called when a page gets its second reference (shared) and when it is back at one (not shared).
  // One at a time: the prefix tree's, which keeps count of what it alone holds. Empty: none.
  using SharingObserver = std::function<void(PageId page, bool shared)>;
  void set_observer(SharingObserver observer);

  std::byte* page(PageId page) { return bytes_.data() + static_cast<size_t>(page) * page_bytes_; }
  // Byte offset of a growing stream in a page.
  size_t stream_offset(size_t stream) const { return offsets_[stream]; }

  void check_invariants() const;

 private:
  PagePool() = default;
  CacheLayout layout_;
  std::vector<size_t> offsets_;  // [growing streams]
  size_t page_bytes_ = 0;
  Buffer bytes_;                      // [page_count][page_bytes]
  std::vector<PageId> free_;          // last one is handed out next
  std::vector<uint32_t> references_;  // [page_count]
  SharingObserver observer_;
};

// Gives its references back when destroyed; the pool must outlive it. Movable.
class SequenceCache {
 public:
  explicit SequenceCache(PagePool* pool);
  ~SequenceCache();
  SequenceCache(SequenceCache&& other) noexcept;
  SequenceCache& operator=(SequenceCache&& other) noexcept;

  // Makes room for `tokens` in all; on failure (exhausted) nothing changed.
  Result<void> reserve(uint64_t tokens);

  // Gives this empty cache the first `length` tokens of `pages`: complete pages are shared, a page
  // that is used in part is copied. Does not touch the frontier. Requires pages_for(length) held
  // pages. Fails (exhausted) when no page is free for the copy, and stays empty.
  Result<void> adopt(std::span<const PageId> pages, uint64_t length);
  // A second sequence with the same length() tokens and frontier that goes its own way. Fails
  // (exhausted) as adopt() does.
  Result<SequenceCache> fork() const;

  // Tokens whose entries stand. set_length() below the present length forgets the rest (a rejected
  // draft); entries beyond are rewritten by the rows that take their positions. Positions below an
  // adopted, forked or inserted (prefix_cache.h) length may be read again from a smaller length
  // (SequenceStart::entries) but are not written. Requires room.
  uint64_t length() const { return length_; }
  void set_length(uint64_t length);

  // Growing stream `stream` of the page that holds tokens [128 * index, 128 * index + 128).
  std::byte* page(size_t index, size_t stream) const {
    return pool_->page(pages_[index]) + pool_->stream_offset(stream);
  }
  size_t page_count() const { return pages_.size(); }
  std::span<const PageId> pages() const { return pages_; }
  PagePool& pool() const { return *pool_; }
  std::byte* frontier() { return frontier_.data(); }
  // [frontier_bytes of the layout]
  std::span<const std::byte> frontier_bytes() const { return {frontier_.data(), frontier_.size()}; }

 private:
  void release_pages();

  PagePool* pool_ = nullptr;
  std::vector<PageId> pages_;
  Buffer frontier_;
  uint64_t length_ = 0;
};

}  // namespace deepinfer::cache
