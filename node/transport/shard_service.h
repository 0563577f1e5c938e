#pragma once

// The receiving side of a node's data plane: Open, Fence, and the receiving end of links.
//
// Parses, posts, replies; judges nothing about sessions. A link whose first frame is no hello, or
// that breaks any rule of link.proto, gets a refusal and a clean end; whatever a peer sends, the
// process lives on.

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "node/stage/stage_bundle.h"
#include "node/transport/link_handshake.h"
#include "proto/wire/link_codec.h"
#include "shardline/v1/link.pb.h"

namespace shardline {

// How far a sender may run ahead, and when it hears that it may go on.
struct LinkWindow {
  uint32_t credit_bundles = 64;
  uint64_t credit_bytes = 64 << 20;
  absl::Duration ack_delay = absl::Milliseconds(20);  // After the last bundle.
};

// One accepted link, for whoever wants to answer on it. Outlives its stream: answers that come
// too late are dropped. Any thread.
class LinkHandle {
 public:
  virtual ~LinkHandle() = default;

  virtual const StagePeer& peer() const = 0;

  // Of the peer's connections to this node; a newer one fences the older.
  virtual uint64_t connection() const = 0;

  // What the node was when it judged the hello.
  virtual const LinkIdentity& accepted_by() const = 0;

  // The newest rows that the peer has announced and nobody has taken yet; none: none.
  virtual std::vector<BundleRow> TakePlan() = 0;

  // Once, when every older connection of the peer is shut out: now it may send and ask.
  virtual void Welcome() = 0;

  // The stage took this bundle and every earlier one. Written lazily.
  virtual void Ack(uint64_t sequence) = 0;

  virtual void SendRowFailure(const RowFailure& failure) = 0;

  // What was asked, in the order of the question.
  virtual void SendStatus(const std::vector<InspectStatus>& statuses) = 0;

  // Refuses whatever may still come, with this reason. REQUIRES: !reason.ok().
  virtual void Close(const absl::Status& reason) = 0;
};

struct FenceOrder {
  SessionId session;
  Epoch epoch;
  Term term;
  FailureKind reason = FailureKind::kNone;
};

// Where the node listens. Called on gRPC threads and must not block. The replies may be called
// from any thread, once.
struct ShardEvents {
  std::function<std::optional<LinkIdentity>()> identity;
  std::function<void(OpenAttempt, std::function<void(absl::StatusOr<OpenReply>)>)> on_open;
  std::function<void(FenceOrder, std::function<void(FenceReply)>)> on_fence;
  // A hello is right; the listener answers it with Welcome or Close. What the peer sends comes
  // after it, in order, then on_link_closed.
  std::function<void(std::shared_ptr<LinkHandle>)> on_link_opened;
  std::function<void(std::shared_ptr<LinkHandle>, std::vector<InspectRow>)> on_inspect;
  std::function<void(std::shared_ptr<LinkHandle>, uint64_t sequence, StageBundle)> on_bundle;
  std::function<void(std::shared_ptr<LinkHandle>)> on_link_closed;
  // The link has a plan to take. Not called again until it was: a peer that sends plans without end
  // costs one event at a time. Null: peers are told to send none.
  std::function<void(std::shared_ptr<LinkHandle>)> on_plan;
  // The reactor of a new Pulse stream: PulseHost::Accept.
  std::function<grpc::ServerBidiReactor<v1::PeerBeat, v1::PeerBeat>*()> on_pulse;
  // Whether it is the coordinator's: kUnauthorised otherwise. Null: everything is.
  std::function<absl::Status(const v1::OpenRequest&)> authorise_open;
  std::function<absl::Status(const v1::FenceRequest&)> authorise_fence;
};

// `limits.hidden_dim` is set by each link from the identity.
std::unique_ptr<grpc::Service> MakeShardService(ShardEvents events, const LinkLimits& limits,
                                                const LinkWindow& window);

}  // namespace shardline
