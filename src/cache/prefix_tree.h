#pragma once

// PrefixTree: which pages hold which tokens. A node is a page; below it lie the pages that follow.
// Snapshots hang on the node of the complete pages before their position, with their own copy of
// the tokens between: they stay right whichever page covers those tokens.
//
// Node of 128 tokens: found by the hash of its chain. Any node: found among its siblings by the
// order of their texts, which is how a match ends inside of a page. The last page of a sequence may
// have fewer tokens; when more of them are put, the node grows in place.
//
// Value of a node: worth = age + tokens / 128, set at each use, `age` being the worth of the last
// one evicted; equal worth goes by time of use, a node before its parent. With complete pages that
// is LRU; a page of few tokens goes earlier. Only leaves go, so a chain is eaten from its end.
//
// Invariants: see the top of prefix_tree_check.cpp.
//
// Threads: the engine's thread.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "cache/page_pool.h"
#include "cache/page_text.h"
#include "cache/snapshot_store.h"

namespace deepinfer::cache {

// Texts of one exactness before those of the other; T: PrefixNode or Snapshot.
struct GradedText {
  Exactness exactness;
  PageView text;
};
template <class T>
struct ByText {
  using is_transparent = void;
  static GradedText of(const T* entry) { return {entry->exactness, entry->text.view()}; }
  static GradedText of(const GradedText& key) { return key; }
  bool operator()(const auto& a, const auto& b) const {
    const GradedText left = of(a), right = of(b);
    if (left.exactness != right.exactness) return left.exactness < right.exactness;
    return compare(left.text, right.text) < 0;
  }
};

struct PrefixNode {
  PrefixNode* parent = nullptr;  // null: a root, which has no page
  PageText text;
  Hash128 hash;       // of the chain to its end; nodes of 128 tokens and roots
  uint64_t end = 0;   // tokens from the start of the sequence to its end
  uint64_t salt = 0;  // of a root
  PageId page{};
  Exactness exactness = Exactness::exact;
  std::set<PrefixNode*, ByText<PrefixNode>> children;
  std::set<Snapshot*, ByText<Snapshot>> resumes;  // at positions (end, end + 128]
  bool shared = false;   // the page has other holders: evicting would free nothing
  uint32_t blocked = 0;  // shared (1) + children that are blocked; leaves with 0 can be evicted
  double worth = 0;
  uint64_t tick = 0;

  bool complete() const { return parent == nullptr || text.size() == kTokensPerPage; }
};

class PrefixTree {
 public:
  using Hasher = Hash128 (*)(const Hash128& parent, const PageView& page);

  // What a key's head was found to be.
  struct Match {
    PrefixNode* root = nullptr;     // null: nothing of this salt
    std::vector<PrefixNode*> path;  // complete pages, head first
    PrefixNode* last = nullptr;     // after them, a page whose first last_count tokens match
    size_t last_count = 0;
    uint64_t tokens() const { return path.size() * kTokensPerPage + last_count; }
    PrefixNode* deepest() const { return path.empty() ? root : path.back(); }
  };

  // Pool and store must outlive the tree. Only one tree on a pool.
  PrefixTree(PagePool& pool, SnapshotStore& store, const Hash128& identity, Hasher hasher);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  Match find(const PrefixKey& key, uint64_t limit, Exactness wanted) const;
  // Makes key.ids[0, length) known by the pages; what is known already stays. Covers less than
  // `length` only after a collision of hashes.
  Match put(const PrefixKey& key, std::span<const PageId> pages, uint64_t length,
            Exactness exactness);
  // A use, of all nodes from the root to the match's end.
  void touch(const Match& match);

  // The deepest snapshot of the match; null: none.
  Snapshot* deepest_resume(const Match& match, Exactness wanted) const;
  // The snapshot at exactly match.tokens(); null: none.
  Snapshot* resume_at(const Match& match, Exactness exactness) const;
  // From there to the resume point before.
  uint64_t distance_to_previous(const PrefixNode* below, const PageView& text) const;
  // Hangs a snapshot of the store at match.tokens(), which is where it is of.
  void attach(const Match& match, Snapshot* snapshot);
  void forget(Snapshot* snapshot);  // in the store too

  // What a lease holds, page by page; it has a reference of the pool too.
  void lease(PageId page) { ++leases_[static_cast<size_t>(page)]; }
  void end_lease(PageId page) { --leases_[static_cast<size_t>(page)]; }

  // Evicts the least valuable page that nobody else holds; false: there is none.
  bool evict_idle();
  // Evicts the least valuable page, even one that sequences go on using; false: leases hold all.
  bool evict_any();
  // Everything that no lease holds.
  void clear();

  size_t nodes() const { return node_count_; }
  size_t blocked_nodes() const { return blocked_count_; }
  size_t shared_nodes() const { return shared_count_; }
  uint64_t evicted_pages() const { return evicted_pages_; }
  uint64_t dropped_snapshots() const { return dropped_snapshots_; }
  void check_invariants() const;

 private:
  struct ByWorth {
    bool operator()(const PrefixNode* a, const PrefixNode* b) const {
      return a->worth != b->worth ? a->worth < b->worth : a->tick < b->tick;
    }
  };
  using Leaves = std::set<PrefixNode*, ByWorth>;
  struct Census;

  PrefixNode* find_root(uint64_t salt) const;
  PrefixNode* make_root(uint64_t salt);
  PrefixNode* find_complete(const PrefixNode* parent, const PageView& text,
                            const Hash128& hash) const;
  PrefixNode* put_page(PrefixNode* parent, const PageView& text, PageId page, Exactness exactness);
  PrefixNode* add(PrefixNode* parent, const PageView& text, const Hash128& hash, PageId page,
                  Exactness exactness);
  void extend(PrefixNode* node, const PageView& text, const Hash128& hash, PageId page,
              Exactness exactness);
  void touch(PrefixNode* node, uint64_t tick);

  Leaves& leaves_of(const PrefixNode* node) { return node->blocked > 0 ? busy_ : idle_; }
  void set_shared(PrefixNode* node, bool shared);
  bool leased(const PrefixNode* node) const { return leases_[static_cast<size_t>(node->page)] > 0; }
  void evict(PrefixNode* leaf);
  void remove(PrefixNode* leaf);  // its page's reference too; not what hangs on the parent
  size_t drop_uncovered(PrefixNode* parent, const PageText& gone, Exactness exactness);
  void drop_root_if_empty(PrefixNode* node);
  void census(const PrefixNode* node, Census& found) const;

  PagePool& pool_;
  SnapshotStore& store_;
  Hash128 identity_;
  Hasher hasher_;
  std::map<uint64_t, std::unique_ptr<PrefixNode>> roots_;  // by salt; none is without children
  std::vector<std::unique_ptr<PrefixNode>> by_page_;       // [pool pages]
  std::vector<uint32_t> leases_;                           // [pool pages]
  struct HashOfHash {
    size_t operator()(const Hash128& hash) const { return static_cast<size_t>(hash.low); }
  };
  std::unordered_map<Hash128, PrefixNode*, HashOfHash> by_hash_;  // complete ones
  Leaves idle_, busy_;  // nodes without children, by whether blocked
  size_t node_count_ = 0, blocked_count_ = 0, shared_count_ = 0;
  uint64_t evicted_pages_ = 0, dropped_snapshots_ = 0;
  uint64_t tick_ = 0;
  double age_ = 0;
};

}  // namespace deepinfer::cache
