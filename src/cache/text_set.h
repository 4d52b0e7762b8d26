#pragma once

// Searches in a std::set ordered by ByText: the members that are heads or continuations of a text.
//
// Source: in lexicographic order the continuations of a text follow it at once, and among the
// members that are not heads of each other, the head of a text is right before it.
//
// Threads: pure functions.

#include <algorithm>
#include <iterator>
#include <set>

#include "cache/prefix_tree.h"

namespace deepinfer::cache {

template <class T>
using TextSet = std::set<T*, ByText<T>>;

// A member that begins with all of `text`; null: none.
template <class T>
T* continuation_of(const TextSet<T>& set, Exactness exactness, const PageView& text) {
  if (set.empty()) return nullptr;
  const auto found = set.lower_bound(GradedText{exactness, text});
  if (found == set.end() || (*found)->exactness != exactness) return nullptr;
  return common_prefix((*found)->text.view(), text) == text.size() ? *found : nullptr;
}

// The longest member that `text` begins with; null: none. Members may be heads of each other.
template <class T>
T* longest_head_of(const TextSet<T>& set, Exactness exactness, PageView text) {
  while (!set.empty() && text.size() > 0) {
    auto after = set.upper_bound(GradedText{exactness, text});
    if (after == set.begin()) return nullptr;
    T* before = *std::prev(after);
    if (before->exactness != exactness) return nullptr;
    const size_t common = common_prefix(before->text.view(), text);
    if (common == before->text.size()) return before;
    // A head that is shorter than what they share, if any.
    text = text.first(common);
  }
  return nullptr;
}

template <class T>
struct Nearest {
  T* member = nullptr;
  size_t common = 0;  // tokens at the head of both
};

// The member that shares the longest head with `text`.
template <class T>
Nearest<T> nearest(const TextSet<T>& set, Exactness exactness, const PageView& text) {
  Nearest<T> best;
  if (set.empty()) return best;
  const auto consider = [&](T* member) {
    if (member->exactness != exactness) return;
    const size_t common = common_prefix(member->text.view(), text);
    if (common > best.common) best = {member, common};
  };
  const auto at = set.lower_bound(GradedText{exactness, text});
  if (at != set.end()) consider(*at);
  if (at != set.begin()) consider(*std::prev(at));
  return best;
}

}  // namespace deepinfer::cache
