#pragma once

// The coordinator's calls to its nodes: Open and Fence on every stage, RunAttempt on the head.
//
// Signs what it sends, under the key of the node's incarnation: nobody else can open or fence.
// A RunAttempt carries the capability of the OPEN that its head was sent.
//
// One channel a node, of its own, so that a node that comes back is not kept waiting by the
// back-off of the one that died. Every call has a deadline. Answers come on gRPC threads and must
// not block. Any thread.

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "proto/wire/capability.h"
#include "shardline/v1/head.pb.h"
#include "shardline/v1/link.pb.h"

namespace shardline {

// A running RunAttempt. Dropping it does not cancel.
class RunCall {
 public:
  virtual ~RunCall() = default;
  virtual void Cancel() = 0;
};

class NodeClients {
 public:
  NodeClients();
  ~NodeClients();  // As Shutdown.

  // Names where `node` is reached and who it is from now on; calls that run keep the channel they
  // have.
  void Connect(const NodeId& node, const std::string& address, Incarnation incarnation,
               const CapabilityKey& key);
  void Disconnect(const NodeId& node);

  // Exactly one answer each. A node that is not connected answers kStreamReset at once. OPENs
  // without an open_seq get the next one.
  void Open(const NodeId& node, v1::OpenRequest request, absl::Duration timeout,
            absl::AnyInvocable<void(absl::StatusOr<v1::OpenReply>)> done);
  void Fence(const NodeId& node, v1::FenceRequest request, absl::Duration timeout,
             absl::AnyInvocable<void(absl::StatusOr<v1::FenceReply>)> done);

  // Events in order, then one end: OK when the head ended the stream regularly. Null, after the
  // end was called, when `node` is not connected.
  std::shared_ptr<RunCall> RunAttempt(const NodeId& node, v1::RunAttemptRequest request,
                                      absl::Duration timeout,
                                      absl::AnyInvocable<void(v1::RunAttemptEvent)> on_event,
                                      absl::AnyInvocable<void(absl::Status)> on_end);

  // Cancels every call, waits until each has had its answer, and refuses further ones. Not from
  // inside an answer.
  void Shutdown();

 private:
  struct State;
  template <typename Request, typename Reply>
  struct UnaryCall;
  class RunReactor;

  const std::shared_ptr<State> state_;
};

}  // namespace shardline
