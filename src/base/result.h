#pragma once

// Result<T>: a value, or an Error that names the thing and what is wrong with it. For everything
// the world does (files, network, user input); bugs use check() of base/check.h.
//
//   Result<Config> read(const std::string& path) {
//     std::string text = TRY(read_file(path));
//     if (text.empty()) return Error::invalid(path, "is empty");
//     return parse(text);
//   }
//
// Contract: error() requires !ok(), value() requires ok(); both are checked. No exceptions cross
// folders; a function that returns Result does not throw. Threads: a Result is a plain value.

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace deepinfer {

enum class ErrorKind {
  invalid,      // bad usage or bad input: exit code 2, HTTP 400
  not_found,    // a file, a model, a tensor that is not there
  corrupt,      // a file whose content contradicts itself or its checksum
  unsupported,  // well-formed, but this program does not do it
  io,           // the system refused: errno in the text
  exhausted,    // a limit or the memory is used up
  cancelled,    // the caller took it back
  internal,     // a defect found at run time, e.g. NaN in a result
};

// Printed as "error: <thing>: <what> (<hint>)"; `what` holds both values when two disagree.
struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string thing;
  std::string what;
  std::string hint;  // what to do; may be empty

  static Error invalid(std::string thing, std::string what, std::string hint = "") {
    return {ErrorKind::invalid, std::move(thing), std::move(what), std::move(hint)};
  }
  static Error not_found(std::string thing, std::string what, std::string hint = "") {
    return {ErrorKind::not_found, std::move(thing), std::move(what), std::move(hint)};
  }
  static Error corrupt(std::string thing, std::string what, std::string hint = "") {
    return {ErrorKind::corrupt, std::move(thing), std::move(what), std::move(hint)};
  }
  static Error unsupported(std::string thing, std::string what, std::string hint = "") {
    return {ErrorKind::unsupported, std::move(thing), std::move(what), std::move(hint)};
  }
  static Error io(std::string thing, std::string what, std::string hint = "") {
    return {ErrorKind::io, std::move(thing), std::move(what), std::move(hint)};
  }
  static Error exhausted(std::string thing, std::string what, std::string hint = "") {
    return {ErrorKind::exhausted, std::move(thing), std::move(what), std::move(hint)};
  }

  // "thing: what (hint)".
  std::string text() const {
    std::string out = thing;
    if (!out.empty() && !what.empty()) out += ": ";
    out += what;
    if (!hint.empty()) out += " (" + hint + ")";
    return out;
  }
};

template <class T>
class [[nodiscard]] Result {
 public:
  using Value = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

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
  const Error& error() const& {
    check(!ok());
    return std::get<1>(state_);
  }
  Error error() && {
    check(!ok());
    return std::move(std::get<1>(state_));
  }

 private:
  std::variant<T, Error> state_;
};

// Success carries nothing: `return {};`.
template <>
class [[nodiscard]] Result<void> {
 public:
  using Value = void;

  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  void value() const { check(ok()); }
  const Error& error() const& {
    check(!ok());
    return *error_;
  }
  Error error() && {
    check(!ok());
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace deepinfer

// The value of a Result, or return its error from the enclosing function. In a coroutine await
// first: `auto r = co_await f(); ... TRY(std::move(r))` is not possible there, test it by hand.
#define TRY(expression)                                         \
  ({                                                            \
    auto&& try_result = (expression);                           \
    if (!try_result.ok()) return std::move(try_result).error(); \
    std::move(try_result).value();                              \
  })
