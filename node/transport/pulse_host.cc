#include "node/transport/pulse_host.h"

#include <grpcpp/support/server_callback.h>

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "node/transport/pulse_message.h"
#include "node/transport/stream_queue.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

// Answers that may wait. A peer that does not read them gets no more: its lease runs out.
constexpr size_t kAnswersWaitingMax = 4;

}  // namespace

struct PulseHost::State {
  State(const PulseOptions& options, PulseHostEvents events_in, const Clock* clock_in)
      : events(std::move(events_in)), clock(clock_in), hearing(options) {}

  // The answer to `beat`, or why its stream must end.
  absl::StatusOr<v1::PeerBeat> Answer(PulseStreamId stream, const v1::PeerBeat& beat)
      ABSL_LOCKS_EXCLUDED(mu);

  const PulseHostEvents events;
  const Clock* const clock;

  absl::Mutex mu;
  PulseHearing hearing ABSL_GUARDED_BY(mu);
  PulseStreamId last_stream ABSL_GUARDED_BY(mu);
};

absl::StatusOr<v1::PeerBeat> PulseHost::State::Answer(PulseStreamId stream,
                                                      const v1::PeerBeat& beat) {
  const StagePeer self = events.self();
  const StagePeer meant = AddresseeOf(beat);
  if (!IsValidNodeId(beat.node_id())) {
    return MakeFailure(FailureKind::kInvalidRequest, "pulse: no node id of a sender");
  }
  if (meant.node != self.node) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat("pulse: this is node ", self.node.value(), ", another is meant"));
  }
  if (meant.incarnation != self.incarnation) {
    return MakeFailure({.kind = FailureKind::kWorkerDeath, .node = self.node},
                       absl::StrCat("pulse: incarnation ", meant.incarnation.value(), " of ",
                                    self.node.value(), " is over"));
  }
  const PulseProgress progress = events.progress();
  absl::MutexLock lock(&mu);
  SL_ASSIGN_OR_RETURN(const uint64_t number,
                      hearing.OnBeat(stream, SpeakerOf(beat), FromProto(beat), clock->Now()));
  return ToProto(
      PulseBeat{
          .number = number, .jobs_started = progress.jobs_started, .jobs_done = progress.jobs_done},
      self, SpeakerOf(beat));
}

class PulseHost::Call : public grpc::ServerBidiReactor<v1::PeerBeat, v1::PeerBeat> {
 public:
  Call(std::shared_ptr<State> state, PulseStreamId stream)
      : state_(std::move(state)), stream_(stream), queue_(kAnswersWaitingMax) {
    StartRead(&in_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus(), /*drop=*/false);
    absl::StatusOr<v1::PeerBeat> answer = state_->Answer(stream_, in_);
    if (!answer.ok()) {
      LogDebug("pulse refused", {{"peer", in_.node_id()}, {"reason", answer.status()}});
      return End(answer.status(), /*drop=*/true);  // Nothing more is read.
    }
    {
      absl::MutexLock lock(&mu_);
      (void)queue_.Push(*std::move(answer));
    }
    Pump();
    StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mu_);
      queue_.WriteDone(ok);
    }
    Pump();
  }

  void OnCancel() override { End(absl::OkStatus(), /*drop=*/true); }

  void OnDone() override {
    {
      absl::MutexLock lock(&state_->mu);
      state_->hearing.OnStreamClosed(stream_);
    }
    delete this;
  }

  void End(const absl::Status& status, bool drop) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (status_.ok()) status_ = status;
      queue_.End(drop);
    }
    Pump();
  }

  // Writes and finishes what is due.
  void Pump() ABSL_LOCKS_EXCLUDED(mu_) {
    std::optional<v1::PeerBeat> next;
    std::optional<absl::Status> end;
    {
      absl::MutexLock lock(&mu_);
      next = queue_.TakeNext();
      if (!next && queue_.TakeEnd()) end = status_;
    }
    // The call lives: it is done only after this write, or after this Finish.
    if (next) {
      out_ = *std::move(next);
      StartWrite(&out_);
    }
    if (end) Finish(ToGrpcStatus(*end));
  }

  const std::shared_ptr<State> state_;
  const PulseStreamId stream_;
  v1::PeerBeat in_;   // Belongs to the read under way.
  v1::PeerBeat out_;  // Belongs to the write under way.

  absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  StreamQueue<v1::PeerBeat> queue_ ABSL_GUARDED_BY(mu_);
};

PulseHost::PulseHost(const PulseOptions& options, PulseHostEvents events, const Clock* clock)
    : state_(std::make_shared<State>(options, std::move(events), clock)) {}

PulseHost::~PulseHost() = default;

grpc::ServerBidiReactor<v1::PeerBeat, v1::PeerBeat>* PulseHost::Accept() {
  PulseStreamId stream;
  {
    absl::MutexLock lock(&state_->mu);
    stream = state_->last_stream = state_->last_stream.Next();
  }
  return new Call(state_, stream);  // Deletes itself in OnDone.
}

std::vector<SilentPeer> PulseHost::Silent() const {
  absl::MutexLock lock(&state_->mu);
  return state_->hearing.Silent(state_->clock->Now());
}

}  // namespace shardline
