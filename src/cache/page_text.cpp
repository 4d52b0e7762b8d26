#include "cache/page_text.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace deepinfer::cache {
namespace {

// Steps through the pieces of a view by position.
class PieceWalk {
 public:
  explicit PieceWalk(const PageView& view) : pieces_(view.pieces) {}

  // The piece that holds `position`, or null. Positions must not descend.
  const ContentPiece* at(size_t position) {
    while (next_ < pieces_.size() && pieces_[next_].start + pieces_[next_].count <= position) {
      ++next_;
    }
    const bool inside = next_ < pieces_.size() && pieces_[next_].start <= position;
    return inside ? &pieces_[next_] : nullptr;
  }
  // The first position after the last at() where another answer begins.
  size_t boundary(const ContentPiece* here) const {
    if (here != nullptr) return here->start + here->count;
    return next_ < pieces_.size() ? pieces_[next_].start : kTokensPerPage;
  }

 private:
  std::span<const ContentPiece> pieces_;
  size_t next_ = 0;
};

uint64_t offset_at(const ContentPiece& piece, size_t position) {
  return piece.offset + (position - piece.start);
}

bool same_token(const ContentPiece* a, const ContentPiece* b, size_t position) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->content == b->content && offset_at(*a, position) == offset_at(*b, position);
}

std::strong_ordering compare_pieces(const ContentPiece* a, const ContentPiece* b, size_t position) {
  if (a == nullptr || b == nullptr) return (a != nullptr) <=> (b != nullptr);
  if (auto by = a->content.low <=> b->content.low; by != 0) return by;
  if (auto by = a->content.high <=> b->content.high; by != 0) return by;
  return offset_at(*a, position) <=> offset_at(*b, position);
}

}  // namespace

PageView PageView::first(size_t count) const {
  const size_t kept = std::min(count, ids.size());
  size_t inside = pieces.size();
  while (inside > 0 && pieces[inside - 1].start >= kept) --inside;
  return {ids.first(kept), pieces.first(inside)};
}

size_t common_prefix(const PageView& a, const PageView& b) {
  const size_t size = std::min(a.size(), b.size());
  const auto ids =
      std::mismatch(a.ids.begin(), a.ids.begin() + static_cast<ptrdiff_t>(size), b.ids.begin());
  const size_t same_ids = static_cast<size_t>(ids.first - a.ids.begin());
  if (a.pieces.empty() && b.pieces.empty()) return same_ids;
  PieceWalk walk_a(a), walk_b(b);
  for (size_t position = 0; position < same_ids;) {
    const ContentPiece* piece_a = walk_a.at(position);
    const ContentPiece* piece_b = walk_b.at(position);
    if (!same_token(piece_a, piece_b, position)) return position;
    position = std::min(walk_a.boundary(piece_a), walk_b.boundary(piece_b));
    if (position >= same_ids) return same_ids;
  }
  return same_ids;
}

std::strong_ordering compare(const PageView& a, const PageView& b) {
  const size_t common = common_prefix(a, b);
  if (common == a.size() || common == b.size()) return a.size() <=> b.size();
  if (auto by = a.ids[common] <=> b.ids[common]; by != 0) return by;
  return compare_pieces(PieceWalk(a).at(common), PieceWalk(b).at(common), common);
}

bool equal(const PageView& a, const PageView& b) {
  if (a.size() != b.size()) return false;
  if (a.pieces.empty() && b.pieces.empty()) {
    return a.size() == 0 || std::memcmp(a.ids.data(), b.ids.data(), a.ids.size_bytes()) == 0;
  }
  return common_prefix(a, b) == a.size();
}

Hash128 chain_hash(const Hash128& parent, const PageView& page) {
  // [parent 16 bytes][ids][5 words for each piece]; the parent also seeds, so that pages of
  // different chains do not even share their intermediate sums.
  constexpr size_t kIdBytes = kTokensPerPage * sizeof(int32_t);
  std::array<std::byte, sizeof(Hash128) + kIdBytes> plain;
  check(page.size() == kTokensPerPage, "hash of a page that is not complete");
  std::memcpy(plain.data(), &parent, sizeof(parent));
  std::memcpy(plain.data() + sizeof(parent), page.ids.data(), kIdBytes);
  const Hash128 hash = xxh3_128(plain, parent.low);
  if (page.pieces.empty()) return hash;
  std::vector<uint64_t> words = {hash.low, hash.high};
  for (const ContentPiece& piece : page.pieces) {
    words.insert(words.end(),
                 {piece.start, piece.count, piece.offset, piece.content.low, piece.content.high});
  }
  return xxh3_128(std::as_bytes(std::span(words)), parent.low);
}

Hash128 root_hash(const Hash128& identity, uint64_t salt) {
  const std::array<uint64_t, 3> words = {identity.low, identity.high, salt};
  return xxh3_128(std::as_bytes(std::span(words)), salt);
}

void PageText::assign(const PageView& view) {
  check(view.size() <= kTokensPerPage, "more than 128 tokens in a page");
  std::copy(view.ids.begin(), view.ids.end(), ids_.begin());
  size_ = view.size();
  pieces_.assign(view.pieces.begin(), view.pieces.end());
  if (!pieces_.empty()) {
    ContentPiece& last = pieces_.back();
    last.count = std::min(last.count, static_cast<uint32_t>(size_) - last.start);
  }
}

PageCursor::PageCursor(const PrefixKey& key, uint64_t limit) : key_(key), limit_(limit) {
  check(limit <= key.ids.size(), "limit beyond the ids of a prefix key");
}

bool PageCursor::next() {
  if (start_ >= limit_) return false;
  const uint64_t end = std::min<uint64_t>(start_ + kTokensPerPage, limit_);
  const auto end_of = [](const ContentSpan& span) { return span.start + span.count; };
  while (span_ < key_.contents.size() && end_of(key_.contents[span_]) <= start_) ++span_;
  pieces_.clear();
  for (size_t i = span_; i < key_.contents.size() && key_.contents[i].start < end; ++i) {
    const ContentSpan& span = key_.contents[i];
    check(i == 0 || end_of(key_.contents[i - 1]) <= span.start, "contents that overlap");
    if (span.count == 0) continue;
    const uint64_t from = std::max<uint64_t>(span.start, start_);
    const uint64_t to = std::min<uint64_t>(end_of(span), end);
    pieces_.push_back({static_cast<uint32_t>(from - start_), static_cast<uint32_t>(to - from),
                       from - span.start, span.content});
  }
  view_ = {key_.ids.subspan(static_cast<size_t>(start_), static_cast<size_t>(end - start_)),
           pieces_};
  start_ = end;
  return true;
}

}  // namespace deepinfer::cache
