#include "speculation/verifier.h"

#include <algorithm>
#include <cmath>

#include "sampling/distribution.h"
#include "sampling/philox.h"

namespace deepinfer::speculation {
namespace {

using sampling::Distribution;
using sampling::Generator;
using sampling::Parameters;
using sampling::Workspace;

// Of q in the residual with Generator::deepinfer: rounding cannot leave nothing when p equals q.
constexpr double kShrink = 5e-5;

bool in_vocabulary(const VerifyRow& row) {
  return row.draft >= 0 && static_cast<size_t>(row.draft) < row.sample.logits.size();
}

double draft_log_probability(const VerifyRow& row) {
  if (row.draft_log_probabilities.empty()) return 0.0;
  return static_cast<double>(row.draft_log_probabilities[static_cast<size_t>(row.draft)]);
}

// The accept test; log_ratio = log p(d) - log q(d).
bool stands(const VerifyRow& row, const Parameters& parameters, double log_ratio) {
  if (parameters.generator == Generator::deepinfer) {
    const float u = sampling::stream_uniform(
        sampling::stream_key(row.sample, parameters, sampling::StreamCase::accept));
    return u < std::exp(static_cast<float>(std::min(log_ratio, 0.0)));
  }
  const double u =
      sampling::uniform(parameters.seed, row.sample.position, sampling::Purpose::accept);
  return u < std::exp(std::min(log_ratio, 0.0));
}

// workspace.weights = max(p - q, 0) over workspace.ids; returns their sum.
double subtract_draft(const VerifyRow& row, const Parameters& parameters, Workspace& workspace) {
  const double factor = parameters.generator == Generator::deepinfer ? std::exp(-kShrink) : 1.0;
  const std::span<const float> log_q = row.draft_log_probabilities;
  double sum = 0;
  for (size_t i = 0; i < workspace.ids.size(); ++i) {
    const int32_t id = workspace.ids[i];
    const double q = log_q.empty() ? (id == row.draft ? 1.0 : 0.0)
                                   : std::exp(static_cast<double>(log_q[static_cast<size_t>(id)]));
    const double rest = std::max(static_cast<double>(workspace.weights[i]) - factor * q, 0.0);
    workspace.weights[i] = static_cast<float>(rest);
    sum += static_cast<double>(workspace.weights[i]);
  }
  return sum;
}

Result<Verdict> match(const VerifyRow& row, const Parameters& parameters, Workspace& workspace) {
  const Distribution p = TRY(sampling::distribution(row.sample, parameters, workspace));
  const int32_t id = p.greedy ? p.best : sampling::draw(p, row.sample, parameters, workspace);
  Verdict verdict;
  verdict.accepted = id == row.draft;
  if (in_vocabulary(row)) {
    verdict.acceptance =
        static_cast<float>(std::exp(sampling::log_probability(p, row.draft, workspace)));
  }
  verdict.token = sampling::describe(p, row.sample, parameters, id, workspace);
  return verdict;
}

Result<Verdict> reject_or_accept(const VerifyRow& row, const Parameters& parameters,
                                 Workspace& workspace) {
  Distribution p = TRY(sampling::distribution(row.sample, parameters, workspace));
  Verdict verdict;
  int32_t id = p.best;
  if (p.greedy) {
    verdict.accepted = id == row.draft;
    verdict.acceptance = verdict.accepted ? 1.0f : 0.0f;
  } else {
    const double log_p =
        in_vocabulary(row) ? sampling::log_probability(p, row.draft, workspace) : -HUGE_VAL;
    const double log_q = in_vocabulary(row) ? draft_log_probability(row) : 0.0;
    // A draft that its drafter could not have drawn does not stand.
    verdict.accepted =
        std::isfinite(log_p) && std::isfinite(log_q) && stands(row, parameters, log_p - log_q);
    sampling::list_probabilities(row.sample, parameters, p, workspace);
    const double residual = subtract_draft(row, parameters, workspace);
    verdict.acceptance = static_cast<float>(std::clamp(1.0 - residual, 0.0, 1.0));
    const int32_t drawn = verdict.accepted
                              ? row.draft
                              : sampling::draw_listed(row.sample, parameters, true, workspace);
    if (drawn >= 0) id = drawn;
  }
  verdict.token = sampling::describe(p, row.sample, parameters, id, workspace);
  return verdict;
}

}  // namespace

Result<Verdict> verify(Acceptance acceptance, const VerifyRow& given, const Parameters& parameters,
                       Workspace& workspace) {
  VerifyRow row = given;
  if (acceptance == Acceptance::sample_match) {
    // As if the row were the first of its step, which it is without drafts.
    row.sample.output_index += row.sample.row_offset;
    row.sample.row_offset = 0;
  }
  check(row.sample.stream == sampling::Stream::token, "a verified row draws the token's numbers");
  check(row.draft_log_probabilities.empty() ||
            row.draft_log_probabilities.size() == row.sample.logits.size(),
        "draft log-probabilities of another vocabulary");
  Verdict verdict;
  if (row.draft < 0 || row.sample.forced >= 0) {
    verdict.token = TRY(sampling::sample(row.sample, parameters, workspace));
    verdict.accepted = row.draft >= 0 && verdict.token.id == row.draft;
    verdict.acceptance = verdict.accepted ? 1.0f : 0.0f;
  } else if (acceptance == Acceptance::sample_match) {
    verdict = TRY(match(row, parameters, workspace));
  } else {
    verdict = TRY(reject_or_accept(row, parameters, workspace));
  }
  if (verdict.accepted && !row.draft_log_probabilities.empty()) {
    verdict.draft_logprob = static_cast<float>(
        std::max(draft_log_probability(row), static_cast<double>(sampling::kLogprobFloor)));
  }
  return verdict;
}

}  // namespace deepinfer::speculation
