#include "tensor/tensor.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace deepinfer {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMapFrom = size_t{1} << 20;  // smaller buffers come from the heap

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Fresh pages are zero and untouched. Mapped with one huge page to spare, then trimmed so that the
// start is aligned.
std::byte* map_aligned(size_t bytes) {
  const size_t reserved = bytes + kHugePage;
  void* base = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(base);
  const uintptr_t address = reinterpret_cast<uintptr_t>(base);
  const size_t head = round_up(address, kHugePage) - address;
  const size_t tail = reserved - head - bytes;
  if (head > 0) ::munmap(begin, head);
  if (tail > 0) ::munmap(begin + head + bytes, tail);
  ::madvise(begin + head, bytes, MADV_HUGEPAGE);
  return begin + head;
}

}  // namespace

Result<Shape> Shape::create(std::span<const uint64_t> dims) {
  Shape shape;
  if (dims.size() > kMaxRank) {
    return Error::unsupported("shape", "rank is " + std::to_string(dims.size()) +
                                           ", the limit is " + std::to_string(kMaxRank));
  }
  for (uint64_t dim : dims) shape.dims_[shape.rank_++] = dim;
  // A zero dimension makes the product 0, but must not hide dimensions that overflow without it.
  uint64_t product = 1;
  for (uint64_t dim : dims) {
    const uint64_t factor = dim == 0 ? 1 : dim;
    if (product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / factor) {
      return Error::invalid("shape " + shape.text(), "has more than 2^63 - 1 elements");
    }
    product *= factor;
  }
  return shape;
}

uint64_t Shape::elements() const {
  uint64_t product = 1;
  for (size_t axis = 0; axis < rank_; ++axis) product *= dims_[axis];
  return product;
}

uint64_t Shape::row_elements() const { return rank_ == 0 ? 1 : dims_[rank_ - 1]; }

uint64_t Shape::rows() const {
  const uint64_t row = row_elements();
  return row == 0 ? 0 : elements() / row;
}

std::string Shape::text() const {
  if (rank_ == 0) return "scalar";
  std::string out;
  for (size_t axis = 0; axis < rank_; ++axis) {
    if (axis > 0) out += 'x';
    out += std::to_string(dims_[axis]);
  }
  return out;
}

Result<Buffer> Buffer::create(size_t bytes) {
  const auto refuse = [&] {
    return Error::exhausted("memory", "the system refused " + std::to_string(bytes) + " bytes");
  };
  Buffer buffer;
  if (bytes == 0) return buffer;
  if (bytes > std::numeric_limits<size_t>::max() / 4) return refuse();
  if (bytes >= kMapFrom) {
    const size_t mapped = round_up(bytes, kHugePage);
    buffer.data_ = map_aligned(mapped);
    if (!buffer.data_) return refuse();
    buffer.mapped_ = mapped;
  } else {
    const size_t rounded = round_up(bytes, kAlignment);
    buffer.data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
    if (!buffer.data_) return refuse();
    std::memset(buffer.data_, 0, rounded);
  }
  buffer.size_ = bytes;
  return buffer;
}

Buffer::Buffer(size_t bytes) {
  Result<Buffer> buffer = create(bytes);
  check(buffer.ok(), "no memory for a small buffer");
  *this = std::move(buffer).value();
}

Buffer::~Buffer() {
  if (mapped_ > 0) {
    ::munmap(data_, mapped_);
  } else {
    std::free(data_);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

}  // namespace deepinfer
