#include "tensor/arena.h"

#include <algorithm>

namespace deepinfer {

Result<std::byte*> Arena::allocate(size_t bytes) {
  const size_t rounded = (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
  if (blocks_.empty() || blocks_.back().size() - used_in_last_ < rounded + kSlackBytes) {
    blocks_.push_back(TRY(Buffer::create(std::max(kBlockBytes, rounded + kSlackBytes))));
    used_in_last_ = 0;
  }
  std::byte* at = blocks_.back().data() + used_in_last_;
  used_in_last_ += rounded;
  used_total_ += rounded;
  return at;
}

}  // namespace deepinfer
