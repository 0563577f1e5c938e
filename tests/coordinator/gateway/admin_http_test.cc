// The admin API, health, status and page, without a socket and without a cluster.

#include "coordinator/gateway/admin_http.h"

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/failure.h"
#include "coordinator/gateway/event_stream.h"
#include "coordinator/web/web_assets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/gateway/fake_cluster.h"
#include "tests/support/fake_exchange.h"

namespace shardline {
namespace {

using ::shardline::testing::FakeCluster;
using ::shardline::testing::FakeExchange;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

class AdminHttpTest : public ::testing::Test {
 protected:
  AdminHttpTest()
      : log_(Term(7)),
        http_({.events = &cluster_, .log = &log_, .requests = &requests_, .clock = SystemClock()}) {
  }

  std::shared_ptr<FakeExchange> Send(const std::string& method, const std::string& path,
                                     const std::string& body = "", HttpHeaders more = {},
                                     const std::string& query = "") {
    HttpRequest request{.method = method, .path = path, .query = query, .body = body};
    request.headers = {{"host", "127.0.0.1:8080"}};
    if (method == "POST") request.headers.emplace_back("content-type", "application/json");
    for (auto& header : more) {
      std::erase_if(request.headers,
                    [&](const auto& known) { return known.first == header.first; });
      request.headers.push_back(std::move(header));
    }
    auto exchange = std::make_shared<FakeExchange>(std::move(request));
    EXPECT_TRUE(http_.Handle(exchange)) << path;
    return exchange;
  }
  std::shared_ptr<FakeExchange> Answered(const std::string& method, const std::string& path,
                                         const std::string& body = "", HttpHeaders more = {},
                                         const std::string& query = "") {
    std::shared_ptr<FakeExchange> exchange = Send(method, path, body, std::move(more), query);
    EXPECT_TRUE(exchange->AwaitEnd()) << path;
    return exchange;
  }
  // The first answer with that status: health is told from a view that is a little old.
  std::shared_ptr<FakeExchange> AnsweredWith(int status, const std::string& path) {
    std::shared_ptr<FakeExchange> exchange;
    do {
      exchange = Answered("GET", path);
    } while (exchange->status() != status);
    return exchange;
  }
  // The fields of an error, all of which must be there.
  static Json ErrorOf(const FakeExchange& exchange) {
    const Json json = Json::parse(exchange.body(), nullptr, false);
    EXPECT_TRUE(json.is_object()) << exchange.body();
    const Json error = json.value("error", Json::object());
    for (const char* key : {"message", "type", "param", "code"}) {
      EXPECT_TRUE(error.contains(key)) << exchange.body();
    }
    return error;
  }

  FakeCluster cluster_;
  EventLog log_;
  RequestLog requests_;
  AdminHttp http_;
};

TEST_F(AdminHttpTest, TheStateHoldsAllThatIsShown) {
  cluster_.Change([](ClusterView& view, v1::SessionList& sessions) {
    view.sessions_started = 12;
    view.sessions_waiting = 3;
    view.nodes[0].load.peers = {
        {.peer = {NodeId("b"), Incarnation(1)}, .silent = absl::Seconds(2)}};
    sessions.add_sessions()->set_session(uint64_t{1} << 60);
  });
  const auto exchange = Answered("GET", "/admin/v1/state");
  EXPECT_EQ(exchange->status(), 200);
  EXPECT_EQ(exchange->Header("content-type"), "application/json");
  EXPECT_EQ(exchange->Header("cache-control"), "no-store");
  const Json state = Json::parse(exchange->body());
  EXPECT_EQ(state["term"], "7");
  EXPECT_TRUE(state["at_unix_ms"].is_number());
  EXPECT_EQ(state["cluster"]["healthy"], true);
  ASSERT_EQ(state["nodes"].size(), 2u);
  EXPECT_EQ(state["nodes"][0]["node_id"], "a");
  EXPECT_EQ(state["nodes"][0]["links"], Json::parse(R"([{"to":"b","silent_ms":2000}])"));
  EXPECT_EQ(state["nodes"][1]["links"], Json::parse(R"([{"to":"a","silent_ms":null}])"))
      << "the ring closes on the head";
  EXPECT_EQ(state["models"][0]["state"], "MODEL_STATE_READY");
  EXPECT_EQ(state["shards"].size(), 2u);
  EXPECT_EQ(state["shards"][1]["layers"], Json::parse(R"({"begin":4,"end":10})"));
  EXPECT_EQ(state["sessions"][0]["session"], "1152921504606846976");
  EXPECT_EQ(state["figures"]["requests_total"], 12);
  EXPECT_EQ(state["figures"]["sessions_waiting"], 3);
  EXPECT_TRUE(state["figures"]["tokens_per_s"].is_number());
}

TEST_F(AdminHttpTest, AStateIsNeverOlderThanItsQuestion) {
  for (int i = 0; i < 20; ++i) {
    cluster_.Change([&](ClusterView& view, v1::SessionList&) { view.sessions_started = 100 + i; });
    const auto exchange = Answered("GET", "/admin/v1/state");
    EXPECT_EQ(Json::parse(exchange->body())["figures"]["requests_total"], 100 + i);
  }
}

TEST_F(AdminHttpTest, ManyQuestionsAtOnceAskTheLoopOnce) {
  cluster_.Stick();
  std::vector<std::shared_ptr<FakeExchange>> waiting = {Send("GET", "/admin/v1/state")};
  ASSERT_TRUE(cluster_.AwaitStuck());
  const int asked = cluster_.views_asked();
  for (int i = 0; i < 50; ++i) waiting.push_back(Send("GET", "/admin/v1/state"));
  EXPECT_EQ(cluster_.views_asked(), asked) << "none while an answer is due";
  cluster_.Unstick();
  for (const auto& exchange : waiting) EXPECT_TRUE(exchange->AwaitEnd());
  EXPECT_LE(cluster_.views_asked(), asked + 2);
}

TEST_F(AdminHttpTest, HowOftenTheLoopIsAskedForHealthIsNotForEverybodyToSay) {
  EXPECT_EQ(Answered("GET", "/readyz")->status(), 200);
  const int asked = cluster_.views_asked();
  const Instant begin = SystemClock()->Now();
  for (int i = 0; i < 2000; ++i) Answered("GET", i % 2 == 0 ? "/readyz" : "/health");
  const absl::Duration took = SystemClock()->Now() - begin;
  EXPECT_LE(cluster_.views_asked() - asked, took / kStateInterval + 2);
  // And yet what changes is told.
  cluster_.Change([](ClusterView& view, v1::SessionList&) { view.draining = true; });
  AnsweredWith(503, "/readyz");
}

TEST_F(AdminHttpTest, TheEventStreamBeginsWithTheStateAndGoesOnWithWhatHappens) {
  log_.Add({.kind = "node_joined", .text = "a joined", .node = "a"});
  const auto stream = Send("GET", "/admin/v1/events");
  EXPECT_EQ(stream->Header("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(stream->Header("x-accel-buffering"), "no");
  ASSERT_TRUE(stream->AwaitBody("event: state\ndata: {"));
  ASSERT_TRUE(stream->AwaitBody("event: timeline\nid: 30064771073\ndata: {\"id\":30064771073,"));
  cluster_.Change([](ClusterView& view, v1::SessionList&) { view.problems = {"b: lost"}; });
  ASSERT_TRUE(stream->AwaitBody("b: lost"));
  log_.Add({.level = EventLevel::kWarning, .kind = "node_lost", .text = "b is lost", .node = "b"});
  ASSERT_TRUE(stream->AwaitBody("id: 30064771074\ndata: "));
  ASSERT_TRUE(
      stream->AwaitBody(R"("level":"warning","kind":"node_lost","text":"b is lost","node":"b")"));
  EXPECT_THAT(stream->body(), Not(HasSubstr("\r")));
  http_.Stop();
  EXPECT_TRUE(stream->AwaitEnd());
  EXPECT_FALSE(stream->aborted()) << "an orderly end";
}

TEST_F(AdminHttpTest, AReaderThatComesBackGetsWhatItMissedAndNoMore) {
  for (const char* text : {"one", "two", "three"}) log_.Add({.kind = "k", .text = text});
  const std::string second = absl::StrCat((uint64_t{7} << 32) + 2);
  for (const auto& stream : {Send("GET", "/admin/v1/events", "", {{"last-event-id", second}}),
                             Send("GET", "/admin/v1/events", "", {}, "x=1&after=" + second)}) {
    ASSERT_TRUE(stream->AwaitBody("three"));
    EXPECT_THAT(stream->body(), Not(HasSubstr("\"two\"")));
  }
  // An id of another life of the coordinator, and what is no id.
  for (const std::string& id :
       {std::string("12"), absl::StrCat(uint64_t{9} << 32), std::string("x"), std::string("-1"),
        std::string("99999999999999999999999")}) {
    const auto stream = Send("GET", "/admin/v1/events", "", {{"last-event-id", id}});
    ASSERT_TRUE(stream->AwaitBody("one")) << id;
    ASSERT_TRUE(stream->AwaitBody("three")) << id;
  }
}

TEST_F(AdminHttpTest, AReaderThatDoesNotReadIsDroppedAndStopsNobody) {
  const auto slow = Send("GET", "/admin/v1/events");
  const auto quick = Send("GET", "/admin/v1/events");
  ASSERT_TRUE(slow->AwaitBody("event: state"));
  slow->StopReading();
  log_.Add({.kind = "k", .text = "something"});
  ASSERT_TRUE(slow->AwaitEnd());
  EXPECT_TRUE(slow->aborted()) << "so that the client knows that there is more";
  EXPECT_TRUE(quick->AwaitBody("something"));
}

TEST_F(AdminHttpTest, ReadersAreBoundedAndOneThatLeavesMakesRoom) {
  std::vector<std::shared_ptr<FakeExchange>> readers;
  for (int i = 0; i < 64; ++i) readers.push_back(Send("GET", "/admin/v1/events"));
  const auto refused = Answered("GET", "/admin/v1/events");
  EXPECT_EQ(refused->status(), 503);
  EXPECT_NE(refused->Header("retry-after"), "");
  ErrorOf(*refused);
  ASSERT_TRUE(readers[7]->AwaitBody("event: state"));
  readers[7]->HangUp();
  std::shared_ptr<FakeExchange> next;
  do {  // Until the feed has looked.
    ASSERT_TRUE(readers[8]->AwaitBody("event: state"));
    next = Send("GET", "/admin/v1/events");
  } while (next->status() == 503);
  EXPECT_TRUE(next->AwaitBody("event: state"));
}

TEST_F(AdminHttpTest, EveryVerbReachesTheClusterAsItWasMeant) {
  struct Row {
    const char* path;
    const char* body;
    const char* note;
  };
  for (const Row& row : {
           Row{"/admin/v1/nodes/a/cordon", "{}", "cordon a"},
           Row{"/admin/v1/nodes/a/cordon", "", "cordon a"},
           Row{"/admin/v1/nodes/a/uncordon", "{}", "uncordon a"},
           Row{"/admin/v1/nodes/rack/1/a/remove", "{}", "remove rack/1/a"},
           Row{"/admin/v1/nodes/a/drain", "{}", "drain a ms=30000 force=0 wait=0"},
           Row{"/admin/v1/nodes/a/drain", R"({"deadline_ms":0,"force":true})",
               "drain a ms=0 force=1 wait=0"},
           Row{"/admin/v1/sessions/42/cancel", R"({"reason":"too long"})", "cancel 42 too long"},
           Row{"/admin/v1/sessions/42/cancel", "", "cancel 42 an operator cancelled it"},
           Row{"/admin/v1/placement", R"({"path":"m.gguf","shards":2})",
               "preview path=m.gguf model="},
           Row{"/admin/v1/placement", R"({"model":"tiny"})", "preview path= model=tiny"},
       }) {
    const auto exchange = Answered("POST", row.path, row.body);
    EXPECT_EQ(exchange->status(), 200) << row.path << exchange->body();
    EXPECT_THAT(cluster_.TakeNotes(), ElementsAre(row.note));
  }
  const auto load = Answered("POST", "/admin/v1/models",
                             R"({"path":"m.gguf","name":"m","shards":3,"ranges":[{"end":4}]})");
  EXPECT_EQ(load->status(), 202);
  EXPECT_EQ(Json::parse(load->body())["name"], "m");
  EXPECT_THAT(cluster_.TakeNotes(), ElementsAre("load m.gguf shards=3"));
  EXPECT_EQ(Answered("DELETE", "/admin/v1/models/org/model-1")->status(), 200);
  EXPECT_THAT(cluster_.TakeNotes(), ElementsAre("unload org/model-1"));
}

TEST_F(AdminHttpTest, APlacementThatDoesNotFitIsAnAnswerInNumbers) {
  const auto exchange = Answered("POST", "/admin/v1/placement", R"({"path":"m.gguf"})");
  const Json preview = Json::parse(exchange->body());
  EXPECT_EQ(preview["fits"], false);
  EXPECT_EQ(preview["reason"], "a: needs 3 GiB, has 2 GiB");
  EXPECT_THAT(preview["shards"], IsEmpty());
}

TEST_F(AdminHttpTest, WhatIsWrongWithABodyIsSaidAndNothingIsDone) {
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"nodes/a/cordon", "{\"a\":1}"},
           {"nodes/a/cordon", "[]"},
           {"nodes/a/cordon", "{"},
           {"nodes/a/drain", "{\"deadline_ms\":-1}"},
           {"nodes/a/drain", "{\"deadline_ms\":86400001}"},
           {"nodes/a/drain", "{\"deadline_ms\":\"1\"}"},
           {"nodes/a/drain", "{\"force\":1}"},
           {"nodes/a/drain", "{\"node_id\":\"b\"}"},
           {"nodes/a/drain", std::string(100, '[') + std::string(100, ']')},
           {"sessions/4/cancel", "{\"reason\":\"" + std::string(201, 'x') + "\"}"},
           {"placement", "{}"},
           {"placement", "{\"path\":\"m\",\"nonsense\":1}"},
           {"placement", "{\"path\":\"m\",\"shards\":-1}"},
           {"models", "{}"},
           {"models", "{\"path\":7}"},
           {"models", "{\"path\":\"" + std::string(70000, 'x') + "\"}"},
           {"models", "\xff\xfe"}}) {
    const auto exchange = Answered("POST", "/admin/v1/" + path, body);
    EXPECT_GE(exchange->status(), 400) << path << body.substr(0, 80);
    EXPECT_LT(exchange->status(), 500) << path << body.substr(0, 80);
    ErrorOf(*exchange);
  }
  EXPECT_THAT(cluster_.TakeNotes(), IsEmpty());
}

TEST_F(AdminHttpTest, APageOfAnotherSiteChangesNothing) {
  const std::string path = "/admin/v1/nodes/a/remove";
  EXPECT_EQ(Answered("POST", path, "{}", {{"content-type", "text/plain"}})->status(), 415);
  EXPECT_EQ(Answered("POST", path, "{}", {{"content-type", ""}})->status(), 415);
  EXPECT_EQ(Answered("POST", path, "{}", {{"origin", "https://evil.example"}})->status(), 403);
  EXPECT_EQ(Answered("POST", path, "{}", {{"origin", "null"}})->status(), 403);
  EXPECT_EQ(Answered("DELETE", "/admin/v1/models/tiny", "", {{"origin", "http://localhost:3000"}})
                ->status(),
            403);
  EXPECT_THAT(cluster_.TakeNotes(), IsEmpty());
  EXPECT_EQ(Answered("POST", path, "{}",
                     {{"content-type", "application/json; charset=utf-8"},
                      {"origin", "http://127.0.0.1:8080"}})
                ->status(),
            200);
}

TEST_F(AdminHttpTest, HostileIdsAreNobodys) {
  std::vector<std::string> ids = {
      "", std::string(257, 'n'), "a\nlevel=error", std::string("a\0b", 3), "\x1b[2J", "\x7f"};
  for (const std::string& id : ids) {
    EXPECT_EQ(Answered("POST", "/admin/v1/nodes/" + id + "/remove", "{}")->status(), 404);
    EXPECT_EQ(Answered("DELETE", "/admin/v1/models/" + id)->status(), 404);
  }
  for (const std::string& id :
       {"0", "-1", "18446744073709551616", "4x", "%34", "4/5", "' OR 1=1"}) {
    EXPECT_EQ(Answered("POST", "/admin/v1/sessions/" + id + "/cancel", "{}")->status(), 404) << id;
  }
  EXPECT_THAT(cluster_.TakeNotes(), IsEmpty());
  // Odd, but a name: it goes to the cluster as it is, and comes back as JSON whatever it holds.
  cluster_.AnswerWith(absl::NotFoundError("no node ../\"x\xff has joined"));
  const auto odd = Answered("POST", "/admin/v1/nodes/../\"x\xff/remove", "{}");
  EXPECT_EQ(odd->status(), 404);
  EXPECT_THAT(ErrorOf(*odd)["message"].get<std::string>(), HasSubstr("no node ../\"x"));
  EXPECT_THAT(cluster_.TakeNotes(), ElementsAre("remove ../\"x\xff"));
}

TEST_F(AdminHttpTest, RefusalsOfTheClusterBecomeTheRightStatus) {
  for (const auto& [status, code] : std::vector<std::pair<absl::Status, int>>{
           {absl::NotFoundError("no node x has joined"), 404},
           {absl::FailedPreconditionError("x is live; stop it before removing it"), 400},
           {absl::AlreadyExistsError("model m is loaded"), 400},
           {absl::DataLossError("m.gguf: magic"), 400},
           {MakeFailure(FailureKind::kInvalidRequest, "bad"), 400},
           {MakeFailure(FailureKind::kOverloaded, "the loop is full"), 503}}) {
    cluster_.AnswerWith(status);
    const auto exchange = Answered("POST", "/admin/v1/nodes/x/remove", "{}");
    EXPECT_EQ(exchange->status(), code) << status;
    EXPECT_THAT(ErrorOf(*exchange)["message"].get<std::string>(),
                HasSubstr(std::string(status.message())));
  }
}

TEST_F(AdminHttpTest, PathsAndMethodsThatAreNotThereAreSaidToBe) {
  for (const char* path : {"/admin", "/admin/", "/admin/v2/state", "/admin/v1/", "/admin/v1/stat",
                           "/admin/v1/state/", "/admin/v1/nodes", "/admin/v1/nodes/a",
                           "/admin/v1/nodes/a/explode", "/admin/v1/sessions/1/drain"}) {
    const auto exchange = Answered("POST", path, "{}");
    EXPECT_EQ(exchange->status(), 404) << path;
    EXPECT_EQ(ErrorOf(*exchange)["code"], "unknown_url") << path;
  }
  struct Row {
    const char* method;
    const char* path;
    const char* allow;
  };
  for (const Row& row :
       {Row{"POST", "/admin/v1/state", "GET, HEAD"}, Row{"DELETE", "/admin/v1/events", "GET, HEAD"},
        Row{"GET", "/admin/v1/nodes/a/cordon", "POST"},
        Row{"GET", "/admin/v1/models/tiny", "DELETE"}, Row{"GET", "/admin/v1/placement", "POST"},
        Row{"POST", "/livez", "GET, HEAD"}, Row{"PUT", "/", "GET, HEAD"}}) {
    const auto exchange = Answered(row.method, row.path);
    EXPECT_EQ(exchange->status(), 405) << row.path;
    EXPECT_EQ(exchange->Header("allow"), row.allow) << row.path;
  }
  auto other = std::make_shared<FakeExchange>(HttpRequest{.method = "GET", .path = "/v1/models"});
  EXPECT_FALSE(http_.Handle(other)) << "what is not ours is left to others";
}

TEST_F(AdminHttpTest, ARequestIsFoundByEitherOfItsNamesAndHoldsNoText) {
  RequestRecord record;
  record.request_id = "req-1";
  record.id = "chatcmpl-9";
  record.model = "tiny";
  record.session = SessionId(5);
  record.status = 200;
  record.ttft = absl::Milliseconds(100);
  record.total = absl::Milliseconds(1100);
  record.tokens = 11;
  record.stages = {{.node = NodeId("a"), .layers = {0, 4}, .compute = absl::Microseconds(70)}};
  record.restarts = {{.at = absl::Milliseconds(3), .epoch = Epoch(2), .reason = "b died"}};
  requests_.Add(record);
  record.request_id = "req-2";
  record.id = "chatcmpl-10";
  requests_.Add(record);
  for (const char* id : {"req-1", "chatcmpl-9"}) {
    const Json json = Json::parse(Answered("GET", std::string("/admin/v1/requests/") + id)->body());
    EXPECT_EQ(json["id"], "chatcmpl-9");
    EXPECT_EQ(json["tokens_per_s"], 10.0);
    EXPECT_EQ(json["stages"][0],
              Json::parse(R"({"node_id":"a","layers":{"begin":0,"end":4},"compute_us":70})"));
    EXPECT_EQ(json["restarts"][0]["reason"], "b died");
    EXPECT_TRUE(json["timings"].is_object());
  }
  const Json list = Json::parse(Answered("GET", "/admin/v1/requests")->body());
  ASSERT_EQ(list["requests"].size(), 2u);
  EXPECT_EQ(list["requests"][0]["request_id"], "req-2") << "newest first";
  EXPECT_EQ(Answered("GET", "/admin/v1/requests/req-3")->status(), 404);
}

TEST_F(AdminHttpTest, HealthFollowsTheClusterAndNeedsOneReadyModel) {
  EXPECT_EQ(Answered("GET", "/livez")->status(), 200);
  EXPECT_EQ(Answered("GET", "/readyz")->body(), "ok\n");
  EXPECT_EQ(Answered("GET", "/health")->body(), R"({"status":"ok"})");
  EXPECT_EQ(Answered("HEAD", "/readyz")->status(), 200);
  struct Row {
    std::function<void(ClusterView&)> change;
    const char* code;
  };
  for (const Row& row :
       {Row{[](ClusterView& v) { v.models[0].view.state = ModelState::kLoading; }, "model_loading"},
        Row{[](ClusterView& v) { v.models[0].view.state = ModelState::kDegraded; },
            "shard_unavailable"},
        Row{[](ClusterView& v) { v.models.clear(); }, "no_plan"},
        Row{[](ClusterView& v) { v.draining = true; }, "draining"},
        Row{[](ClusterView& v) { v.refusal = "the ledger is old"; }, "shard_unavailable"}}) {
    cluster_.Change([&](ClusterView& view, v1::SessionList&) {
      view = FakeCluster::ReadyView();
      view.models[0].view.reason = "layers 0-4 on secret-host are lost";
      row.change(view);
    });
    // A state that is asked for anew makes a new view of all.
    EXPECT_EQ(Answered("GET", "/admin/v1/state")->status(), 200);
    EXPECT_EQ(Answered("GET", "/readyz")->status(), 503) << row.code;
    const auto health = Answered("GET", "/health");
    EXPECT_EQ(health->status(), 503) << row.code;
    EXPECT_EQ(ErrorOf(*health)["code"], row.code);
    EXPECT_NE(health->Header("retry-after"), "");
    const auto verbose = Answered("GET", "/readyz", "", {}, "verbose");
    EXPECT_THAT(verbose->body(), HasSubstr("[-]"));
    EXPECT_THAT(verbose->body(), HasSubstr("readyz check failed"));
    EXPECT_THAT(verbose->body() + health->body(), Not(HasSubstr("secret-host")))
        << "whoever asks has shown no key";
    EXPECT_EQ(Answered("GET", "/livez")->status(), 200) << row.code;
  }
}

TEST_F(AdminHttpTest, AStatusPageIsWhatShardctlShows) {
  const auto exchange = Answered("GET", "/status.txt");
  EXPECT_EQ(exchange->Header("content-type"), "text/plain; charset=utf-8");
  for (const char* part : {"CLUSTER   127.0.0.1:8080   healthy", "NODES     2 ready", "tiny",
                           "NAME", "[a ", "layers 4-9"}) {
    EXPECT_THAT(exchange->body(), HasSubstr(part));
  }
  const auto hostile = Answered("GET", "/status.txt", "", {{"host", "x\x1b[2J\nFORGED"}});
  EXPECT_THAT(hostile->body(), HasSubstr("x?[2J?FORGED"));
  EXPECT_THAT(Answered("GET", "/version")->body(), HasSubstr("\"version\":\""));
}

TEST_F(AdminHttpTest, ThePageComesWithAPolicyAndOnlyOnce) {
  for (const char* path : {"/", "/index.html"}) {
    const auto page = Answered("GET", path);
    EXPECT_EQ(page->status(), 200);
    EXPECT_THAT(page->Header("content-type"), HasSubstr("text/html"));
    const std::string policy = page->Header("content-security-policy");
    for (const char* part : {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"}) {
      EXPECT_THAT(policy, HasSubstr(part));
    }
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    EXPECT_EQ(page->Header("x-content-type-options"), "nosniff");
    const auto again = Answered("GET", path, "", {{"if-none-match", page->Header("etag")}});
    EXPECT_EQ(again->status(), 304);
    EXPECT_EQ(again->body(), "");
  }
  for (const WebAsset& asset : WebAssets()) {
    EXPECT_EQ(Answered("GET", "/assets/" + std::string(asset.name))->body(), asset.bytes);
  }
  for (const char* path :
       {"/assets/", "/assets/../index.html", "/assets/nothing.js", "/assets//app.js"}) {
    auto exchange = std::make_shared<FakeExchange>(HttpRequest{.method = "GET", .path = path});
    EXPECT_FALSE(http_.Handle(exchange)) << path;
  }
}

TEST_F(AdminHttpTest, ACoordinatorThatIsBusyOrGoneSaysSo) {
  cluster_.Refuse(MakeFailure(FailureKind::kOverloaded, "the coordinator is shutting down"));
  EXPECT_EQ(Answered("GET", "/admin/v1/state")->status(), 503);
  EXPECT_EQ(Answered("GET", "/readyz")->status(), 503);
  EXPECT_EQ(Answered("GET", "/livez")->status(), 200) << "the loop turns";
  cluster_.Stick();
  const auto waiting = Send("GET", "/admin/v1/state");
  ASSERT_TRUE(cluster_.AwaitStuck());
  http_.Stop();
  EXPECT_TRUE(waiting->AwaitEnd());
  EXPECT_EQ(waiting->status(), 503);
  EXPECT_EQ(Answered("GET", "/admin/v1/state")->status(), 503);
  EXPECT_EQ(Answered("GET", "/admin/v1/events")->status(), 503);
  cluster_.Unstick();  // An answer that comes after the end meets nobody.
}

}  // namespace
}  // namespace shardline
