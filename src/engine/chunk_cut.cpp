#include "engine/chunk_cut.h"

namespace deepinfer::engine {

size_t cut_chunk(size_t start, size_t want, std::span<const PromptSpan> spans, size_t prompt,
                 size_t room, bool first_in_step) {
  const size_t end = start + want;
  if (end >= prompt) return want;
  for (const PromptSpan& span : spans) {
    const size_t span_end = span.start + span.count;
    if (end <= span.start || end >= span_end) continue;
    if (first_in_step && span_end - start <= room) return span_end - start;
    return span.start > start ? span.start - start : 0;
  }
  return want;
}

}  // namespace deepinfer::engine
