// Keys, health and the admin API over real processes: what the page is told is what happens, and
// whoever has not the right key is told nothing.

#include <signal.h>

#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/http_calls.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kAnyStatus = -1;

int PortOf(const Cluster& cluster) {
  int port = 0;
  const std::string& address = cluster.http_address();
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
  return port;
}

absl::Status Load(Cluster& cluster, uint32_t shards) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("smollm2");
  request.set_context_tokens_max(512);
  request.set_shards(shards);
  const absl::Status status = cluster.LoadModel(request);
  if (!status.ok()) return status;
  const bool proven = cluster.UntilAllProven(absl::Seconds(20));
  return proven ? absl::OkStatus() : absl::DeadlineExceededError("probes go on");
}

HttpJson ShortChat() {
  return {{"model", "smollm2"},
          {"messages", HttpJson::array({{{"role", "user"}, {"content", "Say yes."}}})},
          {"max_tokens", 8},
          {"temperature", 0},
          {"ignore_eos", true}};
}

RawAnswer Request(int port, const std::string& method, const std::string& path,
                  const HttpFields& headers = {}) {
  RawHttp connection = RawHttp::Connect(port);
  if (!connection.Send(RequestBytes(method, path, "{}", headers))) return {};
  return connection.ReadAnswer(method != "HEAD");
}

HttpJson NodeOf(const HttpJson& state, const std::string& name) {
  for (const HttpJson& node : state["nodes"]) {
    if (node["node_id"] == name) return node;
  }
  return HttpJson();
}

// A key that is made as an operator makes it.
std::string NewKey(const std::string& file, const std::string& name, bool is_admin) {
  std::vector<std::string> command = {
      std::string(SL_BINARY_DIR) + "/shardctl", "key", "new", name, "--file", file, "-q"};
  if (is_admin) command.push_back("--admin");
  const CommandResult made = RunCommand(command);
  EXPECT_EQ(made.exit_code, 0) << made.err;
  return made.out.substr(0, made.out.size() - 1);
}

TEST(GatewayAdminTest, TheStateIsTheClustersFromTheFirstNodeToTheAnswer) {
  Cluster cluster({.nodes = 2});
  const int port = PortOf(cluster);
  EXPECT_EQ(Get(port, "/livez").status, 200);
  const RawAnswer empty = Get(port, "/readyz");
  EXPECT_EQ(empty.status, 503);
  EXPECT_EQ(JsonOf(Get(port, "/health"))["error"]["code"], "no_plan");

  const HttpJson preview =
      JsonOf(Post(port, "/admin/v1/placement", {{"path", GoldenModelPath()}, {"shards", 2}}));
  EXPECT_EQ(preview["fits"], true) << preview;
  EXPECT_EQ(preview["shards"].size(), 2u);
  EXPECT_EQ(JsonOf(Get(port, "/admin/v1/state"))["models"].size(), 0u) << "nothing was changed";

  const RawAnswer begun = Post(port, "/admin/v1/models",
                               {{"path", GoldenModelPath()},
                                {"name", "smollm2"},
                                {"shards", 2},
                                {"context_tokens_max", 512}});
  EXPECT_EQ(begun.status, 202) << begun.body;
  EXPECT_EQ(JsonOf(begun)["name"], "smollm2");
  ASSERT_TRUE(cluster.Until(absl::Seconds(30),
                            [&](Cluster&) { return Get(port, "/readyz").status == 200; }));
  EXPECT_EQ(Get(port, "/health").body, R"({"status":"ok"})");
  const RawAnswer twice =
      Post(port, "/admin/v1/models", {{"path", GoldenModelPath()}, {"name", "smollm2"}});
  EXPECT_EQ(twice.status, 400) << twice.body;
  const HttpJson full = JsonOf(Post(port, "/admin/v1/placement", {{"path", GoldenModelPath()}}));
  EXPECT_EQ(full["fits"], false);
  EXPECT_THAT(full["reason"].get<std::string>(), HasSubstr("no node is free"));
  EXPECT_EQ(JsonOf(Post(port, "/admin/v1/placement", {{"model", "smollm2"}}))["fits"], true);

  ASSERT_TRUE(cluster.UntilAllProven(absl::Seconds(20)));
  const RawAnswer chat =
      Post(port, "/v1/chat/completions", ShortChat(), {{"X-Request-Id", "mine:7"}});
  ASSERT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(chat.headers.at("x-request-id"), "mine:7");
  const HttpJson state = JsonOf(Get(port, "/admin/v1/state"));
  EXPECT_EQ(state["cluster"]["healthy"], true);
  EXPECT_EQ(state["models"][0]["state"], "MODEL_STATE_READY");
  EXPECT_EQ(state["shards"].size(), 2u);
  for (const HttpJson& node : state["nodes"]) EXPECT_EQ(node["links"].size(), 1u) << node;
  EXPECT_GE(state["figures"]["requests_total"], 1);

  for (const std::string& id : {std::string("mine:7"), JsonOf(chat)["id"].get<std::string>()}) {
    const HttpJson request = JsonOf(Get(port, "/admin/v1/requests/" + id));
    EXPECT_EQ(request["tokens"], 8) << request;
    ASSERT_EQ(request["stages"].size(), 2u) << request;
    for (const HttpJson& stage : request["stages"]) EXPECT_GT(stage["compute_us"], 0) << request;
  }
  EXPECT_THAT(Get(port, "/admin/v1/requests").body, Not(HasSubstr("Say yes")));
  const std::string status = Get(port, "/status.txt").body;
  EXPECT_THAT(status, HasSubstr("healthy"));
  EXPECT_THAT(status, HasSubstr("smollm2"));
  EXPECT_THAT(Get(port, "/").body, HasSubstr("<!doctype html>"));
  EXPECT_THAT(cluster.Logs(), HasSubstr("mine:7")) << "the client's id is in our log";

  EXPECT_EQ(Request(port, "DELETE", "/admin/v1/models/smollm2").status, 200);
  // Health is told from a view that may be a moment old.
  EXPECT_TRUE(cluster.Until(absl::Seconds(5),
                            [&](Cluster&) { return Get(port, "/readyz").status == 503; }));
}

TEST(GatewayAdminTest, TheTimelineTellsALossAsItHappensAndTheLostNodeCanBeTakenOff) {
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const int port = PortOf(cluster);
  std::string spare;
  const v1::NodeList nodes = cluster.ListNodes();
  for (const v1::NodeSummary& node : nodes.nodes()) {
    if (node.model().empty()) spare = node.node_id();
  }
  ASSERT_NE(spare, "");
  const std::string remove = "/admin/v1/nodes/" + spare + "/remove";
  const RawAnswer live = Post(port, remove, HttpJson::object());
  EXPECT_EQ(live.status, 400) << live.body;
  EXPECT_THAT(live.body, HasSubstr("is live"));

  RawHttp events = RawHttp::Connect(port);
  ASSERT_TRUE(events.Send(RequestBytes("GET", "/admin/v1/events", "")));
  EXPECT_EQ(events.ReadHead().status, 200);
  const auto await = [&events](const std::string& part) {
    std::string seen;
    while (seen.find(part) == std::string::npos) {
      const std::optional<std::string> chunk = events.ReadChunk();
      if (!chunk.has_value() || chunk->empty()) return std::string();
      seen += *chunk;
    }
    return seen;
  };
  // The history first: the reader came late.
  const std::string history = await(R"("kind":"model_ready")");
  for (const char* part : {"event: state\ndata: {", R"("kind":"coordinator_started")",
                           R"("kind":"node_joined")", R"("kind":"plan_made")"}) {
    EXPECT_THAT(history, HasSubstr(part));
  }
  cluster.node(spare.back() - 'a').Signal(SIGKILL);
  const std::string loss = await(R"("kind":"node_lost")");
  ASSERT_NE(loss, "");
  EXPECT_NE(await("NODE_STATE_LOST"), "") << "and the picture follows";
  const size_t id_at = loss.rfind("\nid: ");
  ASSERT_NE(id_at, std::string::npos);
  const std::string id = loss.substr(id_at + 5, loss.find('\n', id_at + 5) - id_at - 5);
  events.Close();

  const HttpJson removed = JsonOf(Post(port, remove, HttpJson::object()));
  EXPECT_EQ(removed["node_id"], spare);
  EXPECT_TRUE(NodeOf(JsonOf(Get(port, "/admin/v1/state")), spare).is_null());
  EXPECT_EQ(Post(port, remove, HttpJson::object()).status, 404);

  // A reader that comes back has missed the removal alone.
  events = RawHttp::Connect(port);
  ASSERT_TRUE(events.Send(RequestBytes("GET", "/admin/v1/events", "", {{"Last-Event-ID", id}})));
  EXPECT_EQ(events.ReadHead().status, 200);
  const std::string missed = await(R"("kind":"node_removed")");
  EXPECT_THAT(missed, Not(HasSubstr(R"("kind":"node_joined")")));
  EXPECT_THAT(missed, Not(HasSubstr(R"("kind":"node_lost")")));

  EXPECT_EQ(JsonOf(Post(port, "/admin/v1/nodes/" + cluster.NodeName(0) + "/cordon",
                        HttpJson::object()))["duty"],
            "NODE_DUTY_CORDONED");
  EXPECT_NE(await("NODE_DUTY_CORDONED"), "");
}

TEST(GatewayAdminTest, KeysOpenWhatTheyAreForAndAreNowhereToBeRead) {
  const std::string file = ::testing::TempDir() + "/gateway-admin-keys";
  std::remove(file.c_str());
  const std::string app = NewKey(file, "web-app", false);
  const std::string ops = NewKey(file, "anna", true);
  Cluster cluster({.nodes = 2, .coordinator_arguments = {"--api-keys", file}});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const int port = PortOf(cluster);
  const auto with = [](const std::string& key) {
    return HttpFields{{"Authorization", "Bearer " + key}};
  };
  struct Row {
    const char* path;
    int none;
    int app;
    int ops;
  };
  for (const Row& row :
       {Row{"/v1/models", 401, 200, 403}, Row{"/props", 401, 200, 403},
        Row{"/admin/v1/state", 401, 403, 200}, Row{"/admin/v1/requests", 401, 403, 200},
        Row{"/status.txt", 401, 200, 200}, Row{"/version", 401, 200, 200},
        Row{"/no/such", 401, 404, 403}, Row{"/livez", 200, 200, 200},
        Row{"/readyz?verbose", 200, 200, 200}, Row{"/health", 200, 200, 200},
        Row{"/", 200, 200, 200}, Row{"//admin/v1/state", 401, 404, 403},
        Row{"/livez/../admin/v1/state", 401, kAnyStatus, kAnyStatus},
        Row{"/%61dmin/v1/state", 401, 403, 200}}) {
    EXPECT_EQ(Get(port, row.path).status, row.none) << row.path;
    if (row.app == kAnyStatus) continue;
    EXPECT_EQ(Get(port, row.path, with(app)).status, row.app) << row.path;
    EXPECT_EQ(Get(port, row.path, with(ops)).status, row.ops) << row.path;
  }
  EXPECT_EQ(Get(port, "/v1/models").headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(Post(port, "/v1/chat/completions", ShortChat()).status, 401);
  EXPECT_EQ(Post(port, "/v1/chat/completions", ShortChat(), with(app)).status, 200);
  EXPECT_EQ(Post(port, "/admin/v1/nodes/" + cluster.NodeName(0) + "/cordon", HttpJson::object(),
                 with(app))
                .status,
            403);
  const RawAnswer preflight =
      Request(port, "OPTIONS", "/v1/chat/completions",
              {{"Origin", "http://localhost:3000"},
               {"Access-Control-Request-Method", "POST"},
               {"Access-Control-Request-Headers", "authorization,x-stainless-lang"}});
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "http://localhost:3000");
  EXPECT_THAT(preflight.headers.at("access-control-allow-headers"), HasSubstr("x-stainless-lang"));
  // A wrong key, and an id that would forge a line of the log.
  const RawAnswer forged = Get(port, "/v1/models",
                               {{"Authorization", "Bearer sl-wrong-but-secret"},
                                {"X-Request-Id", "x level=error msg=\"forged line\""}});
  EXPECT_EQ(forged.status, 401);
  EXPECT_THAT(forged.headers.at("x-request-id"), HasSubstr("req-"));

  const std::string extra = NewKey(file, "late", false);
  EXPECT_TRUE(cluster.Until(absl::Seconds(20), [&](Cluster&) {
    return Get(port, "/v1/models", with(extra)).status == 200;
  })) << "a new key needs no restart";
  const std::string logs = cluster.Logs();
  EXPECT_THAT(logs, HasSubstr("web-app")) << "whose key it was is told";
  for (const std::string& secret :
       {app, ops, extra, std::string("sl-wrong-but-secret"), std::string("forged line")}) {
    EXPECT_THAT(logs, Not(HasSubstr(secret)));
  }
  std::remove(file.c_str());
}

TEST(GatewayAdminTest, AListenerThatOthersReachDoesNotOpenWithoutKeys) {
  const std::string data = ::testing::TempDir() + "/gateway-admin-exposed";
  const CommandResult refused =
      RunCommand({std::string(SL_BINARY_DIR) + "/shardline-coordinator", "--listen", "127.0.0.1:0",
                  "--data-dir", data, "--http", "0.0.0.0:0"},
                 absl::Seconds(30));
  EXPECT_THAT(refused.exit_code, AnyOf(1, 2));
  EXPECT_THAT(refused.err, HasSubstr("--api-keys"));
  EXPECT_THAT(refused.err, HasSubstr("--http-insecure"));
}

}  // namespace
}  // namespace shardline::testing
