// shardctl as a program: arguments in, streams and exit code out, against a coordinator that
// answers from a script.

#include "coordinator/ctl/shardctl.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "base/failure.h"
#include "coordinator/ctl/command_line.h"
#include "coordinator/ctl/completion.h"
#include "coordinator/gateway/api_keys.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "shardline/v1/admin.grpc.pb.h"
#include "shardline/v1/inference.grpc.pb.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

Outcome Shardctl(const std::vector<std::string>& args, const std::string& input = "") {
  std::istringstream in(input);
  std::ostringstream out;
  std::ostringstream err;
  const int code = RunShardctl(args, {.in = &in, .out = &out, .err = &err});
  return {code, out.str(), err.str()};
}

// Answers every call with `answer`, and remembers what it was asked.
class ScriptedCoordinator : public v1::Admin::Service, public v1::Inference::Service {
 public:
  ScriptedCoordinator() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(static_cast<v1::Admin::Service*>(this));
    builder.RegisterService(static_cast<v1::Inference::Service*>(this));
    server_ = builder.BuildAndStart();
    SetServing(false);
  }
  ~ScriptedCoordinator() override { server_->Shutdown(GrpcDeadline(absl::ZeroDuration())); }

  std::string endpoint() const { return absl::StrCat("127.0.0.1:", port_); }
  void SetServing(bool serving) {
    server_->GetHealthCheckService()->SetServingStatus("shardline.coordinator", serving);
  }

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::ClusterStatus* reply) override {
    *reply = status;
    return ToGrpcStatus(answer);
  }
  grpc::Status ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*,
                         v1::NodeList*) override {
    if (hang) release.WaitForNotification();
    return ToGrpcStatus(answer);
  }
  grpc::Status LoadModel(grpc::ServerContext*, const v1::LoadModelRequest* request,
                         grpc::ServerWriter<v1::LoadModelEvent>* writer) override {
    load = *request;
    load_begun = true;
    v1::LoadModelEvent event;
    event.mutable_model()->set_name("tiny");
    event.mutable_model()->set_layers(4);
    event.mutable_model()->set_context_tokens_max(512);
    event.mutable_model()->set_plan_epoch(3);
    event.set_note("ready");
    writer->Write(event);
    return ToGrpcStatus(answer);
  }
  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateEvent>* writer) override {
    generate = *request;
    v1::GenerateEvent event;
    event.mutable_started()->set_session(1);
    writer->Write(event);
    event.mutable_token()->set_text("Par");
    writer->Write(event);
    event.mutable_token()->set_text("is");
    writer->Write(event);
    if (!answer.ok()) return ToGrpcStatus(answer);
    event.mutable_end()->set_generated_tokens(2);
    writer->Write(event);
    return grpc::Status::OK;
  }

  grpc::Status DrainNode(grpc::ServerContext*, const v1::DrainNodeRequest* request,
                         v1::NodeSummary* reply) override {
    drains.push_back(*request);
    reply->set_node_id(request->node_id());
    reply->set_sessions_running(2);
    reply->set_drain_left_ms(request->deadline_ms());
    reply->set_duty(request->wait() ? v1::NODE_DUTY_DRAINED : v1::NODE_DUTY_DRAINING);
    return ToGrpcStatus(answer);
  }
  grpc::Status UncordonNode(grpc::ServerContext*, const v1::UncordonNodeRequest*,
                            v1::NodeSummary* reply) override {
    reply->set_duty(v1::NODE_DUTY_SERVING);
    return ToGrpcStatus(answer);
  }

  grpc::Status RemoveNode(grpc::ServerContext*, const v1::RemoveNodeRequest* request,
                          v1::NodeSummary*) override {
    removed = request->node_id();
    return ToGrpcStatus(answer);
  }
  grpc::Status PreviewModel(grpc::ServerContext*, const v1::PreviewModelRequest* request,
                            v1::ModelPreview* reply) override {
    load = request->load();
    *reply = preview;
    return ToGrpcStatus(answer);
  }

  absl::Status answer;
  std::string removed;
  v1::ModelPreview preview;
  bool load_begun = false;
  std::vector<v1::DrainNodeRequest> drains;
  v1::ClusterStatus status;
  bool hang = false;  // ListNodes answers only when released.
  absl::Notification release;
  v1::LoadModelRequest load;
  v1::GenerateRequest generate;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class ShardctlTest : public ::testing::Test {
 protected:
  Outcome Ask(std::vector<std::string> args, const std::string& input = "") {
    args.push_back("--endpoint=" + coordinator_.endpoint());
    return Shardctl(args, input);
  }
  ScriptedCoordinator coordinator_;
};

TEST(ShardctlUsage, NoArgumentsGiveHelpWithAnExample) {
  const Outcome outcome = Shardctl({});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("shardctl model load"));
}

TEST(ShardctlUsage, AMistypedCommandIsToldItsNearMiss) {
  Outcome outcome = Shardctl({"staus"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("did you mean \"status\"?"));
  outcome = Shardctl({"--timeout", "3s", "model", "laod", "x"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean \"model load\"?"));
  outcome = Shardctl({"generate", "hi", "--temprature", "1"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean --temperature?"));
}

TEST(ShardctlUsage, WrongValuesAreUsageErrors) {
  EXPECT_EQ(Shardctl({"status", "-o", "xml"}).code, 2);
  EXPECT_EQ(Shardctl({"status", "--timeout", "soon"}).code, 2);
  EXPECT_EQ(Shardctl({"model", "load"}).code, 2);
  EXPECT_EQ(Shardctl({"model", "load", "x", "--ranges", "9-0"}).code, 2);
  EXPECT_EQ(Shardctl({"generate", "m", "hi", "--model", "m"}).code, 2);
  const Outcome outcome = Shardctl({"model"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err,
            "error: model needs a command: list, load, unload\nhint:  shardctl --help\n");
  EXPECT_EQ(Shardctl({"completion", "tcsh"}).code, 2);
}

TEST(ShardctlUsage, VersionAsksNobodyIfTold) {
  const Outcome outcome = Shardctl({"version", "--client", "--endpoint=127.0.0.1:1"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("shardctl "));
}

TEST(ShardctlUsage, NobodyThereIsExitCodeFour) {
  const Outcome outcome = Shardctl({"status", "--endpoint=127.0.0.1:1"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("no coordinator answers at 127.0.0.1:1"));
}

TEST_F(ShardctlTest, StatusExitsByHealth) {
  EXPECT_EQ(Ask({"status"}).code, 5);
  coordinator_.status.set_healthy(true);
  EXPECT_EQ(Ask({"status"}).code, 0);
}

TEST_F(ShardctlTest, HealthIsSilent) {
  Outcome outcome = Ask({"health"});
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.out + outcome.err, "");
  coordinator_.SetServing(true);
  outcome = Ask({"health"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out + outcome.err, "");
}

TEST_F(ShardctlTest, ATimeoutIsExitCodeSeven) {
  coordinator_.hang = true;
  EXPECT_EQ(Ask({"node", "list", "--timeout", "50ms"}).code, 7);
  coordinator_.release.Notify();
}

TEST_F(ShardctlTest, JsonErrorsGoToStderr) {
  coordinator_.answer =
      MakeFailure({.kind = FailureKind::kKvExhausted, .node = NodeId("node-2")}, "no room");
  const Outcome outcome = Ask({"node", "list", "-o", "json"});
  EXPECT_EQ(outcome.code, 6);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("{\"error\":{\"code\":\"RESOURCE_EXHAUSTED\",\"kind\":"
                                     "\"kv_exhausted\",\"message\":\"no room\",\"node\":"
                                     "\"node-2\""));
}

TEST_F(ShardctlTest, LoadTranslatesInclusiveRangesAndReportsReady) {
  const Outcome outcome = Ask({"model", "load", "/m/tiny.gguf", "--ranges", "0-9,10-29", "--name",
                               "t", "--context", "128", "--sessions", "2", "--replicas", "2"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "tiny ready: 4 layers, context 512 tokens, plan 3\n");
  EXPECT_EQ(coordinator_.load.path(), "/m/tiny.gguf");
  ASSERT_EQ(coordinator_.load.ranges_size(), 2);
  EXPECT_EQ(coordinator_.load.ranges(1).begin(), 10);
  EXPECT_EQ(coordinator_.load.ranges(1).end(), 30);
  EXPECT_EQ(coordinator_.load.context_tokens_max(), 128u);
  EXPECT_EQ(coordinator_.load.replicas(), 2u);
}

TEST_F(ShardctlTest, TextGoesToStdoutAndFiguresToStderr) {
  const Outcome outcome = Ask({"generate", "The capital of France is", "--max-tokens", "7",
                               "--temperature", "0.5", "--seed", "3"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "Paris\n");
  EXPECT_THAT(outcome.err, HasSubstr("2 tokens"));
  EXPECT_EQ(coordinator_.generate.text(), "The capital of France is");
  EXPECT_EQ(coordinator_.generate.model(), "");
  EXPECT_EQ(coordinator_.generate.new_tokens_max(), 7u);
  EXPECT_EQ(coordinator_.generate.sampling().seed(), 3u);
}

TEST_F(ShardctlTest, APromptMayNameItsModelAndComeFromStdin) {
  const Outcome outcome = Ask({"generate", "tiny", "-", "-q", "--chatml"}, "Hi");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(coordinator_.generate.model(), "tiny");
  EXPECT_EQ(coordinator_.generate.text(),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ShardctlTest, AFlagMayNameTheModelToo) {
  EXPECT_EQ(Ask({"generate", "hi", "--model", "tiny"}).code, 0);
  EXPECT_EQ(coordinator_.generate.model(), "tiny");
  EXPECT_EQ(coordinator_.generate.text(), "hi");
}

TEST_F(ShardctlTest, AnAnswerThatBreaksOffNamesTheNode) {
  coordinator_.answer = MakeFailure(
      {.kind = FailureKind::kWorkerDeath, .node = NodeId("node-2"), .layers = LayerRange{2, 4}},
      "node-2 died");
  const Outcome outcome = Ask({"generate", "hi"});
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.out, "Paris\n");
  EXPECT_THAT(outcome.err, HasSubstr("node-2"));
  EXPECT_THAT(outcome.err, HasSubstr("layers 2-3"));
}

// What bash offers for a line whose last word is being typed.
std::string Complete(const std::string& line, int word_index) {
  const std::string script = ::testing::TempDir() + "/shardctl-completion.bash";
  std::ofstream(script) << CompletionScript("bash");
  const std::string command = absl::StrCat("bash -c 'source ", script, " && COMP_WORDS=(", line,
                                           ") && COMP_CWORD=", word_index,
                                           " && _shardctl && echo \"${COMPREPLY[@]}\"' 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  char buffer[256];
  while (fgets(buffer, sizeof(buffer), pipe) != nullptr) out += buffer;
  pclose(pipe);
  return out;
}

TEST(Completion, BashOffersTheCommandsOfTheTree) {
  EXPECT_EQ(Complete("shardctl st", 1), "status\n");
  EXPECT_EQ(Complete("shardctl model lo", 2), "load\n");
  EXPECT_EQ(Complete("shardctl -q model un", 3), "unload\n");
  EXPECT_EQ(Complete("shardctl generate --top-l", 2), "--top-logprobs\n");
  EXPECT_EQ(Complete("shardctl node list -o wi", 4), "wide\n");
  EXPECT_EQ(Complete("shardctl completion f", 2), "fish\n");
}

TEST(Completion, EveryShellKnowsEveryVerb) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = CompletionScript(shell);
    for (const char* verb : {"status", "unload", "generate", "completion", "health"}) {
      EXPECT_THAT(script, HasSubstr(verb)) << shell;
    }
  }
}

TEST_F(ShardctlTest, ADrainTellsWhatRunsThereAndWaitsUntilItIsSafeToStop) {
  Outcome outcome = Ask({"node", "drain", "node-4", "--deadline", "5m"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "node-4 drained\n");
  EXPECT_THAT(outcome.err, HasSubstr("2 sessions run there; what is left moves in 5m"));
  EXPECT_THAT(outcome.err, HasSubstr("safe to stop"));
  ASSERT_EQ(coordinator_.drains.size(), 2u);
  EXPECT_EQ(coordinator_.drains[0].deadline_ms(), 300000);
  EXPECT_FALSE(coordinator_.drains[0].wait());
  EXPECT_TRUE(coordinator_.drains[1].wait());
  outcome = Ask({"node", "drain", "node-4", "--detach", "--force", "-q"});
  EXPECT_EQ(outcome.out, "node-4 draining\n");
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(coordinator_.drains.back().force());
  EXPECT_EQ(Ask({"node", "uncordon", "node-4"}).out, "node-4 serving\n");
  EXPECT_EQ(Ask({"node", "drain", "node-4", "--deadline", "25h"}).code, 2);
}

TEST_F(ShardctlTest, ARefusedDrainSaysWhatWouldHelp) {
  coordinator_.answer = absl::FailedPreconditionError("draining node-4 leaves m without layers");
  const Outcome outcome = Ask({"node", "drain", "node-4"});
  EXPECT_EQ(outcome.code, 6);
  EXPECT_THAT(outcome.err, HasSubstr("--force"));
}

TEST_F(ShardctlTest, ALostNodeIsRemovedAndALiveOneIsNot) {
  EXPECT_EQ(Ask({"node", "remove", "node-4"}).out, "node-4 removed\n");
  EXPECT_EQ(coordinator_.removed, "node-4");
  coordinator_.answer = absl::FailedPreconditionError("node-4 is live; stop it before removing it");
  const Outcome outcome = Ask({"node", "remove", "node-4"});
  EXPECT_EQ(outcome.code, 6);
  EXPECT_THAT(outcome.err, HasSubstr("is live"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("--force"))) << "there is no such flag here";
}

TEST_F(ShardctlTest, ADryRunShowsWhereAModelWouldGoAndLoadsNothing) {
  coordinator_.preview.set_name("big");
  coordinator_.preview.set_reason("node-1: needs 5 GiB, has 4 GiB");
  Outcome outcome = Ask({"model", "load", "/m/big.gguf", "--shards", "2", "--dry-run"});
  EXPECT_EQ(outcome.code, 6);
  EXPECT_THAT(outcome.out, HasSubstr("big does not fit:\nnode-1: needs 5 GiB, has 4 GiB"));
  EXPECT_EQ(coordinator_.load.path(), "/m/big.gguf");
  EXPECT_EQ(coordinator_.load.shards(), 2u);
  EXPECT_FALSE(coordinator_.load_begun);

  coordinator_.preview.set_fits(true);
  coordinator_.preview.set_layers(10);
  v1::PreviewShard& shard = *coordinator_.preview.add_shards();
  shard.set_node_id("node-1");
  shard.mutable_layers()->set_end(10);
  shard.set_is_head(true);
  shard.set_bytes(uint64_t{3} << 30);
  outcome = Ask({"model", "load", "/m/big.gguf", "--dry-run"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("nothing is loaded"));
  EXPECT_THAT(outcome.out, HasSubstr("node-1  0-9     head  3.0 GiB"));
  EXPECT_THAT(Ask({"model", "load", "/m/big.gguf", "--dry-run", "-o", "json"}).out,
              HasSubstr("\"fits\": true"));
}

TEST(ShardctlKeys, ANewKeyIsShownOnceAndItsLineOpensIt) {
  Outcome outcome = Shardctl({"key", "new", "ops", "--admin"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> lines = absl::StrSplit(outcome.out, '\n');
  ASSERT_EQ(lines.size(), 3u);
  const absl::StatusOr<ApiKeys> keys = ApiKeys::Parse(lines[1]);
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_NE(keys->Find(lines[0]), nullptr);
  EXPECT_EQ(keys->Find(lines[0])->kind, KeyKind::kAdmin);
  EXPECT_THAT(outcome.err, HasSubstr("shown this once"));

  const std::string file = ::testing::TempDir() + "/shardctl-keys";
  std::remove(file.c_str());
  outcome = Shardctl({"key", "new", "app", "--file", file, "-q"});
  EXPECT_EQ(outcome.err, "");
  const std::string secret = outcome.out.substr(0, outcome.out.size() - 1);
  std::ifstream in(file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  EXPECT_THAT(text, Not(HasSubstr(secret)));
  EXPECT_NE(ApiKeys::Parse(text)->Find(secret), nullptr);
  EXPECT_EQ(Shardctl({"key", "new", "two words"}).code, 2);
  EXPECT_EQ(Shardctl({"key", "new"}).code, 2);
  std::remove(file.c_str());
}

}  // namespace
}  // namespace shardline
