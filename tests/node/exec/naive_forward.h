#pragma once

// The model's definition in double precision, with no pages and no kernels: what
// LlamaForward has to be close to. Written from the architecture, not from the code it checks.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/half.h"
#include "node/exec/shard_weights.h"

namespace shardline::testing {

class NaiveForward {
 public:
  // REQUIRES: `weights` is a whole model.
  explicit NaiveForward(const ShardWeights& weights) : w_(weights), hp_(weights.hp) {}

  // Logits of the last token.
  std::vector<double> Logits(const std::vector<int32_t>& tokens) const {
    std::vector<std::vector<double>> hidden;
    for (const int32_t token : tokens) hidden.push_back(Row(w_.embedding, token));
    for (const LayerWeights& layer : w_.layers) {
      Attend(layer, hidden);
      for (std::vector<double>& x : hidden) FeedForward(layer, x);
    }
    return Times(w_.lm_head(), Norm(hidden.back(), w_.final_norm), {});
  }

 private:
  using Vector = std::vector<double>;

  static Vector Row(const PackedWeight& weight, int64_t row) {
    std::vector<float> values(static_cast<size_t>(weight.k()));
    DequantizeRow(weight, row, values.data());
    return Vector(values.begin(), values.end());
  }

  static Vector Times(const PackedWeight& weight, const Vector& x, const std::vector<float>& bias) {
    Vector y(static_cast<size_t>(weight.n()));
    for (size_t n = 0; n < y.size(); ++n) {
      const Vector row = Row(weight, static_cast<int64_t>(n));
      y[n] = bias.empty() ? 0 : bias[n];
      for (size_t k = 0; k < row.size(); ++k) y[n] += row[k] * x[k];
    }
    return y;
  }

  Vector Norm(const Vector& x, const std::vector<float>& weight) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double rms = std::sqrt(squares / static_cast<double>(x.size()) + hp_.rms_epsilon);
    Vector y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / rms * weight[i];
    return y;
  }

  // The cache's dtype is part of the model's recipe.
  static void RoundToHalf(Vector& x) {
    for (double& value : x) value = HalfToFloat(FloatToHalf(static_cast<float>(value)));
  }

  // Norm, if the model has one, and rotation of each head.
  void PlaceHeads(Vector& x, const std::vector<float>& norm, size_t position) const {
    const size_t dim = static_cast<size_t>(hp_.head_dim);
    for (size_t head = 0; head < x.size() / dim; ++head) {
      Vector h(x.begin() + head * dim, x.begin() + (head + 1) * dim);
      if (!norm.empty()) h = Norm(h, norm);
      const size_t pairs = static_cast<size_t>(hp_.rope.dimension_count) / 2;
      const bool halves = hp_.architecture != Architecture::kLlama;
      for (size_t i = 0; i < pairs; ++i) {
        double angle =
            static_cast<double>(position) *
            std::pow(hp_.rope.base, -1.0 * static_cast<double>(i) / static_cast<double>(pairs));
        if (!w_.rope_divisors.empty()) angle /= w_.rope_divisors[i];
        double& a = h[halves ? i : 2 * i];
        double& b = h[halves ? i + pairs : 2 * i + 1];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
      std::copy(h.begin(), h.end(), x.begin() + head * dim);
    }
  }

  void Attend(const LayerWeights& layer, std::vector<Vector>& hidden) const {
    const size_t dim = static_cast<size_t>(hp_.head_dim);
    const size_t group = static_cast<size_t>(hp_.q_heads / hp_.kv_heads);
    std::vector<Vector> keys;
    std::vector<Vector> values;
    for (size_t t = 0; t < hidden.size(); ++t) {
      const Vector x = Norm(hidden[t], layer.attn_norm);
      Vector q = Times(layer.q, x, layer.q_bias);
      keys.push_back(Times(layer.k, x, layer.k_bias));
      values.push_back(Times(layer.v, x, layer.v_bias));
      PlaceHeads(q, layer.q_norm, t);
      PlaceHeads(keys[t], layer.k_norm, t);
      RoundToHalf(keys[t]);
      RoundToHalf(values[t]);
      Vector out(q.size());
      for (size_t head = 0; head < static_cast<size_t>(hp_.q_heads); ++head) {
        const size_t kv = head / group * dim;
        Vector weights;
        for (size_t s = 0; s <= t; ++s) {
          double dot = 0;
          for (size_t d = 0; d < dim; ++d) dot += q[head * dim + d] * keys[s][kv + d];
          weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(dim))));
        }
        double sum = 0;
        for (const double weight : weights) sum += weight;
        for (size_t s = 0; s <= t; ++s) {
          for (size_t d = 0; d < dim; ++d) {
            out[head * dim + d] += weights[s] / sum * values[s][kv + d];
          }
        }
      }
      const Vector delta = Times(layer.attn_out, out, {});
      for (size_t i = 0; i < delta.size(); ++i) hidden[t][i] += delta[i];
    }
  }

  void FeedForward(const LayerWeights& layer, Vector& hidden) const {
    const Vector x = Norm(hidden, layer.ffn_norm);
    Vector gate = Times(layer.gate, x, {});
    const Vector up = Times(layer.up, x, {});
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    const Vector delta = Times(layer.down, gate, {});
    for (size_t i = 0; i < delta.size(); ++i) hidden[i] += delta[i];
  }

  const ShardWeights& w_;
  const HyperParameters& hp_;
};

}  // namespace shardline::testing
