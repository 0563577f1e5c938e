#pragma once

// Whether two nodes may link: the words of a hello, judged by its receiver. Pure.

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "node/stage/stage_bundle.h"
#include "shardline/v1/link.pb.h"

namespace shardline {

// What a node is while it holds a shard.
struct LinkIdentity {
  NodeId node;
  Incarnation incarnation;
  Recipe recipe;
  int32_t hidden_dim = 0;

  friend bool operator==(const LinkIdentity&, const LinkIdentity&) = default;
};

struct LinkAgreement {
  uint32_t protocol = 0;  // The version in force: the highest that both speak.
  StagePeer peer;         // Who says hello.
  uint64_t connection = 0;
};

// The hello of `self` to `peer`, on its `connection`-th connection to it.
v1::LinkHello MakeHello(const LinkIdentity& self, const StagePeer& peer, uint64_t connection = 1);

// In this order, since a hello of another version may mean anything:
//   kIncompatibleRecipe  no common protocol version (names both ranges)
//   kMalformedBundle     a node id that cannot be one, or no connection number
//   kWorkerDeath         meant for another node or incarnation (names both)
//   kIncompatibleRecipe  another model, numerics or plan (names both), or no shard here
absl::StatusOr<LinkAgreement> CheckHello(const v1::LinkHello& hello,
                                         const std::optional<LinkIdentity>& self);

}  // namespace shardline
