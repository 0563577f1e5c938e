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

// An announcement wakes a thread at the next stage, 50 to 100 us of CPU: a hundredth of such a job.
constexpr absl::Duration kAnnounceMin = absl::Milliseconds(10);

StageOptions StageOptionsOf(const ShardSurroundings& around, const LinkIdentity& identity,
                            const ShardOrder& order, const LoadedShard& loaded) {
  return {.node = identity.node,
          .incarnation = identity.incarnation,
          .recipe = identity.recipe,
          .layers = order.layers,
          .layers_total = loaded.layers_total,
          .is_head = order.is_head,
          .hidden_dim = loaded.hidden_dim,
          .pages_total = order.kv_pages,
          .context_tokens_max = loaded.context_tokens_max,
          .announce_min = kAnnounceMin,
          .job_cost = loaded.cost,
          .resume_timeout = around.resume_timeout,
          .floor = around.floor};
}

HeadOptions HeadOptionsOf(const LinkIdentity& identity, const ShardOrder& order,
                          const LoadedShard& loaded, bool drafts) {
  return {.node = identity.node,
          .layers = order.layers,
          .vocab_size = loaded.vocab_size,
          .hidden_dim = loaded.hidden_dim,
          .context_tokens_max = loaded.context_tokens_max,
          .chunk_tokens_max = order.chunk_tokens_max,
          .drafts = drafts,
          .vocabulary = loaded.vocabulary};
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
      stage_(StageOptionsOf(surroundings, identity_, order, loaded)) {
  if (order.is_head) {
    head_ =
        std::make_unique<HeadCore>(HeadOptionsOf(identity_, order, loaded, surroundings.drafts));
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

void ShardLoop::OnLiveAttempts(Term term, uint64_t as_of, const std::vector<AttemptKey>& keys) {
  const Instant now = around_.clock->Now();
  for (const AttemptKey& key : stage_.OnLiveAttempts(term, as_of, keys, now)) {
    LogWarning("attempt unlisted",
               {{"session", key.session.value()}, {"epoch", key.epoch.value()}});
    if (head_ != nullptr) head_->OnFence(key.session, key.epoch, FailureKind::kStaleEpoch, now);
  }
  Drain();
}

void ShardLoop::OnFloor(Term term, SessionId floor) { stage_.OnFloor(term, floor); }

void ShardLoop::OnPeerLost(const StagePeer& peer, const absl::Status& reason) {
  const auto link = links_out_.find(peer);
  if (link == links_out_.end()) return;
  stage_.OnLinkLost(peer, reason, around_.clock->Now());
  link->second->Drop();
  Drain();
}

void ShardLoop::OnPeerRecovered(const StagePeer& peer) {
  const auto link = links_out_.find(peer);
  if (link != links_out_.end()) link->second->Dial();
}

void ShardLoop::OnLinkOpened(std::shared_ptr<LinkHandle> link) {
  // The hello was judged by what the node was then.
  if (link->accepted_by() != identity_) {
    link->Close(MakeFailure({.kind = FailureKind::kWorkerDeath, .node = identity_.node},
                            "this node holds another shard, or lives anew, since the hello"));
    return;
  }
  const StagePeer peer = link->peer();
  if (const absl::Status status = stage_.OnLinkAccepted(peer, link->connection()); !status.ok()) {
    link->Close(status);
    return;
  }
  LogInfo("link accepted", {{"peer", peer.node}, {"connection", link->connection()}});
  // The older connection is shut out before the newer is welcomed and may ask.
  std::shared_ptr<LinkHandle>& standing = links_in_[peer];
  if (standing != nullptr) {
    standing->Close(MakeFailure({.kind = FailureKind::kStreamReset, .node = identity_.node},
                                "a newer connection has taken its place"));
  }
  standing = std::move(link);
  standing->Welcome();
}

bool ShardLoop::Stands(const std::shared_ptr<LinkHandle>& link) const {
  const auto it = links_in_.find(link->peer());
  return it != links_in_.end() && it->second == link;
}

void ShardLoop::OnInspect(const std::shared_ptr<LinkHandle>& link,
                          const std::vector<InspectRow>& rows) {
  if (!Stands(link)) return;
  stage_.OnInspect(link->peer(), rows, around_.clock->Now());
  Drain();
}

void ShardLoop::OnBundle(const std::shared_ptr<LinkHandle>& link, uint64_t sequence,
                         StageBundle bundle) {
  if (!Stands(link)) return;
  bundle.connection = link->connection();
  stage_.OnBundle(link->peer(), std::move(bundle), around_.clock->Now());
  Drain();
  link->Ack(sequence);
}

void ShardLoop::OnPlan(const std::shared_ptr<LinkHandle>& link) {
  const std::vector<BundleRow> rows = link->TakePlan();
  if (!Stands(link)) return;
  stage_.OnPlan(link->peer(), rows, around_.clock->Now());
  Drain();
}

void ShardLoop::OnLinkClosed(const std::shared_ptr<LinkHandle>& link) {
  if (Stands(link)) links_in_.erase(link->peer());
}

void ShardLoop::OnRun(RunRequest request, std::shared_ptr<RunStream> stream) {
  if (head_ == nullptr) {
    stream->Fail(MakeFailure({.kind = FailureKind::kIncompatibleRecipe, .node = identity_.node},
                             "this node holds no head"));
    return;
  }
  const AttemptKey key = request.run.key;
  const absl::StatusOr<const OpenAttempt*> open =
      stage_.CheckRun(key, request.term, request.incarnation, request.capability);
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

void ShardLoop::OnWake() {
  const Instant now = around_.clock->Now();
  stage_.OnTick(now);
  if (head_ != nullptr) head_->OnTick(now);
  Drain();
}

void ShardLoop::DrainRuns(const absl::Status& reason, Instant deadline) {
  if (head_ == nullptr) return;
  head_->Drain(reason, deadline, around_.clock->Now());
  Drain();
}

void ShardLoop::End(const absl::Status& reason) {
  const Instant now = around_.clock->Now();
  if (head_ != nullptr) head_->Halt(reason, now);
  stage_.CloseAll(now);
  Drain();
  for (const auto& [peer, link] : links_in_) link->Close(reason);
  links_in_.clear();
  for (const auto& [peer, link] : links_out_) {
    if (around_.on_peer_dropped) around_.on_peer_dropped(peer);
  }
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
  for (const InspectAnswer& answer : actions.answers) {
    const auto it = links_in_.find(answer.to);
    if (it != links_in_.end()) it->second->SendStatus(answer.statuses);
  }
  for (const Refusal& refusal : actions.refusals) SendRefusal(refusal);
  for (const Inspect& inspect : actions.inspects) LinkTo(inspect.to).Inspect(inspect.rows);
  for (const RouteStage& stage : actions.redials) LinkTo(stage).Dial();
  for (const Announcement& plan : actions.plans) {
    const auto link = links_out_.find(plan.to.peer());
    if (link != links_out_.end()) link->second->SendPlan(plan.rows);
  }
}

void ShardLoop::CarryOut(HeadActions actions) {
  const Instant now = around_.clock->Now();
  for (ComputeJob& job : actions.jobs) Submit(std::move(job));
  if (actions.plan_is_off) stage_.OnPlan({}, {}, now);
  for (StageBundle& step : actions.steps) stage_.OnBundle({}, std::move(step), now);
  if (actions.plan) stage_.OnPlan({}, *actions.plan, now);
  for (const ProgressOut& progress : actions.progress) {
    const auto it = runs_.find(progress.key);
    if (it != runs_.end()) it->second->SendProgress(progress);
  }
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
    const bool is_over = link.first.node == peer.node && link.first.incarnation < peer.incarnation;
    if (is_over && around_.on_peer_dropped) around_.on_peer_dropped(link.first);
    return is_over;
  });
  if (around_.on_peer_wanted) around_.on_peer_wanted(stage);
  auto link = std::make_unique<LinkClient>(LinkClientOptions{.peer = peer,
                                                             .address = stage.address,
                                                             .hello = MakeHello(identity_, peer),
                                                             .hidden_dim = identity_.hidden_dim},
                                           EventsOf(peer), around_.clock, around_.calls);
  return *links_out_.emplace(peer, std::move(link)).first->second;
}

LinkClientEvents ShardLoop::EventsOf(const StagePeer& peer) {
  // Each event is one of the core's, on the strand, if this life still lasts.
  const auto post = [strand = around_.strand, weak = weak_from_this()](auto&& event) {
    strand->Post([weak, event = std::forward<decltype(event)>(event)]() mutable {
      const std::shared_ptr<ShardLoop> loop = weak.lock();
      if (loop == nullptr) return;
      event(*loop, loop->around_.clock->Now());
      loop->Drain();
    });
  };
  LinkClientEvents events;
  events.on_up = [post, peer] {
    post([peer](ShardLoop& loop, Instant now) { loop.stage_.OnLinkUp(peer, now); });
  };
  events.on_status = [post, peer](std::vector<InspectStatus> statuses) {
    post([peer, statuses = std::move(statuses)](ShardLoop& loop, Instant now) {
      loop.stage_.OnInspectReply(peer, statuses, now);
    });
  };
  events.on_row_failure = [post, peer](RowFailure failure) {
    post([peer, failure = std::move(failure)](ShardLoop& loop, Instant now) {
      loop.stage_.OnRowFailure(peer, failure, now);
    });
  };
  events.on_lost = [post, peer](const absl::Status& reason) {
    post([peer, reason](ShardLoop& loop, Instant now) {
      const auto link = loop.links_out_.find(peer);
      if (link != loop.links_out_.end()) link->second->HearLoss();
      loop.stage_.OnLinkLost(peer, reason, now);
    });
  };
  return events;
}

}  // namespace shardline
