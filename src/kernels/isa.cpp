#include "kernels/isa.h"

#include <cpuid.h>

#include <cstdint>

namespace deepinfer::kernels {
namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool bit(uint32_t word, int index) { return (word >> index) & 1u; }

uint64_t enabled_states() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

CpuFeatures detect() {
  CpuFeatures f;
  const Registers one = cpuid(1, 0);
  if (!bit(one.ecx, 27)) return f;  // OSXSAVE
  const uint64_t states = enabled_states();
  const bool os_ymm = (states & 0x06) == 0x06;
  const bool os_zmm = (states & 0xE6) == 0xE6;
  const Registers seven = cpuid(7, 0);
  const Registers seven_one = cpuid(7, 1);
  const bool fma = bit(one.ecx, 12), f16c = bit(one.ecx, 29), bmi2 = bit(seven.ebx, 8);
  f.avx2 = os_ymm && bit(seven.ebx, 5) && fma && f16c && bmi2;
  f.avx512 = f.avx2 && os_zmm && bit(seven.ebx, 16) && bit(seven.ebx, 30) && bit(seven.ebx, 17) &&
             bit(seven.ebx, 31);
  f.avx512_vnni = f.avx512 && bit(seven.ecx, 11);
  f.avx512_bf16 = f.avx512 && bit(seven_one.eax, 5);
  return f;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::ref:
      return "ref";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::emulated512:
      return "emulated512";
  }
  return "?";
}

std::string_view numerics_name(Numerics numerics) {
  switch (numerics) {
    case Numerics::faithful:
      return "faithful";
    case Numerics::exact:
      return "exact";
    case Numerics::fast:
      return "fast";
  }
  return "?";
}

Result<Isa> choose_isa(std::string_view name) {
  const CpuFeatures& f = cpu_features();
  const bool has512 = f.avx512_vnni;
  if (name == "auto") return has512 ? Isa::avx512 : f.avx2 ? Isa::avx2 : Isa::ref;
  if (name == "ref") return Isa::ref;
  const std::string thing = "--isa " + std::string(name);
  if (name == "avx2" || name == "emulated512") {
    if (!f.avx2) {
      return Error::invalid(thing, "this CPU has no AVX2 with FMA and F16C", "use --isa ref");
    }
    return name == "avx2" ? Isa::avx2 : Isa::emulated512;
  }
  if (name == "avx512") {
    if (!has512) {
      return Error::invalid(thing, "this CPU has no AVX-512 F, BW, DQ, VL with VNNI",
                            "use --isa avx2, or emulated512 for its results");
    }
    return Isa::avx512;
  }
  return Error::invalid(thing, "unknown, known are auto, avx2, avx512, emulated512, ref");
}

Result<Numerics> choose_numerics(std::string_view name) {
  if (name == "faithful") return Numerics::faithful;
  if (name == "exact") return Numerics::exact;
  if (name == "fast") return Numerics::fast;
  return Error::invalid("--numerics " + std::string(name),
                        "unknown, known are faithful, exact, fast");
}

std::string isa_list() {
  std::string out = "ref";
  if (cpu_features().avx2) out += " avx2 emulated512";
  if (cpu_features().avx512_vnni) out += " avx512";
  return out;
}

}  // namespace deepinfer::kernels
