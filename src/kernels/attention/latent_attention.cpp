#include "kernels/attention/latent_attention.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/attention/latent_attention_kernel.h"

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

// Groups of up to `heads` heads of all queries that see a row.
std::vector<Group> groups_of(const LatentShape& shape, std::span<const LatentQuery> queries,
                             size_t heads) {
  std::vector<Group> out;
  for (const LatentQuery& query : queries) {
    const size_t rows = LatentList(shape, query).size();
    if (rows == 0) continue;
    for (size_t head = 0; head < shape.heads; head += heads) {
      out.push_back({{.shape = &shape,
                      .query = &query,
                      .first_head = head,
                      .heads = std::min(heads, shape.heads - head),
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

void transpose_all(const LatentKernel& kernel, const LatentBlock& block, float* queries) {
  for (size_t lane = 0; lane < block.lanes(); lane += kPanelLanes) {
    kernel.transpose(block, lane, queries);
  }
}

void run_group(const LatentKernel& kernel, const Group& group, const Scratch& scratch) {
  transpose_all(kernel, group.block, scratch.queries);
  run_block(kernel, group.span(0), scratch, scratch.state);
  for (size_t span = 1; span < group.span_count(); ++span) {
    run_block(kernel, group.span(span), scratch, scratch.next);
    kernel.merge(group.block, scratch.state, scratch.next);
  }
  kernel.finish(group.block, 0, group.block.shape->value_dim, scratch.state);
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
  kernel.finish(group.block, 0, group.block.shape->value_dim, states);
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
    transpose_all(kernel, unit.group->block, scratch.queries);
    run_block(kernel, unit.group->span(unit.span), scratch, shared + unit.state);
  });
  if (plan.merges.empty()) return;
  pool.run(plan.merges.size(), [&](size_t chunk, size_t) {
    merge_spans(kernel, *plan.merges[chunk].group, shared + plan.merges[chunk].state);
  });
}

// A few blocks by all workers together: regions of rows, of lanes, of columns.
class SplitRun {
 public:
  SplitRun(std::span<const Group> groups, size_t threads) : groups_(groups), holds_(threads) {
    for (const Group& group : groups) {
      const size_t span_floats = round_up(group.block.state_floats(), 16);
      const size_t states = take(group.span_count() * span_floats);
      states_.push_back(states);
      for (size_t span = 0; span < group.span_count(); ++span) {
        const LatentBlock block = group.span(span);
        parts_.push_back({.block = block,
                          .group = &group,
                          .scores = take(block.score_floats()),
                          .state = states + span * span_floats});
      }
    }
    // Wide columns are cheaper, a few of them for every worker are enough.
    const size_t columns = parts_.size() * groups.front().block.shape->value_dim;
    const size_t column_unit = std::max(columns / (2 * threads) / kColumnUnit, size_t{1});
    for (size_t p = 0; p < parts_.size(); ++p) {
      const LatentBlock& block = parts_[p].block;
      add_chunks(rows_, p, block.rows, kRowUnit);
      add_chunks(lanes_, p, block.lanes(), kLaneUnit);
      add_chunks(columns_, p, block.shape->value_dim, column_unit * kColumnUnit);
    }
  }

  size_t floats() const { return floats_; }

  void run(ThreadPool& pool, const LatentKernel& kernel, AttentionWorkspace& workspace) {
    const LatentBlock largest = largest_block(groups_);
    workspace.reserve(pool.thread_count(), Scratch::floats(largest) * sizeof(float),
                      floats_ * sizeof(float));
    float* shared = reinterpret_cast<float*>(workspace.shared());
    pool.run(rows_.size(), [&](size_t chunk, size_t worker) {
      const auto& [part, begin, end] = rows_[chunk];
      const Part& p = parts_[part];
      const Scratch scratch(largest, workspace.thread(worker));
      // Every worker turns the queries for itself: cheaper than fetching them from another core.
      if (holds_[worker].group != p.group) transpose_all(kernel, p.block, scratch.queries);
      holds_[worker].group = p.group;
      kernel.score(p.block, begin, end, scratch.queries, scratch.tile, shared + p.scores);
    });
    pool.run(lanes_.size(), [&](size_t chunk, size_t) {
      const auto& [part, lane, end] = lanes_[chunk];
      const Part& p = parts_[part];
      kernel.soften(p.block, lane, shared + p.scores, shared + p.state);
    });
    bool merges = false;
    for (const Part& p : parts_) merges |= p.group->span_count() > 1;
    pool.run(columns_.size(), [&](size_t chunk, size_t worker) {
      const auto& [part, begin, end] = columns_[chunk];
      const Part& p = parts_[part];
      const Scratch scratch(largest, workspace.thread(worker));
      kernel.weigh(p.block, begin, end, shared + p.scores, scratch.tile, shared + p.state);
      if (p.group->span_count() == 1) kernel.finish(p.block, begin, end, shared + p.state);
    });
    if (!merges) return;
    pool.run(groups_.size(), [&](size_t g, size_t) {
      if (groups_[g].span_count() > 1) merge_spans(kernel, groups_[g], shared + states_[g]);
    });
  }

 private:
  struct Part {
    LatentBlock block;
    const Group* group;
    size_t scores, state;  // offsets in floats
  };
  struct Chunk {
    size_t part, begin, end;
  };
  // What a worker's scratch holds; a line of its own, since workers write it.
  struct alignas(64) Holds {
    const Group* group = nullptr;
  };

  size_t take(size_t floats) {
    const size_t at = floats_;
    floats_ += round_up(floats, 16);
    return at;
  }
  static void add_chunks(std::vector<Chunk>& chunks, size_t part, size_t count, size_t unit) {
    for (size_t at = 0; at < count; at += unit) {
      chunks.push_back({part, at, std::min(at + unit, count)});
    }
  }

  std::span<const Group> groups_;
  std::vector<Holds> holds_;    // [threads]
  std::vector<size_t> states_;  // [groups], offsets in floats
  std::vector<Part> parts_;
  std::vector<Chunk> rows_, lanes_, columns_;
  size_t floats_ = 0;
};

// All workers have the same to do, or so much that it evens out.
bool is_even(const Plan& plan, size_t threads) {
  const size_t units = plan.units.size();
  return units >= 2 * threads || (units >= threads && units % threads == 0);
}

}  // namespace

void latent_attention(ThreadPool& pool, Isa isa, const LatentShape& shape,
                      std::span<const LatentQuery> queries, AttentionWorkspace& workspace) {
  check_arguments(shape, queries);
  if (isa == Isa::ref) return latent_attention_ref(pool, shape, queries, workspace);
  for (const LatentQuery& query : queries) {
    if (LatentList(shape, query).size() > 0) continue;
    std::fill_n(query.out, shape.heads * shape.value_dim, 0.0f);
  }
  const LatentKernel& kernel = kernel_of(isa);
  const size_t threads = pool.thread_count();
  const std::vector<Group> groups = groups_of(shape, queries, kGroupHeads);
  if (groups.empty()) return;
  const Plan plan = plan_units(groups, threads);
  size_t work = 0;
  for (const Group& group : groups) work += group.work();
  if (threads == 1 || is_even(plan, threads) || work < kLeastSplitWork) {
    return run_units(pool, kernel, groups, plan, workspace);
  }
  // Half the heads: rows are widened twice as often, but nothing goes from core to core.
  const std::vector<Group> halves = groups_of(shape, queries, kGroupHeads / 2);
  const Plan plan_of_halves = plan_units(halves, threads);
  if (is_even(plan_of_halves, threads)) {
    return run_units(pool, kernel, halves, plan_of_halves, workspace);
  }
  SplitRun split(groups, threads);
  if (split.floats() * sizeof(float) > kMaxSharedBytes) {
    return run_units(pool, kernel, groups, plan, workspace);
  }
  split.run(pool, kernel, workspace);
}

}  // namespace deepinfer::kernels
