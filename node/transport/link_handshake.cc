#include "node/transport/link_handshake.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/version.h"
#include "node/transport/stage_conversion.h"
#include "proto/wire/link_codec.h"
#include "proto/wire/message_conversion.h"

namespace shardline {

v1::LinkHello MakeHello(const LinkIdentity& self, const StagePeer& peer, uint64_t connection) {
  v1::LinkHello hello;
  hello.mutable_protocol()->set_min(kProtocolVersionMin);
  hello.mutable_protocol()->set_max(kProtocolVersionMax);
  hello.set_features(kFeaturePlans);
  hello.set_node_id(self.node.value());
  hello.set_incarnation(self.incarnation.value());
  hello.set_peer_node_id(peer.node.value());
  hello.set_peer_incarnation(peer.incarnation.value());
  *hello.mutable_recipe() = ToProto(self.recipe);
  hello.set_connection(connection);
  return hello;
}

absl::StatusOr<LinkAgreement> CheckHello(const v1::LinkHello& hello,
                                         const std::optional<LinkIdentity>& self) {
  const uint32_t theirs_min = hello.protocol().min();
  const uint32_t theirs_max = hello.protocol().max();
  const uint32_t common = std::min(theirs_max, kProtocolVersionMax);
  if (theirs_min > theirs_max || common < theirs_min || common < kProtocolVersionMin) {
    return MakeFailure(
        FailureKind::kIncompatibleRecipe,
        absl::StrCat("protocol: the peer speaks ", theirs_min, " to ", theirs_max, ", this node ",
                     kProtocolVersionMin, " to ", kProtocolVersionMax));
  }
  if (!IsValidNodeId(hello.node_id())) {
    return MakeFailure(FailureKind::kMalformedBundle, "node_id: not a node id");
  }
  if (hello.connection() == 0) {
    return MakeFailure(FailureKind::kMalformedBundle, "connection: 0 is none");
  }
  if (!self.has_value()) {
    return MakeFailure(FailureKind::kIncompatibleRecipe,
                       absl::StrCat("recipe: the peer has ", FromProto(hello.recipe()).ToString(),
                                    ", this node has no shard"));
  }
  if (hello.peer_node_id() != self->node.value() ||
      hello.peer_incarnation() != self->incarnation.value()) {
    const bool printable = IsValidNodeId(hello.peer_node_id());
    return MakeFailure(
        FailureKind::kWorkerDeath,
        absl::StrCat("the peer means node ", printable ? hello.peer_node_id() : "?",
                     " incarnation ", hello.peer_incarnation(), ", this is ", self->node.value(),
                     " incarnation ", self->incarnation.value()));
  }
  const Recipe theirs = FromProto(hello.recipe());
  if (theirs != self->recipe) {
    return MakeFailure(FailureKind::kIncompatibleRecipe,
                       absl::StrCat("recipe: the peer has ", theirs.ToString(), ", this node ",
                                    self->recipe.ToString()));
  }
  return LinkAgreement{.protocol = common,
                       .peer = {NodeId(hello.node_id()), Incarnation(hello.incarnation())},
                       .connection = hello.connection()};
}

}  // namespace shardline
