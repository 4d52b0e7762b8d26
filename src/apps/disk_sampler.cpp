#include "apps/disk_sampler.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/file.h"

namespace deepinfer::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kPiece = uint64_t{4} << 20;  // about one matrix of an expert
constexpr size_t kSampleBytes = size_t{256} << 20;
constexpr size_t kPiecesTogether = 8;
constexpr uint64_t kBlock = 4096;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

uint64_t DiskSampler::random(uint64_t below) {
  seed_ = seed_ * 6'364'136'223'846'793'005u + 1'442'695'040'888'963'407u;
  return (seed_ >> 24) % below;
}

Result<DiskSampler> DiskSampler::create(const weights::Checkpoint& checkpoint) {
  DiskSampler disk;
  uint64_t longest = 0;
  for (size_t file = 0; file < checkpoint.files().size(); ++file) {
    const std::string& path = checkpoint.files()[file];
    const uint64_t size = TRY(MappedFile::open(path)).bytes().size();
    for (const FilePart& part : TRY(file_parts(path, 0, size))) {
      const uint64_t bytes = part.bytes / kBlock * kBlock;
      if (part.hole || bytes == 0) continue;
      disk.extents_.push_back({static_cast<uint32_t>(file), part.offset, bytes});
      longest = std::max(longest, bytes);
    }
  }
  disk.piece_ = std::min(kPiece, longest);
  if (disk.piece_ == 0) {
    return Error::unsupported(checkpoint.path(), "no file is large enough to measure the disk");
  }
  std::erase_if(disk.extents_, [&](const Extent& extent) { return extent.bytes < disk.piece_; });
  for (const Extent& extent : disk.extents_) disk.total_ += extent.bytes;
  disk.reader_ = TRY(weights::DiskReader::open(checkpoint.files(), {}));
  disk.target_ = TRY(Buffer::create(kPiecesTogether * disk.piece_));
  return disk;
}

Result<double> DiskSampler::sample() {
  double seconds = 0;
  size_t done = 0;
  while (done < kSampleBytes) {
    std::vector<weights::DiskRange> ranges;
    for (size_t i = 0; i < kPiecesTogether; ++i) {
      uint64_t at = random(total_);
      auto extent = extents_.begin();
      for (; at >= extent->bytes; ++extent) at -= extent->bytes;
      at = std::min(at, extent->bytes - piece_) / kBlock * kBlock;
      ranges.push_back({extent->file, extent->begin + at, piece_, target_.data() + i * piece_});
    }
    const Clock::time_point start = Clock::now();
    TRY(reader_->read(ranges));
    seconds += seconds_since(start);
    done += kPiecesTogether * piece_;
  }
  return static_cast<double>(done) / seconds;
}

}  // namespace deepinfer::apps
