// The HTTP API over real processes: what a client is told is what Inference.Generate says, a
// failure never looks like success, and whoever leaves leaves nothing behind.

#include <signal.h>

#include <atomic>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/http_calls.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kCompletions[] = "/v1/completions";
constexpr absl::Duration kPagesBack = absl::Seconds(8);  // On a loaded test machine.

int PortOf(const Cluster& cluster) {
  const std::string& address = cluster.http_address();
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
  return port;
}

absl::Status Load(Cluster& cluster, uint32_t shards, uint32_t replicas = 1) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("smollm2");
  request.set_context_tokens_max(2048);
  request.set_shards(shards);
  request.set_replicas(replicas);
  const absl::Status status = cluster.LoadModel(request);
  if (!status.ok()) return status;
  const bool proven = cluster.UntilAllProven(absl::Seconds(20));
  return proven ? absl::OkStatus() : absl::DeadlineExceededError("probes go on");
}

HttpJson Messages(const std::string& text) {
  return HttpJson::array({{{"role", "user"}, {"content", text}}});
}

// A greedy answer of `count` tokens that does not end before.
HttpJson LongChat(int count, const std::string& text = "Tell me a story about a river.") {
  return {{"model", "smollm2"},
          {"messages", Messages(text)},
          {"max_tokens", count},
          {"temperature", 0},
          {"ignore_eos", true}};
}

std::string ContentOf(const RawAnswer& answer) {
  const HttpJson json = JsonOf(answer);
  if (!json.contains("choices")) return absl::StrCat("no answer: ", answer.status, answer.body);
  return json["choices"][0]["message"]["content"];
}

std::string CodeOf(const RawAnswer& answer) {
  const HttpJson json = JsonOf(answer);
  return json.contains("error") && json["error"]["code"].is_string() ? json["error"]["code"]
                                                                     : answer.body;
}

std::string Words(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, "word ");
  return text;
}

v1::RecordList Records(Cluster& cluster) {
  grpc::ClientContext context;
  v1::RecordList records;
  EXPECT_TRUE(cluster.admin().ListRecords(&context, v1::ListRecordsRequest(), &records).ok());
  return records;
}

v1::SessionList Sessions(Cluster& cluster) {
  grpc::ClientContext context;
  v1::SessionList sessions;
  EXPECT_TRUE(cluster.admin().ListSessions(&context, v1::ListSessionsRequest(), &sessions).ok());
  return sessions;
}

// Until a session is there that `holds` is true of.
bool UntilSession(Cluster& cluster, const std::function<bool(const v1::SessionSummary&)>& holds) {
  return cluster.Until(absl::Seconds(10), [&](Cluster& c) {
    const v1::SessionList sessions = Sessions(c);
    return std::any_of(sessions.sessions().begin(), sessions.sessions().end(), holds);
  });
}

bool AllGone(Cluster& cluster) {
  return cluster.Until(
      kPagesBack, [](Cluster& c) { return AllPagesFree(c) && Sessions(c).sessions_size() == 0; });
}

int NodeIndex(const std::string& name) { return name.back() - 'a'; }

TEST(GatewayTest, AStreamIsTheWholeAnswerIsWhatGenerateSays) {
  Cluster cluster({.nodes = 2});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const int port = PortOf(cluster);
  const HttpJson chat = LongChat(48);
  const RawAnswer whole = Post(port, kChat, chat);
  ASSERT_EQ(whole.status, 200) << whole.body;
  const StreamAnswer stream = Stream(port, kChat, chat);
  EXPECT_TRUE(stream.done && stream.is_whole);
  EXPECT_EQ(stream.finish_reason, "length");
  EXPECT_EQ(stream.text, ContentOf(whole));
  EXPECT_EQ(whole.headers.at("x-shardline-plan"), stream.headers.at("x-shardline-plan"));
  const std::vector<std::string> nodes = absl::StrSplit(whole.headers.at("x-shardline-nodes"), ',');
  EXPECT_EQ(nodes.size(), 2u);
  EXPECT_THAT(whole.headers.at("x-request-id"), StartsWith("req-"));

  const RawAnswer rendered = Post(port, "/apply-template", chat);
  ASSERT_EQ(rendered.status, 200) << rendered.body;
  const RawAnswer tokenized =
      Post(port, "/tokenize", {{"prompt", JsonOf(rendered)["prompt"]}, {"model", "smollm2"}});
  ASSERT_EQ(tokenized.status, 200) << tokenized.body;
  v1::GenerateRequest request;
  for (const HttpJson& id : JsonOf(tokenized)["tokens"]) {
    request.mutable_tokens()->add_ids(id.get<int32_t>());
  }
  EXPECT_EQ(JsonOf(whole)["usage"]["prompt_tokens"], request.tokens().ids_size());
  request.set_new_tokens_max(48);
  request.set_ignore_eos(true);
  const Answer generated = cluster.Generate(request);
  ASSERT_THAT(generated.status, IsOk());
  EXPECT_EQ(generated.text, ContentOf(whole));
}

TEST(GatewayTest, AStopTextEndsTheSessionItselfAndWhatWasSaidIsBilled) {
  Cluster cluster({.nodes = 2});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const int port = PortOf(cluster);
  HttpJson chat = LongChat(64);
  const std::string text = ContentOf(Post(port, kChat, chat));
  ASSERT_GT(text.size(), 40u);
  const std::string stop = text.substr(20, 6);
  chat["stop"] = stop;
  const RawAnswer cut = Post(port, kChat, chat);
  EXPECT_EQ(ContentOf(cut), text.substr(0, text.find(stop)));
  const HttpJson answer = JsonOf(cut);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  const v1::RecordList records = Records(cluster);
  const v1::LedgerRecord& last = records.records(records.records_size() - 1);
  EXPECT_EQ(last.state(), "completed");
  EXPECT_EQ(last.billed_tokens(), answer["usage"]["completion_tokens"].get<uint64_t>());
  EXPECT_LT(last.billed_tokens(), 64u);
}

TEST(GatewayTest, ANodeThatDiesMidwayChangesNoCharacterWhereAnotherTakesOver) {
  Cluster cluster({.nodes = 4});
  ASSERT_THAT(Load(cluster, 2, 2), IsOk());
  const int port = PortOf(cluster);
  const HttpJson chat = LongChat(96);
  const std::string calm = ContentOf(Post(port, kChat, chat));
  bool struck = false;
  std::vector<std::string> nodes;
  RawHttp connection = RawHttp::Connect(port);
  HttpJson streamed = chat;
  streamed["stream"] = true;
  ASSERT_TRUE(connection.Send(RequestBytes("POST", kChat, streamed.dump())));
  const StreamAnswer answer = ReadStream(connection, [&](const StreamAnswer& so_far) {
    if (so_far.events.size() > 10 && !std::exchange(struck, true)) {
      nodes = absl::StrSplit(so_far.headers.at("x-shardline-nodes"), ',');
      cluster.node(NodeIndex(nodes.back())).Signal(SIGKILL);
    }
    return true;
  });
  EXPECT_TRUE(struck);
  EXPECT_TRUE(answer.done && answer.is_whole);
  EXPECT_EQ(answer.error_code, "");
  EXPECT_EQ(answer.text, calm);
}

TEST(GatewayTest, ANodeThatDiesMidwayIsAnErrorEventAndAnAbnormalEndWhereNobodyTakesOver) {
  Cluster cluster({.nodes = 2, .coordinator_arguments = {"--replan-after", "inf"}});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const int port = PortOf(cluster);
  HttpJson chat = LongChat(1500);
  chat["deadline_ms"] = 4000;
  bool struck = false;
  const StreamAnswer cut = Stream(port, kChat, chat, {}, [&](const StreamAnswer& so_far) {
    if (so_far.events.size() > 10 && !std::exchange(struck, true)) {
      cluster.node(1).Signal(SIGKILL);
    }
    return true;
  });
  EXPECT_TRUE(struck);
  EXPECT_EQ(cut.status, 200);
  EXPECT_FALSE(cut.done);
  EXPECT_FALSE(cut.is_whole);
  EXPECT_EQ(cut.error_code, "deadline_exceeded");
  EXPECT_EQ(cut.finish_reason, "");
  // Before the first byte it has a status, and names the node.
  const RawAnswer refused = Post(port, kChat, chat);
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(CodeOf(refused), "shard_unavailable");
  EXPECT_THAT(refused.body, HasSubstr("node-b"));
  EXPECT_TRUE(refused.headers.contains("retry-after"));
}

TEST(GatewayTest, AModelThatLoadsSaysSoUntilItAnswers) {
  Cluster cluster({.nodes = 2});
  const int port = PortOf(cluster);
  EXPECT_EQ(CodeOf(Post(port, kChat, LongChat(1))), "model_not_found");
  absl::Status loaded;
  std::thread load([&] { loaded = Load(cluster, 2); });
  int loading = 0;
  EXPECT_TRUE(cluster.Until(absl::Seconds(60), [&](Cluster&) {
    const RawAnswer answer = Post(port, kChat, LongChat(1));
    if (answer.status == 200) return true;
    const std::string code = CodeOf(answer);
    if (code != "model_loading") {
      EXPECT_EQ(code, "model_not_found") << answer.body;
      EXPECT_EQ(loading, 0) << answer.body;
      return false;
    }
    ++loading;
    EXPECT_EQ(answer.status, 503);
    EXPECT_TRUE(answer.headers.contains("retry-after"));
    EXPECT_EQ(JsonOf(answer)["loading"]["model"], "smollm2") << answer.body;
    return false;
  }));
  load.join();
  ASSERT_THAT(loaded, IsOk());
  EXPECT_GT(loading, 0);
}

TEST(GatewayTest, AFullQueueIsTooManyRequestsAndSaysWhenToComeBack) {
  Cluster cluster({.nodes = 1, .coordinator_arguments = {"--requests-max", "1", "--queue", "0"}});
  ASSERT_THAT(Load(cluster, 1), IsOk());
  const int port = PortOf(cluster);
  bool asked = false;
  const StreamAnswer running = Stream(port, kChat, LongChat(60), {}, [&](const StreamAnswer& s) {
    if (s.events.size() > 2 && !std::exchange(asked, true)) {
      const RawAnswer refused = Post(port, kChat, LongChat(1));
      EXPECT_EQ(refused.status, 429) << refused.body;
      EXPECT_EQ(CodeOf(refused), "queue_full");
      int seconds = 0;
      EXPECT_TRUE(absl::SimpleAtoi(refused.headers.at("retry-after"), &seconds));
      EXPECT_TRUE(seconds >= 1 && seconds <= 60) << seconds;
    }
    return true;
  });
  EXPECT_TRUE(asked && running.done);
}

// What a client is doing when it leaves.
struct Leaving {
  const char* name;
  bool stream;
  bool queued;  // Another request has the only turn.
  int prompt_words;
  std::function<bool(const v1::SessionSummary&)> is_there;
};

class LeavingTest : public ::testing::TestWithParam<Leaving> {};

TEST_P(LeavingTest, TakesEverythingAlongAndDisturbsNobody) {
  const Leaving& leaving = GetParam();
  std::vector<std::string> arguments;
  if (leaving.queued) arguments = {"--requests-max", "1"};
  Cluster cluster({.nodes = 2, .coordinator_arguments = arguments});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const int port = PortOf(cluster);
  const std::string calm = ContentOf(Post(port, kChat, LongChat(200)));
  std::string other;
  std::thread neighbour;
  if (leaving.queued) {
    neighbour = std::thread([&] { other = ContentOf(Post(port, kChat, LongChat(200))); });
    ASSERT_TRUE(UntilSession(cluster, [](const auto& session) { return session.tokens() > 0; }));
  }
  HttpJson body = LongChat(1000, Words(leaving.prompt_words));
  body["stream"] = leaving.stream;
  {
    RawHttp connection = RawHttp::Connect(port);
    ASSERT_TRUE(connection.Send(RequestBytes("POST", kChat, body.dump())));
    ASSERT_TRUE(UntilSession(cluster, leaving.is_there)) << cluster.Logs();
    connection.Close();
  }
  EXPECT_TRUE(cluster.Until(kPagesBack, [&](Cluster& c) {
    const v1::SessionList sessions = Sessions(c);
    return std::none_of(sessions.sessions().begin(), sessions.sessions().end(), leaving.is_there);
  }));
  if (neighbour.joinable()) neighbour.join();
  EXPECT_TRUE(AllGone(cluster));
  if (leaving.queued) EXPECT_EQ(other, calm);
}

bool IsQueued(const v1::SessionSummary& session) { return session.attempts() == 0; }
bool IsPrefilling(const v1::SessionSummary& session) {
  return session.prompt_tokens() > 1000 && session.tokens() == 0 && session.phase() == "running";
}
bool IsDecoding(const v1::SessionSummary& session) {
  return session.prompt_tokens() < 1000 && session.tokens() > 2;
}

INSTANTIATE_TEST_SUITE_P(Phases, LeavingTest,
                         ::testing::Values(Leaving{"Queued", false, true, 3, IsQueued},
                                           Leaving{"InPrefill", true, false, 1600, IsPrefilling},
                                           Leaving{"InAStream", true, false, 3, IsDecoding},
                                           Leaving{"InAWholeAnswer", false, false, 3, IsDecoding}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(GatewayTest, ACoordinatorThatStopsRefusesTheNewAndFinishesTheOld) {
  Cluster cluster({.nodes = 2, .coordinator_arguments = {"--drain", "20s"}});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const int port = PortOf(cluster);
  RawAnswer refused;
  bool told = false;
  const StreamAnswer answer = Stream(port, kChat, LongChat(300), {}, [&](const StreamAnswer& s) {
    if (s.events.size() > 5 && !std::exchange(told, true)) {
      cluster.coordinator().Signal(SIGTERM);
      EXPECT_TRUE(cluster.Until(absl::Seconds(5), [&](Cluster&) {
        refused = Post(port, kChat, LongChat(1));
        return refused.status != 200;
      }));
    }
    return true;
  });
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(CodeOf(refused), "draining");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_TRUE(answer.done && answer.is_whole) << answer.error_code;
  EXPECT_EQ(cluster.coordinator().Wait(absl::Seconds(20)), 0);
}

TEST(GatewayTest, AskingTwiceWithOneKeyIsAskingOnce) {
  Cluster cluster({.nodes = 2});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const int port = PortOf(cluster);
  HttpJson chat = LongChat(40);
  chat["temperature"] = 1.0;  // Without a seed: the key alone makes it the same.
  const HttpFields key = {{"Idempotency-Key", "order-17"}};
  const RawAnswer first = Post(port, kChat, chat, key);
  ASSERT_EQ(first.status, 200) << first.body;
  const RawAnswer second = Post(port, kChat, chat, key);
  EXPECT_EQ(second.status, 200) << second.body;
  EXPECT_EQ(ContentOf(second), ContentOf(first));
  EXPECT_EQ(JsonOf(second)["id"], JsonOf(first)["id"]);
  EXPECT_EQ(second.headers.at("x-shardline-session"), first.headers.at("x-shardline-session"));
  EXPECT_EQ(Records(cluster).records_size(), 1 + 1);  // The probe's, and one.
  chat["max_tokens"] = 41;
  const RawAnswer other = Post(port, kChat, chat, key);
  EXPECT_EQ(other.status, 400) << other.body;
}

TEST(GatewayTest, AStreamThatBrokeGoesOnBehindWhatItsClientHas) {
  Cluster cluster({.nodes = 2});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const int port = PortOf(cluster);
  const HttpJson chat = LongChat(120);
  const std::string calm = ContentOf(Post(port, kChat, chat));
  HttpFields fields = {{"Idempotency-Key", "a-1"}, {"x-shardline-resume", "1"}};
  const StreamAnswer broken =
      Stream(port, kChat, chat, fields, [](const StreamAnswer& s) { return s.events.size() < 20; });
  ASSERT_FALSE(broken.ids.empty());
  EXPECT_FALSE(broken.done);
  fields.emplace_back("Last-Event-ID", broken.ids.back());
  const StreamAnswer rest = Stream(port, kChat, chat, fields);
  ASSERT_EQ(rest.status, 200) << rest.body;
  EXPECT_TRUE(rest.done && rest.is_whole);
  EXPECT_EQ(broken.text + rest.text, calm);
  EXPECT_LT(rest.text.size(), calm.size());
  EXPECT_TRUE(AllGone(cluster));
}

TEST(GatewayTest, ManyChoicesAndManyPromptsAreNumberedThrough) {
  Cluster cluster({.nodes = 1});
  ASSERT_THAT(Load(cluster, 1), IsOk());
  const int port = PortOf(cluster);
  const RawAnswer answer = Post(port, kCompletions,
                                {{"model", "smollm2"},
                                 {"prompt", {"The sky is", "The sea is"}},
                                 {"n", 2},
                                 {"max_tokens", 8},
                                 {"temperature", 0},
                                 {"ignore_eos", true}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  const HttpJson choices = JsonOf(answer)["choices"];
  ASSERT_EQ(choices.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(choices[static_cast<size_t>(i)]["index"], i);
  EXPECT_EQ(choices[0]["text"], choices[1]["text"]);
  EXPECT_EQ(choices[2]["text"], choices[3]["text"]);
  EXPECT_NE(choices[0]["text"], choices[2]["text"]);
  EXPECT_TRUE(AllGone(cluster));
}

TEST(GatewayTest, WhatIsNotThereIsSaidInTheOneEnvelope) {
  Cluster cluster({.nodes = 1});
  ASSERT_THAT(Load(cluster, 1), IsOk());
  const int port = PortOf(cluster);
  HttpJson chat = LongChat(1);
  chat["model"] = "gpt-4o";
  const RawAnswer no_model = Post(port, kChat, chat);
  EXPECT_EQ(no_model.status, 404);
  EXPECT_EQ(CodeOf(no_model), "model_not_found");
  EXPECT_EQ(CodeOf(Get(port, "/v2/nothing")), "unknown_url");
  const RawAnswer embeddings = Post(port, "/v1/embeddings", {{"input", "x"}});
  EXPECT_EQ(embeddings.status, 501);
  EXPECT_EQ(embeddings.headers.at("x-should-retry"), "false");
  const RawAnswer wrong = Get(port, kChat);
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  const RawAnswer list = Get(port, "/v1/models/");
  EXPECT_EQ(JsonOf(list)["data"][0]["id"], "smollm2");
  EXPECT_EQ(JsonOf(list)["data"][0]["max_model_len"], 2048);
  EXPECT_EQ(JsonOf(Get(port, "/v1/models/smollm2"))["object"], "model");
  EXPECT_EQ(Get(port, "/v1/models/smollm3").status, 404);
}

TEST(GatewayTest, AListenerThatCannotBeIsOneLineAndNoCoordinator) {
  Cluster cluster({.nodes = 1});
  const auto refused = [&cluster](std::vector<std::string> flags, const std::string& word) {
    std::vector<std::string> argv = {BinaryPath("shardline-coordinator"), "--listen", "127.0.0.1:0",
                                     "--data-dir", cluster.directory() + "/other"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    const CommandResult result = RunCommand(argv);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr(word));
  };
  refused({"--http", cluster.http_address()}, cluster.http_address());
  refused({"--http", "0.0.0.0:0"}, "--api-keys");
  refused({"--http", "127.0.0.1:0", "--api-keys", "/nonexistent/keys"}, "/nonexistent/keys");
  refused({"--http", "127.0.0.1:0", "--chat-template", "no-such"}, "no-such");
  refused({"--http", "127.0.0.1:0", "--tls-cert", "/nonexistent/c", "--tls-key", "/nonexistent/k"},
          "/nonexistent/c");
}

}  // namespace
}  // namespace shardline::testing
