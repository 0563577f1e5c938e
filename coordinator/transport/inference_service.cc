#include "coordinator/transport/inference_service.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/transport/stream_outbox.h"
#include "proto/wire/failure_conversion.h"
#include "shardline/v1/inference.grpc.pb.h"

namespace shardline {

// The streams that are up, so that a sender finds them by number.
struct InferenceService::Streams {
  using Outbox = StreamOutbox<Reactor, v1::GenerateEvent>;

  Streams(ClientEvents* sink, size_t queued_max) : events(sink), messages_queued_max(queued_max) {}

  std::shared_ptr<Outbox> Find(RequestId request_id) ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    auto it = outboxes.find(request_id);
    return it == outboxes.end() ? nullptr : it->second;
  }

  ClientEvents* const events;
  const size_t messages_queued_max;

  absl::Mutex mu;
  RequestId last ABSL_GUARDED_BY(mu);
  absl::flat_hash_map<RequestId, std::shared_ptr<Outbox>> outboxes ABSL_GUARDED_BY(mu);
};

class InferenceService::Reactor final : public grpc::ServerWriteReactor<v1::GenerateEvent> {
 public:
  Reactor(std::shared_ptr<Streams> streams, const v1::GenerateRequest& request)
      : streams_(std::move(streams)),
        outbox_(std::make_shared<Streams::Outbox>(this, streams_->messages_queued_max)),
        id_(Register()) {
    streams_->events->OnGenerate(id_, request);
  }

  void OnWriteDone(bool ok) override { outbox_->OnWriteDone(ok); }

  void OnCancel() override {
    streams_->events->OnClientGone(id_);
    outbox_->EndNow(grpc::Status(grpc::StatusCode::CANCELLED, "the client hung up"));
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&streams_->mu);
      streams_->outboxes.erase(id_);
    }
    delete this;
  }

 private:
  RequestId Register() {
    absl::MutexLock lock(&streams_->mu);
    streams_->last = streams_->last.Next();
    streams_->outboxes.emplace(streams_->last, outbox_);
    return streams_->last;
  }

  const std::shared_ptr<Streams> streams_;
  const std::shared_ptr<Streams::Outbox> outbox_;
  const RequestId id_;
};

class InferenceService::Service final : public v1::Inference::CallbackService {
 public:
  explicit Service(std::shared_ptr<Streams> streams) : streams_(std::move(streams)) {}

  grpc::ServerWriteReactor<v1::GenerateEvent>* Generate(
      grpc::CallbackServerContext*, const v1::GenerateRequest* request) override {
    return new Reactor(streams_, *request);  // Deletes itself in OnDone.
  }

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    absl::StatusOr<v1::TokenizeReply> ids = streams_->events->OnTokenize(*request);
    if (ids.ok()) *reply = *std::move(ids);
    reactor->Finish(ToGrpcStatus(ids.status()));
    return reactor;
  }

 private:
  const std::shared_ptr<Streams> streams_;
};

InferenceService::InferenceService(ClientEvents* events, size_t messages_queued_max)
    : streams_(std::make_shared<Streams>(events, messages_queued_max)),
      service_(std::make_unique<Service>(streams_)) {}

InferenceService::~InferenceService() = default;

bool InferenceService::Send(RequestId request_id, v1::GenerateEvent event) {
  const std::shared_ptr<Streams::Outbox> outbox = streams_->Find(request_id);
  return outbox != nullptr && outbox->Send(std::move(event));
}

void InferenceService::End(RequestId request_id, const absl::Status& status) {
  const std::shared_ptr<Streams::Outbox> outbox = streams_->Find(request_id);
  if (outbox == nullptr) return;
  Count(status);
  outbox->End(ToGrpcStatus(status));
}

void InferenceService::EndNow(RequestId request_id, const absl::Status& status) {
  const std::shared_ptr<Streams::Outbox> outbox = streams_->Find(request_id);
  if (outbox == nullptr) return;
  Count(status);
  outbox->EndNow(ToGrpcStatus(status));
}

void InferenceService::Count(const absl::Status& status) {
  if (!status.ok()) ++failures_[static_cast<size_t>(FailureKindOf(status))];
}

KindCounts InferenceService::failures() const {
  KindCounts counts = {};
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = failures_[i].load();
  return counts;
}

grpc::Service* InferenceService::service() { return service_.get(); }

}  // namespace shardline
