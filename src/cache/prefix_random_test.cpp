// Random use against a plain list of everything that was ever made known. While nothing is evicted
// the prefix cache finds exactly what the list says; under pressure never more. What it gives is
// always what a computation in full gives, byte for byte, and after each operation every page is
// accounted for.

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>

#include "cache/prefix_cache.h"
#include "cache/toy_sequence.h"

namespace deepinfer::cache {
namespace {

struct Known {
  std::vector<uint64_t> tokens;  // with what images show
  uint64_t salt = 0;
  Exactness exactness = Exactness::exact;
  bool snapshot = false;  // of its end
};

size_t common(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b, size_t limit) {
  limit = std::min({limit, a.size(), b.size()});
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(limit), b.begin()).first -
      a.begin());
}

struct Live {
  ToySequence toy;
  Exactness exactness = Exactness::exact;
  uint64_t stands = 0;  // inserted up to here, or resumed at: it goes back no further
};

struct Held {
  PrefixCache::Lease lease;
  ToySequence toy;  // empty, with the tokens that were looked for
};

class RandomUse {
 public:
  RandomUse(uint32_t seed, size_t pages, bool frontier, bool pressure)
      : random_(seed),
        pressure_(pressure),
        frontier_(frontier),
        pool_(toy_pool(pages, frontier)),
        prefixes_(*pool_, {.identity = {},
                           .max_pages = pressure ? pages * 3 / 4 : 0,
                           .max_snapshot_bytes = (pressure ? 8 : 100000) * kToyFrontierBytes}) {}

  void run(size_t operations) {
    for (size_t i = 0; i < operations; ++i) {
      SCOPED_TRACE(i);
      operation();
      census();
      if (i % 16 == 0) prefixes_.check_invariants();
      if (i % 250 == 249) forget();
      if (::testing::Test::HasFatalFailure()) return;
    }
    leases_.clear();
    live_.clear();
    prefixes_.make_free(pool_->page_count());
    EXPECT_EQ(pool_->free_count(), pool_->page_count());
    EXPECT_EQ(prefixes_.pages(), 0u);
    prefixes_.check_invariants();
  }
  const PrefixCache::Counters& counters() const { return prefixes_.counters(); }

 private:
  uint32_t below(size_t bound) { return static_cast<uint32_t>(random_() % bound); }

  void operation() {
    const uint32_t pick = below(16);
    if (live_.empty() || (pick < 4 && live_.size() < 6)) return start();
    auto at = std::next(live_.begin(), below(live_.size()));
    Live& live = *at;
    const uint64_t length = live.toy.cache.length();
    if (pick < 8) return advance(at);
    if (pick < 10) return know(live, live.stands + below(length - live.stands + 1), false);
    if (pick < 12) return know(live, length, true);
    if (pick == 12) {  // a draft that is rejected
      live.toy.set_length(live.stands + below(length - live.stands + 1));
      live.toy.ids.resize(live.toy.cache.length());
      return clip_contents(live.toy);
    }
    if (pick == 13) return live_.erase(at), void();
    if (pick == 14) {
      if (!leases_.empty()) use_lease(leases_.begin() + below(leases_.size()));
      return;
    }
    squeeze();
  }

  // The next prompt: the head of a known one, then something else.
  ToySequence prompt() {
    ToySequence toy = toy_sequence(*pool_, {}, below(8) == 0 ? 1 : 0);
    if (!texts_.empty() && below(5) > 0) {
      const ToySequenceText& text = texts_[below(texts_.size())];
      size_t kept = below(text.ids.size() + 1);
      const uint32_t where = below(4);
      if (where == 0) kept = std::min(text.ids.size(), (kept / 128) * 128 + below(3));
      if (where >= 2) kept = text.ids.size();  // a next turn
      toy.ids.assign(text.ids.begin(), text.ids.begin() + static_cast<ptrdiff_t>(kept));
      toy.contents = text.contents;
      clip_contents(toy);
    }
    extend(toy, 1 + below(200));
    return toy;
  }
  void extend(ToySequence& toy, size_t count) {
    if (below(8) == 0) {
      toy.contents.push_back({toy.ids.size(), 1 + below(150), {1 + below(2), 0}});
      toy.ids.resize(toy.ids.size() + toy.contents.back().count, 7);
    }
    for (size_t i = 0; i < count; ++i) toy.ids.push_back(static_cast<int32_t>(below(2)));
  }
  // The parts of images that lie within the ids.
  static void clip_contents(ToySequence& toy) {
    for (ContentSpan& span : toy.contents) {
      span.start = std::min(span.start, toy.ids.size());
      span.count = std::min(span.count, toy.ids.size() - span.start);
    }
    std::erase_if(toy.contents, [](const ContentSpan& span) { return span.count == 0; });
  }

  static std::vector<uint64_t> tokens_of(const ToySequence& toy, uint64_t length) {
    std::vector<uint64_t> tokens(length);
    for (uint64_t p = 0; p < length; ++p) tokens[p] = toy.token(p);
    return tokens;
  }

  void start() {
    Live live{.toy = prompt()};
    const Exactness wanted = below(4) == 0 ? Exactness::approximate : Exactness::exact;
    const uint64_t limit = below(4) == 0 ? below(live.toy.ids.size()) : live.toy.ids.size() - 1;
    auto lease = prefixes_.lookup(live.toy.key(), limit, wanted);
    compare_with_list(live.toy, limit, wanted, lease);
    if (prefixes_.restore(lease, live.toy.cache).ok()) {
      live.exactness = lease.exactness();
      live.stands = lease.resume();
      ASSERT_EQ(live.toy.cache.length(), lease.resume());
      if (live.exactness == Exactness::exact) live.toy.expect_exact("restored");
    }
    if (live.stands == 0 && below(4) == 0) live.exactness = Exactness::approximate;
    // Entries that were made approximately differ from those of a computation in full.
    if (live.exactness == Exactness::approximate) live.toy.noise = 1 + below(1000);
    if (below(3) == 0 && leases_.size() < 3) {
      leases_.push_back({std::move(lease), toy_sequence(*pool_, live.toy.ids, live.toy.salt)});
      leases_.back().toy.contents = live.toy.contents;
    }
    live_.push_back(std::move(live));
    advance(std::prev(live_.end()));
  }

  // Whatever happened since the lookup, what the lease found is there.
  void use_lease(std::vector<Held>::iterator at) {
    if (prefixes_.restore(at->lease, at->toy.cache).ok()) {
      ASSERT_EQ(at->toy.cache.length(), at->lease.resume());
      if (at->lease.exactness() == Exactness::exact) at->toy.expect_exact("leased");
    }
    leases_.erase(at);
  }

  void compare_with_list(const ToySequence& toy, uint64_t limit, Exactness wanted,
                         const PrefixCache::Lease& lease) {
    const std::vector<uint64_t> tokens = tokens_of(toy, limit);
    uint64_t matched = 0, resume = 0;
    for (const Known& known : known_) {
      if (known.salt != toy.salt || known.exactness > wanted) continue;
      const uint64_t same = common(known.tokens, tokens, limit);
      matched = std::max(matched, same);
      if (known.snapshot && same == known.tokens.size()) resume = std::max(resume, same);
    }
    if (!frontier_) resume = matched;
    if (pressure_) {
      ASSERT_LE(lease.matched(), matched);
      ASSERT_LE(lease.resume(), std::min(resume, lease.matched()));
    } else {
      ASSERT_EQ(lease.matched(), matched);
      ASSERT_EQ(lease.resume(), resume);
    }
  }

  void advance(std::list<Live>::iterator at) {
    ToySequence& toy = at->toy;
    const uint64_t length = toy.cache.length();
    if (length == toy.ids.size() && length < 700) extend(toy, 1 + below(60));
    const uint64_t to = std::min<uint64_t>(toy.ids.size(), length + 1 + below(300));
    if (!toy.cache.reserve(to).ok()) {
      const size_t need = pages_for(to) - toy.cache.page_count();
      const size_t possible = pool_->free_count() + prefixes_.evictable_pages();
      const size_t free = prefixes_.make_free(need);
      ASSERT_EQ(free >= need, possible >= need);
    }
    if (!toy.compute(to)) return live_.erase(at), void();
    if (at->exactness == Exactness::exact) toy.expect_exact("computed");
  }

  void know(Live& live, uint64_t length, bool snapshot) {
    if (length == 0) return;
    live.stands = std::max(live.stands, length);
    bool kept = false;
    if (snapshot) {
      static constexpr SnapshotKind kKinds[] = {SnapshotKind::prompt, SnapshotKind::system,
                                                SnapshotKind::grid, SnapshotKind::preempted,
                                                SnapshotKind::branch};
      kept = prefixes_.snapshot(live.toy.key(), live.toy.cache, length, {}, kKinds[below(5)],
                                live.exactness);
      if (!pressure_) EXPECT_TRUE(kept);
    } else {
      prefixes_.insert(live.toy.key(), live.toy.cache, length, live.exactness);
    }
    known_.push_back({tokens_of(live.toy, length), live.toy.salt, live.exactness, kept});
    ToySequence text = toy_sequence(*pool_, live.toy.ids);
    text.ids.resize(length);
    text.contents = live.toy.contents;
    clip_contents(text);
    if (texts_.size() < 40) texts_.emplace_back();
    texts_[texts_.size() < 40 ? texts_.size() - 1 : below(40)] = {text.ids, text.contents};
  }

  void squeeze() {
    if (!pressure_) return;
    const size_t wanted = below(pool_->page_count() + 1);
    const size_t free = pool_->free_count();
    const size_t possible = free + prefixes_.evictable_pages();
    EXPECT_EQ(prefixes_.make_free(wanted), std::max(free, std::min(wanted, possible)));
  }

  // Everything is forgotten but what leases hold, so none is there.
  void forget() {
    leases_.clear();
    prefixes_.clear();
    EXPECT_EQ(prefixes_.pages(), 0u);
    EXPECT_EQ(prefixes_.snapshot_bytes(), 0u);
    known_.clear();
    texts_.clear();
  }

  void census() {
    size_t held = 0, shared = 0;
    std::vector<uint8_t> used(pool_->page_count(), 0);
    for (const Live& live : live_) {
      for (PageId page : live.toy.cache.pages()) used[static_cast<size_t>(page)] = 1;
    }
    for (size_t page = 0; page < used.size(); ++page) {
      const uint32_t references = pool_->references(PageId{static_cast<uint32_t>(page)});
      held += references > 0 ? 1 : 0;
      if (used[page] == 0) continue;
      ++shared;
      ASSERT_GT(references, 0u);
    }
    ASSERT_EQ(held + pool_->free_count(), pool_->page_count());
    // A page is a sequence's, the tree's alone, or only a lease still has it.
    ASSERT_GE(held, shared);
    if (leases_.empty()) ASSERT_EQ(held, shared + prefixes_.idle_pages());
    ASSERT_LE(prefixes_.evictable_pages(), prefixes_.idle_pages());
    ASSERT_LE(prefixes_.idle_pages(), prefixes_.pages());
  }

  struct ToySequenceText {
    std::vector<int32_t> ids;
    std::vector<ContentSpan> contents;
  };
  std::mt19937 random_;
  bool pressure_, frontier_;
  std::unique_ptr<PagePool> pool_;
  PrefixCache prefixes_;
  std::list<Live> live_;
  std::vector<Held> leases_;
  std::vector<Known> known_;
  std::vector<ToySequenceText> texts_;
};

constexpr size_t kOperations = 25000;

TEST(PrefixRandom, WithoutPressureItIsTheListOfAllThatWasKnown) {
  for (const bool frontier : {false, true}) {
    SCOPED_TRACE(frontier);
    RandomUse use(20261201, 3000, frontier, false);
    use.run(kOperations);
    EXPECT_GT(use.counters().tokens_resumed, 50000u);
  }
}

TEST(PrefixRandom, UnderPressureItForgetsAndNeverErrs) {
  for (const bool frontier : {false, true}) {
    SCOPED_TRACE(frontier);
    RandomUse use(20261202, 36, frontier, true);
    use.run(kOperations);
    EXPECT_GT(use.counters().tokens_resumed, 50000u);
    EXPECT_GT(use.counters().evicted_pages, 1000u);
    if (frontier) EXPECT_GT(use.counters().evicted_snapshots, 100u);
  }
}

}  // namespace
}  // namespace deepinfer::cache
