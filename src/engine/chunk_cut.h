#pragma once

// Where a chunk of a prompt may end: never inside the positions of a picture.
//
// Source: spec vision.md section 9.1. Threads: pure functions.

#include <cstddef>
#include <span>

namespace deepinfer::engine {

struct PromptSpan {
  size_t start = 0;  // position of the prompt
  size_t count = 0;
};

// Length of the chunk that begins at `start`, of `want` positions wanted. spans are ascending and
// apart, prompt: all positions. When the wanted end falls inside of a span: to the span's end, if
// this chunk is the first of its step and `room` positions hold it; else to the span's start, which
// may be 0: wait for the next step.
size_t cut_chunk(size_t start, size_t want, std::span<const PromptSpan> spans, size_t prompt,
                 size_t room, bool first_in_step);

}  // namespace deepinfer::engine
