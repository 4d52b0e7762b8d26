#include "cache/page_pool.h"

#include <cstring>
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
  pool->references_.assign(page_count, 0);
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
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::retain(PageId page) {
  const size_t index = static_cast<size_t>(page);
  check(index < references_.size(), "page outside the pool");
  check(references_[index] > 0, "reference to a free page");
  check(references_[index] < std::numeric_limits<uint32_t>::max(), "too many references to a page");
  if (++references_[index] == 2 && observer_) observer_(page, true);
}

void PagePool::release(PageId page) {
  const size_t index = static_cast<size_t>(page);
  check(index < references_.size(), "page outside the pool");
  check(references_[index] > 0, "page released twice");
  --references_[index];
  if (references_[index] == 0) free_.push_back(page);
  if (references_[index] == 1 && observer_) observer_(page, false);
}

uint32_t PagePool::references(PageId page) const {
  check(static_cast<size_t>(page) < references_.size(), "page outside the pool");
  return references_[static_cast<size_t>(page)];
}

void PagePool::set_observer(SharingObserver observer) {
  check(!observer || !observer_, "two observers of a page pool");
  observer_ = std::move(observer);
}

void PagePool::check_invariants() const {
  std::vector<bool> seen(references_.size(), false);
  for (PageId page : free_) {
    const size_t index = static_cast<size_t>(page);
    check(index < references_.size(), "free page outside the pool");
    check(references_[index] == 0, "page both free and held");
    check(!seen[index], "page free twice");
    seen[index] = true;
  }
  size_t held = 0;
  for (uint32_t references : references_) held += references > 0 ? 1 : 0;
  check(held + free_.size() == references_.size(), "a page is neither free nor held");
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

Result<void> SequenceCache::adopt(std::span<const PageId> pages, uint64_t length) {
  check(pages_.empty() && length_ == 0, "adopt into a sequence that has pages");
  check(pages.size() >= pages_for(length), "fewer pages than tokens to adopt");
  const size_t complete = static_cast<size_t>(length / kTokensPerPage);
  const size_t wanted = pages_for(length);
  if (wanted > complete && pool_->free_count() == 0) {
    return Error::exhausted("cache", "1 page needed for a copy, 0 of " +
                                         std::to_string(pool_->page_count()) + " are free");
  }
  pages_.reserve(wanted);
  for (const PageId page : pages.first(complete)) {
    pool_->retain(page);
    pages_.push_back(page);
  }
  if (wanted > complete) {
    const PageId copy = TRY(pool_->allocate());
    // [page_bytes]: how entries lie in a page is the model's business, so all of it.
    std::memcpy(pool_->page(copy), pool_->page(pages[complete]), pool_->page_bytes());
    pages_.push_back(copy);
  }
  length_ = length;
  return {};
}

Result<SequenceCache> SequenceCache::fork() const {
  SequenceCache copy(pool_);
  TRY(copy.adopt(pages_, length_));
  if (frontier_.size() > 0) std::memcpy(copy.frontier(), frontier_.data(), frontier_.size());
  return copy;
}

void SequenceCache::set_length(uint64_t length) {
  check(pages_for(length) <= pages_.size(), "length beyond the reserved pages");
  length_ = length;
}

}  // namespace deepinfer::cache
