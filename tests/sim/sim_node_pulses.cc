// A node's pulses: who beats to whom, and what follows when a neighbour is silent.

#include <utility>

#include "tests/sim/checker.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/sim_node.h"

namespace shardline::sim {

PulseBeat SimNode::Progress(uint64_t number, uint64_t echo) const {
  PulseBeat beat{.number = number, .echo = echo};
  if (device_ != nullptr) {
    beat.jobs_started = device_->jobs_started();
    beat.jobs_done = device_->jobs_done();
  }
  return beat;
}

bool SimNode::CarryOutPulses() {
  if (!pulses_->has_actions()) return false;
  const PulseActions actions = pulses_->TakeActions();
  for (const PulseConnection connection : actions.hang_up) {
    if (const auto it = pulse_streams_.find(connection); it != pulse_streams_.end()) {
      cluster_->network.HangUp(it->second, 0);
      pulse_streams_.erase(it);
      pulse_peers_.erase(connection);
    }
  }
  for (const PulseActions::Dial& dial : actions.dial) {
    SimNode* const other = cluster_->NodeNamed(dial.peer.node);
    Stream* const stream = cluster_->network.Dial(this, other);
    pulse_streams_[dial.connection] = stream;
    pulse_peers_[dial.connection] = dial.peer;
    cluster_->network.OnEnd(stream, 0, [this, connection = dial.connection] {
      pulse_streams_.erase(connection);
      pulse_peers_.erase(connection);
      pulses_->OnStreamBroken(connection, absl::UnavailableError("reset"), Now());
      Drain();
    });
  }
  for (const PulseActions::Beat& beat : actions.beat) {
    const auto it = pulse_streams_.find(beat.connection);
    if (it == pulse_streams_.end()) continue;
    const StagePeer peer = pulse_peers_.at(beat.connection);
    SimNode* const other = cluster_->NodeNamed(peer.node);
    cluster_->network.Send(
        it->second, 0,
        [other, stream = it->second, id = it->second->id(), from = self(), peer,
         words = Progress(beat.number, beat.echo), connection = beat.connection] {
          other->OnPulseBeat(stream, id, from, peer, words, connection);
        });
  }
  for (const PulseActions::Lost& lost : actions.lost) {
    context().trace.Add(TraceKind::kPulse, number(), lost.peer.incarnation.value());
    if (stage_ == nullptr) continue;
    stage_->OnLinkLost(
        lost.peer,
        MakeFailure({.kind = lost.kind, .node = lost.peer.node, .reporter = options_.id},
                    lost.reason),
        Now());
  }
  return true;
}

void SimNode::OnPulseBeat(Stream* stream, uint64_t stream_id, const StagePeer& from,
                          const StagePeer& to, const PulseBeat& beat, PulseConnection connection) {
  const PulseStreamId id(stream_id);
  absl::StatusOr<uint64_t> answer = absl::UnavailableError("another life is meant");
  if (to == self()) answer = hearing_->OnBeat(id, from, beat, Now());
  if (!answer.ok()) {
    hearing_->OnStreamClosed(id);
    cluster_->network.HangUp(stream, 1);
    return;
  }
  if (beat.number == 1) {
    cluster_->network.OnEnd(stream, 1, [this, id] { hearing_->OnStreamClosed(id); });
  }
  SimNode* const other = cluster_->NodeNamed(from.node);
  cluster_->network.Send(stream, 1, [other, connection, words = Progress(*answer, 0)] {
    other->OnPulseAnswer(connection, words);
  });
}

void SimNode::OnPulseAnswer(PulseConnection connection, const PulseBeat& answer) {
  pulses_->OnAnswer(connection, answer, Now());
  Drain();
}

void SimNode::TakeForged(int64_t kind) {
  if (stage_ == nullptr) return;
  const auto target = context().checker->AnyOpened(*this);
  if (!target) return;
  const StageStats before = stage_->stats();
  if (kind == 4) {
    OpenAttempt open = target->open;
    open.key.epoch = open.key.epoch.Next();
    open.capability = "forged";
    if (!options_.capabilities) return;
    const bool granted = stage_->Open(open, Now()).ok();
    context().checker->OnForged(*this, granted);
    return Drain();
  }
  if (kind == 5) {
    FenceOrder order = {.session = target->open.key.session,
                        .epoch = target->open.key.epoch,
                        .term = target->open.term,
                        .incarnation = incarnation_,
                        .capability = "forged"};
    if (!options_.capabilities) return;
    const bool held = stage_->kv().PagesOf(target->open.key) > 0;
    ServeFence(order, [](const absl::StatusOr<FenceReply>&) {});
    context().checker->OnForged(*this, held && stage_->kv().PagesOf(target->open.key) == 0);
    return;
  }
  if (target->upstream.is_own_head() || !target->last) return;
  BundleRow row = *target->last;
  StagePeer from = target->upstream;
  if (kind == 1) row.key.step = StepIndex(row.key.step.value() + 7);
  if (kind == 2) row.key.attempt.epoch = row.key.attempt.epoch.Next();
  if (kind == 3) from.node = NodeId("stranger");
  const auto floats = static_cast<size_t>(row.token_count) * kHiddenDim;
  const std::shared_ptr<Buffer> hidden = Buffer::Allocate(floats * sizeof(float));
  for (float& value : hidden->floats()) value = 12345.0F;
  StageBundle bundle;
  bundle.rows.push_back(row);
  bundle.hidden = hidden;
  bundle.connection = newest_in_[target->upstream];
  stage_->OnBundle(from, std::move(bundle), Now());
  const StageStats& after = stage_->stats();
  context().checker->OnForged(
      *this, after.jobs != before.jobs || after.rows_replayed != before.rows_replayed ||
                 after.rows_in_flight_copies != before.rows_in_flight_copies);
  Drain();
}

// A request that crashes whatever computes its second step.
void SimNode::PoisonedBy(const ComputeJob& job) {
  if (cluster_->poisonous.empty()) return;
  for (const JobSlice& slice : job.slices) {
    if (slice.key.step.value() == 0 || !cluster_->poisonous.contains(slice.key.attempt.session)) {
      continue;
    }
    const SessionId session = slice.key.attempt.session;
    context().queue.At(context().queue.now(), this, [this, session] {
      context().checker->OnPoisoned(session);
      Kill(false);
      context().queue.At(context().queue.now() + 300 * kMillisecond, nullptr, [this] {
        if (!alive()) Start();
      });
    });
    return;
  }
}

}  // namespace shardline::sim
