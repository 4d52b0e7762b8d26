#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace deepinfer {
namespace {

Error os_error(const std::string& path, const char* operation, int code) {
  const std::string what = std::string("cannot ") + operation + ": " + std::strerror(code);
  return code == ENOENT ? Error::not_found(path, what) : Error::io(path, what);
}

// Closes on every way out; release() hands the descriptor over.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int open_retrying(const char* path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = ::open(path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// The size of a regular file; other kinds (folders, devices, pipes) are refused by name.
Result<uint64_t> regular_size(const std::string& path, int fd) {
  struct stat status;
  if (::fstat(fd, &status) != 0) return os_error(path, "stat", errno);
  if (S_ISDIR(status.st_mode)) return os_error(path, "read", EISDIR);
  if (!S_ISREG(status.st_mode)) return Error::io(path, "cannot map: is not a regular file");
  return static_cast<uint64_t>(status.st_size);
}

Result<void> write_all(const std::string& path, int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return os_error(path, "write", errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The name beside `path` is unique per process and call, so that concurrent writers do not meet.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return path + "." + std::to_string(::getpid()) + "." +
         std::to_string(counter.fetch_add(1, std::memory_order_relaxed)) + ".partial";
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  Descriptor file(open_retrying(path.c_str(), O_RDONLY));
  if (file.get() < 0) return os_error(path, "open", errno);
  const uint64_t size = TRY(regular_size(path, file.get()));
  MappedFile out;
  out.path_ = path;
  if (size == 0) return out;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return os_error(path, "map", errno);
  out.data_ = static_cast<const std::byte*>(data);
  out.size_ = size;
  return out;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

namespace {

void advise(const std::byte* data, size_t size, size_t offset, size_t length, int advice,
            bool whole_pages_only) {
  if (!data || offset >= size) return;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  size_t end = offset + std::min(length, size - offset);
  size_t begin = offset / page * page;
  if (whole_pages_only) {
    // A page that is shared with bytes outside of the range stays.
    begin = (offset + page - 1) / page * page;
    if (end != size) end = end / page * page;
  }
  if (begin < end) ::madvise(const_cast<std::byte*>(data) + begin, end - begin, advice);
}

}  // namespace

void MappedFile::advise_sequential(size_t offset, size_t length) const {
  advise(data_, size_, offset, length, MADV_SEQUENTIAL, false);
  advise(data_, size_, offset, length, MADV_WILLNEED, false);
}

void MappedFile::advise_random(size_t offset, size_t length) const {
  advise(data_, size_, offset, length, MADV_RANDOM, false);
}

void MappedFile::advise_done(size_t offset, size_t length) const {
  advise(data_, size_, offset, length, MADV_DONTNEED, true);
}

Result<std::vector<FilePart>> file_parts(const std::string& path, uint64_t offset, uint64_t bytes) {
  const Descriptor file(open_retrying(path.c_str(), O_RDONLY));
  if (file.get() < 0) return os_error(path, "open", errno);
  std::vector<FilePart> parts;
  const uint64_t end = offset + bytes;
  for (uint64_t at = offset; at < end;) {
    const off_t data = ::lseek(file.get(), static_cast<off_t>(at), SEEK_DATA);
    uint64_t next = data < 0 ? at : std::min(static_cast<uint64_t>(data), end);
    const bool no_more = data < 0 && errno == ENXIO;
    if (no_more) next = end;
    if (next > at) {
      parts.push_back({at, next - at, true});
      at = next;
      continue;
    }
    const off_t hole = data < 0 ? -1 : ::lseek(file.get(), data, SEEK_HOLE);
    next = hole < 0 ? end : std::min(static_cast<uint64_t>(hole), end);
    parts.push_back({at, next - at, false});
    at = next;
  }
  return parts;
}

Result<DirectFile> DirectFile::open(const std::string& path) {
  DirectFile out;
  out.path_ = path;
  out.fd_ = open_retrying(path.c_str(), O_RDONLY | O_DIRECT);
  out.direct_ = out.fd_ >= 0;
  // tmpfs and some network file systems refuse O_DIRECT with EINVAL.
  if (out.fd_ < 0 && errno == EINVAL) out.fd_ = open_retrying(path.c_str(), O_RDONLY);
  if (out.fd_ < 0) return os_error(path, "open", errno);
  out.size_ = TRY(regular_size(path, out.fd_));
  return out;
}

DirectFile::~DirectFile() {
  if (fd_ >= 0) ::close(fd_);
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(std::exchange(other.size_, 0)),
      direct_(std::exchange(other.direct_, false)) {}

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(direct_, other.direct_);
  return *this;
}

Result<size_t> DirectFile::read(uint64_t offset, std::span<std::byte> target) const {
  check(fd_ >= 0, "read of a moved-from DirectFile");
  if (direct_) {
    check(offset % kAlignment == 0 && target.size() % kAlignment == 0 &&
              reinterpret_cast<uintptr_t>(target.data()) % kAlignment == 0,
          "direct read: offset, length and target must be multiples of 4096");
  }
  size_t done = 0;
  while (done < target.size() && offset + done < size_) {
    const ssize_t got =
        ::pread(fd_, target.data() + done, target.size() - done, static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return os_error(path_, "read", errno);
    }
    if (got == 0) {
      return Error::corrupt(path_, "shrank from " + std::to_string(size_) + " to " +
                                       std::to_string(offset + done) + " bytes while being read");
    }
    done += static_cast<size_t>(got);
    // After a short direct read the position is no longer aligned: it was the end of the file.
    if (direct_ && done % kAlignment != 0) break;
  }
  return done;
}

Result<std::string> read_file(const std::string& path, size_t limit_bytes) {
  Descriptor file(open_retrying(path.c_str(), O_RDONLY));
  if (file.get() < 0) return os_error(path, "open", errno);
  struct stat status;
  if (::fstat(file.get(), &status) != 0) return os_error(path, "stat", errno);
  const auto too_large = [&](uint64_t size) {
    return Error::exhausted(path, "has " + std::to_string(size) + " bytes or more, the limit is " +
                                      std::to_string(limit_bytes));
  };
  if (S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) > limit_bytes) {
    return too_large(static_cast<uint64_t>(status.st_size));
  }
  // Files of /proc and pipes state size 0, so the size is only where the buffer starts.
  constexpr size_t kChunk = 64 * 1024;
  std::string text;
  size_t done = 0;
  text.resize(S_ISREG(status.st_mode) && status.st_size > 0
                  ? static_cast<size_t>(status.st_size) + 1
                  : kChunk);
  while (true) {
    if (done == text.size()) text.resize(text.size() + std::max(kChunk, text.size() / 2));
    const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
    if (got < 0) {
      if (errno == EINTR) continue;
      return os_error(path, "read", errno);
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
    if (done > limit_bytes) return too_large(done);
  }
  text.resize(done);
  return text;
}

Result<void> write_file_atomic(const std::string& path, std::span<const std::byte> bytes) {
  const std::string partial = temporary_name(path);
  Descriptor file(open_retrying(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644));
  if (file.get() < 0) return os_error(path, "create", errno);

  const auto fail = [&](Error error) {
    ::unlink(partial.c_str());
    return error;
  };
  if (Result<void> written = write_all(path, file.get(), bytes); !written.ok()) {
    return fail(std::move(written).error());
  }
  if (::fsync(file.get()) != 0) return fail(os_error(path, "sync", errno));
  if (::close(file.release()) != 0) return fail(os_error(path, "close", errno));
  if (::rename(partial.c_str(), path.c_str()) != 0) return fail(os_error(path, "rename", errno));

  // Makes the new name durable; some file systems cannot sync a folder, which is no failure.
  Descriptor folder(open_retrying(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY));
  if (folder.get() >= 0) ::fsync(folder.get());
  return {};
}

Result<void> write_file_atomic(const std::string& path, std::string_view text) {
  return write_file_atomic(path, std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace deepinfer
