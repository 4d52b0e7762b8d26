#pragma once

// Choice of experts for one row from its router logits.
//
//   s_e = sqrt(softplus(logit_e))  (V4, V4.1; softplus(v) = v for v > 20)  or  sigmoid(logit_e)
//   (V3)  or  softmax over all experts (V2)
//   chosen = given ids, or the per_token largest s_e + bias_e; of equal values the lower expert
//     wins. V3's groups: a group's score is the sum of its two largest s_e + bias_e; experts
//     outside the groups_kept best groups (ties: lower group) cannot be chosen
//   w_e = s_e / (sum over the chosen of s + 1e-20) * scaling      (normalize; else s_e * scaling)
// The bias chooses and never weighs. Chosen ids come out ascending.
//
// Threads: any; pure.

#include <cstddef>
#include <cstdint>

namespace deepinfer::kernels {

enum class RouterScore : uint8_t { sqrt_softplus, sigmoid, softmax };

struct RouterShape {
  size_t experts = 0;  // <= 1024
  size_t per_token = 0;
  size_t groups = 1;  // divides experts
  size_t groups_kept = 1;
  RouterScore score = RouterScore::sqrt_softplus;
  bool normalize = true;
  float scaling = 1.0f;
};

// logits [experts]; bias [experts] or null; given [per_token] or null (ids of V4's hash layers;
// repeated ids are allowed and weigh each). chosen, weights [per_token].
void route_row(const RouterShape& shape, const float* logits, const float* bias,
               const int32_t* given, int32_t* chosen, float* weights);

}  // namespace deepinfer::kernels
