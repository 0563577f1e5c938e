#include "coordinator/placement/layer_cut.h"

#include <algorithm>
#include <limits>

namespace shardline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Costs of every range in O(1).
class RangeCosts {
 public:
  explicit RangeCosts(const ModelCost& model) : model_(model) {
    sums_.push_back(0);
    for (uint64_t bytes : model.layer_bytes) sums_.push_back(sums_.back() + bytes);
  }

  // Time of the range on `node`, or kNever when it does not fit.
  double Seconds(const NodeCost& node, int32_t begin, int32_t end, bool is_head) const {
    const uint64_t layers = sums_[static_cast<size_t>(end)] - sums_[static_cast<size_t>(begin)];
    const uint64_t beside = is_head ? model_.embedding_bytes + model_.head_bytes : 0;
    const uint64_t kv = model_.kv_bytes_per_layer() * static_cast<uint64_t>(end - begin);
    if (layers + beside + kv + model_.scratch_bytes > node.memory_bytes) return kNever;
    const uint64_t read = layers + (is_head ? model_.head_read_bytes : 0);
    return static_cast<double>(read) / node.read_bytes_per_s;
  }

 private:
  const ModelCost& model_;
  std::vector<uint64_t> sums_;
};

// best[i][l]: the value of the best cut of layers [0, l) over the first i nodes; from[i][l]: where
// its last range begins. `join` combines the value so far with a stage's time.
template <typename Join>
std::vector<LayerRange> Solve(const RangeCosts& costs, const std::vector<const NodeCost*>& order,
                              int32_t layer_count, double stage_max, Join join, double* value) {
  const size_t width = static_cast<size_t>(layer_count) + 1;
  std::vector<double> best(width, kNever);
  best[0] = 0;
  std::vector<std::vector<int32_t>> from(order.size(), std::vector<int32_t>(width, -1));
  for (size_t i = 0; i < order.size(); ++i) {
    std::vector<double> next(width, kNever);
    for (int32_t end = static_cast<int32_t>(i) + 1; end <= layer_count; ++end) {
      for (int32_t begin = end - 1; begin >= static_cast<int32_t>(i); --begin) {
        const double stage = costs.Seconds(*order[i], begin, end, i == 0);
        if (stage > stage_max || stage == kNever) break;  // Longer ranges only cost more.
        if (best[static_cast<size_t>(begin)] == kNever) continue;
        const double joined = join(best[static_cast<size_t>(begin)], stage);
        if (joined < next[static_cast<size_t>(end)]) {
          next[static_cast<size_t>(end)] = joined;
          from[i][static_cast<size_t>(end)] = begin;
        }
      }
    }
    best = std::move(next);
  }
  *value = best[static_cast<size_t>(layer_count)];
  std::vector<LayerRange> ranges;
  if (*value == kNever) return ranges;
  int32_t end = layer_count;
  for (size_t i = order.size(); i-- > 0;) {
    const int32_t begin = from[i][static_cast<size_t>(end)];
    ranges.insert(ranges.begin(), LayerRange{begin, end});
    end = begin;
  }
  return ranges;
}

}  // namespace

uint64_t ShardWeightBytes(const ModelCost& model, LayerRange layers, bool is_head) {
  uint64_t bytes = is_head ? model.embedding_bytes + model.head_bytes : 0;
  for (int32_t l = layers.begin; l < layers.end; ++l) {
    bytes += model.layer_bytes[static_cast<size_t>(l)];
  }
  return bytes;
}

uint64_t ShardBytes(const ModelCost& model, LayerRange layers, bool is_head) {
  return ShardWeightBytes(model, layers, is_head) +
         model.kv_bytes_per_layer() * static_cast<uint64_t>(layers.count()) + model.scratch_bytes;
}

double ShardSeconds(const ModelCost& model, const NodeCost& node, LayerRange layers, bool is_head) {
  const uint64_t read =
      ShardWeightBytes(model, layers, false) + (is_head ? model.head_read_bytes : 0);
  return static_cast<double>(read) / node.read_bytes_per_s;
}

std::optional<LayerCut> CutLayers(const ModelCost& model,
                                  const std::vector<const NodeCost*>& order) {
  const RangeCosts costs(model);
  LayerCut cut;
  Solve(
      costs, order, model.layer_count(), kNever,
      [](double so_far, double stage) { return std::max(so_far, stage); }, &cut.slowest_s);
  if (cut.slowest_s == kNever) return std::nullopt;
  // The second pass is what the first one cannot do: a part with a smaller sum may have had a
  // larger maximum that the rest exceeds anyway.
  cut.ranges = Solve(
      costs, order, model.layer_count(), cut.slowest_s,
      [](double so_far, double stage) { return so_far + stage; }, &cut.total_s);
  return cut;
}

}  // namespace shardline
