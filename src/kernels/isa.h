#pragma once

// Which instruction set the operations run on, and how they round.
//
// Isa::avx512 needs F, BW, DQ, VL and VNNI (Ice Lake, Cascade Lake, Zen 4 and later);
// emulated512 runs the 512-bit bodies on pairs of 256-bit vectors and gives the same bits, so that
// they are tested on machines without AVX-512. Threads: any.

#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer::kernels {

enum class Isa { ref, avx2, avx512, emulated512 };

// faithful: activations are rounded where the official code of a family rounds them; for the
// classic families that is nowhere. exact: no activation is rounded. fast: int8 per 32 values for
// quantised weights, none for float weights.
enum class Numerics { faithful, exact, fast };

struct Target {
  Isa isa = Isa::ref;
  Numerics numerics = Numerics::fast;
  bool operator==(const Target&) const = default;
};

struct CpuFeatures {
  bool avx2 = false;    // with FMA, F16C and BMI2
  bool avx512 = false;  // F, BW, DQ, VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
};
// Of this machine, with the operating system's consent (XCR0).
const CpuFeatures& cpu_features();

std::string_view isa_name(Isa isa);
std::string_view numerics_name(Numerics numerics);

// "auto" takes the best this machine has; a set that the machine lacks is refused by name.
Result<Isa> choose_isa(std::string_view name);
Result<Numerics> choose_numerics(std::string_view name);

// All sets that run here, ref included; for tests and selftest.
std::string isa_list();

}  // namespace deepinfer::kernels
