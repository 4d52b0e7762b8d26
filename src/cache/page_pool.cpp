#include "cache/page_pool.h"

#include <limits>
#include <string>
#include <utility>

namespace deepinfer::cache {
namespace {

Result<void> check_layout(const CacheLayout& layout) {
  for (const GrowingStream& stream : layout.growing) {
    if (stream.bytes_per_page == 0 || stream.bytes_per_page % Buffer::kAlignment != 0) {
      return Error::invalid(
          "cache stream " + stream.name,
          std::to_string(stream.bytes_per_page) + " bytes per page is no multiple of 64");
    }
  }
  if (layout.growing.empty()) return Error::invalid("cache layout", "no growing stream");
  return {};
}

}  // namespace

Result<std::unique_ptr<PagePool>> PagePool::create(CacheLayout layout, size_t page_count) {
  TRY(check_layout(layout));
  const size_t page_bytes = layout.page_bytes();
  if (page_count == 0 || page_count > std::numeric_limits<uint32_t>::max()) {
    return Error::invalid("cache",
                          std::to_string(page_count) + " pages, 1 to 2^32 - 1 are possible");
  }
  const std::string amount =
      std::to_string(page_count) + " pages of " + std::to_string(page_bytes) + " bytes";
  if (page_count > std::numeric_limits<size_t>::max() / 2 / page_bytes) {
    return Error::exhausted("cache", amount + " exceed the address space");
  }
  Result<Buffer> bytes = Buffer::create(page_count * page_bytes);
  if (!bytes.ok()) {
    return Error::exhausted("cache", "cannot reserve " + amount,
                            "ask for a smaller cache or fewer sequences");
  }
  std::unique_ptr<PagePool> pool(new PagePool());
  for (size_t i = 0; i < layout.growing.size(); ++i)
    pool->offsets_.push_back(layout.page_offset(i));
  pool->layout_ = std::move(layout);
  pool->page_bytes_ = page_bytes;
  pool->bytes_ = std::move(bytes).value();
  pool->held_.assign(page_count, false);
  // Low pages are handed out first, so that a small load touches little memory.
  for (size_t i = page_count; i-- > 0;) pool->free_.push_back(PageId{static_cast<uint32_t>(i)});
  return pool;
}

Result<PageId> PagePool::allocate() {
  if (free_.empty()) {
    return Error::exhausted("cache", "all " + std::to_string(page_count()) + " pages are held");
  }
  const PageId page = free_.back();
  free_.pop_back();
  held_[static_cast<size_t>(page)] = true;
  return page;
}

void PagePool::release(PageId page) {
  const size_t index = static_cast<size_t>(page);
  check(index < held_.size(), "page outside the pool");
  check(held_[index], "page released twice");
  held_[index] = false;
  free_.push_back(page);
}

void PagePool::check_invariants() const {
  std::vector<bool> seen(held_.size(), false);
  for (PageId page : free_) {
    const size_t index = static_cast<size_t>(page);
    check(index < held_.size(), "free page outside the pool");
    check(!held_[index], "page both free and held");
    check(!seen[index], "page free twice");
    seen[index] = true;
  }
  size_t held = 0;
  for (bool is_held : held_) held += is_held ? 1 : 0;
  check(held + free_.size() == held_.size(), "a page is neither free nor held");
}

SequenceCache::SequenceCache(PagePool* pool) : pool_(pool) {
  check(pool != nullptr, "sequence cache without a pool");
  if (const size_t bytes = pool->layout().frontier_bytes(); bytes > 0) frontier_ = Buffer(bytes);
}

SequenceCache::~SequenceCache() { release_pages(); }

SequenceCache::SequenceCache(SequenceCache&& other) noexcept
    : pool_(other.pool_),
      pages_(std::exchange(other.pages_, {})),
      frontier_(std::move(other.frontier_)),
      length_(std::exchange(other.length_, 0)) {}

SequenceCache& SequenceCache::operator=(SequenceCache&& other) noexcept {
  if (this == &other) return *this;
  release_pages();
  pool_ = other.pool_;
  pages_ = std::exchange(other.pages_, {});
  frontier_ = std::move(other.frontier_);
  length_ = std::exchange(other.length_, 0);
  return *this;
}

void SequenceCache::release_pages() {
  // Backwards, so that the lowest page of this sequence is handed out first again.
  while (!pages_.empty()) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
}

Result<void> SequenceCache::reserve(uint64_t tokens) {
  const size_t wanted = pages_for(tokens);
  if (wanted <= pages_.size()) return {};
  const size_t missing = wanted - pages_.size();
  if (missing > pool_->free_count()) {
    return Error::exhausted("cache", std::to_string(missing) + " pages needed, " +
                                         std::to_string(pool_->free_count()) + " of " +
                                         std::to_string(pool_->page_count()) + " are free");
  }
  for (size_t i = 0; i < missing; ++i) pages_.push_back(TRY(pool_->allocate()));
  return {};
}

void SequenceCache::set_length(uint64_t length) {
  check(pages_for(length) <= pages_.size(), "length beyond the reserved pages");
  length_ = length;
}

}  // namespace deepinfer::cache
