#include "node/transport/link_client.h"

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
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
  kPausing,     // No call until the alarm.
  kConnecting,  // Hello written, welcome awaited.
  kOpen,
  kEnding,  // The stream is over; OnDone is to come.
};

// Rises over all connections of this process, so over those of each pair of peers.
uint64_t NextConnection() {
  static std::atomic<uint64_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// One frame to write.
struct Outgoing {
  grpc::ByteBuffer frame;
  // Instead of `frame`; encoded outside the lock.
  std::optional<LinkBundle> bundle;
  std::optional<LinkPlan> plan;
};

struct Unacked {
  uint64_t sequence = 0;
  uint64_t bytes = 0;
};

}  // namespace

struct LinkClient::State : std::enable_shared_from_this<LinkClient::State> {
  State(LinkClientOptions options_in, LinkClientEvents events_in, const Clock* clock_in,
        CallCounter* calls_in)
      : options(std::move(options_in)),
        events(std::move(events_in)),
        clock(clock_in),
        calls(calls_in) {}

  // The next frame that may be written, if nobody is writing; the caller must write it.
  std::optional<Outgoing> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (phase != Phase::kOpen || writing) return std::nullopt;
    if (!inspects.empty()) {
      Outgoing next{.frame = std::move(inspects.front())};
      inspects.pop_front();
      writing = true;
      return next;
    }
    if (waiting.empty() && plan) {
      Outgoing next{.plan = std::exchange(plan, std::nullopt)};
      writing = true;
      return next;
    }
    if (waiting.empty()) return std::nullopt;
    const uint64_t bytes = waiting.front().payload->size();
    // A bundle larger than the whole window may go alone.
    const bool has_credit = unacked.size() < credit_bundles &&
                            (unacked.empty() || unacked_bytes + bytes <= credit_bytes);
    if (!has_credit) return std::nullopt;
    Outgoing next{.bundle = std::move(waiting.front())};
    waiting.pop_front();
    waiting_bytes -= bytes;
    next.bundle->sequence = ++sequence;
    unacked.push_back({.sequence = sequence, .bytes = bytes});
    unacked_bytes += bytes;
    writing = true;
    return next;
  }

  // A new call, if it is due now; the caller must start it. Else the alarm is set, or nothing is
  // to be done.
  Call* BeginDial() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Call* NewCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void SetAlarm(absl::Duration delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void OnAlarm(uint64_t number) ABSL_LOCKS_EXCLUDED(mu);

  // The call is over: nothing of it stays, and the next may start after a pause.
  void Reset() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    call = nullptr;
    phase = Phase::kIdle;
    writing = false;
    loss_unheard = true;
    inspects.clear();
    plan.reset();
    takes_plans = false;
    waiting.clear();
    waiting_bytes = 0;
    unacked.clear();
    unacked_bytes = 0;
    refusal = absl::OkStatus();
    alarm.reset();
    dial_after = clock->Now() + pause;
    pause = std::clamp(2 * pause, options.pause_min, options.pause_max);
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
  bool loss_unheard ABSL_GUARDED_BY(mu) = false;  // Since the last call ended.
  uint64_t connection ABSL_GUARDED_BY(mu) = 0;    // Of the call.
  std::deque<grpc::ByteBuffer> inspects ABSL_GUARDED_BY(mu);
  bool takes_plans ABSL_GUARDED_BY(mu) = false;      // The peer does.
  std::optional<LinkPlan> plan ABSL_GUARDED_BY(mu);  // Of the bundle after all in `waiting`.
  std::deque<LinkBundle> waiting ABSL_GUARDED_BY(mu);
  uint64_t waiting_bytes ABSL_GUARDED_BY(mu) = 0;
  std::deque<Unacked> unacked ABSL_GUARDED_BY(mu);
  uint64_t unacked_bytes ABSL_GUARDED_BY(mu) = 0;
  uint64_t sequence ABSL_GUARDED_BY(mu) = 0;
  uint32_t credit_bundles ABSL_GUARDED_BY(mu) = 0;
  uint64_t credit_bytes ABSL_GUARDED_BY(mu) = 0;
  absl::Status refusal ABSL_GUARDED_BY(mu);  // Why this call ends, if the peer said.
  Instant dial_after ABSL_GUARDED_BY(mu);
  // The first dial after a connection that stood goes at once.
  absl::Duration pause ABSL_GUARDED_BY(mu) = absl::ZeroDuration();
  std::unique_ptr<grpc::Alarm> alarm ABSL_GUARDED_BY(mu);  // Ends a pause, or a dial.
  uint64_t alarm_number ABSL_GUARDED_BY(mu) = 0;
};

// One stream. Holds itself open (AddHold) until the peer's side has ended and no write is under
// way, so that no operation is ever started on a finished call.
class LinkClient::Call : public grpc::ClientBidiReactor<grpc::ByteBuffer, v1::LinkSignal> {
 public:
  Call(std::shared_ptr<State> state, uint64_t connection)
      : state_(std::move(state)),
        connection_(connection),
        channel_(MakeChannel(state_->options.address)),
        stub_(channel_) {
    state_->calls->Add(channel_);
  }

  ~Call() override { state_->calls->Remove(); }

  void Start() {
    v1::LinkHello hello = state_->options.hello;
    hello.set_connection(connection_);
    out_ = EncodeHello(hello);
    stub_.PrepareBidiStreamingCall(&context_, kLinkMethod, grpc::StubOptions(), this);
    AddHold();
    StartRead(&signal_);
    StartWrite(&out_);
    StartCall();
  }

  void TryCancel() { context_.TryCancel(); }

  // REQUIRES: State::writing was set for this frame.
  void Write(Outgoing next) {
    if (next.bundle) {
      out_ = EncodeBundle(*next.bundle);
    } else {
      out_ = next.plan ? EncodePlan(*next.plan) : std::move(next.frame);
    }
    StartWrite(&out_);
  }

 private:
  void OnWriteDone(bool ok) override {
    out_.Clear();
    std::optional<Outgoing> next;
    bool release = false;
    {
      absl::MutexLock lock(&state_->mu);
      state_->writing = false;
      if (ok) next = state_->TakeNext();
      release = state_->phase == Phase::kEnding;
    }
    if (next) Write(*std::move(next));
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
      case v1::LinkSignal::kStatus:
        if (!IsClosed()) state_->events.on_status(FromProto(signal_.status()));
        break;
      case v1::LinkSignal::kPong:
      case v1::LinkSignal::SIGNAL_NOT_SET:
        break;
    }
  }

  void OnWelcome(const v1::LinkWelcome& welcome) {
    std::optional<Outgoing> next;
    bool closed = false;
    {
      absl::MutexLock lock(&state_->mu);
      if (state_->phase != Phase::kConnecting) return;
      state_->phase = Phase::kOpen;
      state_->pause = absl::ZeroDuration();
      state_->alarm.reset();
      closed = state_->closed;
      state_->credit_bundles = std::max(welcome.credit_bundles(), 1U);
      state_->credit_bytes = welcome.credit_bytes();
      state_->takes_plans = (welcome.features() & kFeaturePlans) != 0;
      next = state_->TakeNext();
    }
    if (next) Write(*std::move(next));
    if (!closed) state_->events.on_up();
  }

  void OnAck(uint64_t sequence) {
    std::optional<Outgoing> next;
    {
      absl::MutexLock lock(&state_->mu);
      std::deque<Unacked>& unacked = state_->unacked;
      while (!unacked.empty() && unacked.front().sequence <= sequence) {
        state_->unacked_bytes -= unacked.front().bytes;
        unacked.pop_front();
      }
      next = state_->TakeNext();
    }
    if (next) Write(*std::move(next));
  }

  void OnRowFailure() {
    if (!IsClosed()) state_->events.on_row_failure(FromProto(signal_.failure()));
  }

  bool IsClosed() const {
    absl::MutexLock lock(&state_->mu);
    return state_->closed;
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
      state_->Reset();
    }
    if (!closed) {
      LogWarning("link lost", {{"peer", state_->options.peer.node}, {"reason", lost}});
      state_->events.on_lost(lost);
    }
    delete this;
  }

  const std::shared_ptr<State> state_;
  const uint64_t connection_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::LinkSignal> stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer out_;   // Belongs to whoever set State::writing.
  v1::LinkSignal signal_;  // Belongs to the read under way.
};

LinkClient::Call* LinkClient::State::BeginDial() {
  if (phase != Phase::kIdle || closed) return nullptr;
  const absl::Duration left = dial_after - clock->Now();
  if (left <= absl::ZeroDuration()) return NewCall();
  phase = Phase::kPausing;
  SetAlarm(left);
  return nullptr;
}

LinkClient::Call* LinkClient::State::NewCall() {
  connection = NextConnection();
  call = new Call(shared_from_this(), connection);
  phase = Phase::kConnecting;
  sequence = 0;
  writing = true;  // The hello; its OnWriteDone clears it.
  SetAlarm(options.welcome_timeout);
  return call;
}

void LinkClient::State::SetAlarm(absl::Duration delay) {
  const gpr_timespec deadline =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_micros(absl::ToInt64Microseconds(delay) + 1, GPR_TIMESPAN));
  // A new alarm each time, and a weak reference: an alarm keeps its function after it has run.
  alarm = std::make_unique<grpc::Alarm>();
  alarm->Set(deadline, [weak = weak_from_this(), number = ++alarm_number](bool ok) {
    const std::shared_ptr<State> self = weak.lock();
    if (ok && self != nullptr) self->OnAlarm(number);
  });
}

void LinkClient::State::OnAlarm(uint64_t number) {
  Call* started = nullptr;
  {
    absl::MutexLock lock(&mu);
    if (closed || number != alarm_number) return;
    if (phase == Phase::kPausing) started = NewCall();
    if (phase == Phase::kConnecting && started == nullptr) {
      refusal = MakeFailure(
          FailureKind::kStreamReset,
          absl::StrCat("no welcome in ", absl::FormatDuration(options.welcome_timeout)));
      call->TryCancel();
    }
  }
  if (started != nullptr) started->Start();
}

LinkClient::LinkClient(LinkClientOptions options, LinkClientEvents events, const Clock* clock,
                       CallCounter* calls)
    : state_(std::make_shared<State>(std::move(options), std::move(events), clock, calls)) {}

LinkClient::~LinkClient() { Close(); }

absl::Status LinkClient::Send(StageBundle bundle) {
  State& state = *state_;
  LinkBundle link = ToLinkBundle(std::move(bundle), state.options.hidden_dim);
  const uint64_t bytes = link.payload->size();
  std::optional<Outgoing> next;
  Call* started = nullptr;
  Call* call = nullptr;
  {
    absl::MutexLock lock(&state.mu);
    if (state.closed) return state.Lost(absl::UnavailableError("the link is closed"));
    // The loss that the owner hears of next is this bundle's too.
    if (state.loss_unheard || state.phase == Phase::kEnding) return absl::OkStatus();
    if (state.waiting.size() >= state.options.bundles_waiting_max ||
        state.waiting_bytes + bytes > state.options.bytes_waiting_max) {
      return MakeFailure(
          {.kind = FailureKind::kOverloaded, .node = state.options.peer.node},
          absl::StrCat("link to ", state.options.peer.node.value(), ": ", state.waiting.size(),
                       " bundles of ", state.waiting_bytes, " bytes wait for credit"));
    }
    state.plan.reset();  // What it announces is here.
    state.waiting.push_back(std::move(link));
    state.waiting_bytes += bytes;
    started = state.BeginDial();
    next = state.TakeNext();
    call = state.call;
  }
  // The call lives: its hold falls only after the write that `writing` announced.
  if (started != nullptr) started->Start();
  if (next) call->Write(*std::move(next));
  return absl::OkStatus();
}

void LinkClient::SendPlan(const std::vector<BundleRow>& rows) {
  std::optional<Outgoing> next;
  Call* call = nullptr;
  {
    absl::MutexLock lock(&state_->mu);
    if (state_->phase != Phase::kOpen || state_->loss_unheard || !state_->takes_plans) return;
    state_->plan = LinkPlan{.rows = ToLinkRows(rows)};
    next = state_->TakeNext();
    call = state_->call;
  }
  if (next) call->Write(*std::move(next));
}

void LinkClient::Inspect(const std::vector<InspectRow>& rows) {
  std::optional<Outgoing> next;
  Call* call = nullptr;
  {
    absl::MutexLock lock(&state_->mu);
    if (state_->phase != Phase::kOpen || state_->loss_unheard) return;
    for (size_t at = 0; at < rows.size(); at += kInspectRowsMax) {
      const size_t count = std::min(rows.size() - at, static_cast<size_t>(kInspectRowsMax));
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(at);
      state_->inspects.push_back(EncodeInspect(
          ToProto(std::vector<InspectRow>(first, first + static_cast<std::ptrdiff_t>(count)))));
    }
    next = state_->TakeNext();
    call = state_->call;
  }
  if (next) call->Write(*std::move(next));
}

void LinkClient::HearLoss() {
  absl::MutexLock lock(&state_->mu);
  state_->loss_unheard = false;
}

void LinkClient::Dial() {
  Call* started = nullptr;
  {
    absl::MutexLock lock(&state_->mu);
    started = state_->BeginDial();
  }
  if (started != nullptr) started->Start();
}

void LinkClient::Drop() {
  absl::MutexLock lock(&state_->mu);
  if (state_->call != nullptr) state_->call->TryCancel();
}

void LinkClient::Close() {
  absl::MutexLock lock(&state_->mu);
  state_->closed = true;
  state_->alarm.reset();
  state_->inspects.clear();
  state_->plan.reset();
  state_->waiting.clear();
  state_->waiting_bytes = 0;
  if (state_->call != nullptr) state_->call->TryCancel();
}

}  // namespace shardline
