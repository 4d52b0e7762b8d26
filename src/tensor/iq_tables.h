#pragma once

// The magnitudes of the IQ2 and IQ3 formats: an index selects 8 (IQ2) or 4 (IQ3) of them. Generated
// by tools/make_iq_tables.py. Internal to src/tensor. Threads: any; constants.

#include <array>
#include <cstddef>
#include <cstdint>

namespace deepinfer {

template <size_t kEntries, size_t kValues>
using IqGrid = std::array<std::array<uint8_t, kValues>, kEntries>;

extern const IqGrid<256, 8> kIq2XxsGrid;
extern const IqGrid<512, 8> kIq2XsGrid;
extern const IqGrid<1024, 8> kIq2SGrid;
extern const IqGrid<256, 4> kIq3XxsGrid;
extern const IqGrid<512, 4> kIq3SGrid;

}  // namespace deepinfer
