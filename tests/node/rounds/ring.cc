#include "tests/node/rounds/ring.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "node/rounds/head_core.h"
#include "node/stage/stage_core.h"
#include "tests/node/rounds/fake_device.h"
#include "tests/node/rounds/ring_parts.h"
#include "tests/node/rounds/scripted_proposer.h"

namespace shardline::testing {
namespace {

constexpr int32_t kLayers = 6;
constexpr int32_t kPages = 10;

class Ring {
 public:
  Ring(uint32_t seed, Faults faults)
      : random_(seed), faults_(faults), had_failed_steps_(faults.non_finite > 0) {
    const int stage_count = Pick(1, 5);
    const std::vector<int32_t> cuts = DrawCuts(random_, stage_count, kLayers);
    for (int i = 0; i < stage_count; ++i) {
      route_.push_back({.node = NodeId("n" + std::to_string(i)),
                        .incarnation = Incarnation(static_cast<uint64_t>(i) + 5),
                        .layers = {.begin = cuts[static_cast<size_t>(i)],
                                   .end = cuts[static_cast<size_t>(i) + 1]}});
    }
    for (int i = 0; i < stage_count; ++i) nodes_.push_back(MakeNode(static_cast<size_t>(i)));
    head_ = std::make_unique<HeadCore>(
        HeadOptions{.node = route_[0].node,
                    .layers = route_[0].layers,
                    .vocab_size = kFakeVocabSize,
                    .hidden_dim = kFakeHiddenDim,
                    .context_tokens_max = 64,
                    .chunk_tokens_max = Pick(1, 12),
                    .chunks_in_flight = Pick(1, 4),
                    .piece_tokens_decoding = Pick(1, 16),
                    .piece_tokens_idle = Pick(1, 32),
                    .attempts_max = static_cast<size_t>(Pick(1, 6)),
                    .queue_max = static_cast<size_t>(Pick(0, 4)),
                    .tenant_running_max = static_cast<size_t>(Pick(0, 2)),
                    .samples_max = static_cast<size_t>(Pick(1, 4)),
                    .drafts = faults.guesses != Guesses::kNobody,
                    .proposers = ProposersOf(faults.guesses, seed),
                    .step_timeout_min = absl::Hours(1),
                    .step_timeout_max = absl::Hours(1)});
    rounds_in_flight_ = Pick(0, 4);
    for (int i = Pick(2, 6); i > 0; --i) AddSession();
  }

  // Runs to the end, or fails the test after too many events.
  void Run() {
    for (int event = 0; event < 200000; ++event) {
      now_ = now_ + absl::Microseconds(100);
      if (!Step()) {
        if (AllDone()) break;
        ASSERT_TRUE(StartOne()) << "nothing moves, and not everybody is done";
      }
      for (const Node& node : nodes_) node.stage->kv().CheckConservation();
    }
    ASSERT_TRUE(AllDone()) << "still running after too many events";
    CheckEnd();
  }

  int ends() const { return static_cast<int>(ends_.size()); }
  const HeadStats& head_stats() const { return head_->stats(); }
  int refused() const { return refused_; }
  int waited() const { return waited_; }
  bool any_failed() const { return !failed_kinds_.empty(); }
  uint64_t Sum(uint64_t StageStats::*counter) const {
    uint64_t sum = 0;
    for (const Node& node : nodes_) sum += node.stage->stats().*counter;
    return sum;
  }

 private:
  using Node = RingNode;
  using Session = RingSession;
  using Link = std::pair<size_t, size_t>;

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  size_t PickIndex(size_t count) {
    return static_cast<size_t>(Pick(0, static_cast<int>(count) - 1));
  }

  // Null: those of the head itself.
  decltype(HeadOptions::proposers) ProposersOf(Guesses guesses, uint32_t seed) {
    if (guesses == Guesses::kNobody || guesses == Guesses::kOurs) return nullptr;
    return [this, guesses, seed](const RunAttempt& run) {
      return ScriptedProposers(guesses, seed, sessions_[run.key.session].request, kLayers);
    };
  }

  Node MakeNode(size_t index) {
    const RouteStage& place = route_[index];
    return {.stage = std::make_unique<StageCore>(StageOptions{
                .node = place.node,
                .incarnation = place.incarnation,
                .recipe = {.model_id = ModelId("m")},
                .layers = place.layers,
                .layers_total = kLayers,
                .is_head = index == 0,
                .hidden_dim = kFakeHiddenDim,
                .pages_total = kPages,
                .context_tokens_max = 64,
                .attempts_max = 16,
                .sessions_max = 64,
                .bundle_rows_max = 8,
                .bundle_tokens_max = 128,
                .job_tokens_max = Pick(1, 40),
                .jobs_in_flight_max = static_cast<size_t>(Pick(1, 2)),
                .resume_timeout = faults_.resume ? absl::Seconds(1) : absl::ZeroDuration()}),
            .device = std::make_unique<FakeDevice>(place.layers, kPages)};
  }

  void AddSession() {
    Session& session = sessions_[SessionId(sessions_.size() + 1)];
    session.tenant = Pick(0, 1) == 0 ? "a" : "b";
    session.request = DrawRequest(random_, faults_.guesses == Guesses::kNobody ? 12 : 24);
  }

  bool AllDone() const {
    return std::all_of(sessions_.begin(), sessions_.end(),
                       [](const auto& entry) { return entry.second.is_done; });
  }

  // Does one thing that can be done, drawn at random; false if there is none.
  bool Step() {
    if (Pick(0, 19) == 0 && StartOne()) return true;
    if (Pick(0, 19) == 0 && InjectFault()) return true;
    if (head_->NextWake() <= now_) {
      head_->OnTick(now_);
      Settle();
    }
    std::vector<int> kinds;
    std::vector<size_t> busy;
    std::vector<Link> links;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].jobs.empty()) busy.push_back(i);
    }
    for (const auto& [link, parcels] : links_) {
      if (!parcels.empty()) links.push_back(link);
    }
    if (!busy.empty()) kinds.insert(kinds.end(), {0, 0});
    if (!links.empty()) kinds.insert(kinds.end(), {1, 1});
    if (!signals_.empty()) kinds.push_back(2);
    if (!fences_.empty()) kinds.push_back(3);
    if (!dials_.empty()) kinds.push_back(4);
    if (!inspects_.empty()) kinds.push_back(5);
    if (!opens_.empty()) kinds.push_back(6);
    if (kinds.empty()) return PassTime();
    switch (kinds[PickIndex(kinds.size())]) {
      case 0:
        FinishJob(busy[PickIndex(busy.size())]);
        break;
      case 1:
        Deliver(links[PickIndex(links.size())]);
        break;
      case 2: {
        const Signal signal = signals_.front();
        signals_.pop_front();
        StageCore& stage = *nodes_[signal.to].stage;
        const StagePeer from = route_[signal.from].peer();
        if (signal.failure) stage.OnRowFailure(from, *signal.failure, now_);
        if (!signal.failure) stage.OnInspectReply(from, signal.statuses, now_);
        break;
      }
      case 3:
        DeliverFence(PickIndex(fences_.size()));
        break;
      case 4:
        Dial(*std::next(dials_.begin(), Pick(0, static_cast<int>(dials_.size()) - 1)));
        break;
      case 5: {
        const auto [link, rows] = inspects_.front();
        inspects_.pop_front();
        nodes_[link.second].stage->OnInspect(route_[link.first].peer(), rows, now_);
        break;
      }
      default: {
        const OpenAttempt open = opens_.front();
        opens_.pop_front();
        if (!nodes_[open.stage_index].stage->Open(open, now_).ok()) Abandon(open.key);
      }
    }
    Settle();
    return true;
  }

  // Time passes only when nothing else can: a doubt has no answer to come, or a step is to go
  // again.
  bool PassTime() {
    Instant wake = head_->NextWake();
    for (const Node& node : nodes_) wake = std::min(wake, node.stage->NextWake());
    if (wake > now_ + absl::Seconds(2)) return false;
    now_ = std::max(now_, wake);
    for (const Node& node : nodes_) node.stage->OnTick(now_);
    head_->OnTick(now_);
    Settle();
    return true;
  }

  // The receiver shuts the older connections out before the sender hears that the new one stands.
  void Dial(Link link) {
    dials_.erase(link);
    StageCore& sender = *nodes_[link.first].stage;
    if (faults_.dials_fail && Pick(0, 1) == 0) {
      now_ = now_ + absl::Milliseconds(Pick(0, 400));
      std::erase_if(links_[link],
                    [&](const Parcel& parcel) { return parcel.connection > redials_[link] + 1; });
      sender.OnLinkLost(route_[link.second].peer(), Reset(), now_);
      return;
    }
    EXPECT_TRUE(nodes_[link.second]
                    .stage->OnLinkAccepted(route_[link.first].peer(), ++redials_[link] + 1)
                    .ok());
    sender.OnLinkUp(route_[link.second].peer(), now_);
  }

  // What is sent while the link is down waits for its next connection.
  uint64_t ConnectionOf(const Link& link) {
    return redials_[link] + (dials_.contains(link) ? 2 : 1);
  }

  static absl::Status Reset() { return MakeFailure(FailureKind::kStreamReset, "cut"); }

  void Cut(const Link& link) {
    // A prefix still arrives, if nobody has shut it out by then.
    std::deque<Parcel>& parcels = links_[link];
    parcels.resize(PickIndex(parcels.size() + 1));
    std::erase_if(signals_, [&](const Signal& signal) {
      return signal.from == link.second && signal.to == link.first;
    });
    std::erase_if(inspects_, [&](const auto& inspect) { return inspect.first == link; });
    nodes_[link.first].stage->OnLinkLost(route_[link.second].peer(), Reset(), now_);
    // As a node does, whether or not anything is in doubt; or what is sent next would be lost.
    if (faults_.resume) dials_.insert(link);
    Settle();
  }

  void FinishJob(size_t index) {
    Node& node = nodes_[index];
    const ComputeJob job = std::move(node.jobs.front());
    node.jobs.pop_front();
    ComputeDone done = node.device->Run(job);
    if (job.kind == JobKind::kFinish) return head_->OnComputeDone(std::move(done), now_);
    if (faults_.non_finite > 0 && Pick(0, 30) == 0) {
      --faults_.non_finite;
      done.slice_status[PickIndex(done.slice_status.size())] =
          MakeFailure(FailureKind::kNonFinite, "made so");
    }
    node.stage->OnComputeDone(std::move(done), now_);
  }

  // Takes up to three rows out of a link, the first of their attempts each, as one bundle.
  void Deliver(const Link& link) {
    std::deque<Parcel>& parcels = links_[link];
    StageBundle bundle;
    std::vector<float> values;
    for (int i = Pick(1, 3); i > 0 && !parcels.empty(); --i) {
      const AttemptKey key = parcels[PickIndex(parcels.size())].row.key.attempt;
      const auto first = std::find_if(parcels.begin(), parcels.end(), [&](const Parcel& parcel) {
        return parcel.row.key.attempt == key;
      });
      if (!bundle.rows.empty() && first->connection != bundle.connection) break;
      bundle.connection = first->connection;
      bundle.rows.push_back(first->row);
      const auto floats = first->hidden->floats();
      values.insert(values.end(), floats.begin(), floats.end());
      parcels.erase(first);
    }
    const std::shared_ptr<Buffer> hidden = Buffer::Allocate(values.size() * sizeof(float));
    std::copy(values.begin(), values.end(), hidden->floats().begin());
    bundle.hidden = hidden;
    nodes_[link.second].stage->OnBundle(route_[link.first].peer(), std::move(bundle), now_);
  }

  void DeliverFence(size_t index) {
    const FenceOrder order = fences_[index];
    fences_.erase(fences_.begin() + static_cast<std::ptrdiff_t>(index));
    nodes_[order.node].stage->Fence(order.key.session, order.key.epoch, Term(1), now_);
    if (order.node == 0) {
      head_->OnFence(order.key.session, order.key.epoch, FailureKind::kNone, now_);
    }
  }

  bool InjectFault() {
    switch (Pick(0, 2)) {
      case 0: {
        if (faults_.copies == 0 || history_.empty()) return false;
        --faults_.copies;
        // Half of them at once, to meet the original at work; the others however late.
        const auto& [link, parcel] =
            Pick(0, 1) == 0 ? history_.back() : history_[PickIndex(history_.size())];
        links_[link].push_back(parcel);
        links_[link].back().connection = 0;
        return true;
      }
      case 1: {
        if (faults_.fences == 0) return false;
        auto it = sessions_.begin();
        std::advance(it, Pick(0, static_cast<int>(sessions_.size()) - 1));
        if (!it->second.is_running) return false;
        --faults_.fences;
        Abandon({it->first, Epoch(it->second.epoch)});
        return true;
      }
      default: {
        if (faults_.cuts == 0 || links_.empty()) return false;
        --faults_.cuts;
        auto it = links_.begin();
        std::advance(it, Pick(0, static_cast<int>(links_.size()) - 1));
        Cut(it->first);
        return true;
      }
    }
  }

  // The session goes on under another epoch, if this is still its own.
  void Abandon(const AttemptKey& key) {
    FenceEverywhere(key);
    Session& session = sessions_[key.session];
    if (session.epoch == key.epoch.value()) session.is_running = false;
  }

  void FenceEverywhere(const AttemptKey& key) {
    for (size_t i = 0; i < nodes_.size(); ++i) fences_.push_back({i, key});
  }

  // Opens a waiting session on its next epoch; a refusal takes everything back.
  bool StartOne() {
    for (auto& [id, session] : sessions_) {
      if (session.is_running || session.is_done) continue;
      const AttemptKey key{id, Epoch(++session.epoch)};
      const auto prompt = static_cast<int32_t>(session.request.prompt.size());
      const int32_t tokens_max = prompt + session.request.new_tokens_max;
      bool is_open = true;
      for (size_t i = 0; i < nodes_.size() && is_open; ++i) {
        const OpenAttempt open{.key = key,
                               .term = Term(1),
                               .incarnation = route_[i].incarnation,
                               .recipe = {.model_id = ModelId("m")},
                               .stage_index = static_cast<uint32_t>(i),
                               .route = route_,
                               .tokens_max = tokens_max,
                               .budget = absl::Hours(1)};
        const bool is_late = faults_.late_opens && i > 0 && Pick(0, 1) == 0;
        if (is_late) opens_.push_back(open);
        if (!is_late) is_open = nodes_[i].stage->Open(open, now_).ok();
      }
      if (!is_open) {
        FenceEverywhere(key);
        continue;
      }
      session.is_running = true;
      const absl::Status status = head_->OnRun({.key = key,
                                                .prompt = session.request.prompt,
                                                .delivered = session.delivered,
                                                .new_tokens_max = session.request.new_tokens_max,
                                                .sampling = session.request.sampling,
                                                .stop_tokens = session.request.stop_tokens,
                                                .budget = absl::Hours(1),
                                                .route = route_,
                                                .tokens_max = tokens_max,
                                                .tenant = session.tenant,
                                                .rounds_in_flight = rounds_in_flight_,
                                                .step_cost = absl::Seconds(1),
                                                .row_cost = absl::Milliseconds(1)},
                                               now_);
      Settle();
      if (!status.ok()) {
        EXPECT_EQ(FailureKindOf(status), FailureKind::kOverloaded) << status;
        ++refused_;
        Abandon(key);
        return true;
      }
      ++runs_;
      return true;
    }
    return !fences_.empty();
  }

  // Carries out actions until nobody has any.
  void Settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < nodes_.size(); ++i) {
        StageActions actions = nodes_[i].stage->TakeActions();
        moved = moved || !actions.empty();
        CarryOut(i, actions);
      }
      HeadActions actions = head_->TakeActions();
      moved = moved || !actions.empty();
      CarryOut(actions);
    }
  }

  void CarryOut(size_t index, StageActions& actions) {
    for (ComputeJob& job : actions.jobs) nodes_[index].jobs.push_back(std::move(job));
    for (const StepComputed& computed : actions.computed) {
      head_->OnLayersComputed(computed.key, computed.compute_time, now_);
    }
    for (const Forward& forward : actions.forwards) {
      const Link link{index, IndexOf(forward.to.node)};
      size_t row_index = 0;
      for (const BundleRow& row : forward.bundle.rows) {
        const size_t floats = static_cast<size_t>(row.token_count * kFakeHiddenDim);
        const std::shared_ptr<Buffer> piece = Buffer::Allocate(floats * sizeof(float));
        const auto from = forward.bundle.hidden->floats().subspan(row_index, floats);
        std::copy(from.begin(), from.end(), piece->floats().begin());
        row_index += floats;
        links_[link].push_back({row, piece, ConnectionOf(link)});
        history_.push_back({link, {row, piece}});
        if (history_.size() > 60) history_.pop_front();
      }
    }
    for (StageBundle& bundle : actions.returns) head_->OnReturn(std::move(bundle), now_);
    for (const InspectAnswer& answer : actions.answers) {
      signals_.push_back({index, IndexOf(answer.to.node), std::nullopt, answer.statuses});
    }
    for (const Refusal& refusal : actions.refusals) {
      if (refusal.to.is_own_head()) {
        EXPECT_EQ(index, 0U);
        head_->OnRowFailure(refusal.failure, now_);
      } else {
        signals_.push_back({index, IndexOf(refusal.to.node), refusal.failure, {}});
      }
    }
    for (const Inspect& inspect : actions.inspects) {
      inspects_.push_back({{index, IndexOf(inspect.to.node)}, inspect.rows});
    }
    for (const RouteStage& stage : actions.redials) dials_.insert({index, IndexOf(stage.node)});
    for (const Announcement& plan : actions.plans) {
      if (plan_random_() % 4 == 0) continue;                                // It is lost.
      const BundleRow& row = plan.rows[plan_random_() % plan.rows.size()];  // One by one they go.
      nodes_[IndexOf(plan.to.node)].stage->OnPlan(route_[index].peer(), {row}, now_);
    }
  }

  void CarryOut(HeadActions& actions) {
    for (ComputeJob& job : actions.jobs) nodes_[0].jobs.push_back(std::move(job));
    if (actions.plan_is_off) nodes_[0].stage->OnPlan({}, {}, now_);
    for (StageBundle& bundle : actions.steps)
      nodes_[0].stage->OnBundle({}, std::move(bundle), now_);
    if (actions.plan) nodes_[0].stage->OnPlan({}, *actions.plan, now_);
    for (const TokenOut& token : actions.tokens) {
      Session& session = sessions_[token.key.session];
      if (!session.is_running || token.key.epoch.value() != session.epoch) continue;
      ASSERT_EQ(token.index, session.delivered.size());
      session.delivered.push_back(token.token.token);
    }
    for (const AttemptEnd& end : actions.ends) {
      EXPECT_EQ(++ends_[end.key], 1) << "an attempt ended twice";
      waited_ += end.timings.queued > absl::ZeroDuration() ? 1 : 0;
      Session& session = sessions_[end.key.session];
      if (!session.is_running || end.key.epoch.value() != session.epoch) continue;
      session.is_running = false;
      session.is_done = end.status.ok();
      if (end.status.ok()) EXPECT_EQ(end.tokens, session.delivered.size());
      if (!end.status.ok()) failed_kinds_[FailureKindOf(end.status)] = end.status.ToString();
      FenceEverywhere(end.key);
    }
  }

  size_t IndexOf(const NodeId& node) const {
    for (size_t i = 0; i < route_.size(); ++i) {
      if (route_[i].node == node) return i;
    }
    ADD_FAILURE() << "no node " << node.value();
    return 0;
  }

  void CheckEnd() {
    while (Step()) {
    }
    for (const auto& [id, session] : sessions_) {
      EXPECT_EQ(session.delivered, PlainTokens(session.request, kLayers))
          << "session " << id.value();
    }
    for (const Node& node : nodes_) {
      EXPECT_EQ(node.stage->kv().pages_free(), kPages);
      EXPECT_EQ(node.stage->attempts_open(), 0U);
      EXPECT_EQ(node.stage->rows_waiting(), 0U);
      // A step that failed for certain may come again, as a copy does then.
      if (!had_failed_steps_) EXPECT_EQ(node.device->repeats(), 0) << "a step was computed twice";
    }
    EXPECT_EQ(head_->attempts_running(), 0U);
    EXPECT_EQ(head_->stages_standing(), 0U);
    EXPECT_EQ(head_->slots_free(), head_->options().attempts_max);
    EXPECT_EQ(ends(), runs_) << "every attempt ends once";
    for (const auto& [kind, message] : failed_kinds_) {
      // A copy that overtakes what a cut took is a gap where it arrives.
      EXPECT_TRUE(kind == FailureKind::kNonFinite || kind == FailureKind::kStreamReset ||
                  (faults_.late_opens && kind == FailureKind::kCacheMiss) ||
                  ((faults_.dials_fail || !faults_.resume) && kind == FailureKind::kStepConflict))
          << "ended with what nobody caused: " << message;
    }
  }

  std::mt19937 random_;
  std::mt19937 plan_random_{1};  // Plans move no other draw.
  Faults faults_;                // Still to come.
  const bool had_failed_steps_;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  int32_t rounds_in_flight_ = 0;
  std::vector<RouteStage> route_;
  std::vector<Node> nodes_;
  std::unique_ptr<HeadCore> head_;
  std::map<SessionId, Session> sessions_;
  std::map<Link, std::deque<Parcel>> links_;
  std::deque<std::pair<Link, Parcel>> history_;
  std::deque<Signal> signals_;
  std::set<Link> dials_;
  std::deque<std::pair<Link, std::vector<InspectRow>>> inspects_;
  std::map<Link, uint64_t> redials_;
  std::vector<FenceOrder> fences_;
  std::deque<OpenAttempt> opens_;  // On their way.
  std::map<AttemptKey, int> ends_;
  std::map<FailureKind, std::string> failed_kinds_;  // And the last message of each.
  int runs_ = 0;
  int refused_ = 0;
  int waited_ = 0;
};

}  // namespace

RingStats RunSeeds(uint32_t first, uint32_t count, const Faults& faults) {
  RingStats sum;
  int refused = 0;
  int waited = 0;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Ring ring(seed, faults);
    ring.Run();
    sum.tokens_drafted += ring.head_stats().tokens_drafted;
    sum.tokens_accepted += ring.head_stats().tokens_accepted;
    for (uint64_t StageStats::*counter :
         {&StageStats::rows_committed, &StageStats::rows_refused, &StageStats::rows_replayed,
          &StageStats::rows_in_flight_copies, &StageStats::rows_discarded,
          &StageStats::rows_non_finite, &StageStats::opens_refused, &StageStats::failures_passed,
          &StageStats::attempts_in_doubt, &StageStats::attempts_resumed, &StageStats::rows_resent,
          &StageStats::plans_promoted, &StageStats::plans_displaced,
          &StageStats::bundles_shut_out}) {
      sum.*counter += ring.Sum(counter);
    }
    refused += ring.refused();
    waited += ring.waited();
    if (faults.cuts > 0 && faults.resume && !faults.dials_fail && faults.non_finite == 0) {
      EXPECT_FALSE(ring.any_failed()) << "a link that stands again loses nothing";
    }
    if (::testing::Test::HasFailure()) break;
  }
  if (count >= 100 && !::testing::Test::HasFailure()) {
    EXPECT_GT(refused, 0) << "queues must be full now and then";
    EXPECT_GT(waited, 0);
    EXPECT_GT(std::min(sum.plans_promoted, sum.plans_displaced), 0U);
  }
  return sum;
}

}  // namespace shardline::testing
