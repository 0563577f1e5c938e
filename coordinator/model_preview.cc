#include "coordinator/model_preview.h"

#include <algorithm>

#include "base/failure.h"
#include "base/status_macros.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

uint64_t FreeOf(absl::Span<const NodeCost> nodes, const NodeId& node) {
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [&node](const NodeCost& cost) { return cost.node == node; });
  return found == nodes.end() ? 0 : found->memory_bytes;
}

void Fill(const PlacedShard& shard, int32_t kv_pages, uint64_t memory_free_bytes,
          v1::PreviewShard& out) {
  out.set_node_id(shard.node.value());
  *out.mutable_layers() = ToProto(shard.layers);
  out.set_is_head(shard.is_head);
  out.set_bytes(shard.weight_bytes);
  out.set_kv_bytes(shard.kv_bytes);
  out.set_kv_pages(static_cast<uint32_t>(kv_pages));
  out.set_total_bytes(shard.total_bytes);
  out.set_memory_free_bytes(memory_free_bytes);
  out.set_step_us(absl::ToInt64Microseconds(shard.step_time));
}

}  // namespace

std::string ModelNameFor(const v1::LoadModelRequest& request) {
  return request.name().empty() ? ModelNameOf(request.path()) : request.name();
}

absl::StatusOr<ModelWish> WishOf(const v1::LoadModelRequest& request) {
  constexpr uint32_t kNumberMax = uint32_t{1} << 30;
  if (request.context_tokens_max() > kNumberMax || request.shards() > kNumberMax ||
      request.sessions_max() > kNumberMax || request.replicas() > kNumberMax) {
    return MakeFailure(FailureKind::kInvalidRequest, "a number of the request is out of range");
  }
  ModelWish wish{.name = request.name(),
                 .context_tokens_max = static_cast<int32_t>(request.context_tokens_max()),
                 .shards = static_cast<int32_t>(request.shards()),
                 .ranges = {},
                 .sessions_max = static_cast<int32_t>(request.sessions_max()),
                 .replicas = static_cast<int32_t>(request.replicas())};
  for (const v1::LayerRange& range : request.ranges()) {
    SL_ASSIGN_OR_RETURN(const LayerRange layers, FromProto(range));
    wish.ranges.push_back(layers);
  }
  return wish;
}

absl::StatusOr<v1::ModelPreview> PreviewPlacement(const ModelFile& file, const ModelWish& wish,
                                                  absl::Span<const NodeCost> nodes) {
  v1::ModelPreview preview;
  preview.set_name(wish.name.empty() ? file.name : wish.name);
  preview.set_layers(static_cast<uint32_t>(file.hyper.layer_count));
  if (nodes.empty()) {
    preview.set_reason("no node is free: none has joined, or each holds a shard or is cordoned");
    return preview;
  }
  const absl::StatusOr<PlacedModel> placed = PlaceModel(file, wish, nodes);
  if (FailureKindOf(placed.status()) == FailureKind::kOverloaded) {
    preview.set_reason(std::string(placed.status().message()));
    return preview;
  }
  if (!placed.ok()) return placed.status();
  preview.set_fits(true);
  preview.set_context_tokens_max(static_cast<uint32_t>(placed->plan.context_tokens_max));
  preview.set_sessions_max(static_cast<uint32_t>(placed->plan.sessions_max));
  for (const PlacedShard& shard : placed->costs) {
    Fill(shard, placed->plan.kv_pages, FreeOf(nodes, shard.node), *preview.add_shards());
  }
  return preview;
}

}  // namespace shardline
