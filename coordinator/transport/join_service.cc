#include "coordinator/transport/join_service.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/transport/stream_outbox.h"
#include "proto/wire/failure_conversion.h"
#include "shardline/v1/join.grpc.pb.h"

namespace shardline {
namespace {

// A node reads a reply a beat and a few commands; this much unread means it is stuck.
constexpr size_t kMessagesQueuedMax = 256;

}  // namespace

// The streams that are up, so that a sender finds them by number.
struct JoinService::Streams {
  using Outbox = StreamOutbox<Reactor, v1::CoordinatorMessage>;

  explicit Streams(NodeStreamEvents* sink) : events(sink) {}

  std::shared_ptr<Outbox> Find(JoinStreamId stream) ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    auto it = outboxes.find(stream);
    return it == outboxes.end() ? nullptr : it->second;
  }

  NodeStreamEvents* const events;

  absl::Mutex mu;
  JoinStreamId last ABSL_GUARDED_BY(mu);
  absl::flat_hash_map<JoinStreamId, std::shared_ptr<Outbox>> outboxes ABSL_GUARDED_BY(mu);
};

class JoinService::Reactor final
    : public grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage> {
 public:
  explicit Reactor(std::shared_ptr<Streams> streams)
      : streams_(std::move(streams)),
        outbox_(std::make_shared<Streams::Outbox>(this, kMessagesQueuedMax)),
        id_(Register()) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      streams_->events->OnNodeStreamEnd(id_);
      outbox_->End(grpc::Status::OK);
      return;
    }
    streams_->events->OnNodeMessage(id_, std::move(message_));
    message_.Clear();
    StartRead(&message_);
  }

  void OnWriteDone(bool ok) override { outbox_->OnWriteDone(ok); }

  void OnDone() override {
    {
      absl::MutexLock lock(&streams_->mu);
      streams_->outboxes.erase(id_);
    }
    delete this;
  }

 private:
  JoinStreamId Register() {
    absl::MutexLock lock(&streams_->mu);
    streams_->last = streams_->last.Next();
    streams_->outboxes.emplace(streams_->last, outbox_);
    return streams_->last;
  }

  const std::shared_ptr<Streams> streams_;
  const std::shared_ptr<Streams::Outbox> outbox_;
  const JoinStreamId id_;
  v1::NodeMessage message_;
};

class JoinService::Service final : public v1::Coordinator::CallbackService {
 public:
  explicit Service(std::shared_ptr<Streams> streams) : streams_(std::move(streams)) {}

  grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>* Join(
      grpc::CallbackServerContext*) override {
    return new Reactor(streams_);  // Deletes itself in OnDone.
  }

 private:
  const std::shared_ptr<Streams> streams_;
};

JoinService::JoinService(NodeStreamEvents* events)
    : streams_(std::make_shared<Streams>(events)), service_(std::make_unique<Service>(streams_)) {}

JoinService::~JoinService() = default;

bool JoinService::Send(JoinStreamId stream, v1::CoordinatorMessage message) {
  const std::shared_ptr<Streams::Outbox> outbox = streams_->Find(stream);
  if (outbox == nullptr) return false;
  if (outbox->Send(std::move(message))) return true;
  outbox->EndNow(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                              "the node does not read what the coordinator sends"));
  return false;
}

void JoinService::End(JoinStreamId stream, const absl::Status& status) {
  const std::shared_ptr<Streams::Outbox> outbox = streams_->Find(stream);
  if (outbox != nullptr) outbox->End(ToGrpcStatus(status));
}

grpc::Service* JoinService::service() { return service_.get(); }

}  // namespace shardline
