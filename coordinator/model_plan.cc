#include "coordinator/model_plan.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

constexpr int32_t kSessionsDefault = 4;
constexpr int32_t kSessionsMax = 4096;
constexpr int32_t kContextTokensMin = 256;
constexpr int32_t kChunkTokensDefault = 256;
constexpr uint64_t kScratchBytesMin = uint64_t{32} << 20;

// Activations of the largest prefill chunk, and logits, in floats: an upper bound on what an
// executor keeps beside weights and KV.
uint64_t ScratchBytes(const HyperParameters& hp, int32_t chunk_tokens_max) {
  const uint64_t row = 4 * uint64_t(hp.hidden_dim) + 2 * uint64_t(hp.q_dim()) +
                       2 * uint64_t(hp.kv_dim()) + 3 * uint64_t(hp.ff_dim);
  const uint64_t logits = uint64_t{16} * uint64_t(hp.vocab_size);
  return kScratchBytesMin +
         (row * static_cast<uint64_t>(chunk_tokens_max) + logits) * sizeof(float);
}

int32_t ChunkTokensOf(const ModelWish& wish) {
  return wish.chunk_tokens_max == 0 ? kChunkTokensDefault : wish.chunk_tokens_max;
}

ModelCost CostFor(const ModelFile& file, const std::string& name, int32_t context, int32_t sessions,
                  int32_t chunk_tokens_max) {
  const ModelCosts& costs = file.costs;
  return {.name = name,
          .layer_bytes = costs.layer_bytes,
          .embedding_bytes = costs.embedding_bytes,
          .head_bytes = costs.final_norm_bytes + costs.lm_head_bytes,
          .head_read_bytes = costs.lm_head_bytes != 0 ? costs.lm_head_bytes : costs.embedding_bytes,
          .kv_bytes_per_token_layer = costs.kv_bytes_per_token_layer,
          .scratch_bytes = ScratchBytes(file.hyper, chunk_tokens_max) + costs.shared_bytes,
          .context_tokens = context,
          .sessions = sessions};
}

std::vector<PlannedShard> ShardsOf(const std::vector<PlacedShard>& placed) {
  std::vector<PlannedShard> shards;
  for (const PlacedShard& shard : placed) {
    shards.push_back({.node = shard.node,
                      .layers = shard.layers,
                      .is_head = shard.is_head,
                      .bytes = shard.weight_bytes});
  }
  return shards;
}

absl::StatusOr<PlacedModel> PlaceOnce(const ModelFile& file, const ModelWish& wish,
                                      const ModelCost& cost, const PlacementOptions& options,
                                      absl::Span<const NodeCost> nodes) {
  SL_ASSIGN_OR_RETURN(const Placement placement, Place(cost, nodes, options));
  return PlacedModel{.plan = {.plan = {.epoch = {},
                                       .model = cost.name,
                                       .model_id = file.id,
                                       .layer_count = file.hyper.layer_count,
                                       .shards = ShardsOf(placement.shards),
                                       .replicas = std::max(1, wish.replicas)},
                              .path = file.path,
                              .context_tokens_max = cost.context_tokens,
                              .sessions_max = cost.sessions,
                              .kv_pages = placement.kv_pages,
                              .chunk_tokens_max = ChunkTokensOf(wish),
                              .wish = wish},
                     .explanation = placement.explanation,
                     .costs = placement.shards};
}

// Every range that is lost on one idle node with room; the others as they are.
absl::StatusOr<PlacedModel> GiveLostToIdle(const ModelFile& file, const ModelPlan& in_force,
                                           const std::vector<LayerRange>& lost,
                                           const std::vector<NodeCost>& idle) {
  const ModelCost cost = CostFor(file, in_force.plan.model, in_force.context_tokens_max,
                                 in_force.sessions_max, in_force.chunk_tokens_max);
  SL_ASSIGN_OR_RETURN(const std::vector<PlacedShard> spares, PlaceSingly(cost, lost, idle));
  PlacedModel out{.plan = in_force, .explanation = ""};
  out.plan.plan.shards.clear();
  const std::vector<PlannedShard> found = ShardsOf(spares);
  for (const std::vector<size_t>& range : ShardsByRange(in_force.plan)) {
    const LayerRange layers = in_force.plan.shards[range.front()].layers;
    const auto given = std::find_if(found.begin(), found.end(),
                                    [layers](const PlannedShard& s) { return s.layers == layers; });
    if (given != found.end()) {
      out.plan.plan.shards.push_back(*given);
      absl::StrAppend(&out.explanation, out.explanation.empty() ? "" : "\n", given->node.value(),
                      ": takes ", layers.ToString());
      continue;
    }
    for (const size_t index : range) {
      out.plan.plan.shards.push_back(in_force.plan.shards[index]);
    }
  }
  return out;
}

nlohmann::ordered_json WishToJson(const ModelWish& wish) {
  nlohmann::ordered_json json = {{"name", wish.name},
                                 {"context_tokens_max", wish.context_tokens_max},
                                 {"shards", wish.shards},
                                 {"sessions_max", wish.sessions_max},
                                 {"replicas", wish.replicas},
                                 {"chunk_tokens_max", wish.chunk_tokens_max},
                                 {"ranges", nlohmann::ordered_json::array()}};
  for (const LayerRange& range : wish.ranges) {
    json["ranges"].push_back({{"begin", range.begin}, {"end", range.end}});
  }
  return json;
}

ModelWish WishFromJson(const nlohmann::json& json) {
  ModelWish wish{.name = json.at("name").get<std::string>(),
                 .context_tokens_max = json.at("context_tokens_max").get<int32_t>(),
                 .shards = json.at("shards").get<int32_t>(),
                 .ranges = {},
                 .sessions_max = json.at("sessions_max").get<int32_t>(),
                 .replicas = json.at("replicas").get<int32_t>(),
                 .chunk_tokens_max = json.value("chunk_tokens_max", 0)};
  for (const nlohmann::json& range : json.at("ranges")) {
    wish.ranges.push_back({range.at("begin").get<int32_t>(), range.at("end").get<int32_t>()});
  }
  return wish;
}

// What was wished, then less and less of it.
std::vector<PlacementOptions> Ladder(const ModelWish& wish, size_t node_count,
                                     const std::vector<AvoidedLink>& avoid_links) {
  std::vector<PlacementOptions> cuts = {
      {.shards = wish.shards, .ranges = wish.ranges, .avoid_links = avoid_links}};
  const size_t ranges =
      wish.ranges.empty() ? static_cast<size_t>(std::max(0, wish.shards)) : wish.ranges.size();
  if (ranges > 0) {
    const int32_t shards = static_cast<int32_t>(std::min(ranges, node_count));
    cuts.push_back({.shards = shards, .ranges = {}, .avoid_links = avoid_links});
    cuts.push_back({.avoid_links = avoid_links});
  }
  std::vector<PlacementOptions> ladder;
  for (const PlacementOptions& cut : cuts) {
    for (int32_t replicas = std::max(1, wish.replicas); replicas >= 1; --replicas) {
      ladder.push_back(cut);
      ladder.back().replicas = replicas;
    }
  }
  return ladder;
}

}  // namespace

absl::StatusOr<PlacedModel> PlaceModel(const ModelFile& file, const ModelWish& wish,
                                       absl::Span<const NodeCost> nodes) {
  const std::string name = wish.name.empty() ? file.name : wish.name;
  const int32_t context_of_model = file.hyper.context_length;
  if (wish.context_tokens_max > context_of_model) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat(name, ": a context of ", wish.context_tokens_max,
                                    " tokens is more than the model's ", context_of_model));
  }
  const int32_t sessions = wish.sessions_max == 0 ? kSessionsDefault : wish.sessions_max;
  if (sessions > kSessionsMax) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat(name, ": KV for ", sessions, " sessions, at most ", kSessionsMax));
  }
  const PlacementOptions options{.shards = wish.shards,
                                 .ranges = wish.ranges,
                                 .replicas = wish.replicas == 0 ? 1 : wish.replicas};
  int32_t context = wish.context_tokens_max == 0 ? context_of_model : wish.context_tokens_max;
  while (true) {
    const ModelCost cost = CostFor(file, name, context, sessions, ChunkTokensOf(wish));
    absl::StatusOr<PlacedModel> placed = PlaceOnce(file, wish, cost, options, nodes);
    if (placed.ok()) return placed;
    const bool may_shrink = wish.context_tokens_max == 0 && context / 2 >= kContextTokensMin &&
                            absl::IsResourceExhausted(placed.status());
    if (!may_shrink) return placed.status();
    context /= 2;
  }
}

absl::StatusOr<PlacedModel> PlaceAgain(const ModelFile& file, const ModelPlan& in_force,
                                       const PlanLoss& loss, const std::vector<NodeCost>& idle,
                                       const std::vector<NodeCost>& usable) {
  if (!loss.lost.empty() && !idle.empty()) {
    absl::StatusOr<PlacedModel> given = GiveLostToIdle(file, in_force, loss.lost, idle);
    if (given.ok()) return given;
  }
  const ModelWish& wish = in_force.wish;
  const std::vector<PlacementOptions> ladder = Ladder(wish, usable.size(), loss.avoid_links);
  absl::Status last;
  for (int32_t context = in_force.context_tokens_max;; context /= 2) {
    const ModelCost cost =
        CostFor(file, in_force.plan.model, context, in_force.sessions_max, ChunkTokensOf(wish));
    for (const PlacementOptions& options : ladder) {
      absl::StatusOr<PlacedModel> placed = PlaceOnce(file, wish, cost, options, usable);
      if (placed.ok()) return placed;
      last = placed.status();
    }
    if (wish.context_tokens_max != 0 || context / 2 < kContextTokensMin) return last;
  }
}

std::string SerializeModelPlan(const ModelPlan& plan) {
  nlohmann::ordered_json json = {{"model", plan.plan.model},
                                 {"model_id", plan.plan.model_id.value()},
                                 {"layer_count", plan.plan.layer_count},
                                 {"path", plan.path},
                                 {"context_tokens_max", plan.context_tokens_max},
                                 {"sessions_max", plan.sessions_max},
                                 {"kv_pages", plan.kv_pages},
                                 {"chunk_tokens_max", plan.chunk_tokens_max},
                                 {"replicas", plan.plan.replicas},
                                 {"wish", WishToJson(plan.wish)},
                                 {"shards", nlohmann::ordered_json::array()}};
  for (const PlannedShard& shard : plan.plan.shards) {
    json["shards"].push_back({{"node", shard.node.value()},
                              {"begin", shard.layers.begin},
                              {"end", shard.layers.end},
                              {"is_head", shard.is_head},
                              {"bytes", shard.bytes}});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<ModelPlan> ParseModelPlan(PlanEpoch epoch, std::string_view text) {
  try {  // The library throws on a missing or mistyped field.
    const nlohmann::json json = nlohmann::json::parse(text);
    ModelPlan out{.plan = {.epoch = epoch,
                           .model = json.at("model").get<std::string>(),
                           .model_id = ModelId(json.at("model_id").get<std::string>()),
                           .layer_count = json.at("layer_count").get<int32_t>(),
                           .shards = {},
                           .replicas = json.value("replicas", 1)},
                  .path = json.at("path").get<std::string>(),
                  .context_tokens_max = json.at("context_tokens_max").get<int32_t>(),
                  .sessions_max = json.at("sessions_max").get<int32_t>(),
                  .kv_pages = json.at("kv_pages").get<int32_t>(),
                  .chunk_tokens_max = json.at("chunk_tokens_max").get<int32_t>(),
                  .wish = {}};
    // Plans of earlier versions wished for nothing that is known.
    if (json.contains("wish")) out.wish = WishFromJson(json.at("wish"));
    for (const nlohmann::json& shard : json.at("shards")) {
      out.plan.shards.push_back(
          {.node = NodeId(shard.at("node").get<std::string>()),
           .layers = {shard.at("begin").get<int32_t>(), shard.at("end").get<int32_t>()},
           .is_head = shard.at("is_head").get<bool>(),
           .bytes = shard.at("bytes").get<uint64_t>()});
    }
    SL_RETURN_IF_ERROR(ValidatePlan(out.plan));
    return out;
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(
        absl::StrCat("plan ", epoch.value(), " in the store cannot be read: ", error.what()));
  }
}

v1::LoadShard LoadShardFor(const ModelPlan& plan, const ModelFile& file, size_t shard_index) {
  const PlannedShard& shard = plan.plan.shards[shard_index];
  v1::LoadShard out;
  out.set_plan_epoch(plan.plan.epoch.value());
  out.set_model_name(std::filesystem::path(plan.path).filename().string());
  out.set_model_path(plan.path);
  out.set_model_id(plan.plan.model_id.value());
  out.set_manifest(ShardManifest(file, shard.layers, shard.is_head));
  *out.mutable_layers() = ToProto(shard.layers);
  out.set_is_head(shard.is_head);
  out.set_context_tokens_max(static_cast<uint32_t>(plan.context_tokens_max));
  out.set_kv_pages(static_cast<uint32_t>(plan.kv_pages));
  out.set_chunk_tokens_max(static_cast<uint32_t>(plan.chunk_tokens_max));
  return out;
}

}  // namespace shardline
