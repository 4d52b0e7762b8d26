#include "weights/packed/pack_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "kernels/matmul.h"
#include "weights/checkpoint_files.h"
#include "weights/content_id.h"
#include "weights/gguf/gguf.h"
#include "weights/packed/packed.h"

namespace deepinfer::weights {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{64} << 20;
constexpr uint64_t kSyncBytes = uint64_t{256} << 20;
// Outputs that are packed together: a multiple of every tile and panel height.
constexpr uint64_t kOutputsTogether = 128;
// Zeros of this many bytes are not written: they stay a hole of the file.
constexpr size_t kHoleBytes = 64 * 1024;
constexpr std::array<std::byte, kHoleBytes> kZeros{};

void hash_zeros(Xxh3& hash, uint64_t bytes) {
  for (; bytes > 0; bytes -= std::min<uint64_t>(bytes, kHoleBytes)) {
    hash.update(std::span(kZeros).first(std::min<uint64_t>(bytes, kHoleBytes)));
  }
}

struct Item {
  const NamedTensor* tensor = nullptr;
  const ScaledView* matrix = nullptr;  // null: copied
};

Error system_error(const std::string& thing, const char* call) {
  const int code = errno;
  return Error::io(
      thing, fmt::format("{}: {}", call, std::strerror(code)),
      code == ENOSPC ? "free some space and run it again: it goes on where it stopped" : "");
}

// The file that is being written, and its journal.
class PartialFile {
 public:
  ~PartialFile() {
    if (data_ >= 0) ::close(data_);
    if (journal_) std::fclose(journal_);
  }
  // Checksums of the tensors that an earlier run of the same plan finished.
  Result<std::map<size_t, uint64_t>> open(const std::string& directory, const std::string& plan);
  // Leaves out longer stretches of zeros.
  Result<void> write(uint64_t offset, std::span<const std::byte> bytes);
  // [offset, offset + bytes) reads as zeros, whatever an earlier run left there.
  Result<void> write_hole(uint64_t offset, uint64_t bytes);
  // The file ends there, be it in a hole.
  Result<void> end_at(uint64_t size);
  // Tensor `index` is complete; it enters the journal at the next sync.
  Result<void> finish(size_t index, uint64_t checksum, uint64_t bytes);
  Result<void> sync();

 private:
  Result<void> write_all(uint64_t offset, std::span<const std::byte> bytes);

  std::string path_;
  bool fresh_ = false;  // nothing was there before
  int data_ = -1;
  std::FILE* journal_ = nullptr;
  std::string waiting_;  // lines of the journal
  uint64_t unsynced_ = 0;
};

std::map<size_t, uint64_t> read_journal(const std::string& path, const std::string& plan) {
  std::map<size_t, uint64_t> done;
  const Result<std::string> text = read_file(path);
  if (!text.ok() || !text.value().starts_with(plan + "\n")) return done;
  size_t at = plan.size() + 1;
  while (true) {
    const size_t end = text.value().find('\n', at);
    if (end == std::string::npos) return done;  // a line that was cut off does not count
    size_t index = 0;
    unsigned long long checksum = 0;
    const std::string line = text.value().substr(at, end - at);
    if (std::sscanf(line.c_str(), "%zu %llx", &index, &checksum) == 2) done[index] = checksum;
    at = end + 1;
  }
}

Result<std::map<size_t, uint64_t>> PartialFile::open(const std::string& directory,
                                                     const std::string& plan) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) return Error::io(directory, "mkdir: " + failure.message());
  path_ = directory + "/" + kPackedFile;
  const std::string journal = directory + "/journal";
  std::map<size_t, uint64_t> done = read_journal(journal, plan);
  fresh_ = done.empty();
  data_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | (fresh_ ? O_TRUNC : 0), 0644);
  if (data_ < 0) return system_error(path_, "open");
  journal_ = std::fopen(journal.c_str(), done.empty() ? "we" : "ae");
  if (!journal_) return system_error(journal, "open");
  if (done.empty()) waiting_ = plan + "\n";
  return done;
}

Result<void> PartialFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  size_t data = 0;  // where bytes that are still to be written begin
  for (size_t at = 0; at < bytes.size(); at += kHoleBytes) {
    const size_t here = std::min(kHoleBytes, bytes.size() - at);
    if (std::memcmp(bytes.data() + at, kZeros.data(), here) != 0) continue;
    TRY(write_all(offset + data, bytes.subspan(data, at - data)));
    TRY(write_hole(offset + at, here));
    data = at + here;
  }
  return write_all(offset + data, bytes.subspan(data));
}

Result<void> PartialFile::write_hole(uint64_t offset, uint64_t bytes) {
  if (fresh_) return {};
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (::fallocate(data_, kPunch, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) {
    return {};
  }
  while (bytes > 0) {  // a file system without holes
    const uint64_t here = std::min<uint64_t>(bytes, kHoleBytes);
    TRY(write_all(offset, std::span(kZeros).first(here)));
    offset += here;
    bytes -= here;
  }
  return {};
}

Result<void> PartialFile::end_at(uint64_t size) {
  if (::ftruncate(data_, static_cast<off_t>(size)) != 0) return system_error(path_, "ftruncate");
  return {};
}

Result<void> PartialFile::write_all(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(data_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return system_error(fmt::format("{} at byte {}", path_, offset), "write");
    offset += static_cast<uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
  return {};
}

Result<void> PartialFile::finish(size_t index, uint64_t checksum, uint64_t bytes) {
  waiting_ += fmt::format("{} {:016x}\n", index, checksum);
  unsynced_ += bytes;
  return unsynced_ >= kSyncBytes ? sync() : Result<void>();
}

// The data first: a line of the journal promises bytes that are on disk.
Result<void> PartialFile::sync() {
  if (::fdatasync(data_) != 0) return system_error(path_, "fdatasync");
  if (std::fwrite(waiting_.data(), 1, waiting_.size(), journal_) != waiting_.size() ||
      std::fflush(journal_) != 0 || ::fsync(::fileno(journal_)) != 0) {
    return system_error(path_ + " journal", "write");
  }
  waiting_.clear();
  unsynced_ = 0;
  return {};
}

class Packer {
 public:
  Packer(const Checkpoint& checkpoint, ThreadPool& pool, const PackOptions& options)
      : checkpoint_(checkpoint), pool_(pool), options_(options) {}

  Result<void> plan(const std::vector<ScaledView>& matrices);
  Result<PackSummary> run(const std::string& partial);

 private:
  Result<PackedEntry> entry_of(const Item& item) const;
  void place_entries();
  Result<void> write_tensor(size_t index, PartialFile& file);
  Result<void> write_matrix(const ScaledView& matrix, uint64_t offset, Xxh3& hash,
                            PartialFile& file);
  Result<void> write_rows(const NamedTensor& tensor, uint64_t offset, Xxh3& hash,
                          PartialFile& file);
  Result<void> write_side_files(const std::string& partial) const;
  Result<void> stop_if_cancelled() const;
  void advance(uint64_t bytes);

  const Checkpoint& checkpoint_;
  ThreadPool& pool_;
  const PackOptions& options_;
  std::vector<Item> items_;  // [entries]
  PackedHeader header_;
  uint64_t total_bytes_ = 0, done_bytes_ = 0;
  Buffer piece_;
};

Result<void> Packer::stop_if_cancelled() const {
  if (!options_.cancel || !options_.cancel->load(std::memory_order_relaxed)) return {};
  return Error{ErrorKind::cancelled, "packing", "stopped", "run it again: it goes on from here"};
}

void Packer::advance(uint64_t bytes) {
  done_bytes_ += bytes;
  if (options_.progress) options_.progress(done_bytes_, total_bytes_);
}

Result<PackedEntry> Packer::entry_of(const Item& item) const {
  const TensorView& view = item.tensor->view;
  PackedEntry entry;
  entry.table.name = item.tensor->name;
  entry.table.dtype = item.matrix ? item.matrix->codes.dtype : view.dtype;
  entry.table.shape = item.matrix ? item.matrix->codes.shape : view.shape;
  if (!item.matrix) {
    entry.table.bytes = view.bytes();
    return entry;
  }
  entry.packed = true;
  if (item.matrix->scaled()) {
    entry.tile_outputs = item.matrix->tile_outputs;
    entry.tile_inputs = item.matrix->tile_inputs;
    entry.scales = item.matrix->scales.dtype;
  }
  entry.table.bytes = TRY(kernels::PackedMatrix::packed_bytes(*item.matrix, options_.target));
  return entry;
}

// Offsets stand in the header, whose length decides the offsets: repeated until it does not grow.
void Packer::place_entries() {
  uint64_t begin = 0;
  while (true) {
    const uint64_t needed = packed_header_text(header_).size();
    if (needed <= begin) return;
    begin = needed;
    uint64_t at = begin;
    for (PackedEntry& entry : header_.entries) {
      entry.table.begin = at;
      at += (entry.table.bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
    }
  }
}

Result<void> Packer::plan(const std::vector<ScaledView>& matrices) {
  std::map<const std::byte*, const ScaledView*> by_data;
  std::map<const std::byte*, bool> folded;  // scales
  for (const ScaledView& matrix : matrices) {
    by_data[matrix.codes.data] = &matrix;
    if (matrix.scaled()) folded[matrix.scales.data] = true;
  }
  header_.panels = kernels::panel_layout(options_.target.isa);
  header_.container = checkpoint_.container();
  header_.content_id = TRY(content_id(checkpoint_));
  for (const NamedTensor& tensor : checkpoint_.tensors()) {
    if (tensor.view.panels != PanelLayout::rows) {
      return Error::invalid(checkpoint_.path(), "is packed already", "name the original");
    }
    if (folded.contains(tensor.view.data)) continue;
    const auto found = by_data.find(tensor.view.data);
    const bool whole = found != by_data.end() &&
                       found->second->codes.bytes() == tensor.view.bytes() &&
                       tensor.view.shape.rank() == 2;
    items_.push_back({&tensor, whole ? found->second : nullptr});
    header_.entries.push_back(TRY(entry_of(items_.back())));
    total_bytes_ += header_.entries.back().table.bytes;
  }
  if (header_.container == Container::gguf) {
    const MappedFile first = TRY(MappedFile::open(checkpoint_.files().front()));
    header_.gguf_bytes = first.bytes().size();
  }
  place_entries();
  return {};
}

Result<void> Packer::write_matrix(const ScaledView& matrix, uint64_t offset, Xxh3& hash,
                                  PartialFile& file) {
  const uint64_t outputs = matrix.outputs();
  const ScaledView probe = matrix.slice_outputs(0, std::min(outputs, kOutputsTogether));
  const size_t step_bytes = TRY(kernels::PackedMatrix::packed_bytes(probe, options_.target));
  const size_t steps_per_piece = std::max<size_t>(1, kPieceBytes / step_bytes);
  const size_t steps = (outputs + kOutputsTogether - 1) / kOutputsTogether;
  const size_t most = std::min(steps, steps_per_piece) * step_bytes;
  if (piece_.size() < most) piece_ = TRY(Buffer::create(most));
  for (size_t first = 0; first < steps; first += steps_per_piece) {
    TRY(stop_if_cancelled());
    const size_t count = std::min(steps_per_piece, steps - first);
    std::vector<size_t> bytes(count, 0);
    std::mutex lock;
    std::optional<Error> error;
    std::memset(piece_.data(), 0, count * step_bytes);
    pool_.run(count, [&](size_t i, size_t) {
      const uint64_t output = (first + i) * kOutputsTogether;
      const ScaledView slice =
          matrix.slice_outputs(output, std::min(kOutputsTogether, outputs - output));
      Result<size_t> size = kernels::PackedMatrix::packed_bytes(slice, options_.target);
      if (size.ok()) {
        bytes[i] = size.value();
        const Result<kernels::PackedMatrix> packed = kernels::PackedMatrix::pack_into(
            slice, options_.target, {piece_.data() + i * step_bytes, bytes[i]});
        if (!packed.ok()) size = packed.error();
      }
      const std::lock_guard<std::mutex> hold(lock);
      if (!size.ok() && !error) error = size.error();
    });
    if (error) return *std::move(error);
    const std::span<const std::byte> done(piece_.data(), (count - 1) * step_bytes + bytes.back());
    hash.update(done);
    TRY(file.write(offset, done));
    offset += done.size();
    advance(done.size());
  }
  return {};
}

// Holes of the original (of Engram tables that nobody filled) are neither read nor written.
Result<void> Packer::write_rows(const NamedTensor& tensor, uint64_t offset, Xxh3& hash,
                                PartialFile& file) {
  const uint64_t begin = tensor.file_offset;
  const std::string& path = checkpoint_.files()[tensor.file];
  for (const FilePart& part : TRY(file_parts(path, begin, tensor.view.bytes()))) {
    const uint64_t at = part.offset - begin;  // in the tensor
    for (uint64_t done = 0; done < part.bytes;) {
      TRY(stop_if_cancelled());
      const size_t here = std::min<uint64_t>(kPieceBytes, part.bytes - done);
      if (part.hole) {
        hash_zeros(hash, here);
        TRY(file.write_hole(offset + at + done, here));
      } else {
        const std::span<const std::byte> bytes(tensor.view.data + at + done, here);
        hash.update(bytes);
        TRY(file.write(offset + at + done, bytes));
      }
      done += here;
      advance(here);
    }
  }
  return {};
}

Result<void> Packer::write_tensor(size_t index, PartialFile& file) {
  PackedEntry& entry = header_.entries[index];
  Xxh3 hash;
  if (items_[index].matrix) {
    TRY(check_scaled(*items_[index].matrix, entry.table.name));
    TRY(write_matrix(*items_[index].matrix, entry.table.begin, hash, file));
  } else {
    TRY(write_rows(*items_[index].tensor, entry.table.begin, hash, file));
  }
  entry.checksum = hash.digest();
  return file.finish(index, entry.checksum, entry.table.bytes);
}

Result<void> Packer::write_side_files(const std::string& partial) const {
  for (const char* name : side_file_names()) {
    if (const auto text = checkpoint_.side_file(name)) {
      TRY(write_file_atomic(partial + "/" + name, *text));
    }
  }
  if (header_.container != Container::gguf) return {};
  // The head of a GGUF file ends where its first tensor begins.
  const MappedFile first = TRY(MappedFile::open(checkpoint_.files().front()));
  uint64_t end = first.bytes().size();
  for (const NamedTensor& tensor : checkpoint_.tensors()) {
    if (tensor.file == 0) end = std::min(end, tensor.file_offset);
  }
  return write_file_atomic(partial + "/" + kPackedMetadata, first.bytes().first(end));
}

Result<PackSummary> Packer::run(const std::string& partial) {
  PartialFile file;
  const std::string layout = packed_header_text(header_);
  const std::string plan =
      fmt::format("deepinfer pack {:016x}", xxh3_64(std::as_bytes(std::span(layout))));
  const std::map<size_t, uint64_t> done = TRY(file.open(partial, plan));
  PackSummary summary;
  summary.tensors = items_.size();
  for (size_t i = 0; i < items_.size(); ++i) {
    summary.packed_tensors += items_[i].matrix ? 1 : 0;
    if (const auto found = done.find(i); found != done.end()) {
      header_.entries[i].checksum = found->second;
      ++summary.resumed_tensors;
      advance(header_.entries[i].table.bytes);
    } else {
      Result<void> written = write_tensor(i, file);
      if (!written.ok()) {
        // What is complete stays for the next run, whatever became of this tensor.
        if (const Result<void> kept = file.sync(); !kept.ok()) return kept.error();
        return std::move(written).error();
      }
    }
  }
  const std::string text = packed_header_text(header_);
  TRY(file.write(0, std::as_bytes(std::span(text))));
  const PackedEntry* last = header_.entries.empty() ? nullptr : &header_.entries.back();
  summary.packed_bytes = last ? last->table.end() : text.size();
  TRY(file.end_at(summary.packed_bytes));
  TRY(file.sync());
  TRY(write_side_files(partial));
  summary.original_bytes = checkpoint_.weight_bytes();
  return summary;
}

}  // namespace

Result<PackSummary> write_packed(const Checkpoint& checkpoint,
                                 const std::vector<ScaledView>& matrices, const std::string& out,
                                 ThreadPool& pool, const PackOptions& options) {
  std::string target = out;
  while (target.size() > 1 && target.ends_with('/')) target.pop_back();
  std::error_code failure;
  if (fs::exists(target, failure)) {
    return Error::invalid(target, "exists already", "name a new directory");
  }
  Packer packer(checkpoint, pool, options);
  TRY(packer.plan(matrices));
  const std::string partial = target + ".partial";
  const PackSummary summary = TRY(packer.run(partial));
  fs::remove(partial + "/journal", failure);
  fs::rename(partial, target, failure);
  if (failure) return Error::io(target, "rename: " + failure.message());
  return summary;
}

namespace {

// Without reading holes.
uint64_t checksum_of(const MappedFile& file, const TableEntry& entry) {
  const Result<std::vector<FilePart>> parts = file_parts(file.path(), entry.begin, entry.bytes);
  if (!parts.ok()) return xxh3_64(file.bytes().subspan(entry.begin, entry.bytes));
  Xxh3 hash;
  for (const FilePart& part : parts.value()) {
    if (part.hole) {
      hash_zeros(hash, part.bytes);
    } else {
      hash.update(file.bytes().subspan(part.offset, part.bytes));
    }
  }
  return hash.digest();
}

}  // namespace

Result<void> verify_packed(const std::string& directory, ThreadPool& pool,
                           const std::function<void(uint64_t done, uint64_t total)>& progress) {
  const std::string path = directory + "/" + kPackedFile;
  const MappedFile file = TRY(MappedFile::open(path));
  const PackedHeader header = TRY(parse_packed(file.bytes(), file.bytes().size(), path));
  uint64_t total = 0;
  for (const PackedEntry& entry : header.entries) total += entry.table.bytes;
  std::atomic<uint64_t> done{0};
  std::atomic<size_t> bad{SIZE_MAX};
  // A few entries at a time, so that progress is told from this thread.
  constexpr size_t kTogether = 16;
  for (size_t first = 0; first < header.entries.size() && bad == SIZE_MAX; first += kTogether) {
    pool.run(std::min(kTogether, header.entries.size() - first), [&](size_t i, size_t) {
      const PackedEntry& entry = header.entries[first + i];
      if (checksum_of(file, entry.table) != entry.checksum) bad = first + i;
      done += entry.table.bytes;
    });
    if (progress) progress(done, total);
  }
  if (bad == SIZE_MAX) return {};
  const TableEntry& entry = header.entries[bad].table;
  const uint64_t seen = checksum_of(file, entry);
  return Error::corrupt(tensor_thing(path, entry.name),
                        fmt::format("checksum is {:016x}, the header says {:016x}", seen,
                                    header.entries[bad].checksum),
                        "pack the model again");
}

}  // namespace deepinfer::weights
