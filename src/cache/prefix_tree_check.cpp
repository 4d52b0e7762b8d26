// PrefixTree::check_invariants():
//   1. a node of 128 tokens is in the table of hashes under its own chain's hash, and only those;
//   2. a node ends where its parent ends plus its tokens; only nodes of 128 tokens have children;
//      what is below an approximate node is approximate;
//   3. no node is the head of a sibling, but an exact one of an approximate one; nodes and
//      snapshots are in the order of their texts;
//   4. every node holds a reference of its page, no page is two nodes', and `shared` says whether
//      somebody else holds one; a page under lease has a reference for each lease;
//   5. blocked counts the node's own sharing and its blocked children; idle and busy hold the
//      leaves, by whether blocked; the counts of nodes are those of a walk;
//   6. a parent was used after its children and is worth as much or more;
//   7. a snapshot is in the store and within one page after its node; a sibling covers its tokens,
//      for an exact one an exact sibling; the store has no others;
//   8. roots have children.

#include <algorithm>

#include "base/check.h"
#include "cache/prefix_tree.h"
#include "cache/text_set.h"

namespace deepinfer::cache {

struct PrefixTree::Census {
  size_t nodes = 0, blocked = 0, shared = 0, complete = 0, leaves = 0, snapshots = 0;
};

namespace {

void check_siblings(const PrefixNode* node) {
  const PrefixNode* before = nullptr;
  for (const PrefixNode* child : node->children) {
    if (before != nullptr && before->exactness == child->exactness) {
      const PageView text = before->text.view();
      check(compare(text, child->text.view()) < 0, "siblings out of order");
      check(common_prefix(text, child->text.view()) < text.size(), "head of a sibling");
    }
    if (child->exactness == Exactness::approximate) {
      check(!continuation_of(node->children, Exactness::exact, child->text.view()),
            "approximate head of an exact sibling");
    }
    before = child;
  }
}

void check_snapshots(const PrefixNode* node, const SnapshotStore& store) {
  for (const Snapshot* snapshot : node->resumes) {
    check(store.holds(snapshot), "snapshot outside the store");
    check(snapshot->below == node, "snapshot on another node");
    check(snapshot->text.size() > 0, "snapshot without tokens");
    check(snapshot->position == node->end + snapshot->text.size(), "position of a snapshot");
    const PageView text = snapshot->text.view();
    const bool exact = continuation_of(node->children, Exactness::exact, text) != nullptr;
    const bool other = continuation_of(node->children, Exactness::approximate, text) != nullptr;
    check(exact || (other && snapshot->exactness == Exactness::approximate),
          "snapshot without its entries");
  }
}

}  // namespace

void PrefixTree::census(const PrefixNode* node, Census& found) const {
  const PrefixNode* parent = node->parent;
  ++found.nodes;
  found.blocked += node->blocked > 0 ? 1 : 0;
  found.shared += node->shared ? 1 : 0;
  found.complete += node->complete() ? 1 : 0;
  check(node->text.size() > 0 && node->end == parent->end + node->text.size(), "end of a node");
  check(node->complete() || node->children.empty(), "children of an incomplete page");
  check(parent->exactness <= node->exactness, "exact page on an approximate one");
  if (node->complete()) {
    check(node->hash == hasher_(parent->hash, node->text.view()), "hash of another chain");
    const auto entry = by_hash_.find(node->hash);
    check(entry != by_hash_.end() && entry->second == node, "node without its hash");
  }
  const size_t page = static_cast<size_t>(node->page);
  const uint32_t references = pool_.references(node->page);
  check(by_page_[page].get() == node, "page of another node");
  check(references >= 1 + leases_[page], "page without its references");
  check(node->shared == (references > 1), "sharing of a page");
  uint32_t blocked = node->shared ? 1 : 0;
  for (const PrefixNode* child : node->children) {
    blocked += child->blocked > 0 ? 1 : 0;
    check(child->parent == node, "child of another node");
    check(child->tick < node->tick && child->worth <= node->worth, "child newer than its parent");
  }
  check(node->blocked == blocked, "count of what blocks a node");
  if (!node->children.empty()) return;
  ++found.leaves;
  PrefixNode* leaf = by_page_[page].get();
  check((node->blocked > 0 ? busy_ : idle_).contains(leaf), "leaf without its place");
}

void PrefixTree::check_invariants() const {
  Census found;
  for (const auto& node : by_page_) {
    if (!node) continue;
    census(node.get(), found);
    check_siblings(node.get());
    check_snapshots(node.get(), store_);
    found.snapshots += node->resumes.size();
  }
  size_t root_children = 0;
  for (const auto& [salt, root] : roots_) {
    check(root->salt == salt && root->parent == nullptr && root->end == 0, "root");
    check(!root->children.empty(), "root without children");
    root_children += root->children.size();
    for (const PrefixNode* child : root->children) check(child->parent == root.get(), "root's");
    check_siblings(root.get());
    check_snapshots(root.get(), store_);
    found.snapshots += root->resumes.size();
  }
  check(found.nodes == node_count_ && found.blocked == blocked_count_, "count of nodes");
  check(found.shared == shared_count_, "count of shared pages");
  check(found.complete == by_hash_.size(), "hash of a node that is not there");
  check(found.leaves == idle_.size() + busy_.size(), "place of a node that is no leaf");
  check(found.nodes == 0 || root_children > 0, "nodes without a root");
  check(found.snapshots == store_.size(), "snapshot that hangs nowhere");
  store_.check_invariants();
}

}  // namespace deepinfer::cache
