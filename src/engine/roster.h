#pragma once

// Roster: the live sequences of an engine, and the one place of each transition between their
// stages (sequence.h). Pages, prefix cache and events are the callers' business.
//
// Invariants (check_invariants() asserts them)
//   1. running() and waiting() are ordered by arrival; together they are the sequences that did not
//      end, each once.
//   2. A sequence has a cache exactly while it runs.
//   3. A record lives while a choice of it does; choices[i] is null from the end of choice i on.
//
// Threads: see engine_core.h.

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/sequence.h"

namespace deepinfer::engine {

class Roster {
 public:
  // New waiting sequences, one a choice; the id is not in use.
  RequestRecord& accept(Request request, const std::vector<uint32_t>& eos, size_t context,
                        int64_t now_ns);
  // waiting -> prefilling; its cache was made.
  void start(Sequence& sequence);
  // prefilling -> decoding; its first token is there.
  void decode(Sequence& sequence);
  // waiting -> decoding; a follower whose cache was forked from choice 0.
  void join(Sequence& sequence);
  // running -> waiting, at its old place; gives its pages back.
  void preempt(Sequence& sequence);
  // any -> ended; gives its pages back. The object stays until sweep(), the record's entry does
  // not.
  void end(Sequence& sequence);
  // Frees what ended; nobody may name it any more.
  void sweep();

  RequestRecord* find(uint64_t request) const;  // null: unknown or ended
  const std::vector<std::unique_ptr<Sequence>>& running() const { return running_; }
  const std::vector<std::unique_ptr<Sequence>>& waiting() const { return waiting_; }
  bool empty() const { return running_.empty() && waiting_.empty(); }
  // Whether any live request has a time limit.
  bool timed() const { return timed_ > 0; }
  void check_invariants() const;

 private:
  using List = std::vector<std::unique_ptr<Sequence>>;
  static std::unique_ptr<Sequence> take(List& list, Sequence& sequence);
  static void put(List& list, std::unique_ptr<Sequence> sequence);

  List running_, waiting_, ended_;
  std::unordered_map<uint64_t, std::unique_ptr<RequestRecord>> records_;  // by request id
  std::vector<std::unique_ptr<RequestRecord>> ended_records_;             // until sweep()
  uint64_t next_arrival_ = 0;
  size_t timed_ = 0;
};

}  // namespace deepinfer::engine
