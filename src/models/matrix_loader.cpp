#include "models/matrix_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace deepinfer::models {
namespace {

Error renamed(Error error, const std::string& name) {
  if (error.thing == name) return error;
  error.what = error.thing.empty() ? error.what : error.thing + " " + error.what;
  error.thing = name;
  return error;
}

template <class T>
int64_t load_integer(const std::byte* data, size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return int64_t{value};
}

int64_t integer_at(const TensorView& view, size_t index) {
  return view.dtype == DType::i64 ? load_integer<int64_t>(view.data, index)
                                  : load_integer<int32_t>(view.data, index);
}

}  // namespace

MatrixLoader::MatrixLoader(kernels::Target target, ThreadPool& pool, Arena& arena,
                           Progress progress, size_t total_bytes)
    : target_(target),
      pool_(pool),
      arena_(arena),
      progress_(std::move(progress)),
      total_bytes_(total_bytes) {}

void MatrixLoader::note(size_t file_bytes) {
  done_bytes_ += file_bytes;
  if (progress_) progress_(std::min(done_bytes_, total_bytes_), total_bytes_);
}

Result<void> MatrixLoader::note_choice(const TensorView& view, const std::string& name) {
  Result<kernels::Choice> choice =
      kernels::PackedMatrix::explain(view.dtype, view.rows(), view.row_elements(), target_);
  if (!choice.ok()) return renamed(choice.error(), name);
  const std::string operation = choice.value().operation;
  choices_.try_emplace(operation, std::move(choice).value());
  return {};
}

Result<kernels::PackedMatrix> MatrixLoader::matrix(const ScaledView& view,
                                                   const std::string& name) {
  if (!view.scaled()) return matrix(view.codes, name);
  if (view.codes.panels == PanelLayout::rows) TRY(check_scaled(view, name));
  TRY(note_choice(view.codes, name));
  Result<kernels::PackedMatrix> packed = kernels::PackedMatrix::pack(view, target_, pool_, &arena_);
  if (!packed.ok()) return renamed(packed.error(), name);
  bytes_ += packed.value().bytes();
  note(view.bytes());
  return packed;
}

Result<kernels::PackedMatrix> MatrixLoader::matrix(const TensorView& view,
                                                   const std::string& name) {
  TRY(note_choice(view, name));
  Result<kernels::PackedMatrix> packed = kernels::PackedMatrix::pack(view, target_, pool_, &arena_);
  if (!packed.ok()) return renamed(packed.error(), name);
  bytes_ += packed.value().bytes();
  note(view.bytes());
  return packed;
}

Result<std::vector<float>> MatrixLoader::floats(const TensorView& view, const std::string& name) {
  if (!dtype_info(view.dtype).decodable) {
    return Error::unsupported(name, "no decoder for " + std::string(dtype_info(view.dtype).name));
  }
  const size_t width = view.row_elements();
  std::vector<float> values(view.shape.elements());
  for (size_t row = 0; row < view.rows(); ++row) {
    decode_row(view.dtype, view.row(row), values.data() + row * width, width);
  }
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  if (bad != values.end()) {
    return Error::corrupt(
        name, "element " + std::to_string(bad - values.begin()) + " is " + std::to_string(*bad));
  }
  bytes_ += values.size() * sizeof(float);
  note(view.bytes());
  return values;
}

Result<std::vector<int32_t>> MatrixLoader::integers(const TensorView& view,
                                                    const std::string& name) {
  if (view.dtype != DType::i32 && view.dtype != DType::i64) {
    return Error::unsupported(
        name, "is " + std::string(dtype_info(view.dtype).name) + ", wanted I32 or I64");
  }
  std::vector<int32_t> values(view.shape.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t value = integer_at(view, i);
    if (value < std::numeric_limits<int32_t>::min() ||
        value > std::numeric_limits<int32_t>::max()) {
      return Error::corrupt(name, "element " + std::to_string(i) + " is " + std::to_string(value) +
                                      ", beyond 32 bits");
    }
    values[i] = static_cast<int32_t>(value);
  }
  bytes_ += values.size() * sizeof(int32_t);
  note(view.bytes());
  return values;
}

std::vector<kernels::Choice> MatrixLoader::choices() const {
  std::vector<kernels::Choice> list;
  list.reserve(choices_.size());
  for (const auto& [operation, choice] : choices_) list.push_back(choice);
  return list;
}

}  // namespace deepinfer::models
