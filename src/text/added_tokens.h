#pragma once

// AddedTokens: finds the spellings of added tokens in a text: leftmost first, at one place the
// longest, exact bytes.
//
// Time: one step for each byte that starts no spelling, else the length walked in the trie, which
// is at most kMaxSpellingBytes. Threads: reading from any.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::text {

struct AddedToken {
  std::string spelling;
  int32_t id = 0;
  bool special = false;
  bool normalized = false;  // looked for in the normalized text, after the others
};

class AddedTokens {
 public:
  static constexpr size_t kMaxSpellingBytes = 1024;

  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };

  AddedTokens() = default;
  // Spellings are not empty, at most kMaxSpellingBytes, and differ.
  explicit AddedTokens(const std::vector<const AddedToken*>& tokens);

  bool empty() const { return nodes_.empty(); }
  // The first match at or after `from`.
  std::optional<Match> find(std::string_view text, size_t from) const;
  std::optional<int32_t> find_exact(std::string_view spelling) const;

 private:
  // Children of a node are neighbours, in the order of their bytes.
  struct Node {
    uint32_t first_child = 0;
    uint16_t child_count = 0;
    uint8_t byte = 0;
    int32_t id = -1;  // of the spelling that ends here
  };

  const Node* child(const Node& node, uint8_t byte) const;

  std::vector<Node> nodes_;  // [0] is the root
  std::array<bool, 256> starts_{};
};

}  // namespace deepinfer::text
