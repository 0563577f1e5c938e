#include "node/transport/coordinator_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/failure.h"
#include "base/log.h"
#include "node/transport/channel.h"
#include "proto/wire/failure_conversion.h"
#include "shardline/v1/join.grpc.pb.h"

namespace shardline {
namespace {

// What a welcome may ask for.
constexpr int64_t kHeartbeatMsMin = 10;
constexpr int64_t kHeartbeatMsMax = 60'000;

}  // namespace

struct CoordinatorClient::State {
  State(CoordinatorClientOptions options_in, CoordinatorEvents events_in)
      : options(std::move(options_in)), events(std::move(events_in)) {}

  class Call;

  void Run();
  // Dials once; returns when that call is over.
  absl::Status RunCall();
  // Beats until the call is over or must be given up.
  void Beat(Call* call);
  // The message that is due, if no write is under way; beats first.
  std::optional<v1::NodeMessage> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const CoordinatorClientOptions options;
  const CoordinatorEvents events;
  // True if `lost` says that this node's id went to another process.
  bool IsReplaced(const absl::Status& lost) const;

  std::mt19937_64 random{std::random_device{}()};  // The thread's.

  absl::Mutex mu;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool call_over ABSL_GUARDED_BY(mu) = false;
  bool welcomed ABSL_GUARDED_BY(mu) = false;
  bool writing ABSL_GUARDED_BY(mu) = false;
  bool ending ABSL_GUARDED_BY(mu) = false;  // The peer's side is over: start no write.
  std::optional<v1::Heartbeat> beat ABSL_GUARDED_BY(mu);
  std::optional<v1::ShardReport> report ABSL_GUARDED_BY(mu);
  uint64_t echo ABSL_GUARDED_BY(mu) = 0;
  Instant heard ABSL_GUARDED_BY(mu);
  absl::Duration interval ABSL_GUARDED_BY(mu);
  absl::Duration lease ABSL_GUARDED_BY(mu);
  absl::Status refusal ABSL_GUARDED_BY(mu);
  absl::Status result ABSL_GUARDED_BY(mu);

  std::thread thread;
};

// One stream. Its hold falls when the peer's side has ended and no write is under way.
class CoordinatorClient::State::Call
    : public grpc::ClientBidiReactor<v1::NodeMessage, v1::CoordinatorMessage> {
 public:
  explicit Call(State* state)
      : state_(state), stub_(v1::Coordinator::NewStub(MakeChannel(state->options.address))) {}

  // REQUIRES: State::writing was set for the hello.
  void Start(v1::NodeHello hello) {
    *out_.mutable_hello() = std::move(hello);
    stub_->async()->Join(&context_, this);
    AddHold();
    StartRead(&in_);
    StartWrite(&out_);
    StartCall();
  }

  // REQUIRES: State::writing was set for this message.
  void Write(v1::NodeMessage message) {
    out_ = std::move(message);
    StartWrite(&out_);
  }

  void TryCancel() { context_.TryCancel(); }

 private:
  void OnWriteDone(bool ok) override {
    std::optional<v1::NodeMessage> next;
    bool release = false;
    {
      absl::MutexLock lock(&state_->mu);
      state_->writing = false;
      if (ok) next = state_->TakeNext();
      release = state_->ending;
    }
    if (next) Write(*std::move(next));
    if (release) RemoveHold();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      bool release = false;
      {
        absl::MutexLock lock(&state_->mu);
        state_->ending = true;
        release = !state_->writing;
      }
      if (release) RemoveHold();
      return;
    }
    OnMessage();
    StartRead(&in_);
  }

  void OnMessage() {
    {
      absl::MutexLock lock(&state_->mu);
      state_->heard = SystemClock()->Now();
    }
    switch (in_.message_case()) {
      case v1::CoordinatorMessage::kWelcome:
        OnWelcome(in_.welcome());
        break;
      case v1::CoordinatorMessage::kHeartbeat:
        OnHeartbeat(in_.heartbeat());
        break;
      case v1::CoordinatorMessage::kLoad:
        state_->events.on_load(in_.load());
        break;
      case v1::CoordinatorMessage::kUnload:
        state_->events.on_unload(in_.unload());
        break;
      case v1::CoordinatorMessage::kRefusal: {
        absl::MutexLock lock(&state_->mu);
        state_->refusal = FromProto(in_.refusal());
        break;
      }
      case v1::CoordinatorMessage::MESSAGE_NOT_SET:
        break;  // A newer coordinator's word.
    }
  }

  void OnHeartbeat(const v1::HeartbeatReply& reply) {
    {
      absl::MutexLock lock(&state_->mu);
      if (!state_->welcomed) return;
      state_->echo = reply.number();
    }
    if (state_->events.on_heartbeat) state_->events.on_heartbeat(reply);
  }

  void OnWelcome(const v1::NodeWelcome& welcome) {
    const absl::Status taken = state_->events.on_welcome(welcome);
    if (!taken.ok()) {
      {
        absl::MutexLock lock(&state_->mu);
        state_->refusal = taken;
      }
      context_.TryCancel();
      return;
    }
    absl::MutexLock lock(&state_->mu);
    const int64_t interval_ms =
        std::clamp(welcome.heartbeat_ms(), kHeartbeatMsMin, kHeartbeatMsMax);
    state_->interval = absl::Milliseconds(interval_ms);
    state_->lease = std::max(absl::Milliseconds(welcome.lease_ms()), 2 * state_->interval);
    state_->welcomed = true;
  }

  void OnDone(const grpc::Status& status) override {
    absl::MutexLock lock(&state_->mu);
    state_->result = state_->refusal.ok() ? FromGrpcStatus(status) : state_->refusal;
    // The thread deletes this call; nothing is touched after the lock falls.
    state_->call_over = true;
  }

  State* const state_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  grpc::ClientContext context_;
  v1::NodeMessage out_;        // Belongs to whoever set State::writing.
  v1::CoordinatorMessage in_;  // Belongs to the read under way.
};

std::optional<v1::NodeMessage> CoordinatorClient::State::TakeNext() {
  if (!welcomed || writing || ending) return std::nullopt;
  v1::NodeMessage message;
  if (beat) {
    *message.mutable_heartbeat() = *std::move(beat);
    message.mutable_heartbeat()->set_echo(echo);
    beat.reset();
  } else if (report) {
    *message.mutable_shard() = *std::move(report);
    report.reset();
  } else {
    return std::nullopt;
  }
  writing = true;
  return message;
}

void CoordinatorClient::State::Beat(Call* call) {
  const Instant dialled = SystemClock()->Now();
  uint64_t number = 0;
  while (true) {
    absl::Duration wait;
    std::optional<v1::NodeMessage> next;
    v1::Heartbeat heartbeat = events.heartbeat();
    {
      absl::MutexLock lock(&mu);
      if (call_over) return;
      const Instant now = SystemClock()->Now();
      const bool silent = welcomed ? now > heard + lease : now > dialled + options.welcome_timeout;
      if (stopping || silent) {
        if (silent) refusal = absl::UnavailableError("the coordinator is silent");
        break;
      }
      if (welcomed) {
        heartbeat.set_number(++number);
        beat = std::move(heartbeat);
        next = TakeNext();
      }
      wait = welcomed ? interval : std::min(options.pause_min, absl::Milliseconds(20));
    }
    if (next) call->Write(*std::move(next));
    absl::MutexLock lock(&mu);
    auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return call_over || stopping; };
    mu.AwaitWithTimeout(absl::Condition(&over), wait);
  }
  call->TryCancel();
  absl::MutexLock lock(&mu);
  mu.Await(absl::Condition(&call_over));
}

absl::Status CoordinatorClient::State::RunCall() {
  {
    absl::MutexLock lock(&mu);
    call_over = false;
    welcomed = false;
    ending = false;
    writing = true;
    beat.reset();
    report.reset();  // The hello says it, as it is asked for after this.
    echo = 0;
    refusal = absl::OkStatus();
  }
  v1::NodeHello hello = events.hello();
  auto call = std::make_unique<Call>(this);
  call->Start(std::move(hello));
  Beat(call.get());
  absl::MutexLock lock(&mu);
  return result.ok() ? absl::UnavailableError("the coordinator ended the stream") : result;
}

bool CoordinatorClient::State::IsReplaced(const absl::Status& lost) const {
  const FailureDetail detail = FailureDetailOf(lost);
  return detail.kind == FailureKind::kStaleEpoch && !detail.node.empty() && events.on_replaced;
}

void CoordinatorClient::State::Run() {
  absl::Duration pause = options.pause_min;
  bool said = false;  // One line for each time it is lost, not for each try.
  while (true) {
    const absl::Status lost = RunCall();
    {
      absl::MutexLock lock(&mu);
      if (stopping) return;
      if (welcomed) {
        pause = options.pause_min;
        said = false;
      }
    }
    Log(said ? LogLevel::kDebug : LogLevel::kWarning, "coordinator lost; trying again",
        {{"address", options.address}, {"reason", lost}});
    said = true;
    events.on_lost(lost);
    if (IsReplaced(lost)) return events.on_replaced(lost);
    const double jitter = std::uniform_real_distribution<double>(0.5, 1.0)(random);
    {
      absl::MutexLock lock(&mu);
      mu.AwaitWithTimeout(absl::Condition(&stopping), pause * jitter);
      if (stopping) return;
    }
    pause = std::min(2 * pause, options.pause_max);
  }
}

CoordinatorClient::CoordinatorClient(CoordinatorClientOptions options, CoordinatorEvents events)
    : state_(std::make_unique<State>(std::move(options), std::move(events))) {
  state_->thread = std::thread([state = state_.get()] { state->Run(); });
}

CoordinatorClient::~CoordinatorClient() {
  {
    absl::MutexLock lock(&state_->mu);
    state_->stopping = true;
  }
  state_->thread.join();
}

void CoordinatorClient::Report(v1::ShardReport report) {
  absl::MutexLock lock(&state_->mu);
  state_->report = std::move(report);  // Goes with the next beat, or right after it.
}

}  // namespace shardline
