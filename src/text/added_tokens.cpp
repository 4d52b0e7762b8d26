#include "text/added_tokens.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer::text {
namespace {

// Spellings [first, last) of the sorted list share their first `depth` bytes: those of `node`.
struct Pending {
  uint32_t node;
  uint32_t depth;
  size_t first;
  size_t last;
};

}  // namespace

AddedTokens::AddedTokens(const std::vector<const AddedToken*>& tokens) {
  if (tokens.empty()) return;
  std::vector<const AddedToken*> sorted = tokens;
  std::sort(sorted.begin(), sorted.end(),
            [](const AddedToken* a, const AddedToken* b) { return a->spelling < b->spelling; });
  nodes_.emplace_back();
  std::vector<Pending> queue = {{0, 0, 0, sorted.size()}};
  for (size_t head = 0; head < queue.size(); ++head) {
    auto [node, depth, first, last] = queue[head];
    if (sorted[first]->spelling.size() == depth) {
      check(depth > 0, "empty spelling of an added token");
      nodes_[node].id = sorted[first++]->id;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (first < last) {
      const auto byte = static_cast<uint8_t>(sorted[first]->spelling[depth]);
      size_t end = first + 1;
      while (end < last && static_cast<uint8_t>(sorted[end]->spelling[depth]) == byte) ++end;
      queue.push_back({static_cast<uint32_t>(nodes_.size()), depth + 1, first, end});
      nodes_.push_back({.byte = byte});
      ++nodes_[node].child_count;
      first = end;
    }
  }
  for (size_t i = 0; i < nodes_[0].child_count; ++i) {
    starts_[nodes_[nodes_[0].first_child + i].byte] = true;
  }
}

const AddedTokens::Node* AddedTokens::child(const Node& node, uint8_t byte) const {
  const Node* first = nodes_.data() + node.first_child;
  const Node* last = first + node.child_count;
  const Node* at =
      std::lower_bound(first, last, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return at != last && at->byte == byte ? at : nullptr;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from) const {
  if (empty()) return std::nullopt;
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t i = from; i < text.size(); ++i) {
    if (!starts_[bytes[i]]) continue;
    std::optional<Match> longest;
    const Node* node = nodes_.data();
    for (size_t j = i; j < text.size() && (node = child(*node, bytes[j])); ++j) {
      if (node->id >= 0) longest = Match{i, j + 1, node->id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

std::optional<int32_t> AddedTokens::find_exact(std::string_view spelling) const {
  if (empty()) return std::nullopt;
  const Node* node = nodes_.data();
  for (const char c : spelling) {
    node = child(*node, static_cast<uint8_t>(c));
    if (node == nullptr) return std::nullopt;
  }
  return node->id >= 0 ? std::optional(node->id) : std::nullopt;
}

}  // namespace deepinfer::text
