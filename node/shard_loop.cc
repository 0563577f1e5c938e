#include "node/shard_loop.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/log.h"
#include "node/transport/link_handshake.h"

namespace shardline {
namespace {

LinkIdentity IdentityOf(const NodeId& node, Incarnation incarnation, const ShardOrder& order,
                        const LoadedShard& loaded) {
  return {.node = node,
          .incarnation = incarnation,
          .recipe = {.model_id = order.model_id,
                     .numerics_id = loaded.numerics_id,
                     .plan_epoch = order.plan_epoch},
          .hidden_dim = loaded.hidden_dim};
}

StageOptions StageOptionsOf(const LinkIdentity& identity, const ShardOrder& order,
                            const LoadedShard& loaded) {
  return {.node = identity.node,
          .incarnation = identity.incarnation,
          .recipe = identity.recipe,
          .layers = order.layers,
          .layers_total = loaded.layers_total,
          .is_head = order.is_head,
          .hidden_dim = loaded.hidden_dim,
          .pages_total = order.kv_pages,
          .context_tokens_max = loaded.context_tokens_max};
}

HeadOptions HeadOptionsOf(const LinkIdentity& identity, const ShardOrder& order,
                          const LoadedShard& loaded) {
  return {.node = identity.node,
          .layers = order.layers,
          .vocab_size = loaded.vocab_size,
          .hidden_dim = loaded.hidden_dim,
          .context_tokens_max = loaded.context_tokens_max,
          .chunk_tokens_max = order.chunk_tokens_max};
}

}  // namespace

// The stage starts with every page free although an older life's jobs may still be queued on the
// device and write to them. That is sound: the device runs jobs in the order it got them, so those
// are over before the first job of this life, and a page is read only up to the tokens that this
// life's own jobs have written. Late frames for the older life name its incarnation, so its fences
// need not be remembered.
ShardLoop::ShardLoop(const ShardSurroundings& surroundings, const NodeId& node,
                     Incarnation incarnation, const ShardOrder& order, const LoadedShard& loaded)
    : around_(surroundings),
      identity_(IdentityOf(node, incarnation, order, loaded)),
      executor_(loaded.executor),
      stage_(StageOptionsOf(identity_, order, loaded)) {
  if (order.is_head) {
    head_ = std::make_unique<HeadCore>(HeadOptionsOf(identity_, order, loaded));
  }
  Publish();
}

void ShardLoop::OnOpen(const OpenAttempt& open,
                       const std::function<void(absl::StatusOr<OpenReply>)>& reply) {
  reply(stage_.Open(open, around_.clock->Now()));
  Drain();
}

void ShardLoop::OnFence(const FenceOrder& order, const std::function<void(FenceReply)>& reply) {
  const Instant now = around_.clock->Now();
  const uint64_t ignored = stage_.stats().fences_ignored;
  const FenceReply answer = stage_.Fence(order.session, order.epoch, order.term, now);
  const bool heard = stage_.stats().fences_ignored == ignored;
  if (heard && head_ != nullptr) head_->OnFence(order.session, order.epoch, order.reason, now);
  Drain();
  reply(answer);
}

void ShardLoop::OnLinkOpened(std::shared_ptr<LinkHandle> link) {
  // The hello was judged by what the node was then.
  if (link->accepted_by() != identity_) {
    link->Close(MakeFailure({.kind = FailureKind::kWorkerDeath, .node = identity_.node},
                            "this node holds another shard, or lives anew, since the hello"));
    return;
  }
  LogInfo("link accepted", {{"peer", link->peer().node}});
  const StagePeer peer = link->peer();
  links_in_[peer] = std::move(link);
}

void ShardLoop::OnBundle(const std::shared_ptr<LinkHandle>& link, uint64_t sequence,
                         StageBundle bundle) {
  stage_.OnBundle(link->peer(), std::move(bundle), around_.clock->Now());
  Drain();
  link->Ack(sequence);
}

void ShardLoop::OnLinkClosed(const std::shared_ptr<LinkHandle>& link) {
  const auto it = links_in_.find(link->peer());
  if (it != links_in_.end() && it->second == link) links_in_.erase(it);
}

void ShardLoop::OnRun(RunRequest request, std::shared_ptr<RunStream> stream) {
  if (head_ == nullptr) {
    stream->Fail(MakeFailure({.kind = FailureKind::kIncompatibleRecipe, .node = identity_.node},
                             "this node holds no head"));
    return;
  }
  const AttemptKey key = request.run.key;
  const absl::StatusOr<const OpenAttempt*> open =
      stage_.CheckRun(key, request.term, request.incarnation);
  if (!open.ok()) {
    stream->Fail(open.status());
    return;
  }
  request.run.route = (*open)->route;
  request.run.tokens_max = (*open)->tokens_max;
  const absl::Status status = head_->OnRun(std::move(request.run), around_.clock->Now());
  if (!status.ok()) {
    stream->Fail(status);
    return;
  }
  runs_[key] = std::move(stream);
  Drain();
}

void ShardLoop::OnRunClosed(const AttemptKey& key, const std::shared_ptr<RunStream>& stream) {
  const auto it = runs_.find(key);
  if (it == runs_.end() || it->second != stream) return;
  runs_.erase(it);
  head_->OnCancel(key, around_.clock->Now());
  Drain();
}

void ShardLoop::OnComputeDone(JobKind kind, ComputeDone done) {
  if (kind == JobKind::kLayers) {
    stage_.OnComputeDone(std::move(done), around_.clock->Now());
  } else {
    head_->OnComputeDone(std::move(done), around_.clock->Now());
  }
  Drain();
}

void ShardLoop::OnPeerLost(const StagePeer& peer, const absl::Status& /*reason*/) {
  stage_.OnLinkLost(peer, around_.clock->Now());
  Drain();
}

void ShardLoop::OnWake() {
  const Instant now = around_.clock->Now();
  stage_.OnTick(now);
  if (head_ != nullptr) head_->OnTick(now);
  Drain();
}

void ShardLoop::End(const absl::Status& reason) {
  const Instant now = around_.clock->Now();
  if (head_ != nullptr) head_->Halt(reason, now);
  stage_.CloseAll(now);
  Drain();
  for (const auto& [peer, link] : links_in_) link->Close(reason);
  links_in_.clear();
  for (const auto& [peer, link] : links_out_) around_.pulses->Drop(peer);
  links_out_.clear();
  for (const auto& [key, stream] : runs_) stream->Fail(reason);
  runs_.clear();
  around_.counters->attempts_open = 0;
  around_.counters->kv_pages_total = 0;
  around_.counters->kv_pages_free = 0;
}

void ShardLoop::Drain() {
  while (true) {
    StageActions stage = stage_.TakeActions();
    HeadActions head;
    if (head_ != nullptr) head = head_->TakeActions();
    if (stage.empty() && head.empty()) break;
    CarryOut(std::move(stage));
    CarryOut(std::move(head));
  }
  Publish();
}

void ShardLoop::Publish() {
  ShardCounters& counters = *around_.counters;
  const auto set = [](std::atomic<uint32_t>& counter, auto value) {
    counter.store(static_cast<uint32_t>(value), std::memory_order_relaxed);
  };
  set(counters.attempts_open, stage_.attempts_open());
  set(counters.kv_pages_total, stage_.kv().pages_total());
  set(counters.kv_pages_free, stage_.kv().pages_free());
  Instant wake = stage_.NextWake();
  if (head_ != nullptr) wake = std::min(wake, head_->NextWake());
  around_.timer->Set(wake);
}

void ShardLoop::CarryOut(StageActions actions) {
  const Instant now = around_.clock->Now();
  for (ComputeJob& job : actions.jobs) Submit(std::move(job));
  for (const StepComputed& step : actions.computed) {
    head_->OnLayersComputed(step.key, step.compute_time, now);
  }
  for (Forward& forward : actions.forwards) Send(std::move(forward));
  for (StageBundle& bundle : actions.returns) head_->OnReturn(std::move(bundle), now);
  for (const Refusal& refusal : actions.refusals) SendRefusal(refusal);
}

void ShardLoop::CarryOut(HeadActions actions) {
  const Instant now = around_.clock->Now();
  for (ComputeJob& job : actions.jobs) Submit(std::move(job));
  for (StageBundle& step : actions.steps) stage_.OnBundle({}, std::move(step), now);
  for (const TokenOut& token : actions.tokens) {
    const auto it = runs_.find(token.key);
    if (it != runs_.end()) it->second->SendToken(token);
  }
  for (const AttemptEnd& end : actions.ends) {
    const auto it = runs_.find(end.key);
    if (it == runs_.end()) continue;
    it->second->End(end);
    runs_.erase(it);
  }
}

void ShardLoop::Submit(ComputeJob job) {
  const JobKind kind = job.kind;
  const uint64_t id = job.id;
  auto post = [strand = around_.strand, weak = weak_from_this(), kind](ComputeDone done) {
    strand->Post([weak, kind, done = std::move(done)]() mutable {
      if (const std::shared_ptr<ShardLoop> loop = weak.lock()) {
        loop->OnComputeDone(kind, std::move(done));
      }
    });
  };
  const absl::Status status = executor_->Submit(std::move(job), post);
  if (status.ok()) return;
  ComputeDone refused;
  refused.id = id;
  refused.status = status;
  post(std::move(refused));
}

void ShardLoop::Send(Forward forward) {
  executor_->Rest();
  std::vector<StepKey> keys;
  keys.reserve(forward.bundle.rows.size());
  for (const BundleRow& row : forward.bundle.rows) keys.push_back(row.key);
  const absl::Status status = LinkTo(forward.to).Send(std::move(forward.bundle));
  if (status.ok()) return;
  for (const StepKey& key : keys) {
    stage_.OnRowFailure(forward.to.peer(), {.key = key, .status = status}, around_.clock->Now());
  }
}

void ShardLoop::SendRefusal(const Refusal& refusal) {
  if (refusal.to.is_own_head()) {
    if (head_ != nullptr) head_->OnRowFailure(refusal.failure, around_.clock->Now());
    return;
  }
  const auto it = links_in_.find(refusal.to);
  // Without a link the peer has noticed by itself that its rows are lost.
  if (it != links_in_.end()) it->second->SendRowFailure(refusal.failure);
}

LinkClient& ShardLoop::LinkTo(const RouteStage& stage) {
  const StagePeer peer = stage.peer();
  const auto found = links_out_.find(peer);
  if (found != links_out_.end()) return *found->second;
  // A life that has ended takes no link any more.
  std::erase_if(links_out_, [&](const auto& link) {
    const bool over = link.first.node == peer.node && link.first.incarnation < peer.incarnation;
    if (over) around_.pulses->Drop(link.first);
    return over;
  });
  around_.pulses->Want(peer, stage.address);
  LinkClientEvents events;
  events.on_row_failure = [strand = around_.strand, weak = weak_from_this(),
                           peer](RowFailure failure) {
    strand->Post([weak, peer, failure = std::move(failure)]() mutable {
      const std::shared_ptr<ShardLoop> loop = weak.lock();
      if (loop == nullptr) return;
      loop->stage_.OnRowFailure(peer, std::move(failure), loop->around_.clock->Now());
      loop->Drain();
    });
  };
  events.on_lost = [strand = around_.strand, weak = weak_from_this(), peer](const absl::Status&) {
    strand->Post([weak, peer] {
      const std::shared_ptr<ShardLoop> loop = weak.lock();
      if (loop == nullptr) return;
      loop->stage_.OnLinkLost(peer, loop->around_.clock->Now());
      loop->Drain();
    });
  };
  auto link = std::make_unique<LinkClient>(LinkClientOptions{.peer = peer,
                                                             .address = stage.address,
                                                             .hello = MakeHello(identity_, peer),
                                                             .hidden_dim = identity_.hidden_dim},
                                           std::move(events), around_.clock, around_.calls);
  return *links_out_.emplace(peer, std::move(link)).first->second;
}

}  // namespace shardline
