#include "node/transport/shard_service.h"

#include <grpcpp/alarm.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/failure.h"
#include "base/log.h"
#include "node/transport/stage_conversion.h"
#include "node/transport/stream_queue.h"
#include "proto/wire/failure_conversion.h"
#include "shardline/v1/link.grpc.pb.h"

namespace shardline {
namespace {

// Row failures that may wait on one link; a peer that does not read them is cut off.
constexpr size_t kSignalsWaitingMax = 8192;
// Questions on one connection: its sender asks once, when the connection stands.
constexpr int kInspectsMax = 64;

class LinkCall;

// Acks are cumulative: the newest one says it all, so at most one waits.
class AcceptedLink : public LinkHandle, public std::enable_shared_from_this<AcceptedLink> {
 public:
  AcceptedLink(LinkCall* call, const LinkWindow& window, bool takes_plans)
      : window_(window), takes_plans_(takes_plans), call_(call), queue_(kSignalsWaitingMax) {}

  const StagePeer& peer() const override { return peer_; }
  uint64_t connection() const override { return connection_; }
  const LinkIdentity& accepted_by() const override { return accepted_by_; }
  std::vector<BundleRow> TakePlan() override;
  void Welcome() override;
  void Ack(uint64_t sequence) override;
  void SendRowFailure(const RowFailure& failure) override;
  void SendStatus(const std::vector<InspectStatus>& statuses) override;
  void Close(const absl::Status& reason) override;

  // Before anybody else knows the handle.
  void SetEnds(const LinkAgreement& agreement, const LinkIdentity& self) {
    peer_ = agreement.peer;
    protocol_ = agreement.protocol;
    connection_ = agreement.connection;
    accepted_by_ = self;
  }

  void Pong(uint64_t nonce);
  // True if no plan waited to be taken.
  bool PutPlan(std::vector<BundleRow> rows);
  // For the acks: what a bundle took of the window.
  void BundleArrived(uint64_t bytes);
  void WriteDone(bool ok);
  // The peer is done, or gone (`drop`): end the stream when all is written.
  void EndStream(bool drop);
  // From OnDone: the call is about to delete itself.
  void Forget();

 private:
  void Send(const v1::LinkSignal& signal);
  void QueueAck() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes and finishes what is due. Takes over the lock.
  void Pump() ABSL_LOCKS_EXCLUDED(mu_);
  void ArmAlarm(absl::Duration delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnAlarm();

  const LinkWindow window_;
  const bool takes_plans_;
  StagePeer peer_;
  uint32_t protocol_ = 0;
  uint64_t connection_ = 0;
  LinkIdentity accepted_by_;

  absl::Mutex mu_;
  LinkCall* call_ ABSL_GUARDED_BY(mu_);  // Emptied by OnDone.
  StreamQueue<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mu_);
  uint64_t taken_ ABSL_GUARDED_BY(mu_) = 0;  // The highest sequence to acknowledge.
  uint64_t acked_ ABSL_GUARDED_BY(mu_) = 0;  // The highest that was.
  uint64_t bytes_since_ack_ ABSL_GUARDED_BY(mu_) = 0;
  Instant last_bundle_ ABSL_GUARDED_BY(mu_);
  std::vector<BundleRow> plan_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mu_);  // Set while an ack is owed.
};

class LinkCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  LinkCall(const ShardEvents* events, const LinkLimits& limits, const LinkWindow& window)
      : events_(events),
        limits_(limits),
        handle_(std::make_shared<AcceptedLink>(this, window, events->on_plan != nullptr)) {
    StartRead(&in_);
  }

  void Write(grpc::ByteBuffer bytes) {
    out_ = std::move(bytes);
    StartWrite(&out_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      handle_->EndStream(false);
      return;
    }
    absl::StatusOr<LinkInput> input = DecodeFrame(in_, limits_);
    in_.Clear();
    const absl::Status status = input.ok() ? Take(*std::move(input)) : input.status();
    if (!status.ok()) {
      LogWarning("link refused", {{"peer", handle_->peer().node}, {"reason", status}});
      handle_->Close(status);
      return;  // Nothing more is read; OnDone follows the end of the stream.
    }
    StartRead(&in_);
  }

  absl::Status Take(LinkInput input) {
    if (auto* hello = std::get_if<v1::LinkHello>(&input)) return TakeHello(*hello);
    if (!open_) return MakeFailure(FailureKind::kMalformedBundle, "the first frame is no hello");
    if (auto* ping = std::get_if<v1::LinkPing>(&input)) {
      handle_->Pong(ping->nonce());
      return absl::OkStatus();
    }
    if (auto* inspect = std::get_if<v1::LinkInspect>(&input)) {
      if (++inspects_ > kInspectsMax) {
        return MakeFailure(FailureKind::kMalformedBundle, "too many inspections");
      }
      events_->on_inspect(handle_, FromProto(*inspect));
      return absl::OkStatus();
    }
    if (auto* plan = std::get_if<LinkPlan>(&input)) {
      const bool is_news = events_->on_plan && handle_->PutPlan(FromLinkRows(plan->rows));
      if (is_news) events_->on_plan(handle_);
      return absl::OkStatus();
    }
    return TakeBundle(std::get<LinkBundle>(std::move(input)));
  }

  absl::Status TakeHello(const v1::LinkHello& hello) {
    if (open_) return MakeFailure(FailureKind::kMalformedBundle, "a second hello");
    const std::optional<LinkIdentity> self = events_->identity();
    const absl::StatusOr<LinkAgreement> agreement = CheckHello(hello, self);
    if (!agreement.ok()) return agreement.status();
    open_ = true;
    limits_.hidden_dim = static_cast<uint32_t>(self->hidden_dim);
    handle_->SetEnds(*agreement, *self);
    events_->on_link_opened(handle_);
    return absl::OkStatus();
  }

  absl::Status TakeBundle(LinkBundle bundle) {
    if (bundle.sequence != sequence_ + 1) {
      return MakeFailure(FailureKind::kMalformedBundle,
                         absl::StrCat("bundle ", bundle.sequence, " after ", sequence_));
    }
    sequence_ = bundle.sequence;
    handle_->BundleArrived(bundle.payload->size());
    events_->on_bundle(handle_, bundle.sequence, FromLinkBundle(std::move(bundle)));
    return absl::OkStatus();
  }

  void OnWriteDone(bool ok) override {
    out_.Clear();
    handle_->WriteDone(ok);
  }

  void OnCancel() override { handle_->EndStream(true); }

  void OnDone() override {
    handle_->Forget();
    if (open_) events_->on_link_closed(handle_);
    delete this;
  }

  const ShardEvents* const events_;
  LinkLimits limits_;
  const std::shared_ptr<AcceptedLink> handle_;
  grpc::ByteBuffer in_;   // Belongs to the read under way.
  grpc::ByteBuffer out_;  // Belongs to the write under way.
  bool open_ = false;     // Reads come one at a time, so these need no lock.
  uint64_t sequence_ = 0;
  int inspects_ = 0;
};

void AcceptedLink::Welcome() {
  v1::LinkSignal signal;
  signal.mutable_welcome()->set_protocol(protocol_);
  signal.mutable_welcome()->set_features(takes_plans_ ? kFeaturePlans : 0);
  signal.mutable_welcome()->set_credit_bundles(window_.credit_bundles);
  signal.mutable_welcome()->set_credit_bytes(window_.credit_bytes);
  Send(signal);
}

bool AcceptedLink::PutPlan(std::vector<BundleRow> rows) {
  absl::MutexLock lock(&mu_);
  const bool was_taken = plan_.empty();
  plan_ = std::move(rows);
  return was_taken;
}

std::vector<BundleRow> AcceptedLink::TakePlan() {
  absl::MutexLock lock(&mu_);
  return std::exchange(plan_, {});
}

void AcceptedLink::Pong(uint64_t nonce) {
  v1::LinkSignal signal;
  signal.mutable_pong()->set_nonce(nonce);
  Send(signal);
}

void AcceptedLink::SendRowFailure(const RowFailure& failure) {
  v1::LinkSignal signal;
  *signal.mutable_failure() = ToProto(failure);
  Send(signal);
}

void AcceptedLink::SendStatus(const std::vector<InspectStatus>& statuses) {
  v1::LinkSignal signal;
  *signal.mutable_status() = ToProto(statuses);
  Send(signal);
}

void AcceptedLink::Close(const absl::Status& reason) {
  v1::LinkSignal signal;
  *signal.mutable_refusal() = ToProto(reason);
  {
    absl::MutexLock lock(&mu_);
    // If even the refusal finds no room, the stream just ends.
    (void)queue_.Push(EncodeSignal(signal));
    queue_.End(false);
  }
  Pump();
}

void AcceptedLink::BundleArrived(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  bytes_since_ack_ += bytes;
  last_bundle_ = SystemClock()->Now();
}

void AcceptedLink::Ack(uint64_t sequence) {
  {
    absl::MutexLock lock(&mu_);
    if (sequence <= taken_ || call_ == nullptr) return;
    taken_ = sequence;
    const bool half_used = 2 * (taken_ - acked_) >= window_.credit_bundles ||
                           2 * bytes_since_ack_ >= window_.credit_bytes;
    if (half_used) {
      QueueAck();
    } else if (alarm_ == nullptr) {
      ArmAlarm(window_.ack_delay);
    }
  }
  Pump();
}

void AcceptedLink::ArmAlarm(absl::Duration delay) {
  const gpr_timespec deadline =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_micros(absl::ToInt64Microseconds(delay), GPR_TIMESPAN));
  // A new alarm each time, and a weak reference: an alarm keeps its function after it has run.
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(deadline, [weak = weak_from_this()](bool /*ok*/) {
    if (const std::shared_ptr<AcceptedLink> self = weak.lock()) self->OnAlarm();
  });
}

void AcceptedLink::OnAlarm() {
  {
    absl::MutexLock lock(&mu_);
    if (call_ == nullptr) return;
    const absl::Duration left = last_bundle_ + window_.ack_delay - SystemClock()->Now();
    if (left > absl::ZeroDuration() && taken_ > acked_) {
      ArmAlarm(left);
    } else {
      alarm_.reset();
      QueueAck();
    }
  }
  Pump();
}

void AcceptedLink::QueueAck() {
  if (taken_ == acked_) return;
  v1::LinkSignal signal;
  signal.mutable_ack()->set_sequence(taken_);
  if (!queue_.Push(EncodeSignal(signal))) return;
  acked_ = taken_;
  bytes_since_ack_ = 0;
}

void AcceptedLink::Send(const v1::LinkSignal& signal) {
  {
    absl::MutexLock lock(&mu_);
    if (call_ == nullptr || queue_.ending()) return;
    if (!queue_.Push(EncodeSignal(signal))) {
      LogWarning("link cut: its peer reads no signals", {{"peer", peer_.node}});
      queue_.End(true);
    }
  }
  Pump();
}

void AcceptedLink::WriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    queue_.WriteDone(ok);
  }
  Pump();
}

void AcceptedLink::EndStream(bool drop) {
  {
    absl::MutexLock lock(&mu_);
    queue_.End(drop);
  }
  Pump();
}

void AcceptedLink::Pump() {
  LinkCall* call = nullptr;
  std::optional<grpc::ByteBuffer> next;
  bool end = false;
  {
    absl::MutexLock lock(&mu_);
    if (call_ == nullptr) return;
    call = call_;
    next = queue_.TakeNext();
    if (!next) end = queue_.TakeEnd();
  }
  // The call lives: it is done only after this write, or after this Finish.
  if (next) call->Write(*std::move(next));
  if (end) call->Finish(grpc::Status::OK);
}

void AcceptedLink::Forget() {
  absl::MutexLock lock(&mu_);
  call_ = nullptr;
  alarm_.reset();
}

using ShardServiceBase = v1::Shard::WithRawCallbackMethod_Link<v1::Shard::WithCallbackMethod_Open<
    v1::Shard::WithCallbackMethod_Fence<v1::Shard::WithCallbackMethod_Pulse<v1::Shard::Service>>>>;

class ShardService : public ShardServiceBase {
 public:
  ShardService(ShardEvents events, const LinkLimits& limits, const LinkWindow& window)
      : events_(std::move(events)), limits_(limits), window_(window) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Link(
      grpc::CallbackServerContext* /*context*/) override {
    return new LinkCall(&events_, limits_, window_);
  }

  grpc::ServerBidiReactor<v1::PeerBeat, v1::PeerBeat>* Pulse(
      grpc::CallbackServerContext* /*context*/) override {
    return events_.on_pulse();
  }

  grpc::ServerUnaryReactor* Open(grpc::CallbackServerContext* context,
                                 const v1::OpenRequest* request, v1::OpenReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (events_.authorise_open) {
      const absl::Status authorised = events_.authorise_open(*request);
      if (!authorised.ok()) {
        reactor->Finish(ToGrpcStatus(authorised));
        return reactor;
      }
    }
    absl::StatusOr<OpenAttempt> open = FromProto(*request);
    if (!open.ok()) {
      reactor->Finish(ToGrpcStatus(open.status()));
      return reactor;
    }
    events_.on_open(*std::move(open), [reactor, reply](absl::StatusOr<OpenReply> answer) {
      if (answer.ok()) *reply = ToProto(*answer);
      reactor->Finish(ToGrpcStatus(answer.status()));
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Fence(grpc::CallbackServerContext* context,
                                  const v1::FenceRequest* request, v1::FenceReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (events_.authorise_fence) {
      const absl::Status authorised = events_.authorise_fence(*request);
      if (!authorised.ok()) {
        reactor->Finish(ToGrpcStatus(authorised));
        return reactor;
      }
    }
    const int32_t kind = request->reason_kind();
    const FenceOrder order = {.session = SessionId(request->session()),
                              .epoch = Epoch(request->epoch()),
                              .term = Term(request->term()),
                              .reason = kind > 0 && kind < kFailureKindCount
                                            ? static_cast<FailureKind>(kind)
                                            : FailureKind::kNone};
    events_.on_fence(order, [reactor, reply](FenceReply answer) {
      *reply = ToProto(answer);
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

 private:
  const ShardEvents events_;
  const LinkLimits limits_;
  const LinkWindow window_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeShardService(ShardEvents events, const LinkLimits& limits,
                                                const LinkWindow& window) {
  return std::make_unique<ShardService>(std::move(events), limits, window);
}

}  // namespace shardline
