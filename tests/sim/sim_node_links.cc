// How a node carries out what its cores ask for, and the links to its neighbours.

#include <algorithm>
#include <optional>
#include <utility>

#include "tests/sim/checker.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_node.h"

namespace shardline::sim {
namespace {

constexpr SimTime kLinkPauseMin = 20 * kMillisecond;
constexpr SimTime kLinkPauseMax = 1 * kSecond;

}  // namespace

void SimNode::Drain() {
  while (true) {
    std::optional<StageActions> stage;
    std::optional<HeadActions> head;
    if (stage_ != nullptr && stage_->has_actions()) stage = stage_->TakeActions();
    if (head_ != nullptr && head_->has_actions()) head = head_->TakeActions();
    const bool pulsed = CarryOutPulses();
    if (!stage && !head && !pulsed) break;
    if (stage) CarryOut(*std::move(stage));
    if (head) CarryOut(*std::move(head));
  }
  Instant wake = pulses_->NextWake();
  if (stage_ != nullptr) wake = std::min(wake, stage_->NextWake());
  if (head_ != nullptr) wake = std::min(wake, head_->NextWake());
  WakeAt(wake);
}

void SimNode::CarryOut(StageActions&& actions) {
  for (ComputeJob& job : actions.jobs) Submit(std::move(job));
  for (const StepComputed& step : actions.computed) {
    head_->OnLayersComputed(step.key, step.compute_time, Now());
  }
  for (Forward& forward : actions.forwards) SendForward(std::move(forward));
  for (StageBundle& bundle : actions.returns) head_->OnReturn(std::move(bundle), Now());
  for (const InspectAnswer& answer : actions.answers) SendAnswer(answer);
  for (const Refusal& refusal : actions.refusals) SendRefusal(refusal);
  for (const Inspect& inspect : actions.inspects) SendInspect(inspect);
  for (const RouteStage& stage : actions.redials) Redial(stage);
  for (const Announcement& plan : actions.plans) SendPlan(plan);
}

void SimNode::CarryOut(HeadActions&& actions) {
  context().checker->OnHeadActions(*this, actions);
  for (ComputeJob& job : actions.jobs) Submit(std::move(job));
  for (StageBundle& step : actions.steps) {
    context().checker->OnRowsArrive(*this, step);
    stage_->OnBundle({}, std::move(step), Now());
    context().checker->OnRowsTaken(*this);
  }
  for (const TokenOut& token : actions.tokens) {
    const auto it = runs_.find(token.key);
    if (it == runs_.end()) continue;
    const Run run = it->second;
    cluster_->network.Send(run.stream, 1,
                           [run, key = token.key, index = token.index, id = token.token.token] {
                             run.asker->OnRunToken(run.stream, key, index, id);
                           });
  }
  for (const AttemptEnd& end : actions.ends) EndRun(end.key, end.status, &end);
}

void SimNode::Submit(ComputeJob job) {
  context().checker->OnJobGiven(*this, job);
  device_->Submit(
      std::move(job),
      [this, life = shard_life_](const ComputeJob& running) {
        context().trace.Add(
            TraceKind::kJob, number(), running.id,
            running.slices.empty() ? 1000 : running.slices.front().key.step.value());
        if (life == shard_life_) context().checker->OnJobWrites(*this, running);
        PoisonedBy(running);
      },
      [this, life = shard_life_](const ComputeJob& ended, ComputeDone done) {
        if (life != shard_life_ || stage_ == nullptr) return;
        if (ended.kind == JobKind::kLayers) {
          stage_->OnComputeDone(done, Now());
          context().checker->OnJobTaken(*this, ended, done);
          ComeAgain(ended);
        } else {
          head_->OnComputeDone(std::move(done), Now());
        }
        Drain();
      });
}

// A step that has failed for certain sometimes comes again, as from a sender with no answer yet.
void SimNode::ComeAgain(const ComputeJob& ended) {
  if (ended.hidden == nullptr || ended.slices.size() != 1 || !context().rng.Chance(300)) return;
  const auto target = context().checker->FailedStep(*this, ended.slices.front().key);
  if (!target) return;
  const StagePeer& from = target->upstream;
  StageBundle bundle;
  bundle.rows.push_back(*target->last);
  bundle.hidden = ended.hidden;
  bundle.connection = newest_in_[from];
  context().checker->OnRowsArrive(*this, bundle);
  stage_->OnBundle(from, std::move(bundle), Now());
  context().checker->OnRowsTaken(*this);
}

void SimNode::SendForward(Forward forward) {
  context().checker->OnForward(*this, forward);
  const StagePeer peer = forward.to.peer();
  std::vector<StepKey> keys;
  for (const BundleRow& row : forward.bundle.rows) keys.push_back(row.key);
  const absl::Status status = SendOn(peer, std::move(forward.bundle));
  if (status.ok()) return;
  for (const StepKey& key : keys) stage_->OnRowFailure(peer, {.key = key, .status = status}, Now());
}

absl::Status SimNode::SendOn(const StagePeer& peer, StageBundle bundle) {
  Link& link = LinkTo(peer);
  if (link.phase == LinkPhase::kOpen) {
    Transmit(peer, link, std::move(bundle));
    return absl::OkStatus();
  }
  if (link.phase == LinkPhase::kIdle) {
    if (context().queue.now() < link.dial_after) {
      return MakeFailure({.kind = FailureKind::kStreamReset, .node = peer.node}, "link lost");
    }
    Dial(peer, link);
  }
  link.waiting.push_back(std::move(bundle));
  return absl::OkStatus();
}

SimNode::Link& SimNode::LinkTo(const StagePeer& peer) {
  const auto found = links_out_.find(peer);
  if (found != links_out_.end()) return found->second;
  // A life that has ended takes no link any more.
  std::erase_if(links_out_, [&](const auto& link) {
    const bool over = link.first.node == peer.node && link.first.incarnation < peer.incarnation;
    if (over) pulses_->OnPeerGone(link.first, Now());
    return over;
  });
  pulses_->OnPeerWanted(peer, peer.node.value(), Now());
  Link& link = links_out_[peer];
  link.other = cluster_->NodeNamed(peer.node);
  link.wire = &cluster_->network.wire(*this, *link.other);
  return link;
}

void SimNode::Dial(const StagePeer& peer, Link& link) {
  SimNode* const other = link.other;
  link.phase = LinkPhase::kConnecting;
  link.stream = cluster_->network.Dial(this, other);
  link.connection = ++connections_;
  Stream* const stream = link.stream;
  cluster_->network.OnEnd(stream, 0, [this, peer, stream] { OnLinkEnd(peer, stream); });
  cluster_->network.Send(stream, 0,
                         [other, stream, from = self(), peer, recipe = stage_->options().recipe,
                          connection = link.connection] {
                           other->OnLinkHello(stream, from, peer, recipe, connection);
                         });
}

void SimNode::OnLinkHello(Stream* stream, const StagePeer& from, const StagePeer& to,
                          const Recipe& recipe, uint64_t connection) {
  context().trace.Add(TraceKind::kLinkHello, number(), from.incarnation.value());
  if (stage_ == nullptr || to != self() || recipe != stage_->options().recipe) {
    cluster_->network.HangUp(stream, 1);
    return;
  }
  if (!stage_->OnLinkAccepted(from, connection).ok()) {
    cluster_->network.HangUp(stream, 1);
    return;
  }
  links_in_[from] = stream;
  newest_in_[from] = connection;
  cluster_->network.OnEnd(stream, 1, [this, from, stream] {
    const auto it = links_in_.find(from);
    if (it != links_in_.end() && it->second == stream) links_in_.erase(it);
  });
  SimNode* const dialler = cluster_->NodeNamed(from.node);
  cluster_->network.Send(stream, 1, [dialler, to, stream] { dialler->OnLinkWelcome(to, stream); });
}

void SimNode::OnLinkWelcome(const StagePeer& peer, Stream* stream) {
  const auto it = links_out_.find(peer);
  if (it == links_out_.end() || it->second.stream != stream) return;
  Link& link = it->second;
  context().trace.Add(TraceKind::kLinkWelcome, number(), peer.incarnation.value());
  link.phase = LinkPhase::kOpen;
  link.pause = 0;
  for (StageBundle& bundle : std::exchange(link.waiting, {})) {
    Transmit(peer, link, std::move(bundle));
  }
  stage_->OnLinkUp(peer, Now());
  Drain();
}

// What a wire that loses, repeats and reorders does to a frame. TCP and the link's sequence
// numbers keep all of this from the cores; they must bear it all the same.
void SimNode::Transmit(const StagePeer& peer, Link& link, StageBundle bundle) {
  const Wire& wire = *link.wire;
  if (wire.drop_per_mille > 0 && context().rng.Chance(wire.drop_per_mille)) return;
  if (wire.reorder_per_mille > 0 && !link.overtaken &&
      context().rng.Chance(wire.reorder_per_mille)) {
    link.overtaken = std::move(bundle);
    return;
  }
  if (wire.repeat_per_mille > 0 && context().rng.Chance(wire.repeat_per_mille)) {
    // At once, or when it is long over.
    const SimTime later =
        context().rng.Chance(500) ? 0 : context().rng.Between(0, 5) * kMillisecond;
    After(later, [this, peer, stream = link.stream, copy = bundle]() mutable {
      const auto it = links_out_.find(peer);
      if (it != links_out_.end() && it->second.stream == stream) {
        TransmitOnce(peer, it->second, std::move(copy));
      }
    });
  }
  TransmitOnce(peer, link, std::move(bundle));
  if (link.overtaken) TransmitOnce(peer, link, *std::exchange(link.overtaken, std::nullopt));
}

void SimNode::TransmitOnce(const StagePeer& peer, Link& link, StageBundle bundle) {
  SimNode* other = link.other;
  bundle.connection = link.connection;
  const Wire& wire = *link.wire;
  if (wire.misroute_per_mille > 0 && context().rng.Chance(wire.misroute_per_mille)) {
    other = cluster_->nodes[context().rng.Below(cluster_->nodes.size())].get();
    if (!other->alive()) return;
    context().queue.At(context().queue.now() + kMillisecond, other,
                       [other, from = self(), bundle = std::move(bundle)]() mutable {
                         if (other->stage_ == nullptr) return;
                         other->context().checker->OnRowsArrive(*other, bundle);
                         other->stage_->OnBundle(from, std::move(bundle), other->Now());
                         other->Drain();
                       });
    return;
  }
  Stream* const stream = link.stream;
  cluster_->network.Send(stream, 0,
                         [other, peer, from = self(), bundle = std::move(bundle)]() mutable {
                           other->OnLinkBundle(from, peer, std::move(bundle));
                         });
}

void SimNode::OnLinkBundle(const StagePeer& from, const StagePeer& to, StageBundle bundle) {
  if (stage_ == nullptr || to != self()) return;
  context().trace.Add(TraceKind::kBundle, number(), bundle.rows.front().key.attempt.session.value(),
                      bundle.rows.front().key.step.value());
  context().checker->OnRowsArrive(*this, bundle);
  const uint64_t connection = bundle.connection;
  const uint64_t shut_out = stage_->stats().bundles_shut_out;
  const uint64_t promoted = stage_->stats().plans_promoted;
  stage_->OnBundle(from, std::move(bundle), Now());
  context().checker->OnRowsTaken(*this);
  if (connection < newest_in_[from]) {
    context().checker->OnOldConnection(*this, stage_->stats().bundles_shut_out > shut_out);
  } else {
    context().checker->OnBundleTaken(*this, from, stage_->stats().plans_promoted > promoted);
  }
  Drain();
}

void SimNode::OnLinkFailure(const StagePeer& peer, Stream* stream, RowFailure failure) {
  const auto it = links_out_.find(peer);
  if (it == links_out_.end() || it->second.stream != stream) return;
  context().trace.Add(TraceKind::kRowFailure, number(), failure.key.attempt.session.value(),
                      failure.key.step.value());
  stage_->OnRowFailure(peer, std::move(failure), Now());
  Drain();
}

void SimNode::OnLinkEnd(const StagePeer& peer, Stream* stream) {
  const auto it = links_out_.find(peer);
  if (it == links_out_.end() || it->second.stream != stream) return;
  context().trace.Add(TraceKind::kLinkLost, number(), peer.incarnation.value());
  Link& link = it->second;
  link.phase = LinkPhase::kIdle;
  link.stream = nullptr;
  link.waiting.clear();  // The stage keeps what it has sent.
  link.overtaken.reset();
  link.pause = std::clamp(2 * link.pause, kLinkPauseMin, kLinkPauseMax);
  link.dial_after = context().queue.now() + link.pause;
  stage_->OnLinkLost(peer, MakeFailure(FailureKind::kStreamReset, "the link broke"), Now());
  Drain();
}

void SimNode::BreakLinksTo(const NodeId& peer) {
  for (auto& [other, link] : links_out_) {
    if (other.node != peer || link.stream == nullptr) continue;
    Stream* const stream = link.stream;
    cluster_->network.Abandon(stream, 0);
    // Slow enough that the next connection is accepted before.
    cluster_->network.Stall(stream, context().rng.Between(10, 60) * kMillisecond);
    return OnLinkEnd(other, stream);
  }
}

void SimNode::Redial(const RouteStage& stage) {
  const StagePeer peer = stage.peer();
  Link& link = LinkTo(peer);
  if (link.phase != LinkPhase::kIdle) return;
  const SimTime wait = std::max<SimTime>(0, link.dial_after - context().queue.now());
  After(wait, [this, peer, life = shard_life_] {
    if (life != shard_life_) return;
    const auto it = links_out_.find(peer);
    if (it != links_out_.end() && it->second.phase == LinkPhase::kIdle) Dial(peer, it->second);
  });
}

// May be lost, and overtaken by nothing: it is on the link that the bundle comes by.
void SimNode::SendPlan(const Announcement& plan) {
  const StagePeer peer = plan.to.peer();
  const auto it = links_out_.find(peer);
  if (it == links_out_.end() || it->second.phase != LinkPhase::kOpen) return;
  SimNode* const other = it->second.other;
  const Wire& wire = *it->second.wire;
  if (wire.drop_per_mille > 0 && context().rng.Chance(wire.drop_per_mille)) return;
  cluster_->network.Send(it->second.stream, 0,
                         [other, peer, from = self(), connection = it->second.connection,
                          rows = plan.rows] { other->OnLinkPlan(from, peer, connection, rows); });
}

void SimNode::OnLinkPlan(const StagePeer& from, const StagePeer& to, uint64_t connection,
                         const std::vector<BundleRow>& rows) {
  if (stage_ == nullptr || to != self() || connection < newest_in_[from]) return;
  const uint64_t staged = stage_->stats().plans_staged;
  stage_->OnPlan(from, rows, Now());
  context().checker->OnPlanTaken(*this, from, stage_->stats().plans_staged > staged);
  Drain();
}

void SimNode::SendInspect(const Inspect& inspect) {
  const StagePeer peer = inspect.to.peer();
  const auto it = links_out_.find(peer);
  if (it == links_out_.end() || it->second.phase != LinkPhase::kOpen) return;
  SimNode* const other = it->second.other;
  cluster_->network.Send(it->second.stream, 0, [other, peer, from = self(), rows = inspect.rows] {
    other->OnLinkInspect(from, peer, rows);
  });
}

void SimNode::OnLinkInspect(const StagePeer& from, const StagePeer& to,
                            const std::vector<InspectRow>& rows) {
  if (stage_ == nullptr || to != self()) return;
  context().trace.Add(TraceKind::kInspect, number(), rows.front().key.session.value(), rows.size());
  stage_->OnInspect(from, rows, Now());
  Drain();
}

void SimNode::SendAnswer(const InspectAnswer& answer) {
  const auto it = links_in_.find(answer.to);
  if (it == links_in_.end()) return;
  SimNode* const other = cluster_->NodeNamed(answer.to.node);
  Stream* const stream = it->second;
  cluster_->network.Send(stream, 1, [other, stream, me = self(), statuses = answer.statuses] {
    other->OnLinkStatus(me, stream, statuses);
  });
}

void SimNode::OnLinkStatus(const StagePeer& peer, Stream* stream,
                           const std::vector<InspectStatus>& statuses) {
  const auto it = links_out_.find(peer);
  if (it == links_out_.end() || it->second.stream != stream) return;
  context().trace.Add(TraceKind::kStatus, number(), statuses.front().key.session.value(),
                      statuses.front().step_next.value());
  const StageStats before = stage_->stats();
  stage_->OnInspectReply(peer, statuses, Now());
  context().checker->OnResumeAnswered(*this, statuses, before);
  Drain();
}

void SimNode::SendRefusal(const Refusal& refusal) {
  if (refusal.to.is_own_head()) {
    if (head_ != nullptr) head_->OnRowFailure(refusal.failure, Now());
    return;
  }
  const auto it = links_in_.find(refusal.to);
  if (it == links_in_.end()) return;
  SimNode* const other = cluster_->NodeNamed(refusal.to.node);
  Stream* const stream = it->second;
  cluster_->network.Send(stream, 1, [other, stream, me = self(), failure = refusal.failure] {
    other->OnLinkFailure(me, stream, failure);
  });
}

}  // namespace shardline::sim
