#pragma once

// Which node holds which layers: a pure function from the costs of a model and of the nodes.
//
// Capacity first: a node is never given more bytes than it has free. Then time: a decode step
// reads every weight once, and the stages of a ring run one after the other, while several
// sessions keep all stages busy; so the cut minimises the slowest stage (exactly, by dynamic
// programming over contiguous ranges) and among equals the sum. The embedding is a lookup and
// reads next to nothing; the output matrix is read on the head for every token.
//
// The head is every candidate in turn; the other nodes follow fastest reader first, ties by id.
// Which nodes take part is tried out as well: every subset while there are few, else the fastest
// and the largest companions of every head. That choice is a heuristic (exact for the number of
// nodes when all layers have one size); the cut for one order of nodes is exact. With explicit
// ranges the nodes are matched to them so that the slowest is as fast as can be.
//
// Measured speeds are noisy: nodes of one device whose speeds differ by less than 1.5 times count
// as equally fast, so that equal machines get equal ranges.
//
// Replicas come after the cut: the nodes left over are matched to its ranges in the same way. A
// link to avoid is kept out of the ring by another order of the same nodes, or by other nodes.
// Equal inputs give equal placements, whatever the order of `nodes`.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/id.h"
#include "base/layer_range.h"

namespace shardline {

struct ModelCost {
  std::string name;
  std::vector<uint64_t> layer_bytes;  // Weights of each layer; its size is the layer count.
  uint64_t embedding_bytes = 0;       // Held by the head.
  uint64_t head_bytes = 0;            // Final norm and lm_head; just the norm if tied.
  uint64_t head_read_bytes = 0;       // Read for each token: lm_head, tied or not.
  uint64_t kv_bytes_per_token_layer = 0;
  uint64_t scratch_bytes = 0;  // On every shard, beside weights and KV.
  int32_t context_tokens = 0;  // KV is sized for this many tokens
  int32_t sessions = 1;        // and this many full contexts.

  int32_t layer_count() const { return static_cast<int32_t>(layer_bytes.size()); }
  // Pages that `sessions` full contexts take, each rounded up by itself.
  int32_t kv_pages() const;
  uint64_t kv_bytes_per_layer() const;
};

struct NodeCost {
  NodeId node;
  uint64_t memory_bytes = 0;  // Free for this model.
  double read_bytes_per_s = 0;
  double int8_ops_per_s = 0;
  uint32_t threads = 0;
  std::string device;  // Back end and device; empty: like no other node's.
};

struct AvoidedLink {
  NodeId from;
  NodeId to;
  friend bool operator==(const AvoidedLink&, const AvoidedLink&) = default;
};

struct PlacementOptions {
  int32_t shards = 0;                    // Ranges. 0: the fewest that fit; else exactly this many.
  std::vector<LayerRange> ranges;        // If not empty: exactly this cut.
  int32_t replicas = 1;                  // Nodes that hold each range.
  std::vector<AvoidedLink> avoid_links;  // Not in the ring of the first node of each range.
};

struct PlacedShard {
  NodeId node;
  LayerRange layers;
  bool is_head = false;
  uint64_t weight_bytes = 0;  // With embedding and output matrix on the head.
  uint64_t kv_bytes = 0;
  uint64_t total_bytes = 0;  // With scratch.
  absl::Duration step_time;  // Predicted: bytes read for one token over the read speed.
};

struct Placement {
  // In ring order, the heads first; the replicas of a range behind its first node.
  std::vector<PlacedShard> shards;
  int32_t kv_pages = 0;      // On every shard.
  absl::Duration step_time;  // Predicted for one token: the sum over the first of each range.
  absl::Duration slowest_stage;
  std::string explanation;  // One line a shard, in numbers.
};

// ResourceExhausted (kOverloaded) when it does not fit, with the arithmetic of every node, when
// more shards, ranges or replicas are asked for than there are nodes, or when every ring has a link
// to avoid. InvalidArgument (kInvalidRequest) for
// costs or options that make no sense: no layers, no nodes, a node twice, more shards than
// layers, ranges that do not tile the model.
absl::StatusOr<Placement> Place(const ModelCost& model, absl::Span<const NodeCost> nodes,
                                const PlacementOptions& options);

// Nodes of their own for single ranges, as for replicas: in the order of `ranges`, which need not
// tile the model. Errors as of Place.
absl::StatusOr<std::vector<PlacedShard>> PlaceSingly(const ModelCost& model,
                                                     const std::vector<LayerRange>& ranges,
                                                     absl::Span<const NodeCost> nodes);

// "1.1 GiB", "640.0 MiB": bytes for people.
std::string FormatBytes(uint64_t bytes);

}  // namespace shardline
