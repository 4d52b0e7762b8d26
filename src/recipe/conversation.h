#pragma once

// Conversation: the messages that a recipe turns into a prompt. Roles are "system", "user" and
// "assistant"; layouts refuse others by name.
//
// Threads: plain values.

#include <string>
#include <vector>

namespace deepinfer::recipe {

struct Message {
  std::string role;
  std::string content;  // UTF-8
  bool operator==(const Message&) const = default;
};

struct Conversation {
  std::vector<Message> messages;
  bool operator==(const Conversation&) const = default;
};

}  // namespace deepinfer::recipe
