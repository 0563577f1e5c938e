// The pure parts of what is told of the cluster: rings, streams, rates and health.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/gateway/cluster_json.h"
#include "coordinator/gateway/event_log.h"
#include "coordinator/gateway/event_stream.h"
#include "coordinator/gateway/health.h"
#include "coordinator/gateway/rate_window.h"
#include "coordinator/gateway/request_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/gateway/fake_cluster.h"

namespace shardline {
namespace {

using ::shardline::testing::FakeCluster;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Instant At(int ms) { return Instant::FromOrigin(absl::Milliseconds(ms)); }

TEST(EventLog, IdsRiseOverTheLivesOfACoordinator) {
  EventLog first(Term(3));
  EventLog second(Term(4));
  first.Add({.kind = "k"});
  first.Add({.kind = "k"});
  second.Add({.kind = "k"});
  EXPECT_EQ(first.After(0, 9)[0].id + 1, first.After(0, 9)[1].id);
  EXPECT_EQ(first.newest(), first.After(0, 9)[1].id);
  EXPECT_GT(second.newest(), first.newest());
  EXPECT_THAT(second.After(first.newest(), 9), SizeIs(1)) << "an older life's id: all is new";
  EXPECT_THAT(first.After(second.newest(), 9), SizeIs(2)) << "so is a later one's";
  EXPECT_THAT(first.After(first.newest(), 9), IsEmpty());
}

TEST(EventLog, TheRingKeepsTheNewest) {
  EventLog log(Term(1), 3);
  for (int i = 0; i < 10; ++i) log.Add({.kind = "k", .text = absl::StrCat(i)});
  const std::vector<ClusterEvent> kept = log.After(0, 99);
  ASSERT_THAT(kept, SizeIs(3));
  EXPECT_EQ(kept.front().text, "7");
  EXPECT_EQ(kept.back().text, "9");
  EXPECT_THAT(log.After(0, 2), SizeIs(2));
  EXPECT_EQ(log.After(0, 2).back().text, "8") << "the oldest first, so that the rest can follow";
}

TEST(EventLog, ATextIsOneLineOfBoundedLengthAndWholeCharacters) {
  EventLog log(Term(1));
  log.Add({.kind = "k", .text = "a\nb\x1b[2J\x7f"});
  EXPECT_EQ(log.After(0, 1)[0].text, "a b [2J ");
  for (size_t lead = 0; lead < 4; ++lead) {
    log.Add({.kind = "k", .text = std::string(497 + lead, 'x') + "\xf0\x9f\x98\x8a tail"});
    const std::string text = log.After(log.newest() - 1, 1)[0].text;
    EXPECT_LE(text.size(), kEventTextBytesMax);
    EXPECT_THAT(text, Not(HasSubstr("\xf0\x9f\x98\x8a t")));
    EXPECT_EQ(text.find_first_not_of('x'), std::string::npos) << lead;
  }
}

TEST(RequestLog, KeepsTheNewestAndFindsTheLaterOfTwoWithOneName) {
  RequestLog log(2);
  for (int i = 0; i < 3; ++i) {
    log.Add({.request_id = "same", .id = absl::StrCat("id-", i), .tokens = uint32_t(i)});
  }
  EXPECT_FALSE(log.Find("id-0").has_value());
  EXPECT_EQ(log.Find("same")->tokens, 2u);
  EXPECT_EQ(log.Find("id-1")->tokens, 1u);
  EXPECT_FALSE(log.Find("").has_value()) << "a request that came to no id is nobody's";
}

TEST(RateWindow, TellsTheRateOfTheWindowAlone) {
  RateWindow rate(absl::Seconds(5));
  EXPECT_EQ(rate.PerSecond(), 0);
  rate.Add(At(0), 1000);
  EXPECT_EQ(rate.PerSecond(), 0);
  for (int second = 1; second <= 10; ++second) rate.Add(At(1000 * second), 1000 + 20 * second);
  EXPECT_DOUBLE_EQ(rate.PerSecond(), 20);
  for (int second = 11; second <= 15; ++second) rate.Add(At(1000 * second), 1200);
  EXPECT_DOUBLE_EQ(rate.PerSecond(), 0) << "what was before the window does not count";
  rate.Add(At(15000), 1300);
  EXPECT_GE(rate.PerSecond(), 0);
}

TEST(EventStream, StatesComeWhenSomethingChangedAtMostFourASecondAndAtLeastOneInTwo) {
  const EventLog log(Term(1));
  EventStream stream(0);
  StateText state{.version = 1, .taken_at = At(0), .json = "{}"};
  const auto due_at = [&](int ms, uint64_t version) {
    state.version = version;
    state.taken_at = At(ms);
    return !stream.Next(At(ms), state, log).empty();
  };
  EXPECT_TRUE(due_at(0, 1)) << "at once";
  EXPECT_FALSE(due_at(100, 2)) << "too soon";
  EXPECT_TRUE(due_at(250, 2));
  EXPECT_FALSE(due_at(500, 2)) << "nothing changed";
  EXPECT_FALSE(due_at(2249, 2));
  EXPECT_TRUE(due_at(2250, 2)) << "so that the reader knows that it is fresh";
  EXPECT_FALSE(due_at(2499, 3));
  EXPECT_TRUE(due_at(2500, 3));
  EXPECT_THAT(stream.Next(At(99999), state, log), IsEmpty()) << "an old picture is sent once";
}

TEST(EventStream, ALongTimelineComesInBoundedPartsWithoutAGap) {
  EventLog log(Term(1));
  for (int i = 0; i < 450; ++i) log.Add({.kind = "k", .text = absl::StrCat("<", i, ">")});
  EventStream stream(0);
  const StateText state{.version = 1, .taken_at = At(0), .json = "{}"};
  std::string all;
  for (int piece = 0; piece < 3; ++piece) {
    const std::string part = stream.Next(At(0), state, log);
    EXPECT_LT(part.size(), size_t{200} * 1024) << "fits into what a stream may hold back";
    all += part;
  }
  EXPECT_THAT(stream.Next(At(0), state, log), IsEmpty());
  for (int i = 0; i < 450; ++i) EXPECT_THAT(all, HasSubstr(absl::StrCat("<", i, ">")));
}

TEST(MomentJson, AgesAloneChangeNothing) {
  ClusterMoment moment{.at_unix_ms = 1, .view = FakeCluster::ReadyView()};
  moment.view.nodes[0].load.peers = {
      {.peer = {NodeId("b"), Incarnation(1)}, .silent = absl::Seconds(2)}};
  moment.sessions.add_sessions()->set_session(1);
  const MomentText before = MomentJson(moment);
  moment.at_unix_ms = 2;
  moment.tokens_per_s = 3;
  for (NodeView& node : moment.view.nodes) {
    node.age = absl::Seconds(9);
    node.since_echo = absl::Seconds(1);
  }
  moment.view.nodes[0].load.peers[0].silent = absl::Seconds(3);
  moment.sessions.mutable_sessions(0)->set_age_ms(77);
  moment.sessions.mutable_sessions(0)->set_budget_ms(77);
  const MomentText after = MomentJson(moment);
  EXPECT_EQ(before.stable, after.stable);
  EXPECT_NE(before.json, after.json);
  for (const auto& change : std::vector<std::function<void(ClusterMoment&)>>{
           [](ClusterMoment& m) { m.view.nodes[1].live = false; },
           [](ClusterMoment& m) { m.view.nodes[0].load.peers.clear(); },
           [](ClusterMoment& m) { m.view.problems.push_back("p"); },
           [](ClusterMoment& m) {
             m.view.models[0].view.shards[0].bytes_done = 1;
             m.view.models[0].view.shards[0].proven = true;
           },
           [](ClusterMoment& m) { m.sessions.mutable_sessions(0)->set_tokens(1); },
           [](ClusterMoment& m) { m.view.sessions_waiting = 1; }}) {
    ClusterMoment other = moment;
    change(other);
    EXPECT_NE(MomentJson(other).stable, after.stable);
  }
}

TEST(MomentJson, LinksGoToAllReplicasOfTheNextRange) {
  ClusterMoment moment{.view = FakeCluster::ReadyView()};
  moment.view.nodes.push_back(FakeCluster::LiveNode("c"));
  moment.view.models[0].view.shards.push_back(FakeCluster::Shard("c", {4, 10}));
  const std::string json = MomentJson(moment).json;
  EXPECT_THAT(json,
              HasSubstr(R"("links":[{"to":"b","silent_ms":null},{"to":"c","silent_ms":null}])"));
  moment.view.models[0].view.shards = {FakeCluster::Shard("a", {0, 10})};
  EXPECT_THAT(MomentJson(moment).json, Not(HasSubstr("silent_ms"))) << "a ring of one has no link";
}

TEST(MomentJson, TextThatIsNoUtf8IsStillJson) {
  ClusterMoment moment{.view = FakeCluster::ReadyView()};
  moment.view.problems = {"bad \xff byte"};
  moment.view.nodes[0].node = NodeId("n\xfe");
  const std::string json = MomentJson(moment).json;
  EXPECT_THAT(json, HasSubstr("bad "));
  EXPECT_EQ(json.find('\n'), std::string::npos);
}

TEST(MomentJson, SessionsToldAreBounded) {
  ClusterMoment moment;
  for (int i = 1; i <= 500; ++i) moment.sessions.add_sessions()->set_session(uint64_t(i));
  const std::string json = MomentJson(moment).json;
  EXPECT_THAT(json, HasSubstr("\"session\":\"128\""));
  EXPECT_THAT(json, Not(HasSubstr("\"session\":\"129\"")));
}

TEST(Health, ALoopThatDoesNotAnswerIsNotAlive) {
  EXPECT_EQ(LivezResponse(absl::ZeroDuration()).status, 200);
  EXPECT_EQ(LivezResponse(absl::Seconds(5)).status, 200);
  EXPECT_EQ(LivezResponse(absl::Seconds(6)).status, 503);
  EXPECT_THAT(LivezResponse(absl::Milliseconds(6500)).body, HasSubstr("6s"));
}

TEST(Health, OneReadyModelIsEnoughAndTheOthersAreTold) {
  ClusterView view = FakeCluster::ReadyView();
  view.models.push_back({.facts = {.name = "big"}, .note = "reading /srv/big.gguf"});
  EXPECT_EQ(ReadyzResponse(view, false).status, 200);
  const std::string verbose = ReadyzResponse(view, true).body;
  EXPECT_THAT(verbose, HasSubstr("[+]model tiny ok"));
  EXPECT_THAT(verbose, HasSubstr("[-]model big failed: loading"));
  EXPECT_THAT(verbose, HasSubstr("readyz check passed"));
  EXPECT_EQ(ReadyzResponse(absl::UnavailableError("no answer"), true).status, 503);
}

}  // namespace
}  // namespace shardline
