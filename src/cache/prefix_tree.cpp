#include "cache/prefix_tree.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/text_set.h"

namespace deepinfer::cache {

PrefixTree::PrefixTree(PagePool& pool, SnapshotStore& store, const Hash128& identity, Hasher hasher)
    : pool_(pool),
      store_(store),
      identity_(identity),
      hasher_(hasher),
      by_page_(pool.page_count()),
      leases_(pool.page_count(), 0) {
  pool_.set_observer([this](PageId page, bool shared) {
    PrefixNode* node = by_page_[static_cast<size_t>(page)].get();
    if (node != nullptr) set_shared(node, shared);
  });
}

PrefixTree::~PrefixTree() {
  pool_.set_observer({});
  for (const auto& node : by_page_) {
    if (node) pool_.release(node->page);
  }
}

PrefixNode* PrefixTree::find_root(uint64_t salt) const {
  const auto found = roots_.find(salt);
  return found == roots_.end() ? nullptr : found->second.get();
}

PrefixNode* PrefixTree::make_root(uint64_t salt) {
  std::unique_ptr<PrefixNode>& root = roots_[salt];
  if (!root) {
    root = std::make_unique<PrefixNode>();
    root->hash = root_hash(identity_, salt);
    root->salt = salt;
  }
  return root.get();
}

PrefixNode* PrefixTree::find_complete(const PrefixNode* parent, const PageView& text,
                                      const Hash128& hash) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return nullptr;
  // The parents are compared, and theirs were when they were found: so the whole chain is.
  PrefixNode* node = found->second;
  return node->parent == parent && equal(node->text.view(), text) ? node : nullptr;
}

PrefixTree::Match PrefixTree::find(const PrefixKey& key, uint64_t limit, Exactness wanted) const {
  Match match;
  match.root = find_root(key.salt);
  if (match.root == nullptr) return match;
  PageCursor pages(key, limit);
  while (pages.next()) {
    const PrefixNode* parent = match.deepest();
    if (parent->children.empty()) break;
    const PageView text = pages.view();
    if (text.size() == kTokensPerPage) {
      PrefixNode* node = find_complete(parent, text, hasher_(parent->hash, text));
      if (node != nullptr && node->exactness <= wanted) {
        match.path.push_back(node);
        continue;
      }
    }
    auto best = nearest(parent->children, Exactness::exact, text);
    if (wanted == Exactness::approximate) {
      const auto other = nearest(parent->children, Exactness::approximate, text);
      if (other.common > best.common) best = other;
    }
    match.last = best.member;
    match.last_count = best.common;
    break;
  }
  return match;
}

PrefixTree::Match PrefixTree::put(const PrefixKey& key, std::span<const PageId> pages,
                                  uint64_t length, Exactness exactness) {
  check(pages.size() >= pages_for(length), "fewer pages than tokens to insert");
  Match match;
  if (length == 0) return match;
  match.root = make_root(key.salt);
  PageCursor cursor(key, length);
  for (size_t i = 0; cursor.next(); ++i) {
    PrefixNode* node = put_page(match.deepest(), cursor.view(), pages[i], exactness);
    if (node == nullptr) break;
    if (cursor.view().size() == kTokensPerPage) {
      match.path.push_back(node);
    } else {
      match.last = node;
      match.last_count = cursor.view().size();
    }
  }
  if (match.tokens() == 0) {
    drop_root_if_empty(match.root);
    return {};
  }
  touch(match);
  return match;
}

PrefixNode* PrefixTree::put_page(PrefixNode* parent, const PageView& text, PageId page,
                                 Exactness exactness) {
  const bool complete = text.size() == kTokensPerPage;
  const Hash128 hash = complete ? hasher_(parent->hash, text) : Hash128{};
  PrefixNode* known = complete ? find_complete(parent, text, hash) : nullptr;
  if (known == nullptr && complete && by_hash_.contains(hash)) return nullptr;  // a collision
  if (!complete) {
    known = continuation_of(parent->children, Exactness::exact, text);
    if (known == nullptr && exactness == Exactness::approximate) {
      known = continuation_of(parent->children, Exactness::approximate, text);
    }
  }
  if (known != nullptr && known->exactness <= exactness) return known;

  // Siblings that this page has all of, and at least as well: one becomes it, the other goes. A
  // complete approximate one may have children, so it is the one that stays.
  PrefixNode* stays = longest_head_of(parent->children, Exactness::approximate, text);
  if (exactness == Exactness::exact) {
    PrefixNode* head = longest_head_of(parent->children, Exactness::exact, text);
    if (stays == nullptr) {
      stays = head;
    } else if (head != nullptr) {
      remove(head);
    }
  }
  if (stays == nullptr) return add(parent, text, hash, page, exactness);
  extend(stays, text, hash, page, exactness);
  return stays;
}

PrefixNode* PrefixTree::add(PrefixNode* parent, const PageView& text, const Hash128& hash,
                            PageId page, Exactness exactness) {
  std::unique_ptr<PrefixNode>& slot = by_page_[static_cast<size_t>(page)];
  check(slot == nullptr, "a page that is known to hold other tokens");
  pool_.retain(page);
  slot = std::make_unique<PrefixNode>();
  PrefixNode* node = slot.get();
  node->parent = parent;
  node->text.assign(text);
  node->hash = hash;
  node->end = parent->end + text.size();
  node->page = page;
  node->exactness = exactness;
  if (parent->parent != nullptr && parent->children.empty()) leaves_of(parent).erase(parent);
  parent->children.insert(node);
  if (node->complete()) by_hash_.emplace(hash, node);
  node->tick = ++tick_;
  idle_.insert(node);
  ++node_count_;
  set_shared(node, pool_.references(page) > 1);
  return node;
}

void PrefixTree::extend(PrefixNode* node, const PageView& text, const Hash128& hash, PageId page,
                        Exactness exactness) {
  PrefixNode* parent = node->parent;
  parent->children.erase(node);
  const bool was_complete = node->complete();
  node->text.assign(text);
  node->end = parent->end + text.size();
  node->exactness = exactness;
  parent->children.insert(node);
  if (node->complete() && !was_complete) {
    node->hash = hash;
    by_hash_.emplace(hash, node);
  }
  if (page == node->page) return;
  std::unique_ptr<PrefixNode>& slot = by_page_[static_cast<size_t>(page)];
  check(slot == nullptr, "a page that is known to hold other tokens");
  const PageId old = node->page;
  slot = std::move(by_page_[static_cast<size_t>(old)]);
  node->page = page;
  pool_.retain(page);
  set_shared(node, pool_.references(page) > 1);
  pool_.release(old);
}

void PrefixTree::touch(PrefixNode* node, uint64_t tick) {
  const bool leaf = node->children.empty();
  if (leaf) leaves_of(node).erase(node);
  node->tick = tick;
  node->worth = age_ + static_cast<double>(node->text.size()) / static_cast<double>(kTokensPerPage);
  if (leaf) leaves_of(node).insert(node);
}

void PrefixTree::touch(const Match& match) {
  // From the tail to the head, so that a leaf is always older than what it stands on.
  if (match.last != nullptr) touch(match.last, ++tick_);
  for (size_t i = match.path.size(); i-- > 0;) touch(match.path[i], ++tick_);
}

// ---- snapshots

Snapshot* PrefixTree::deepest_resume(const Match& match, Exactness wanted) const {
  const auto best_below = [&](const PrefixNode* below, const PageView& text) {
    Snapshot* best = longest_head_of(below->resumes, Exactness::exact, text);
    if (wanted == Exactness::approximate) {
      Snapshot* other = longest_head_of(below->resumes, Exactness::approximate, text);
      const bool deeper = other && (best == nullptr || other->position > best->position);
      if (deeper) best = other;
    }
    return best;
  };
  if (match.last != nullptr) {
    const PageView text = match.last->text.view().first(match.last_count);
    if (Snapshot* found = best_below(match.deepest(), text)) return found;
  }
  for (size_t i = match.path.size(); i-- > 0;) {
    const PrefixNode* node = match.path[i];
    if (node->parent->resumes.empty()) continue;
    if (Snapshot* found = best_below(node->parent, node->text.view())) return found;
  }
  return nullptr;
}

Snapshot* PrefixTree::resume_at(const Match& match, Exactness exactness) const {
  if (match.tokens() == 0) return nullptr;
  const PrefixNode* last = match.last != nullptr ? match.last : match.deepest();
  const size_t count = match.last != nullptr ? match.last_count : kTokensPerPage;
  const PageView text = last->text.view().first(count);
  const auto& resumes = last->parent->resumes;
  const auto found = resumes.find(GradedText{exactness, text});
  return found == resumes.end() ? nullptr : *found;
}

uint64_t PrefixTree::distance_to_previous(const PrefixNode* below, const PageView& text) const {
  const uint64_t position = below->end + text.size();
  PageView rest = text.first(text.size() - 1);
  for (const PrefixNode* node = below;; node = node->parent) {
    const Snapshot* exact = longest_head_of(node->resumes, Exactness::exact, rest);
    const Snapshot* other = longest_head_of(node->resumes, Exactness::approximate, rest);
    const uint64_t reached =
        std::max(exact ? exact->position : 0, other ? other->position : uint64_t{0});
    if (reached > 0) return position - reached;
    if (node->parent == nullptr) return position;
    rest = node->text.view();
  }
}

void PrefixTree::attach(const Match& match, Snapshot* snapshot) {
  check(snapshot->position == match.tokens(), "snapshot at another position");
  const PrefixNode* last = match.last != nullptr ? match.last : match.deepest();
  check(snapshot->below == last->parent, "snapshot of another page");
  check(last->parent->resumes.contains(snapshot) == false, "two snapshots of one position");
  snapshot->below->resumes.insert(snapshot);
}

void PrefixTree::forget(Snapshot* snapshot) {
  check(snapshot->below->resumes.erase(snapshot) == 1, "snapshot that hangs nowhere");
  store_.erase(snapshot);
}

size_t PrefixTree::drop_uncovered(PrefixNode* parent, const PageText& gone, Exactness exactness) {
  if (parent->resumes.empty()) return 0;
  const size_t exact = nearest(parent->children, Exactness::exact, gone.view()).common;
  const size_t other = nearest(parent->children, Exactness::approximate, gone.view()).common;
  size_t dropped = 0;
  const auto drop = [&](Exactness grade, size_t covered) {
    for (;;) {
      Snapshot* head = longest_head_of(parent->resumes, grade, gone.view());
      if (head == nullptr || head->text.size() <= covered) return;
      forget(head);
      ++dropped;
    }
  };
  if (exactness == Exactness::exact) drop(Exactness::exact, exact);
  drop(Exactness::approximate, std::max(exact, other));
  return dropped;
}

// ---- who holds what, and eviction

void PrefixTree::set_shared(PrefixNode* node, bool shared) {
  if (node->shared == shared) return;
  node->shared = shared;
  shared_count_ += shared ? 1 : size_t(-1);
  // Up to the first ancestor that is blocked, or free, for another reason too.
  for (; node->parent != nullptr; node = node->parent) {
    const bool leaf = node->children.empty();
    const bool changes = shared ? node->blocked == 0 : node->blocked == 1;
    if (leaf && changes) leaves_of(node).erase(node);
    node->blocked += shared ? 1 : uint32_t(-1);
    if (leaf && changes) leaves_of(node).insert(node);
    if (!changes) return;
    blocked_count_ += shared ? 1 : size_t(-1);
  }
}

void PrefixTree::remove(PrefixNode* leaf) {
  check(leaf->children.empty() && leaf->resumes.empty(), "removal of a node with children");
  set_shared(leaf, false);
  idle_.erase(leaf);
  PrefixNode* parent = leaf->parent;
  parent->children.erase(leaf);
  if (leaf->complete()) by_hash_.erase(leaf->hash);
  if (parent->parent != nullptr && parent->children.empty()) leaves_of(parent).insert(parent);
  --node_count_;
  const PageId page = leaf->page;
  by_page_[static_cast<size_t>(page)].reset();
  pool_.release(page);
}

void PrefixTree::evict(PrefixNode* leaf) {
  PrefixNode* parent = leaf->parent;
  const PageText gone = leaf->text;
  const Exactness exactness = leaf->exactness;
  remove(leaf);
  dropped_snapshots_ += drop_uncovered(parent, gone, exactness);
  drop_root_if_empty(parent);
}

void PrefixTree::drop_root_if_empty(PrefixNode* node) {
  if (node->parent == nullptr && node->children.empty()) roots_.erase(node->salt);
}

bool PrefixTree::evict_idle() {
  if (idle_.empty()) return false;
  PrefixNode* leaf = *idle_.begin();
  age_ = std::max(age_, leaf->worth);
  evict(leaf);
  ++evicted_pages_;
  return true;
}

bool PrefixTree::evict_any() {
  PrefixNode* leaf = idle_.empty() ? nullptr : *idle_.begin();
  // Those that a lease holds are few: as many as admissions in flight.
  const auto busy =
      std::find_if(busy_.begin(), busy_.end(), [&](PrefixNode* node) { return !leased(node); });
  if (busy != busy_.end() && (leaf == nullptr || ByWorth{}(*busy, leaf))) leaf = *busy;
  if (leaf == nullptr) return false;
  age_ = std::max(age_, leaf->worth);
  evict(leaf);
  ++evicted_pages_;
  return true;
}

void PrefixTree::clear() {
  const uint64_t dropped = dropped_snapshots_;
  std::vector<PrefixNode*> leaves(idle_.begin(), idle_.end());
  leaves.insert(leaves.end(), busy_.begin(), busy_.end());
  for (PrefixNode* node : leaves) {
    while (node->parent != nullptr && node->children.empty() && !leased(node)) {
      PrefixNode* parent = node->parent;
      const bool last = parent->parent == nullptr && parent->children.size() == 1;
      evict(node);
      if (last) break;  // the root went too
      node = parent;
    }
  }
  dropped_snapshots_ = dropped;
}

}  // namespace deepinfer::cache
