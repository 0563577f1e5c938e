// How a node carries out what its cores ask for, and the links to its neighbours.

#include <algorithm>
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
  if (stage_ == nullptr) return;
  while (true) {
    StageActions stage = stage_->TakeActions();
    HeadActions head;
    if (head_ != nullptr) head = head_->TakeActions();
    if (stage.empty() && head.empty()) break;
    CarryOut(std::move(stage));
    CarryOut(std::move(head));
  }
  Instant wake = stage_->NextWake();
  if (head_ != nullptr) wake = std::min(wake, head_->NextWake());
  WakeAt(wake);
  context().checker->OnNodeEvent(*this);
}

void SimNode::CarryOut(StageActions actions) {
  for (ComputeJob& job : actions.jobs) Submit(std::move(job));
  for (const StepComputed& step : actions.computed) {
    head_->OnLayersComputed(step.key, step.compute_time, Now());
  }
  for (Forward& forward : actions.forwards) SendForward(std::move(forward));
  for (StageBundle& bundle : actions.returns) head_->OnReturn(std::move(bundle), Now());
  for (const Refusal& refusal : actions.refusals) SendRefusal(refusal);
}

void SimNode::CarryOut(HeadActions actions) {
  for (ComputeJob& job : actions.jobs) Submit(std::move(job));
  for (StageBundle& step : actions.steps) {
    context().checker->OnRowsArrive(*this, step);
    stage_->OnBundle({}, std::move(step), Now());
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
      },
      [this, life = shard_life_](const ComputeJob& ended, ComputeDone done) {
        if (life != shard_life_ || stage_ == nullptr) return;
        if (ended.kind == JobKind::kLayers) {
          stage_->OnComputeDone(done, Now());
          context().checker->OnJobTaken(*this, ended, done);
        } else {
          head_->OnComputeDone(std::move(done), Now());
        }
        Drain();
      });
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
  Link& link = links_out_[peer];
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

void SimNode::Dial(const StagePeer& peer, Link& link) {
  SimNode* const other = cluster_->NodeNamed(peer.node);
  link.phase = LinkPhase::kConnecting;
  link.stream = cluster_->network.Dial(this, other);
  Stream* const stream = link.stream;
  cluster_->network.OnEnd(stream, 0, [this, peer, stream] { OnLinkEnd(peer, stream); });
  cluster_->network.Send(stream, 0,
                         [other, stream, from = self(), peer, recipe = stage_->options().recipe] {
                           other->OnLinkHello(stream, from, peer, recipe);
                         });
}

void SimNode::OnLinkHello(Stream* stream, const StagePeer& from, const StagePeer& to,
                          const Recipe& recipe) {
  context().trace.Add(TraceKind::kLinkHello, number(), from.incarnation.value());
  if (stage_ == nullptr || to != self() || recipe != stage_->options().recipe) {
    cluster_->network.HangUp(stream, 1);
    return;
  }
  links_in_[from] = stream;
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
}

// What a wire that loses, repeats and reorders does to a frame. TCP and the link's sequence
// numbers keep all of this from the cores; they must bear it all the same.
void SimNode::Transmit(const StagePeer& peer, Link& link, StageBundle bundle) {
  const Wire& wire = cluster_->network.wire(*this, *cluster_->NodeNamed(peer.node));
  if (wire.drop_per_mille > 0 && context().rng.Chance(wire.drop_per_mille)) return;
  if (wire.reorder_per_mille > 0 && !link.overtaken &&
      context().rng.Chance(wire.reorder_per_mille)) {
    link.overtaken = std::move(bundle);
    return;
  }
  if (wire.repeat_per_mille > 0 && context().rng.Chance(wire.repeat_per_mille)) {
    TransmitOnce(peer, link, bundle);
  }
  TransmitOnce(peer, link, std::move(bundle));
  if (link.overtaken) TransmitOnce(peer, link, *std::exchange(link.overtaken, std::nullopt));
}

void SimNode::TransmitOnce(const StagePeer& peer, Link& link, StageBundle bundle) {
  SimNode* other = cluster_->NodeNamed(peer.node);
  const Wire& wire = cluster_->network.wire(*this, *other);
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
                         [other, stream, from = self(), bundle = std::move(bundle)]() mutable {
                           other->OnLinkBundle(stream, from, std::move(bundle));
                         });
}

void SimNode::OnLinkBundle(Stream* stream, const StagePeer& from, StageBundle bundle) {
  const auto it = links_in_.find(from);
  if (stage_ == nullptr || it == links_in_.end() || it->second != stream) return;
  context().trace.Add(TraceKind::kBundle, number(), bundle.rows.front().key.attempt.session.value(),
                      bundle.rows.front().key.step.value());
  context().checker->OnRowsArrive(*this, bundle);
  stage_->OnBundle(from, std::move(bundle), Now());
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
  link.waiting.clear();
  link.overtaken.reset();
  link.pause = std::clamp(2 * link.pause, kLinkPauseMin, kLinkPauseMax);
  link.dial_after = context().queue.now() + link.pause;
  stage_->OnLinkLost(peer, Now());
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
