#include "weights/disk/disk_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "tensor/tensor.h"

namespace deepinfer::weights {
namespace {

constexpr uint64_t kBlock = 4096;           // of O_DIRECT
constexpr size_t kLeastDirect = 64 * 1024;  // below, the page cache serves better
constexpr size_t kPreadThreads = 8;

uint64_t round_down(uint64_t value) { return value / kBlock * kBlock; }
uint64_t round_up(uint64_t value) { return round_down(value + kBlock - 1); }

struct OpenFile {
  std::string path;
  int buffered = -1;
  int direct = -1;  // -1: the file system refuses O_DIRECT, or it is not wanted

  void close_all() {
    if (buffered >= 0) ::close(buffered);
    if (direct >= 0) ::close(direct);
    buffered = direct = -1;
  }
  Result<void> open(bool want_direct) {
    close_all();
    buffered = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    // What is wanted is said in full: reading ahead would only fill the page cache.
    if (buffered >= 0) ::posix_fadvise(buffered, 0, 0, POSIX_FADV_RANDOM);
    if (buffered < 0) {
      const int code = errno;
      std::string what = fmt::format("open: {}", std::strerror(code));
      if (code == ENOENT) return Error::not_found(path, std::move(what));
      return Error::io(path, std::move(what));
    }
    if (want_direct) direct = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    return {};
  }
};

// What the page cache holds is copied on the spot: no queue and no thread is worth its while.
size_t read_cached(const DiskRange& range, int fd) {
  const iovec target = {range.target, range.bytes};
  const ssize_t got = ::preadv2(fd, &target, 1, static_cast<off_t>(range.offset), RWF_NOWAIT);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

// One read of the system: a piece of a range, or the aligned bytes around it.
struct Piece {
  uint32_t file = 0;
  int fd = -1;
  uint64_t offset = 0;  // of the first byte wanted
  size_t bytes = 0;
  std::byte* target = nullptr;
  // Of what is read; equal to the above when not direct.
  uint64_t read_offset = 0;
  size_t read_bytes = 0;
  std::byte* read_target = nullptr;
  bool direct = false;
  size_t done = 0;

  bool bounced() const { return read_target != target; }
  // What counts: a direct read may end at the end of the file, past all bytes wanted.
  bool complete() const { return read_offset + done >= offset + bytes; }
};

}  // namespace

struct DiskReader::State {
  Options options;
  std::vector<OpenFile> files;
  std::vector<uint8_t> failed;  // [files], to be opened again
  std::optional<io_uring> ring;
  Buffer bounce;                 // holds bounces
  std::byte* bounces = nullptr;  // [queue_depth][piece_bytes + 2 * kBlock], aligned to kBlock
  bool direct_refused = false;   // by a file system that had accepted the flag
  std::vector<Piece> pieces;
  std::vector<size_t> free_bounces;

  size_t bounce_bytes() const { return options.piece_bytes + 2 * kBlock; }
  Result<void> reopen_failed();
  void cut(std::span<const DiskRange> ranges);
  Result<void> read_uring();
  Result<void> read_pread();
  // Gives a direct piece its bounce buffer; false when all are in use.
  bool prepare(Piece& piece, size_t& slot);
  void finish(const Piece& piece, size_t slot);
  Error failure(const Piece& piece, int code);
};

Result<void> DiskReader::State::reopen_failed() {
  for (size_t i = 0; i < files.size(); ++i) {
    if (!failed[i]) continue;
    TRY(files[i].open(options.direct));
    failed[i] = 0;
  }
  return {};
}

void DiskReader::State::cut(std::span<const DiskRange> ranges) {
  pieces.clear();
  for (const DiskRange& range : ranges) {
    check(range.file < files.size(), "file index");
    const OpenFile& file = files[range.file];
    const bool direct = file.direct >= 0 && range.bytes >= kLeastDirect;
    const bool small = !direct && range.bytes < kLeastDirect;
    for (size_t at = small ? read_cached(range, file.buffered) : 0; at < range.bytes;
         at += options.piece_bytes) {
      Piece piece;
      piece.file = range.file;
      piece.direct = direct;
      piece.fd = direct ? file.direct : file.buffered;
      piece.offset = range.offset + at;
      piece.bytes = std::min(options.piece_bytes, range.bytes - at);
      piece.target = range.target + at;
      piece.read_offset = direct ? round_down(piece.offset) : piece.offset;
      piece.read_bytes =
          direct ? round_up(piece.offset + piece.bytes) - piece.read_offset : piece.bytes;
      piece.read_target = piece.target;
      pieces.push_back(piece);
    }
  }
}

bool DiskReader::State::prepare(Piece& piece, size_t& slot) {
  slot = SIZE_MAX;
  const bool in_place = piece.read_offset == piece.offset && piece.read_bytes == piece.bytes &&
                        reinterpret_cast<uintptr_t>(piece.target) % kBlock == 0;
  if (!piece.direct || in_place) return true;
  if (free_bounces.empty()) return false;
  slot = free_bounces.back();
  free_bounces.pop_back();
  piece.read_target = bounces + slot * bounce_bytes();
  return true;
}

void DiskReader::State::finish(const Piece& piece, size_t slot) {
  if (piece.bounced()) {
    std::memcpy(piece.target, piece.read_target + (piece.offset - piece.read_offset), piece.bytes);
  }
  if (slot != SIZE_MAX) free_bounces.push_back(slot);
}

Error DiskReader::State::failure(const Piece& piece, int code) {
  failed[piece.file] = 1;
  direct_refused = direct_refused || (piece.direct && code == EINVAL);
  const std::string thing = fmt::format("{} at byte {}", files[piece.file].path, piece.offset);
  if (code != 0) return Error::io(thing, fmt::format("read: {}", std::strerror(code)));
  struct stat seen{};
  const bool known = ::fstat(files[piece.file].buffered, &seen) == 0;
  return Error::io(thing, fmt::format("{} bytes are wanted, the file ends at byte {}", piece.bytes,
                                      known ? static_cast<uint64_t>(seen.st_size)
                                            : piece.read_offset + piece.done));
}

Result<void> DiskReader::State::read_uring() {
  std::vector<size_t> slots(pieces.size(), SIZE_MAX);
  std::optional<Error> error;
  size_t next = 0, in_flight = 0;
  const auto submit = [&](size_t index) {
    Piece& piece = pieces[index];
    io_uring_sqe* entry = io_uring_get_sqe(&*ring);
    check(entry != nullptr, "the queue has room for every piece in flight");
    io_uring_prep_read(entry, piece.fd, piece.read_target + piece.done,
                       static_cast<unsigned>(piece.read_bytes - piece.done),
                       piece.read_offset + piece.done);
    io_uring_sqe_set_data64(entry, index);
    ++in_flight;
  };
  while (in_flight > 0 || (!error && next < pieces.size())) {
    while (!error && next < pieces.size() && in_flight < options.queue_depth &&
           prepare(pieces[next], slots[next])) {
      submit(next++);
    }
    const int submitted = io_uring_submit_and_wait(&*ring, 1);
    check(submitted >= 0 || submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY,
          "io_uring takes well-formed reads");
    io_uring_cqe* done = nullptr;
    while (io_uring_peek_cqe(&*ring, &done) == 0) {
      const size_t index = io_uring_cqe_get_data64(done);
      const int result = done->res;
      io_uring_cqe_seen(&*ring, done);
      --in_flight;
      Piece& piece = pieces[index];
      if (result > 0) piece.done += static_cast<size_t>(result);
      if (result == -EINTR || result == -EAGAIN || (result > 0 && !piece.complete())) {
        submit(index);
      } else if (piece.complete()) {
        finish(piece, slots[index]);
      } else {
        if (!error) error = failure(piece, result < 0 ? -result : 0);
        if (slots[index] != SIZE_MAX) free_bounces.push_back(slots[index]);
      }
    }
  }
  if (error) return *std::move(error);
  return {};
}

Result<void> DiskReader::State::read_pread() {
  const size_t threads = std::min({kPreadThreads, pieces.size(), free_bounces.size()});
  std::vector<int> codes(pieces.size(), -1);  // -1: not read; 0: complete or short; errno
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  const auto work = [&](size_t slot) {
    for (size_t i = next++; i < pieces.size() && !stop; i = next++) {
      Piece& piece = pieces[i];
      if (piece.direct) piece.read_target = bounces + slot * bounce_bytes();
      codes[i] = 0;
      while (!piece.complete()) {
        const ssize_t got =
            ::pread(piece.fd, piece.read_target + piece.done, piece.read_bytes - piece.done,
                    static_cast<off_t>(piece.read_offset + piece.done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) codes[i] = errno;
        if (got <= 0) break;
        piece.done += static_cast<size_t>(got);
      }
      if (!piece.complete()) stop = true;
      if (piece.complete()) finish(piece, SIZE_MAX);
    }
  };
  std::vector<std::thread> helpers;
  for (size_t t = 1; t < threads; ++t) helpers.emplace_back(work, t);
  work(0);
  for (std::thread& helper : helpers) helper.join();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (codes[i] >= 0 && !pieces[i].complete()) return failure(pieces[i], codes[i]);
  }
  return {};
}

Result<std::unique_ptr<DiskReader>> DiskReader::open(std::vector<std::string> paths,
                                                     const Options& options) {
  check(options.queue_depth > 0 && options.piece_bytes % kBlock == 0 && options.piece_bytes > 0,
        "a queue of one piece or more, pieces of whole blocks");
  auto state = std::make_unique<State>();
  state->options = options;
  std::unique_ptr<DiskReader> reader(new DiskReader(std::move(state)));
  State& s = *reader->state_;
  for (std::string& path : paths) {
    s.files.push_back({.path = std::move(path)});
    TRY(s.files.back().open(options.direct));
  }
  s.failed.assign(s.files.size(), 0);
  if (options.engine != Engine::pread) {
    io_uring ring;
    const int code = io_uring_queue_init(static_cast<unsigned>(2 * options.queue_depth), &ring, 0);
    if (code == 0) s.ring = ring;
    if (code != 0 && options.engine == Engine::uring) {
      return Error::unsupported("io_uring", std::strerror(-code), "use pread");
    }
  }
  s.bounce = TRY(Buffer::create(options.queue_depth * s.bounce_bytes() + kBlock));
  s.bounces = s.bounce.data() + (kBlock - reinterpret_cast<uintptr_t>(s.bounce.data()) % kBlock);
  for (size_t i = 0; i < options.queue_depth; ++i) s.free_bounces.push_back(i);
  return reader;
}

DiskReader::DiskReader(std::unique_ptr<State> state) : state_(std::move(state)) {}

DiskReader::~DiskReader() {
  if (state_->ring) io_uring_queue_exit(&*state_->ring);
  for (OpenFile& file : state_->files) file.close_all();
}

DiskReader::Engine DiskReader::engine() const {
  return state_->ring ? Engine::uring : Engine::pread;
}

Result<void> DiskReader::read(std::span<const DiskRange> ranges) {
  State& s = *state_;
  const auto attempt = [&]() -> Result<void> {
    TRY(s.reopen_failed());
    s.cut(ranges);
    if (s.pieces.empty()) return {};
    return s.ring ? s.read_uring() : s.read_pread();
  };
  Result<void> result = attempt();
  if (result.ok() || !s.direct_refused || !s.options.direct) return result;
  s.options.direct = false;
  std::fill(s.failed.begin(), s.failed.end(), uint8_t{1});
  return attempt();
}

}  // namespace deepinfer::weights
