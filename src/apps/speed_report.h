#pragma once

// The lines after a run that people read: tokens/s, GB/s of weights, share of the machine's
// measured memory bandwidth.
//
// Threads: the main thread.

#include <string>

#include "base/thread_pool.h"
#include "llm/llm.h"

namespace deepinfer::apps {

// `read_gb_per_s`: the machine's DRAM read bandwidth with the same threads, 0 when not measured.
// "read 203 tokens at 810 tokens/s; wrote 340 tokens at 151 tokens/s, 3.1 GB/s of weights, 12 % of
// the 26.0 GB/s that this machine's memory gives".
std::string speed_text(const llm::Speed& speed, size_t weight_bytes_per_step, double read_gb_per_s);

// The best of three passes over a buffer beyond the caches, with all threads of the pool; well
// below a second. 0 when there is no memory for the buffer.
double measure_read_gb_per_s(ThreadPool& pool);

}  // namespace deepinfer::apps
