// Recorded traffic: the prefix cache gives the very hits that a simulator of a few lines counted. A
// block of the trace is a page here.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"

namespace deepinfer::cache {
namespace {

struct TraceRequest {
  std::vector<int32_t> blocks;
  size_t complete = 0;
};

struct SnapshotRule {
  bool end = false, junction = false;
  size_t grid = 0;
  uint64_t hits = 0, count = 0;
};

struct LruGolden {
  size_t capacity = 0;
  uint64_t hits = 0, evictions = 0;
};

struct Trace {
  explicit Trace(const std::string& name) {
    std::ifstream file(DEEPINFER_SOURCE_DIR "/tests/golden/prefix_traces/" + name + ".txt");
    std::string word;
    size_t count = 0;
    while (count == 0 && file >> word) {
      if (word == "snapshots") {
        SnapshotRule& rule = rules.emplace_back();
        file >> rule.end >> rule.junction >> rule.grid >> rule.hits >> rule.count;
      } else if (word == "lru") {
        LruGolden& golden = lru.emplace_back();
        file >> golden.capacity >> golden.hits >> golden.evictions;
      } else if (word == "ideal") {
        file >> ideal;
      } else if (word == "requests") {
        file >> count;
      }
    }
    for (size_t i = 0; i < count; ++i) {
      size_t length = 0, complete = 0, matched = 0, back = 0;
      file >> length >> complete >> matched >> back;
      TraceRequest& request = requests.emplace_back();
      request.complete = complete;
      for (size_t b = 0; b < length; ++b) {
        request.blocks.push_back(b < matched ? requests[i - back].blocks[b] : blocks++);
      }
      longest = std::max(longest, length);
    }
    EXPECT_TRUE(file.good()) << name;
  }
  std::vector<SnapshotRule> rules;
  std::vector<LruGolden> lru;
  uint64_t ideal = 0;
  std::vector<TraceRequest> requests;
  int32_t blocks = 0;  // different ones
  size_t longest = 0;
};

// One request after the other: looked up, run, made known, ended.
class Replay {
 public:
  Replay(const Trace& trace, size_t max_pages, bool frontier)
      : trace_(trace),
        frontier_(frontier),
        pool_(PagePool::create({.growing = {{"entries", 64}}, .frontier = streams(frontier)},
                               max_pages + trace.longest)
                  .value()),
        prefixes_(*pool_, {.identity = {},
                           .max_pages = max_pages,
                           .max_snapshot_bytes = frontier ? uint64_t{1} << 30 : 0}) {}

  uint64_t hits = 0;  // blocks that were not computed
  void run(const SnapshotRule& rule) {
    for (const TraceRequest& request : trace_.requests) one(request, rule);
    prefixes_.check_invariants();
  }
  uint64_t snapshots() const { return prefixes_.snapshot_bytes() / 8; }
  uint64_t evictions() { return prefixes_.counters().evicted_pages; }

 private:
  static std::vector<FrontierStream> streams(bool frontier) {
    if (!frontier) return {};
    return {{"window", 8}};
  }

  void one(const TraceRequest& request, const SnapshotRule& rule) {
    ids_.resize(request.blocks.size() * kTokensPerPage);
    for (size_t i = 0; i < ids_.size(); ++i) ids_[i] = request.blocks[i / kTokensPerPage];
    const PrefixKey key{.ids = ids_};
    SequenceCache cache(pool_.get());
    size_t matched = 0;
    {
      const auto lease = prefixes_.lookup(key, ids_.size());
      hits += lease.resume() / kTokensPerPage;
      matched = lease.matched() / kTokensPerPage;
      ASSERT_TRUE(prefixes_.restore_entries(lease, cache).ok());
    }
    ASSERT_TRUE(cache.reserve(ids_.size()).ok());
    cache.set_length(ids_.size());
    const auto take = [&](size_t block, SnapshotKind kind) {
      if (block == 0 || block > request.blocks.size()) return;
      EXPECT_TRUE(prefixes_.snapshot(key, cache, block * kTokensPerPage, {}, kind));
    };
    if (frontier_ && rule.end) take(request.complete, SnapshotKind::prompt);
    if (frontier_ && rule.junction && matched < request.blocks.size()) {
      take(matched, SnapshotKind::branch);
    }
    for (size_t block = rule.grid; frontier_ && rule.grid > 0 && block <= request.blocks.size();
         block += rule.grid) {
      take(block, SnapshotKind::grid);
    }
    prefixes_.insert(key, cache, ids_.size());
  }

  const Trace& trace_;
  bool frontier_;
  std::unique_ptr<PagePool> pool_;
  PrefixCache prefixes_;
  std::vector<int32_t> ids_;
};

TEST(PrefixTrace, HitsOfEverySnapshotRule) {
  for (const char* name : {"mooncake_synthetic", "gen_agent"}) {
    const Trace trace(name);
    ASSERT_EQ(trace.rules.size(), 5u);
    const bool generated = trace.requests.size() > 10000;
    for (const SnapshotRule& rule : trace.rules) {
      if (generated && rule.grid > 0) continue;  // says nothing new, and takes its time
      Replay replay(trace, static_cast<size_t>(trace.blocks), true);
      replay.run(rule);
      EXPECT_EQ(replay.hits, rule.hits) << name << " grid " << rule.grid;
      EXPECT_EQ(replay.snapshots(), rule.count) << name << " grid " << rule.grid;
    }
  }
}

// With complete pages the order of value is that of use.
TEST(PrefixTrace, HitsAndEvictionsOfEveryCapacity) {
  for (const char* name : {"mooncake_conversation", "mooncake_synthetic", "gen_agent"}) {
    const Trace trace(name);
    ASSERT_EQ(trace.lru.size(), 3u);
    for (const LruGolden& golden : trace.lru) {
      if (golden.capacity != 5000 && trace.requests.size() > 10000) continue;
      Replay replay(trace, golden.capacity, false);
      replay.run({});
      EXPECT_EQ(replay.hits, golden.hits) << name << " capacity " << golden.capacity;
      EXPECT_EQ(replay.evictions(), golden.evictions) << name << " capacity " << golden.capacity;
    }
  }
}

TEST(PrefixTrace, NothingDroppedIsTheIdeal) {
  const Trace trace("mooncake_synthetic");
  Replay replay(trace, static_cast<size_t>(trace.blocks), false);
  replay.run({});
  EXPECT_EQ(replay.hits, trace.ideal);
  EXPECT_EQ(replay.evictions(), 0u);
}

}  // namespace
}  // namespace deepinfer::cache
