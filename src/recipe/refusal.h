#pragma once

// Refusal: why a client's request was not accepted, in the words that a protocol needs. Accepted<T>
// is a value or a Refusal; TRY() of base/result.h works on it.
//
//   Accepted<Request> request = accept_chat(body, options);
//   if (!request.ok()) return send(400, request.error().message);
//
// Threads: plain values.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/result.h"

namespace deepinfer::recipe {

enum class RefusalKind {
  json,        // the body is no JSON text
  body,        // JSON of the wrong shape: a field is missing or has the wrong type
  conversion,  // a rule is broken
};

struct Refusal {
  RefusalKind kind = RefusalKind::conversion;
  std::string_view category;  // a constant, e.g. "out_of_range"
  std::string field;          // as the protocol names it, e.g. "messages[1].tool_calls"; or empty
  std::string message;        // a sentence for the client; names the field

  int status() const { return 400; }
};

std::string_view refusal_kind_name(RefusalKind kind);  // "json", "body", "conversion"

// A broken rule. The message begins with the field.
Refusal refused(std::string_view category, std::string field, const std::string& what);

template <class T>
class [[nodiscard]] Accepted {
 public:
  Accepted(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Accepted(Refusal refusal) : state_(std::in_place_index<1>, std::move(refusal)) {}

  bool ok() const { return state_.index() == 0; }
  T& value() & {
    check(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    check(ok());
    return std::get<0>(state_);
  }
  T value() && {
    check(ok());
    return std::move(std::get<0>(state_));
  }
  const Refusal& error() const& {
    check(!ok());
    return std::get<1>(state_);
  }
  Refusal error() && {
    check(!ok());
    return std::move(std::get<1>(state_));
  }

 private:
  std::variant<T, Refusal> state_;
};

template <>
class [[nodiscard]] Accepted<void> {
 public:
  Accepted() = default;
  Accepted(Refusal refusal) : refusal_(std::move(refusal)) {}

  bool ok() const { return !refusal_.has_value(); }
  void value() const { check(ok()); }
  const Refusal& error() const& {
    check(!ok());
    return *refusal_;
  }
  Refusal error() && {
    check(!ok());
    return *std::move(refusal_);
  }

 private:
  std::optional<Refusal> refusal_;
};

}  // namespace deepinfer::recipe
