#include <algorithm>
#include <cstring>

#include "kernels/matmul.h"
#include "kernels/matmul/matmul_kernel.h"
#include "kernels/matmul/quantize_row.h"

namespace deepinfer::kernels {

size_t int8_record_dwords(ActivationForms forms, ActivationForms plane) {
  size_t dwords = 9;  // 8 of codes, 1 scale
  for (ActivationForms bit = kPlaneSum; bit <= kPlaneHalves32; bit <<= 1) {
    if (bit == plane) return dwords;
    if (forms & bit) dwords += bit == kPlaneHalves32 ? 2 : 1;
  }
  return dwords;
}

void Activations::begin(Target target, size_t rows, size_t inputs, ActivationForms forms) {
  check(rows <= UINT32_MAX / 2, "too many rows");
  const uint32_t all = static_cast<uint32_t>(rows);
  begin(target, std::span<const uint32_t>(&all, 1), inputs, forms);
}

void Activations::begin(Target target, std::span<const uint32_t> segment_rows, size_t inputs,
                        ActivationForms forms) {
  check(inputs > 0 && inputs <= (size_t{1} << 20), "inputs out of range");
  check((forms & (kFormF32 | kFormInt8)) != 0, "no activation form");
  target_ = target;
  inputs_ = inputs;
  forms_ = forms;
  segment_begin_.assign(1, 0);
  size_t rows = 0;
  for (uint32_t here : segment_rows) {
    rows += here;
    check(rows <= UINT32_MAX / 2, "too many rows");
    segment_begin_.push_back(static_cast<uint32_t>(rows));
  }
  rows_ = rows;
  const size_t blocks = (inputs + 31) / 32;
  if (forms & kFormF32) layout(f32_, 1, f32_group_sizes(target.isa), blocks * 32);
  if (forms & kFormInt8) {
    layout(int8_, forms & kRefined ? 2 : 1, int8_group_sizes(target.isa),
           blocks * int8_record_dwords(forms, 0));
  }
}

// Both slots of a refined row lie in one group: the largest size is even on every set.
void Activations::layout(Form& form, size_t slots_per_row, std::span<const uint8_t> sizes,
                         size_t floats_per_row) {
  form.groups.clear();
  form.group_of.clear();
  form.segment_group.assign(1, 0);
  size_t offset = 0;
  for (size_t s = 0; s + 1 < segment_begin_.size(); ++s) {
    const size_t end = segment_begin_[s + 1] * slots_per_row;
    for (size_t slot = segment_begin_[s] * slots_per_row; slot < end;) {
      const size_t here = std::min<size_t>(end - slot, sizes.back());
      const size_t padded = *std::lower_bound(sizes.begin(), sizes.end(), here);
      form.group_of.insert(form.group_of.end(), here, static_cast<uint32_t>(form.groups.size()));
      form.groups.push_back({slot, here, padded, offset});
      offset += (padded * floats_per_row * sizeof(float) + 63) / 64 * 64;
      slot += here;
    }
    form.segment_group.push_back(static_cast<uint32_t>(form.groups.size()));
  }
  if (form.bytes.size() < offset) form.bytes = Buffer(offset + offset / 4);
  // Rows that only fill up a group: any finite numbers will do, they are never written out.
  for (const RowGroup& group : form.groups) {
    if (group.padded != group.rows || inputs_ % 32 != 0) {
      std::memset(form.bytes.data() + group.offset, 0,
                  group.padded * floats_per_row * sizeof(float));
    }
  }
}

void Activations::fill_row(size_t row, const float* values) noexcept {
  if (forms_ & kFormF32) {
    const RowGroup& group = f32_.groups[f32_.group_of[row]];
    float* out = reinterpret_cast<float*>(f32_.bytes.data() + group.offset) + row - group.first_row;
    for (size_t k = 0; k < inputs_; ++k) out[k * group.padded] = values[k];
  }
  if (forms_ & kFormInt8) {
    const size_t slot = row * (forms_ & kRefined ? 2 : 1);
    const RowGroup& group = int8_.groups[int8_.group_of[slot]];
    quantize_row(target_.isa, values, inputs_,
                 {.group = reinterpret_cast<uint32_t*>(int8_.bytes.data() + group.offset),
                  .padded = group.padded,
                  .row = slot - group.first_row,
                  .forms = forms_,
                  .paired_planes = target_.isa == Isa::avx2});
  }
}

}  // namespace deepinfer::kernels
