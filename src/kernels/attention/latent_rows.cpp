#include "kernels/attention/latent_rows.h"

#include "base/check.h"
#include "kernels/attention/latent_row_tables.h"

namespace deepinfer::kernels {

size_t LatentFormat::row_bytes() const {
  switch (code) {
    case LatentCode::f32:
      return size_t{width} * sizeof(float);
    case LatentCode::bf16:
      return size_t{width} * 2;
    case LatentCode::q8:
      return width + width / kQ8Block;
    case LatentCode::q4e:
      return width / 2 + width / kQ4eBlock;
    case LatentCode::q4u:
      return width / 2 + width / kQ4uBlock;
    case LatentCode::v4: {
      const V4Parts parts(*this);
      return parts.codes + parts.scales + size_t{rope} * 2;
    }
  }
  check(false, "unknown latent row format");
  return 0;
}

const LatentRowOps& latent_row_ops(Isa isa) {
  switch (isa) {
    case Isa::ref:
      break;
    case Isa::avx2:
      return avx2::latent_row_ops_table();
    case Isa::avx512:
      return avx512::latent_row_ops_table();
    case Isa::emulated512:
      return emulated512::latent_row_ops_table();
  }
  return ref::latent_row_ops_table();
}

}  // namespace deepinfer::kernels
