#include "node/transport/head_service.h"

#include <grpcpp/support/server_callback.h>

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/failure.h"
#include "node/transport/stream_queue.h"
#include "proto/wire/failure_conversion.h"
#include "shardline/v1/head.grpc.pb.h"

namespace shardline {
namespace {

// Tokens that may wait for a slow reader.
constexpr size_t kEventsWaitingMax = 1024;
constexpr absl::Duration kDrainRetryAfter = absl::Seconds(1);

class RunCall;

class AttemptStream : public RunStream {
 public:
  explicit AttemptStream(RunCall* call) : call_(call), queue_(kEventsWaitingMax) {}

  void SendToken(const TokenOut& token) override { Send(ToProto(token)); }
  void SendProgress(const ProgressOut& progress) override { Send(ToProto(progress)); }
  void End(const AttemptEnd& end) override;
  void Fail(const absl::Status& status) override;

  void WriteDone(bool ok);
  void Cancelled();
  // From OnDone: the call is about to delete itself.
  void Forget();

 private:
  void Send(v1::RunAttemptEvent event) ABSL_LOCKS_EXCLUDED(mu_);
  void EndWith(const absl::Status& status, bool drop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Pump() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  RunCall* call_ ABSL_GUARDED_BY(mu_);  // Emptied by OnDone.
  StreamQueue<v1::RunAttemptEvent> queue_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

class RunCall : public grpc::ServerWriteReactor<v1::RunAttemptEvent> {
 public:
  explicit RunCall(const HeadEvents* events)
      : events_(events), stream_(std::make_shared<AttemptStream>(this)) {}

  // Apart from construction, since the run may end before it returns.
  void Start(const v1::RunAttemptRequest& request) {
    key_ = {SessionId(request.session()), Epoch(request.epoch())};
    if (events_->gate != nullptr && !events_->gate->Enter()) {
      stream_->Fail(MakeFailure({.kind = FailureKind::kOverloaded,
                                 .session = key_.session,
                                 .epoch = key_.epoch,
                                 .retry_after = kDrainRetryAfter},
                                "the node is draining"));
      return;
    }
    absl::StatusOr<RunRequest> run = FromProto(request);
    if (!run.ok()) {
      stream_->Fail(run.status());
      return;
    }
    posted_ = true;
    events_->on_run(*std::move(run), stream_);
  }

  void Write(v1::RunAttemptEvent event) {
    out_ = std::move(event);
    StartWrite(&out_);
  }

 private:
  void OnWriteDone(bool ok) override { stream_->WriteDone(ok); }
  void OnCancel() override { stream_->Cancelled(); }
  void OnDone() override {
    stream_->Forget();
    if (posted_) events_->on_run_closed(key_, stream_);
    if (events_->gate != nullptr) events_->gate->Leave();
    delete this;
  }

  const HeadEvents* const events_;
  const std::shared_ptr<AttemptStream> stream_;
  AttemptKey key_;
  bool posted_ = false;
  v1::RunAttemptEvent out_;  // Belongs to the write under way.
};

void AttemptStream::Send(v1::RunAttemptEvent event) {
  {
    absl::MutexLock lock(&mu_);
    if (!queue_.ending() && !queue_.Push(std::move(event))) {
      EndWith(MakeFailure(FailureKind::kOverloaded, "the stream is not read"), true);
    }
  }
  Pump();
}

void AttemptStream::End(const AttemptEnd& end) {
  if (!end.status.ok()) {
    Fail(end.status);
    return;
  }
  {
    absl::MutexLock lock(&mu_);
    if (queue_.ending()) return;
    if (queue_.Push(ToProto(end))) {
      EndWith(absl::OkStatus(), false);
    } else {
      EndWith(MakeFailure(FailureKind::kOverloaded, "the stream is not read"), true);
    }
  }
  Pump();
}

void AttemptStream::Fail(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (queue_.ending()) return;
    EndWith(status, false);
  }
  Pump();
}

void AttemptStream::EndWith(const absl::Status& status, bool drop) {
  status_ = status;
  queue_.End(drop);
}

void AttemptStream::WriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    queue_.WriteDone(ok);
    if (!ok && !queue_.ending()) EndWith(MakeFailure(FailureKind::kCancelled, "hung up"), true);
  }
  Pump();
}

void AttemptStream::Cancelled() {
  {
    absl::MutexLock lock(&mu_);
    if (queue_.ending()) {
      queue_.End(true);
    } else {
      EndWith(MakeFailure(FailureKind::kCancelled, "the caller hung up"), true);
    }
  }
  Pump();
}

void AttemptStream::Pump() {
  RunCall* call = nullptr;
  std::optional<v1::RunAttemptEvent> next;
  absl::Status status;
  bool end = false;
  {
    absl::MutexLock lock(&mu_);
    if (call_ == nullptr) return;
    call = call_;
    next = queue_.TakeNext();
    if (!next) end = queue_.TakeEnd();
    status = status_;
  }
  // The call lives: it is done only after this write, or after this Finish.
  if (next) call->Write(*std::move(next));
  if (end) call->Finish(ToGrpcStatus(status));
}

void AttemptStream::Forget() {
  absl::MutexLock lock(&mu_);
  call_ = nullptr;
}

class HeadService : public v1::Head::WithCallbackMethod_RunAttempt<v1::Head::Service> {
 public:
  explicit HeadService(HeadEvents events) : events_(std::move(events)) {}

  grpc::ServerWriteReactor<v1::RunAttemptEvent>* RunAttempt(
      grpc::CallbackServerContext* /*context*/, const v1::RunAttemptRequest* request) override {
    auto* call = new RunCall(&events_);
    call->Start(*request);
    return call;
  }

 private:
  const HeadEvents events_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeHeadService(HeadEvents events) {
  return std::make_unique<HeadService>(std::move(events));
}

}  // namespace shardline
