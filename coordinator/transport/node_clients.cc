#include "coordinator/transport/node_clients.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/failure.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "shardline/v1/head.grpc.pb.h"
#include "shardline/v1/link.grpc.pb.h"

namespace shardline {
namespace {

constexpr int kKeepaliveMs = 10'000;
constexpr int kReconnectMs = 100;
constexpr int kReconnectMaxMs = 1'000;

// One node's stubs over one channel, and whom its calls are signed for.
struct NodeChannel {
  NodeChannel(const std::string& address, Incarnation incarnation_in, const CapabilityKey& key_in)
      : incarnation(incarnation_in), key(key_in) {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
    args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kReconnectMs);
    args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
    std::shared_ptr<grpc::Channel> channel =
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
    shard = v1::Shard::NewStub(channel);
    head = v1::Head::NewStub(channel);
  }

  const Incarnation incarnation;
  const CapabilityKey key;
  std::unique_ptr<v1::Shard::Stub> shard;
  std::unique_ptr<v1::Head::Stub> head;
};

AttemptKey KeyOf(uint64_t session, uint64_t epoch) { return {SessionId(session), Epoch(epoch)}; }

void SetTimeout(absl::Duration timeout, grpc::ClientContext& context) {
  context.set_deadline(GrpcDeadline(timeout));
}

absl::Status NotConnected(const NodeId& node) {
  return MakeFailure({.kind = FailureKind::kStreamReset, .node = node},
                     absl::StrCat("node ", node.value(), " is not connected"));
}

// A transport's own error carries no kind. What the coordinator needs to know is that the stream
// to `node` broke, or that it did not answer in time.
absl::Status BlameNode(const absl::Status& status, const NodeId& node, const char* call) {
  if (status.ok() || FailureKindOf(status) != FailureKind::kNone) return status;
  FailureKind kind = FailureKind::kStreamReset;
  if (absl::IsDeadlineExceeded(status)) kind = FailureKind::kDeadlineExceeded;
  if (absl::IsCancelled(status)) kind = FailureKind::kCancelled;
  return MakeFailure(
      {.kind = kind, .node = node},
      absl::StrCat(call, " on node ", node.value(), ": ", std::string(status.message())));
}

}  // namespace

// Channels and running calls. Shared with the calls, which outlive a Disconnect.
struct NodeClients::State {
  std::shared_ptr<NodeChannel> Find(const NodeId& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    auto it = channels.find(node);
    return closed || it == channels.end() ? nullptr : it->second;
  }

  // The channel to `node` with `context` counted as running; null when there is none.
  std::shared_ptr<NodeChannel> Begin(const NodeId& node, grpc::ClientContext* context)
      ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    std::shared_ptr<NodeChannel> channel = Find(node);
    if (channel != nullptr) running.insert(context);
    return channel;
  }

  void End(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    running.erase(context);
  }

  // Of the head's OPEN, for its RunAttempt.
  void Remember(const v1::OpenRequest& request) ABSL_LOCKS_EXCLUDED(mu) {
    if (request.stage_index() != 0) return;
    absl::MutexLock lock(&mu);
    head_capabilities[KeyOf(request.session(), request.epoch())] = request.capability();
  }

  std::string HeadCapability(const v1::RunAttemptRequest& request) ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    auto it = head_capabilities.find(KeyOf(request.session(), request.epoch()));
    return it == head_capabilities.end() ? "" : it->second;
  }

  // Every attempt is fenced in the end, by its own number or by a newer one.
  void Forget(const v1::FenceRequest& request) ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    head_capabilities.erase(
        head_capabilities.lower_bound(KeyOf(request.session(), 0)),
        head_capabilities.upper_bound(KeyOf(request.session(), request.epoch())));
  }

  std::atomic<uint64_t> open_seq = 0;

  absl::Mutex mu;
  bool closed ABSL_GUARDED_BY(mu) = false;
  std::map<AttemptKey, std::string> head_capabilities ABSL_GUARDED_BY(mu);
  absl::flat_hash_map<NodeId, std::shared_ptr<NodeChannel>> channels ABSL_GUARDED_BY(mu);
  absl::flat_hash_set<grpc::ClientContext*> running ABSL_GUARDED_BY(mu);
};

// Keeps everything a unary call refers to until its answer.
template <typename Request, typename Reply>
struct NodeClients::UnaryCall {
  std::shared_ptr<State> state;
  std::shared_ptr<NodeChannel> channel;
  NodeId node;
  const char* name;
  absl::AnyInvocable<void(absl::StatusOr<Reply>)> done;
  grpc::ClientContext context = {};
  Request request = {};
  Reply reply = {};

  void OnAnswer(const grpc::Status& status) {
    if (status.ok()) {
      done(std::move(reply));
    } else {
      done(BlameNode(FromGrpcStatus(status), node, name));
    }
    done = nullptr;
    state->End(&context);
  }
};

class NodeClients::RunReactor final : public grpc::ClientReadReactor<v1::RunAttemptEvent>,
                                      public RunCall {
 public:
  RunReactor(std::shared_ptr<State> state, NodeId node, v1::RunAttemptRequest request,
             absl::Duration timeout, absl::AnyInvocable<void(v1::RunAttemptEvent)> on_event,
             absl::AnyInvocable<void(absl::Status)> on_end)
      : state_(std::move(state)),
        node_(std::move(node)),
        request_(std::move(request)),
        on_event_(std::move(on_event)),
        on_end_(std::move(on_end)) {
    SetTimeout(timeout, context_);
  }

  // False, and `on_end` was called, when the node is not connected. `self` keeps the reactor
  // until its OnDone.
  bool Start(std::shared_ptr<RunReactor> self) {
    channel_ = state_->Begin(node_, &context_);
    if (channel_ == nullptr) {
      on_end_(NotConnected(node_));
      return false;
    }
    self_ = std::move(self);
    channel_->head->async()->RunAttempt(&context_, &request_, this);
    StartRead(&event_);
    StartCall();
    return true;
  }

  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    on_event_(std::move(event_));
    event_.Clear();
    StartRead(&event_);
  }

  void OnDone(const grpc::Status& status) override {
    on_end_(BlameNode(FromGrpcStatus(status), node_, "RunAttempt"));
    on_event_ = nullptr;
    on_end_ = nullptr;
    const std::shared_ptr<RunReactor> self = std::move(self_);
    state_->End(&context_);
  }

 private:
  const std::shared_ptr<State> state_;
  const NodeId node_;
  const v1::RunAttemptRequest request_;
  grpc::ClientContext context_;
  std::shared_ptr<NodeChannel> channel_;
  std::shared_ptr<RunReactor> self_;
  v1::RunAttemptEvent event_;
  absl::AnyInvocable<void(v1::RunAttemptEvent)> on_event_;
  absl::AnyInvocable<void(absl::Status)> on_end_;
};

NodeClients::NodeClients() : state_(std::make_shared<State>()) {}

NodeClients::~NodeClients() { Shutdown(); }

void NodeClients::Connect(const NodeId& node, const std::string& address, Incarnation incarnation,
                          const CapabilityKey& key) {
  auto channel = std::make_shared<NodeChannel>(address, incarnation, key);
  absl::MutexLock lock(&state_->mu);
  if (!state_->closed) state_->channels[node] = std::move(channel);
}

void NodeClients::Disconnect(const NodeId& node) {
  absl::MutexLock lock(&state_->mu);
  state_->channels.erase(node);
}

void NodeClients::Open(const NodeId& node, v1::OpenRequest request, absl::Duration timeout,
                       absl::AnyInvocable<void(absl::StatusOr<v1::OpenReply>)> done) {
  using Call = UnaryCall<v1::OpenRequest, v1::OpenReply>;
  std::shared_ptr<Call> call(new Call{state_, nullptr, node, "Open", std::move(done)});
  call->request = std::move(request);
  call->channel = state_->Begin(node, &call->context);
  if (call->channel == nullptr) return call->done(NotConnected(node));
  if (call->request.open_seq() == 0) call->request.set_open_seq(++state_->open_seq);
  call->request.set_capability(OpenCapability(call->channel->key, call->request));
  state_->Remember(call->request);
  SetTimeout(timeout, call->context);
  call->channel->shard->async()->Open(&call->context, &call->request, &call->reply,
                                      [call](grpc::Status status) { call->OnAnswer(status); });
}

void NodeClients::Fence(const NodeId& node, v1::FenceRequest request, absl::Duration timeout,
                        absl::AnyInvocable<void(absl::StatusOr<v1::FenceReply>)> done) {
  using Call = UnaryCall<v1::FenceRequest, v1::FenceReply>;
  std::shared_ptr<Call> call(new Call{state_, nullptr, node, "Fence", std::move(done)});
  state_->Forget(request);
  call->request = std::move(request);
  call->channel = state_->Begin(node, &call->context);
  if (call->channel == nullptr) return call->done(NotConnected(node));
  // For whoever lives there now: a fence harms nobody, and a newer life must know the key.
  call->request.set_incarnation(call->channel->incarnation.value());
  call->request.set_capability(FenceCapability(call->channel->key, call->request));
  SetTimeout(timeout, call->context);
  call->channel->shard->async()->Fence(&call->context, &call->request, &call->reply,
                                       [call](grpc::Status status) { call->OnAnswer(status); });
}

std::shared_ptr<RunCall> NodeClients::RunAttempt(
    const NodeId& node, v1::RunAttemptRequest request, absl::Duration timeout,
    absl::AnyInvocable<void(v1::RunAttemptEvent)> on_event,
    absl::AnyInvocable<void(absl::Status)> on_end) {
  request.set_capability(state_->HeadCapability(request));
  auto reactor = std::make_shared<RunReactor>(state_, node, std::move(request), timeout,
                                              std::move(on_event), std::move(on_end));
  if (!reactor->Start(reactor)) return nullptr;
  return reactor;
}

void NodeClients::Shutdown() {
  absl::MutexLock lock(&state_->mu);
  state_->closed = true;
  state_->channels.clear();
  for (grpc::ClientContext* context : state_->running) context->TryCancel();
  auto idle = [this]()
                  ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu) { return state_->running.empty(); };
  state_->mu.Await(absl::Condition(&idle));
}

}  // namespace shardline
