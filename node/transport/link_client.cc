#include "node/transport/link_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/failure.h"
#include "base/log.h"
#include "node/transport/channel.h"
#include "node/transport/stage_conversion.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/link_codec.h"

namespace shardline {
namespace {

constexpr char kLinkMethod[] = "/shardline.v1.Shard/Link";

enum class Phase {
  kIdle,        // No call.
  kConnecting,  // Hello written, welcome awaited.
  kOpen,
  kEnding,  // The stream is over; OnDone is to come.
};

struct Unacked {
  uint64_t sequence = 0;
  uint64_t bytes = 0;
};

}  // namespace

struct LinkClient::State {
  State(LinkClientOptions options_in, LinkClientEvents events_in, const Clock* clock_in,
        CallCounter* calls_in)
      : options(std::move(options_in)),
        events(std::move(events_in)),
        clock(clock_in),
        calls(calls_in) {}

  // The next bundle that credits allow, if nobody is writing; the caller must write it.
  std::optional<LinkBundle> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (phase != Phase::kOpen || writing || waiting.empty()) return std::nullopt;
    const uint64_t bytes = waiting.front().payload->size();
    // A bundle larger than the whole window may go alone.
    const bool has_credit = unacked.size() < credit_bundles &&
                            (unacked.empty() || unacked_bytes + bytes <= credit_bytes);
    if (!has_credit) return std::nullopt;
    LinkBundle bundle = std::move(waiting.front());
    waiting.pop_front();
    waiting_bytes -= bytes;
    bundle.sequence = ++sequence;
    unacked.push_back({.sequence = sequence, .bytes = bytes});
    unacked_bytes += bytes;
    writing = true;
    return bundle;
  }

  // The call is over: nothing of it stays, and the next may start after a pause.
  void Reset(const absl::Status& lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    call = nullptr;
    phase = Phase::kIdle;
    writing = false;
    waiting.clear();
    waiting_bytes = 0;
    unacked.clear();
    unacked_bytes = 0;
    refusal = absl::OkStatus();
    last_lost = lost;
    pause = std::clamp(2 * pause, options.pause_min, options.pause_max);
    dial_after = clock->Now() + pause;
  }

  absl::Status Lost(const absl::Status& cause) const {
    FailureDetail detail = FailureDetailOf(cause);
    if (detail.kind == FailureKind::kNone) detail.kind = FailureKind::kStreamReset;
    if (detail.node.empty()) detail.node = options.peer.node;
    return MakeFailure(detail,
                       absl::StrCat("link to ", options.peer.node.value(), ": ", cause.message()));
  }

  const LinkClientOptions options;
  const LinkClientEvents events;
  const Clock* const clock;
  CallCounter* const calls;

  absl::Mutex mu;
  Call* call ABSL_GUARDED_BY(mu) = nullptr;  // Emptied by OnDone, where it deletes itself.
  Phase phase ABSL_GUARDED_BY(mu) = Phase::kIdle;
  bool closed ABSL_GUARDED_BY(mu) = false;
  bool writing ABSL_GUARDED_BY(mu) = false;
  Instant connecting_since ABSL_GUARDED_BY(mu);
  std::deque<LinkBundle> waiting ABSL_GUARDED_BY(mu);
  uint64_t waiting_bytes ABSL_GUARDED_BY(mu) = 0;
  std::deque<Unacked> unacked ABSL_GUARDED_BY(mu);
  uint64_t unacked_bytes ABSL_GUARDED_BY(mu) = 0;
  uint64_t sequence ABSL_GUARDED_BY(mu) = 0;
  uint32_t credit_bundles ABSL_GUARDED_BY(mu) = 0;
  uint64_t credit_bytes ABSL_GUARDED_BY(mu) = 0;
  absl::Status refusal ABSL_GUARDED_BY(mu);    // Why this call ends, if the peer said.
  absl::Status last_lost ABSL_GUARDED_BY(mu);  // Why the last call ended.
  Instant dial_after ABSL_GUARDED_BY(mu);
  absl::Duration pause ABSL_GUARDED_BY(mu) = absl::ZeroDuration();
};

// One stream. Holds itself open (AddHold) until the peer's side has ended and no write is under
// way, so that no operation is ever started on a finished call.
class LinkClient::Call : public grpc::ClientBidiReactor<grpc::ByteBuffer, v1::LinkSignal> {
 public:
  explicit Call(std::shared_ptr<State> state)
      : state_(std::move(state)), channel_(MakeChannel(state_->options.address)), stub_(channel_) {
    state_->calls->Add(channel_);
  }

  ~Call() override { state_->calls->Remove(); }

  void Start() {
    out_ = EncodeHello(state_->options.hello);
    stub_.PrepareBidiStreamingCall(&context_, kLinkMethod, grpc::StubOptions(), this);
    AddHold();
    StartRead(&signal_);
    StartWrite(&out_);
    StartCall();
  }

  void TryCancel() { context_.TryCancel(); }

  // REQUIRES: State::writing was set for this bundle.
  void Write(const LinkBundle& bundle) {
    out_ = EncodeBundle(bundle);
    StartWrite(&out_);
  }

 private:
  void OnWriteDone(bool ok) override {
    out_.Clear();
    std::optional<LinkBundle> next;
    bool release = false;
    {
      absl::MutexLock lock(&state_->mu);
      state_->writing = false;
      if (ok) next = state_->TakeNext();
      release = state_->phase == Phase::kEnding;
    }
    if (next) Write(*next);
    if (release) RemoveHold();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      bool release = false;
      {
        absl::MutexLock lock(&state_->mu);
        state_->phase = Phase::kEnding;
        release = !state_->writing;
      }
      if (release) RemoveHold();
      return;
    }
    OnSignal();
    StartRead(&signal_);
  }

  void OnSignal() {
    switch (signal_.signal_case()) {
      case v1::LinkSignal::kWelcome:
        OnWelcome(signal_.welcome());
        break;
      case v1::LinkSignal::kAck:
        OnAck(signal_.ack().sequence());
        break;
      case v1::LinkSignal::kFailure:
        OnRowFailure();
        break;
      case v1::LinkSignal::kRefusal: {
        absl::MutexLock lock(&state_->mu);
        state_->refusal = FromProto(signal_.refusal());
        break;
      }
      case v1::LinkSignal::kPong:
      case v1::LinkSignal::kStatus:
      case v1::LinkSignal::SIGNAL_NOT_SET:
        break;
    }
  }

  void OnWelcome(const v1::LinkWelcome& welcome) {
    std::optional<LinkBundle> next;
    {
      absl::MutexLock lock(&state_->mu);
      if (state_->phase != Phase::kConnecting) return;
      state_->phase = Phase::kOpen;
      state_->pause = absl::ZeroDuration();
      state_->credit_bundles = std::max(welcome.credit_bundles(), 1U);
      state_->credit_bytes = welcome.credit_bytes();
      next = state_->TakeNext();
    }
    if (next) Write(*next);
  }

  void OnAck(uint64_t sequence) {
    std::optional<LinkBundle> next;
    {
      absl::MutexLock lock(&state_->mu);
      std::deque<Unacked>& unacked = state_->unacked;
      while (!unacked.empty() && unacked.front().sequence <= sequence) {
        state_->unacked_bytes -= unacked.front().bytes;
        unacked.pop_front();
      }
      next = state_->TakeNext();
    }
    if (next) Write(*next);
  }

  void OnRowFailure() {
    {
      absl::MutexLock lock(&state_->mu);
      if (state_->closed) return;
    }
    state_->events.on_row_failure(FromProto(signal_.failure()));
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status lost;
    bool closed = false;
    {
      absl::MutexLock lock(&state_->mu);
      absl::Status cause = state_->refusal;
      if (cause.ok()) cause = FromGrpcStatus(status);
      if (cause.ok()) cause = absl::UnavailableError("the peer ended the stream");
      lost = state_->Lost(cause);
      closed = state_->closed;
      state_->Reset(lost);
    }
    if (!closed) {
      LogWarning("link lost", {{"peer", state_->options.peer.node}, {"reason", lost}});
      state_->events.on_lost(lost);
    }
    delete this;
  }

  const std::shared_ptr<State> state_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::LinkSignal> stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer out_;   // Belongs to whoever set State::writing.
  v1::LinkSignal signal_;  // Belongs to the read under way.
};

LinkClient::LinkClient(LinkClientOptions options, LinkClientEvents events, const Clock* clock,
                       CallCounter* calls)
    : state_(std::make_shared<State>(std::move(options), std::move(events), clock, calls)) {}

LinkClient::~LinkClient() { Close(); }

absl::Status LinkClient::Send(StageBundle bundle) {
  State& state = *state_;
  LinkBundle link = ToLinkBundle(std::move(bundle), state.options.hidden_dim);
  const uint64_t bytes = link.payload->size();
  std::optional<LinkBundle> next;
  Call* call = nullptr;
  bool start = false;
  {
    absl::MutexLock lock(&state.mu);
    const Instant now = state.clock->Now();
    if (state.closed) return state.Lost(absl::UnavailableError("the link is closed"));
    if (state.phase == Phase::kEnding) {
      return state.Lost(absl::UnavailableError("the stream has just ended"));
    }
    if (state.phase == Phase::kIdle && now < state.dial_after) return state.last_lost;
    if (state.phase == Phase::kConnecting &&
        now > state.connecting_since + state.options.welcome_timeout) {
      state.call->TryCancel();
      return state.Lost(absl::UnavailableError("no welcome"));
    }
    if (state.waiting.size() >= state.options.bundles_waiting_max ||
        state.waiting_bytes + bytes > state.options.bytes_waiting_max) {
      return MakeFailure(
          {.kind = FailureKind::kOverloaded, .node = state.options.peer.node},
          absl::StrCat("link to ", state.options.peer.node.value(), ": ", state.waiting.size(),
                       " bundles of ", state.waiting_bytes, " bytes wait for credit"));
    }
    state.waiting.push_back(std::move(link));
    state.waiting_bytes += bytes;
    if (state.phase == Phase::kIdle) {
      state.call = new Call(state_);
      state.phase = Phase::kConnecting;
      state.connecting_since = now;
      state.sequence = 0;
      state.writing = true;  // The hello; its OnWriteDone clears it.
      start = true;
    } else {
      next = state.TakeNext();
    }
    call = state.call;
  }
  // The call lives: its hold falls only after the write that `writing` announced.
  if (start) call->Start();
  if (next) call->Write(*next);
  return absl::OkStatus();
}

void LinkClient::Close() {
  absl::MutexLock lock(&state_->mu);
  state_->closed = true;
  state_->waiting.clear();
  state_->waiting_bytes = 0;
  if (state_->call != nullptr) state_->call->TryCancel();
}

}  // namespace shardline
