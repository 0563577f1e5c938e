// Random joins, losses, reports, probes, suspicions and plans against a RouteTable: whatever
// comes, a route is whole, lives and is proven; and when the trouble ends every model heals.

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "coordinator/routing/ring_choice.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/routing/routing_world.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

class Chaos {
 public:
  explicit Chaos(uint64_t seed) : random_(seed) {}

  void Run(int steps) {
    for (int i = 0; i < 7; ++i) names_.push_back("n" + std::to_string(i));
    const std::vector<std::vector<std::string>> ranges = {{"n0", "n1"}, {"n2"}, {"n3", "n4"}};
    ASSERT_THAT(table_.OnPlan(PlanOf(++epoch_, ranges, 2), now_), IsOk());
    plan_epoch_ = epoch_;
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      Step();
      Obey(false);
      Check();
    }
    Heal();
  }

 private:
  uint64_t Pick(uint64_t n) { return random_() % n; }
  NodeId Any() { return NodeId(names_[Pick(names_.size())]); }

  void Step() {
    now_ = now_ + absl::Milliseconds(static_cast<int64_t>(Pick(400)));
    const NodeId node = Any();
    switch (Pick(8)) {
      case 0:
        if (lives_.contains(node)) Lose(node);
        break;
      case 1:
      case 2:
        if (!lives_.contains(node)) Join(node);
        break;
      case 3:
        table_.OnLinkSuspected(node, Any(), now_);
        break;
      case 4:
        Fail(node);
        break;
      case 5:
        AnswerReplan();
        break;
      default:
        table_.OnTick(now_);
    }
  }

  void Join(const NodeId& node) {
    lives_[node] = Incarnation(++incarnations_);
    held_.erase(node);
    proven_.erase(node);
    table_.OnNodeReady(node, lives_[node], node.value() + ":1", std::nullopt, now_);
  }
  void Lose(const NodeId& node) {
    table_.OnNodeLost(node, lives_[node], FailureKind::kWorkerDeath, "stream reset", now_);
    lives_.erase(node);
    proven_.erase(node);
  }
  void Fail(const NodeId& node) {
    if (!lives_.contains(node) || !held_.contains(node) || Pick(4) != 0) return;
    proven_.erase(node);
    table_.OnShardReport(node, lives_[node],
                         ShardReport{.plan = PlanEpoch(held_[node]),
                                     .state = ShardState::kFailed,
                                     .failure = absl::NotFoundError("no file")},
                         now_);
  }

  // The owner's part: over what lives, two ranges if it can.
  void AnswerReplan() {
    if (!asked_.has_value()) return;
    const RouteActions::Replan ask = *std::exchange(asked_, std::nullopt);
    std::vector<std::string> fit;
    for (const auto& [node, life] : lives_) {
      const StagePeer peer{node, life};
      const auto& avoid = ask.avoid.nodes;
      if (std::find(avoid.begin(), avoid.end(), peer) == avoid.end()) fit.push_back(node.value());
    }
    if (fit.empty()) {
      return table_.OnReplanRefused("qwen3", ask.plan, "no node", now_);
    }
    std::vector<std::vector<std::string>> ranges(std::min<size_t>(fit.size(), 3));
    for (size_t i = 0; i < fit.size(); ++i) ranges[i % ranges.size()].push_back(fit[i]);
    if (table_.OnReplan(PlanOf(++epoch_, ranges, 2), now_).ok()) {
      ASSERT_GT(epoch_, plan_epoch_);
      plan_epoch_ = epoch_;
      proven_.clear();
    }
  }

  void Obey(bool all) {
    RouteActions actions = table_.TakeActions();
    for (RouteActions::Replan& ask : actions.replan) asked_ = std::move(ask);
    for (const RouteActions::Load& load : actions.load) {
      ASSERT_EQ(lives_.at(load.node), load.incarnation);
      held_[load.node] = load.plan.value();
      proven_.erase(load.node);
      if (all || Pick(4) != 0) loading_.push_back(load);
    }
    for (const RouteActions::Probe& probe : actions.probe) probes_.push_back(probe);
    std::shuffle(loading_.begin(), loading_.end(), random_);
    while (!loading_.empty() && (all || Pick(2) == 0)) {
      const RouteActions::Load load = loading_.back();
      loading_.pop_back();
      table_.OnShardReport(load.node, load.incarnation, LoadedReport(load.plan), now_);
    }
    while (!probes_.empty() && (all || Pick(2) == 0)) {
      const RouteActions::Probe probe = probes_.back();
      probes_.pop_back();
      const bool passes = all || Pick(3) != 0;
      if (passes) Prove(probe);
      table_.OnProbeDone(probe.plan, probe.number,
                         passes ? absl::OkStatus() : MakeFailure(FailureKind::kStreamReset, "cut"),
                         now_);
    }
  }
  void Prove(const RouteActions::Probe& probe) {
    for (const RouteStage& stage : probe.route.stages) {
      auto life = lives_.find(stage.node);
      if (life == lives_.end() || life->second != stage.incarnation) continue;
      if (probe.plan.value() == plan_epoch_) proven_.insert(stage.node);
    }
  }

  void Check() {
    RouteSuspects avoid;
    for (const auto& [node, life] : lives_) {
      if (Pick(6) == 0) avoid.nodes.push_back({node, life});
    }
    const absl::StatusOr<Route> route = table_.RouteFor("qwen3", avoid, now_);
    const ModelView view = table_.List(now_).front();
    ASSERT_EQ(view.plan.epoch.value(), plan_epoch_);
    if (!route.ok()) {
      ASSERT_NE(FailureKindOf(route.status()), FailureKind::kNone) << route.status();
      ASSERT_GT(FailureDetailOf(route.status()).retry_after, absl::ZeroDuration());
      ++refused_;
      return;
    }
    ++routed_;
    ASSERT_EQ(view.state, ModelState::kReady);
    ASSERT_EQ(route->plan.value(), plan_epoch_);
    int32_t next = 0;
    for (const RouteStage& stage : route->stages) {
      ASSERT_EQ(stage.layers.begin, next);
      next = stage.layers.end;
      ASSERT_TRUE(lives_.contains(stage.node)) << stage.node.value() << " is lost";
      ASSERT_EQ(lives_[stage.node], stage.incarnation);
      ASSERT_TRUE(proven_.contains(stage.node)) << stage.node.value() << " is not proven";
      ASSERT_EQ(std::count(avoid.nodes.begin(), avoid.nodes.end(), stage.peer()), 0);
    }
    ASSERT_EQ(next, view.plan.layer_count);
  }

  // Everybody lives, loads and passes: ready within the table's own patience.
  void Heal() {
    for (const std::string& name : names_) {
      if (lives_.contains(NodeId(name))) Lose(NodeId(name));
      Join(NodeId(name));
    }
    for (int i = 0; i < 40; ++i) {
      now_ = now_ + absl::Seconds(1);
      table_.OnTick(now_);
      AnswerReplan();
      for (int j = 0; j < 20; ++j) Obey(true);
    }
    ASSERT_THAT(table_.RouteFor("qwen3", {}, now_), IsOk());
    for (int i = 0; i < 60; ++i) {
      now_ = now_ + absl::Seconds(1);
      table_.OnTick(now_);
      Obey(true);
    }
    ASSERT_EQ(table_.NextWake(), Instant::InfiniteFuture()) << "it never rests";
  }

 public:
  int routed_ = 0;
  int refused_ = 0;

 private:
  std::mt19937_64 random_;
  RouteTable table_{RouteTableOptions{}};
  Instant now_ = At(0);
  std::vector<std::string> names_;
  std::map<NodeId, Incarnation> lives_;
  std::map<NodeId, uint64_t> held_;  // The plan of the last order.
  std::set<NodeId> proven_;          // Of lives under the plan in force.
  uint64_t incarnations_ = 0;
  uint64_t epoch_ = 0;
  uint64_t plan_epoch_ = 0;
  std::optional<RouteActions::Replan> asked_;
  std::vector<RouteActions::Load> loading_;
  std::vector<RouteActions::Probe> probes_;
};

TEST(RouteProperty, ARouteIsWholeLiveAndProvenWhateverComesAndTheModelHeals) {
  int routed = 0;
  int refused = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Chaos chaos(seed);
    chaos.Run(120);
    if (::testing::Test::HasFatalFailure()) return;
    routed += chaos.routed_;
    refused += chaos.refused_;
  }
  EXPECT_GT(routed, 10'000);
  EXPECT_GT(refused, 10'000);
}

TEST(RingChoice, IsTheCheapestOfAllRings) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::vector<RingShard>> ranges(1 + random() % 4);
    int named = 0;
    for (std::vector<RingShard>& range : ranges) {
      range.resize(random() % 4);
      for (RingShard& shard : range) {
        shard = {.node = NodeId(std::to_string(named++)), .cost = random() % 5};
      }
    }
    std::map<std::pair<NodeId, NodeId>, std::optional<uint64_t>> links;
    const auto link_cost = [&](const NodeId& from, const NodeId& to) {
      auto [link, is_new] = links.try_emplace({from, to});
      if (is_new && random() % 3 != 0) link->second = random() % 5;
      return link->second;
    };
    std::optional<uint64_t> best;
    std::vector<size_t> at(ranges.size());
    const auto cost_of = [&](const std::vector<size_t>& ring) -> std::optional<uint64_t> {
      uint64_t cost = 0;
      for (size_t r = 0; r < ranges.size(); ++r) {
        const RingShard& shard = ranges[r][ring[r]];
        cost += shard.cost;
        if (ranges.size() == 1) return cost;
        const size_t next = (r + 1) % ranges.size();
        const std::optional<uint64_t> link = link_cost(shard.node, ranges[next][ring[next]].node);
        if (!link.has_value()) return std::nullopt;
        cost += *link;
      }
      return cost;
    };
    const auto walk = [&](auto&& self, size_t r) -> void {
      if (r == ranges.size()) {
        const std::optional<uint64_t> cost = cost_of(at);
        if (cost.has_value() && (!best.has_value() || *cost < *best)) best = cost;
        return;
      }
      for (at[r] = 0; at[r] < ranges[r].size(); ++at[r]) self(self, r + 1);
    };
    walk(walk, 0);
    const std::optional<std::vector<size_t>> ring = CheapestRing(ranges, link_cost);
    ASSERT_EQ(ring.has_value(), best.has_value());
    if (ring.has_value()) ASSERT_EQ(cost_of(*ring), best);
  }
}

}  // namespace
}  // namespace shardline::testing
