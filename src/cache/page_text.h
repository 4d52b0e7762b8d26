#pragma once

// PageText: the tokens of one page (up to 128) with the images they show; PageView: the same,
// borrowed; PageCursor: the pages of a PrefixKey, one after the other.
//
// A token is its id and, inside of an image, the image's content and the offset in it. Two texts
// are in the order of their first different token, a text before its continuations. So among sorted
// texts the one with the longest common head with a given text is a neighbour of its place.
//
// Threads: plain values.

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "cache/layout.h"
#include "cache/prefix_key.h"

namespace deepinfer::cache {

// The part of a ContentSpan that lies in a page.
struct ContentPiece {
  uint32_t start = 0;  // token of the page
  uint32_t count = 0;
  uint64_t offset = 0;  // of its first token in the image
  Hash128 content;
};

struct PageView {
  std::span<const int32_t> ids;            // [0 .. 128]
  std::span<const ContentPiece> pieces{};  // ascending; the last one may reach beyond ids

  size_t size() const { return ids.size(); }
  PageView first(size_t count) const;
};

// Tokens at the head of both.
size_t common_prefix(const PageView& a, const PageView& b);
std::strong_ordering compare(const PageView& a, const PageView& b);
bool equal(const PageView& a, const PageView& b);

// The hash of a complete page and all before it.
Hash128 chain_hash(const Hash128& parent, const PageView& page);
// Where the chain of a salt begins.
Hash128 root_hash(const Hash128& identity, uint64_t salt);

class PageText {
 public:
  PageText() = default;
  explicit PageText(const PageView& view) { assign(view); }
  void assign(const PageView& view);
  PageView view() const { return {{ids_.data(), size_}, pieces_}; }
  size_t size() const { return size_; }

 private:
  std::array<int32_t, kTokensPerPage> ids_;  // [size_] are set
  size_t size_ = 0;
  std::vector<ContentPiece> pieces_;
};

// Walks key.ids[0, limit); the key must outlive it. Requires limit <= ids.size().
class PageCursor {
 public:
  PageCursor(const PrefixKey& key, uint64_t limit);
  // Moves to the next page, to the first one at the start; false: there is none.
  bool next();
  // Of 128 tokens, fewer for the last page. Valid until next().
  PageView view() const { return view_; }

 private:
  const PrefixKey& key_;
  uint64_t limit_;
  uint64_t start_ = 0;  // of the next page
  size_t span_ = 0;     // first content that may reach into it
  std::vector<ContentPiece> pieces_;
  PageView view_;
};

}  // namespace deepinfer::cache
