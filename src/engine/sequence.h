#pragma once

// Sequence: one continuation of an accepted request on its way through the engine.
//
//   waiting -> prefilling -> decoding -> ended      each arrow is one function of roster.h
//      ^___________|_____________|                  (gave its pages back: preempted)
//
// Invariants
//   1. ids = prompt, then output; what the cache holds is ids[0 .. cached).
//   2. cache is there exactly while the sequence runs; its length is `cached`.
//   3. While it runs and no step is in flight, pending() >= 1: the last id waits to be computed.
//
// Threads: see engine_core.h: whoever has the turn.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/page_pool.h"
#include "cache/prefix_cache.h"
#include "engine/chunk_cut.h"
#include "engine/request.h"
#include "models/model.h"
#include "speculation/draft_gate.h"
#include "speculation/drafter.h"

namespace deepinfer::engine {

struct Sequence;

// What the choices of a request have in common.
struct RequestRecord {
  Request request;
  std::vector<PromptSpan> spans;             // of the images
  std::vector<cache::ContentSpan> contents;  // what they show
  std::vector<int32_t> stops;                // ids that end a choice: stop ids, and eos
  std::vector<Sequence*> choices;            // [choices], null: ended
  size_t live = 0;                           // choices that did not end
};

enum class Stage : uint8_t { waiting, prefilling, decoding, ended };

// Rows of a sequence in the step that is being computed.
struct Flight {
  size_t rows = 0;  // the drafts included
  size_t drafts = 0;
  bool samples = false;  // the last known id is among them, so a token comes out
};

// Position of a prompt at which the state is kept for later.
struct SnapshotPoint {
  uint64_t position = 0;
  cache::SnapshotKind kind = cache::SnapshotKind::grid;
};

// How a sequence that starts takes up the work; found by resumption.h.
struct ResumePoint {
  cache::PrefixCache::Lease lease;
  enum class Kind : uint8_t { cold, snapshot, pages, replay } kind = Kind::cold;
  uint64_t tokens = 0;    // computing begins here
  uint64_t restored = 0;  // entries of tokens below are restored
  models::SequenceStart start;
  bool approximate = false;
  std::vector<SnapshotPoint> points;  // ahead, ascending
  std::string not_reused;             // RequestStats::not_reused
};

// What the prefix cache would give a waiting sequence now.
struct ResumeHint {
  uint64_t version = UINT64_MAX;  // of the cache's content
  uint64_t tokens = 0;
  uint64_t shared_tokens = 0;  // in pages that are there
  uint64_t pinned_pages = 0;   // free ones that it would keep from being freed
};

struct Ending {
  FinishReason reason = FinishReason::cancelled;
  std::string error;
};

struct Sequence {
  RequestRecord* record = nullptr;
  uint32_t choice = 0;
  uint64_t arrival = 0;  // order of add(); unique
  Stage stage = Stage::waiting;
  sampling::Parameters sampling;  // the request's, seeded for the choice
  std::vector<int32_t> ids;       // prompt and output
  size_t output_limit = 0;        // tokens that may be generated, from max_tokens and the context
  size_t scored = 1;              // prompt ids [1, scored) were reported
  bool follows = false;           // waits for choice 0 to compute the prompt
  std::optional<Ending> ending;   // it ends as soon as the step in flight did

  std::optional<cache::SequenceCache> cache;
  models::SequenceStart start;  // set when it begins to run, for as long as it does
  bool approximate = false;     // computed from a bounded replay
  Flight flight;
  uint64_t shared_tokens = 0;         // in pages that came out of the prefix cache
  uint64_t restored = 0;              // tokens whose entries did
  ResumeHint hint;                    // while it waits
  std::optional<ResumePoint> resume;  // from the plan that starts it until that plan is carried out
  bool starts_cold = false;           // its resume point did not fit into the pages
  std::vector<SnapshotPoint> points;  // ahead, ascending

  speculation::DraftGate gate;
  speculation::Draft draft;  // of the step in flight

  // For RequestStats.
  std::string resumed = "cold", not_reused;
  size_t cached_tokens = 0;
  size_t drafted = 0, accepted = 0;
  uint32_t preemptions = 0;
  double logprob_sum = 0;
  int64_t added_ns = 0;
  int64_t first_row_ns = -1;
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
  int64_t longest_gap_ns = 0;

  const Request& request() const { return record->request; }
  size_t prompt_size() const { return request().prompt.size(); }
  size_t output_size() const { return ids.size() - prompt_size(); }
  size_t cached() const { return cache ? static_cast<size_t>(cache->length()) : 0; }
  size_t pending() const { return ids.size() - cached(); }
  bool runs() const { return stage == Stage::prefilling || stage == Stage::decoding; }

  // When the step in flight ends in the usual way, all drafts accepted.
  size_t cached_after() const { return cached() + flight.rows; }
  size_t ids_after() const { return ids.size() + (flight.samples ? 1 + flight.drafts : 0); }
  // It ends with that step even if no draft stands.
  bool ends_after() const {
    return flight.rows > 0 && ids.size() == cached_after() - flight.drafts &&
           output_size() + (flight.samples ? 1 : 0) >= output_limit;
  }

  // The row that stands for an image's position; null: text.
  const float* embedding(size_t position) const;
  // Are the logits of the row at `position` read?
  bool wants_logits(size_t position) const {
    const bool scores = request().want_prompt_logprobs && choice == 0 && position + 1 >= scored &&
                        position + 1 < prompt_size();
    const bool samples = position + 1 >= ids.size() && output_limit > output_size();
    return scores || samples;
  }
  // First position from `first` on whose logits are read, if any is among the known ones.
  size_t first_wanted(size_t first) const;

  cache::PrefixKey key() const {
    return {.ids = ids, .contents = record->contents, .salt = request().salt};
  }
};

RequestStats stats_of(const Sequence& sequence);

}  // namespace deepinfer::engine
