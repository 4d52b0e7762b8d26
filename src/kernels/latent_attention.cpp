#include "kernels/latent_attention.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/latent_attention_kernel.h"

namespace deepinfer::kernels {
namespace {

// Buffers that all workers share; work that would need more of them is not cut as finely.
constexpr size_t kMaxSharedBytes = size_t{64} << 20;
// Products of one number with another below which a region more costs more than it spreads.
constexpr size_t kLeastSplitWork = size_t{1} << 20;

const LatentKernel& kernel_of(Isa isa) {
  switch (isa) {
    case Isa::ref:
      break;
    case Isa::avx2:
      return avx2::latent_kernel();
    case Isa::avx512:
      return avx512::latent_kernel();
    case Isa::emulated512:
      return emulated512::latent_kernel();
  }
  check(false, "ref has no blocks");
  return avx2::latent_kernel();
}

void check_query(const LatentShape& shape, const LatentQuery& query) {
  check(query.window_first <= query.window_end, "window rows end before they begin");
  if (query.window_first < query.window_end) {
    check(shape.window.width == shape.dim, "window rows must be as wide as the queries");
    const bool old = query.fresh == nullptr || query.window_first < query.fresh_first;
    check(!old || (query.ring != nullptr && query.ring_rows > 0), "window rows without a ring");
  }
  if (query.entry_count > 0) {
    check(shape.entries.width == shape.dim, "entries must be as wide as the queries");
    check(shape.entries_per_page > 0 && query.pages != nullptr, "entries without pages");
  }
}

void check_arguments(const LatentShape& shape, std::span<const LatentQuery> queries) {
  check(shape.heads > 0, "latent attention without heads");
  check(shape.dim > 0 && shape.dim % 8 == 0, "dim must be a multiple of 8");
  check(shape.value_dim <= shape.dim && shape.value_dim % 8 == 0,
        "value_dim must be a multiple of 8 and at most dim");
  for (const LatentQuery& query : queries) check_query(shape, query);
}

void latent_attention_ref(ThreadPool& pool, const LatentShape& shape,
                          std::span<const LatentQuery> queries, AttentionWorkspace& workspace) {
  size_t rows = 0;
  for (const LatentQuery& query : queries) {
    rows = std::max(rows, LatentList(shape, query).size());
  }
  workspace.reserve(pool.thread_count(), ref::latent_scratch_doubles(shape, rows) * sizeof(double),
                    0);
  pool.run(queries.size() * shape.heads, [&](size_t chunk, size_t worker) {
    ref::latent_attention_head(shape, queries[chunk / shape.heads], chunk % shape.heads,
                               reinterpret_cast<double*>(workspace.thread(worker)));
  });
}

// All rows of one query for one group of heads.
struct Group {
  LatentBlock block;  // rows: of the whole list

  size_t span_count() const { return (block.rows + kLatentSpan - 1) / kLatentSpan; }
  LatentBlock span(size_t index) const {
    LatentBlock out = block;
    out.first_row = index * kLatentSpan;
    out.rows = std::min(kLatentSpan, block.rows - out.first_row);
    return out;
  }
  size_t work() const { return block.rows * block.heads * block.shape->dim; }
};

// Groups of all queries that see a row; what the others give is written here.
std::vector<Group> groups_of(const LatentShape& shape, std::span<const LatentQuery> queries) {
  std::vector<Group> out;
  for (const LatentQuery& query : queries) {
    const size_t rows = LatentList(shape, query).size();
    if (rows == 0) {
      std::fill_n(query.out, shape.heads * shape.value_dim, 0.0f);
      continue;
    }
    for (size_t head = 0; head < shape.heads; head += kGroupHeads) {
      out.push_back({{.shape = &shape,
                      .query = &query,
                      .first_head = head,
                      .heads = std::min(kGroupHeads, shape.heads - head),
                      .rows = rows}});
    }
  }
  // Long ones first, so that no worker is left with one at the end.
  std::sort(out.begin(), out.end(),
            [](const Group& a, const Group& b) { return a.block.rows > b.block.rows; });
  return out;
}

// The buffers of one worker, for blocks of any of the groups.
struct Scratch {
  float* queries;  // [dim][64]
  float* tile;     // [kTileRows][tile_stride]
  float* scores;   // [rows of a span][64]
  float* state;    // [64][value_stride + 2]
  float* next;     // [64][value_stride + 2]

  // largest: with the most heads and rows.
  static size_t floats(const LatentBlock& largest) {
    return round_up(largest.query_floats(), 16) + largest.tile_floats() + largest.score_floats() +
           2 * round_up(largest.state_floats(), 16);
  }
  Scratch(const LatentBlock& largest, std::byte* base)
      : queries(reinterpret_cast<float*>(base)),
        tile(queries + round_up(largest.query_floats(), 16)),
        scores(tile + largest.tile_floats()),
        state(scores + largest.score_floats()),
        next(state + round_up(largest.state_floats(), 16)) {}
};

LatentBlock largest_block(std::span<const Group> groups) {
  LatentBlock out = groups.front().span(0);  // groups are sorted by rows
  for (const Group& group : groups) out.heads = std::max(out.heads, group.block.heads);
  return out;
}

void run_block(const LatentKernel& kernel, const LatentBlock& block, const Scratch& scratch,
               float* state) {
  kernel.score(block, 0, block.rows, scratch.queries, scratch.tile, scratch.scores);
  for (size_t lane = 0; lane < block.lanes(); lane += kLaneUnit) {
    kernel.soften(block, lane, scratch.scores, state);
  }
  kernel.weigh(block, 0, block.shape->value_dim, scratch.scores, scratch.tile, state);
}

void run_group(const LatentKernel& kernel, const Group& group, const Scratch& scratch) {
  kernel.transpose(group.block, scratch.queries);
  run_block(kernel, group.span(0), scratch, scratch.state);
  for (size_t span = 1; span < group.span_count(); ++span) {
    run_block(kernel, group.span(span), scratch, scratch.next);
    kernel.merge(group.block, scratch.state, scratch.next);
  }
  kernel.finish(group.block, scratch.state);
}

// A group, or one span of it whose state goes to the shared buffer.
struct Unit {
  const Group* group;
  size_t span = kWhole;
  size_t state = 0;  // offset in floats

  static constexpr size_t kWhole = ~size_t{0};
};

struct Plan {
  std::vector<Unit> units;
  std::vector<Unit> merges;  // span unused, state: of the first span
  size_t shared_floats = 0;
};

// Whole groups where there are many; a group that would keep one worker busy while the others have
// nothing left is cut at its spans.
Plan plan_units(std::span<const Group> groups, size_t threads) {
  size_t work = 0;
  for (const Group& group : groups) work += group.work();
  Plan plan;
  for (const Group& group : groups) {
    const size_t spans = group.span_count();
    const size_t floats = round_up(group.block.state_floats(), 16);
    const bool fits = (plan.shared_floats + spans * floats) * sizeof(float) <= kMaxSharedBytes;
    if (threads == 1 || spans == 1 || !fits || group.work() * 4 * threads <= work) {
      plan.units.push_back({.group = &group});
      continue;
    }
    plan.merges.push_back({.group = &group, .state = plan.shared_floats});
    for (size_t span = 0; span < spans; ++span) {
      plan.units.push_back({.group = &group, .span = span, .state = plan.shared_floats});
      plan.shared_floats += floats;
    }
  }
  return plan;
}

void merge_spans(const LatentKernel& kernel, const Group& group, float* states) {
  const size_t floats = round_up(group.block.state_floats(), 16);
  for (size_t span = 1; span < group.span_count(); ++span) {
    kernel.merge(group.block, states, states + span * floats);
  }
  kernel.finish(group.block, states);
}

void run_units(ThreadPool& pool, const LatentKernel& kernel, std::span<const Group> groups,
               const Plan& plan, AttentionWorkspace& workspace) {
  const LatentBlock largest = largest_block(groups);
  workspace.reserve(pool.thread_count(), Scratch::floats(largest) * sizeof(float),
                    plan.shared_floats * sizeof(float));
  float* shared = reinterpret_cast<float*>(workspace.shared());
  pool.run(plan.units.size(), [&](size_t chunk, size_t worker) {
    const Unit& unit = plan.units[chunk];
    const Scratch scratch(largest, workspace.thread(worker));
    if (unit.span == Unit::kWhole) return run_group(kernel, *unit.group, scratch);
    kernel.transpose(unit.group->block, scratch.queries);
    run_block(kernel, unit.group->span(unit.span), scratch, shared + unit.state);
  });
  if (plan.merges.empty()) return;
  pool.run(plan.merges.size(), [&](size_t chunk, size_t) {
    merge_spans(kernel, *plan.merges[chunk].group, shared + plan.merges[chunk].state);
  });
}

// A few blocks by all workers together: regions of tiles, of lanes, of columns.
class SplitRun {
 public:
  SplitRun(std::span<const Group> groups) : groups_(groups) {
    for (const Group& group : groups) {
      const size_t queries = take(group.block.query_floats());
      const size_t states = floats_;
      floats_ += group.span_count() * round_up(group.block.state_floats(), 16);
      group_parts_.push_back({queries, states});
      for (size_t span = 0; span < group.span_count(); ++span) {
        const LatentBlock block = group.span(span);
        const size_t state = states + span * round_up(group.block.state_floats(), 16);
        blocks_.push_back({block, queries, take(block.score_floats()), state});
      }
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const LatentBlock& block = blocks_[b].block;
      add_chunks(tiles_, b, block.rows, kRowUnit);
      add_chunks(lanes_, b, block.lanes(), kLaneUnit);
      add_chunks(columns_, b, block.shape->value_dim, kColumnUnit);
    }
  }

  size_t floats() const { return floats_; }

  void run(ThreadPool& pool, const LatentKernel& kernel, AttentionWorkspace& workspace) {
    const size_t tile_bytes = groups_.front().block.tile_floats() * sizeof(float);
    workspace.reserve(pool.thread_count(), tile_bytes, floats_ * sizeof(float));
    float* shared = reinterpret_cast<float*>(workspace.shared());
    const auto tile = [&](size_t worker) {
      return reinterpret_cast<float*>(workspace.thread(worker));
    };
    pool.run(groups_.size(), [&](size_t g, size_t) {
      kernel.transpose(groups_[g].block, shared + group_parts_[g].queries);
    });
    pool.run(tiles_.size(), [&](size_t chunk, size_t worker) {
      const Chunk& c = tiles_[chunk];
      const Part& part = blocks_[c.block];
      kernel.score(part.block, c.begin, c.end, shared + part.queries, tile(worker),
                   shared + part.scores);
    });
    pool.run(lanes_.size(), [&](size_t chunk, size_t) {
      const Part& part = blocks_[lanes_[chunk].block];
      kernel.soften(part.block, lanes_[chunk].begin, shared + part.scores, shared + part.state);
    });
    pool.run(columns_.size(), [&](size_t chunk, size_t worker) {
      const Chunk& c = columns_[chunk];
      const Part& part = blocks_[c.block];
      kernel.weigh(part.block, c.begin, c.end, shared + part.scores, tile(worker),
                   shared + part.state);
    });
    pool.run(groups_.size(), [&](size_t g, size_t) {
      merge_spans(kernel, groups_[g], shared + group_parts_[g].states);
    });
  }

 private:
  struct Part {
    LatentBlock block;
    size_t queries, scores, state;  // offsets in floats
  };
  struct GroupPart {
    size_t queries, states;
  };
  struct Chunk {
    size_t block, begin, end;
  };

  size_t take(size_t floats) {
    const size_t at = floats_;
    floats_ += round_up(floats, 16);
    return at;
  }
  static void add_chunks(std::vector<Chunk>& chunks, size_t block, size_t count, size_t unit) {
    for (size_t at = 0; at < count; at += unit) {
      chunks.push_back({block, at, std::min(at + unit, count)});
    }
  }

  std::span<const Group> groups_;
  std::vector<GroupPart> group_parts_;
  std::vector<Part> blocks_;
  std::vector<Chunk> tiles_, lanes_, columns_;
  size_t floats_ = 0;
};

}  // namespace

void latent_attention(ThreadPool& pool, Isa isa, const LatentShape& shape,
                      std::span<const LatentQuery> queries, AttentionWorkspace& workspace) {
  check_arguments(shape, queries);
  if (isa == Isa::ref) return latent_attention_ref(pool, shape, queries, workspace);
  const std::vector<Group> groups = groups_of(shape, queries);
  if (groups.empty()) return;
  const LatentKernel& kernel = kernel_of(isa);
  const size_t threads = pool.thread_count();
  const Plan plan = plan_units(groups, threads);
  if (threads > 1 && plan.units.size() < 2 * threads) {
    size_t work = 0;
    for (const Group& group : groups) work += group.work();
    SplitRun split(groups);
    if (work >= kLeastSplitWork && split.floats() * sizeof(float) <= kMaxSharedBytes) {
      return split.run(pool, kernel, workspace);
    }
  }
  run_units(pool, kernel, groups, plan, workspace);
}

}  // namespace deepinfer::kernels
