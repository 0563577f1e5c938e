#include "node/transport/pulse_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "node/transport/channel.h"
#include "node/transport/pulse_message.h"
#include "node/transport/stream_queue.h"
#include "proto/wire/failure_conversion.h"
#include "shardline/v1/link.grpc.pb.h"

namespace shardline {
namespace {

// Answers and ends of streams; more than that wait only if the thread stands still.
constexpr size_t kTasksWaitingMax = 4096;
// Beats that wait behind one that is being written. More would tell nothing new.
constexpr size_t kBeatsWaitingMax = 2;

}  // namespace

struct PulseClient::State {
  State(const PulseOptions& options, PulseClientEvents events_in, const Clock* clock_in,
        CallCounter* calls_in)
      : events(std::move(events_in)), clock(clock_in), calls(calls_in), core(options) {}

  void Run(const std::shared_ptr<State>& self);
  void CarryOut(const std::shared_ptr<State>& self);
  void TellLost(const PulseActions::Lost& lost);

  const PulseClientEvents events;
  const Clock* const clock;
  CallCounter* const calls;

  // From any thread to the client's.
  Mailbox<absl::AnyInvocable<void()>> tasks{kTasksWaitingMax};

  // The thread's.
  PulseCore core;
  std::map<PulseConnection, std::shared_ptr<Call>> streams;

  absl::Mutex mu;
  std::vector<SilentPeer> silent ABSL_GUARDED_BY(mu);

  std::thread thread;
};

// One stream. Keeps itself until its OnDone, and holds itself open until the peer's side has ended
// and no write is under way.
class PulseClient::Call : public grpc::ClientBidiReactor<v1::PeerBeat, v1::PeerBeat> {
 public:
  Call(std::shared_ptr<State> state, const PulseActions::Dial& dial)
      : state_(std::move(state)),
        connection_(dial.connection),
        self_peer_(state_->events.self()),
        peer_(dial.peer),
        channel_(MakeChannel(dial.address)),
        stub_(v1::Shard::NewStub(channel_)),
        queue_(kBeatsWaitingMax) {
    state_->calls->Add(channel_);
  }

  ~Call() override { state_->calls->Remove(); }

  void Start(std::shared_ptr<Call> self) {
    self_ = std::move(self);
    stub_->async()->Pulse(&context_, this);
    AddHold();
    StartRead(&in_);
    StartCall();
  }

  void Beat(const PulseBeat& beat) ABSL_LOCKS_EXCLUDED(mu_) {
    std::optional<v1::PeerBeat> next;
    {
      absl::MutexLock lock(&mu_);
      if (!queue_.Push(ToProto(beat, self_peer_, peer_))) return;
      next = queue_.TakeNext();
    }
    if (next) Write(*std::move(next));
  }

  void TryCancel() { context_.TryCancel(); }

 private:
  void Write(v1::PeerBeat beat) {
    out_ = std::move(beat);
    StartWrite(&out_);
  }

  void OnWriteDone(bool ok) override {
    std::optional<v1::PeerBeat> next;
    bool release = false;
    {
      absl::MutexLock lock(&mu_);
      queue_.WriteDone(ok);
      next = queue_.TakeNext();
      if (!next) release = queue_.TakeEnd();
    }
    if (next) Write(*std::move(next));
    if (release) RemoveHold();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      Post([state = state_.get(), connection = connection_, answer = FromProto(in_)] {
        state->core.OnAnswer(connection, answer, state->clock->Now());
      });
      return StartRead(&in_);
    }
    bool release = false;
    {
      absl::MutexLock lock(&mu_);
      queue_.End(true);
      release = queue_.TakeEnd();
    }
    if (release) RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status reason = FromGrpcStatus(status);
    if (reason.ok()) reason = absl::UnavailableError("the peer ended the stream");
    Post([state = state_.get(), connection = connection_, reason = std::move(reason)] {
      state->streams.erase(connection);
      state->core.OnStreamBroken(connection, reason, state->clock->Now());
    });
    const std::shared_ptr<Call> self = std::move(self_);
  }

  // What finds no room is made good by the lease. The state outlives its tasks.
  void Post(absl::AnyInvocable<void()> task) { (void)state_->tasks.TryPost(std::move(task)); }

  const std::shared_ptr<State> state_;
  const PulseConnection connection_;
  const StagePeer self_peer_;
  const StagePeer peer_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Shard::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<Call> self_;
  v1::PeerBeat in_;   // Belongs to the read under way.
  v1::PeerBeat out_;  // Belongs to the write under way.

  absl::Mutex mu_;
  StreamQueue<v1::PeerBeat> queue_ ABSL_GUARDED_BY(mu_);
};

void PulseClient::State::Run(const std::shared_ptr<State>& self) {
  while (true) {
    const absl::Duration wait = std::max(absl::ZeroDuration(), core.NextWake() - clock->Now());
    std::optional<absl::AnyInvocable<void()>> task = tasks.Take(wait);
    if (!task && tasks.closed()) break;
    // What has arrived is heard before anybody is judged by the time.
    for (size_t left = tasks.size(); task; --left) {
      (*task)();
      if (left == 0) break;
      task = tasks.Take(absl::ZeroDuration());
    }
    core.OnTick(clock->Now());
    CarryOut(self);
  }
  for (const auto& [connection, stream] : streams) stream->TryCancel();
  streams.clear();
}

void PulseClient::State::CarryOut(const std::shared_ptr<State>& self) {
  const PulseActions actions = core.TakeActions();
  for (const PulseConnection& connection : actions.hang_up) {
    const auto it = streams.find(connection);
    if (it == streams.end()) continue;
    it->second->TryCancel();
    streams.erase(it);
  }
  for (const PulseActions::Dial& dial : actions.dial) {
    auto call = std::make_shared<Call>(self, dial);
    streams[dial.connection] = call;
    call->Start(call);
  }
  const PulseProgress progress = actions.beat.empty() ? PulseProgress{} : events.progress();
  for (const PulseActions::Beat& beat : actions.beat) {
    const auto it = streams.find(beat.connection);
    if (it == streams.end()) continue;
    it->second->Beat({.number = beat.number,
                      .echo = beat.echo,
                      .jobs_started = progress.jobs_started,
                      .jobs_done = progress.jobs_done});
  }
  std::vector<SilentPeer> now_silent = core.Silent(clock->Now());
  {
    absl::MutexLock lock(&mu);
    silent = std::move(now_silent);
  }
  for (const PulseActions::Lost& lost : actions.lost) TellLost(lost);
  for (const StagePeer& peer : actions.recovered) {
    LogInfo("peer heard again", {{"peer", peer.node}, {"incarnation", peer.incarnation}});
    if (events.on_recovered) events.on_recovered(peer);
  }
}

void PulseClient::State::TellLost(const PulseActions::Lost& lost) {
  LogWarning("peer lost", {{"peer", lost.peer.node},
                           {"incarnation", lost.peer.incarnation},
                           {"kind", FailureKindName(lost.kind)},
                           {"reason", lost.reason}});
  FailureDetail detail = {.kind = lost.kind, .node = lost.peer.node};
  // A wedged device is the node's own matter; silence may be the network's.
  if (lost.kind == FailureKind::kHeartbeatLost) detail.reporter = events.self().node;
  events.on_lost(lost.peer, MakeFailure(detail, absl::StrCat("node ", lost.peer.node.value(), ": ",
                                                             lost.reason)));
}

PulseClient::PulseClient(const PulseOptions& options, PulseClientEvents events, const Clock* clock,
                         CallCounter* calls)
    : state_(std::make_shared<State>(options, std::move(events), clock, calls)) {
  state_->thread = std::thread([state = state_] { state->Run(state); });
}

PulseClient::~PulseClient() {
  state_->tasks.Close();
  state_->thread.join();
}

void PulseClient::Want(const StagePeer& peer, const std::string& address) {
  (void)state_->tasks.TryPost([state = state_.get(), peer, address] {
    state->core.OnPeerWanted(peer, address, state->clock->Now());
  });
}

void PulseClient::Drop(const StagePeer& peer) {
  (void)state_->tasks.TryPost(
      [state = state_.get(), peer] { state->core.OnPeerGone(peer, state->clock->Now()); });
}

std::vector<SilentPeer> PulseClient::Silent() const {
  absl::MutexLock lock(&state_->mu);
  return state_->silent;
}

}  // namespace shardline
