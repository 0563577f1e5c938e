// Real nodes in one process, in rings of one to three, over loopback, on a tiny model.

#include "node/node.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/failure.h"
#include "model/gguf_file.h"
#include "model/manifest.h"
#include "node/model_shard_loader.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/message_conversion.h"
#include "shardline/v1/head.grpc.pb.h"
#include "shardline/v1/link.grpc.pb.h"
#include "tests/node/fake_coordinator.h"
#include "tests/support/tiny_llama.h"

namespace shardline {
namespace {

using ::shardline::testing::FakeCoordinator;
using ::shardline::testing::JoinedNode;
using ::shardline::testing::MakeTinyLlama;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kLayers = 6;
constexpr int kPages = 32;

std::string FreshDirectory(const std::string& name) {
  const std::string path = ::testing::TempDir() + "node_test_" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

// Holds up whoever comes while it is closed.
class Gate {
 public:
  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    open_ = false;
    entered_ = false;
  }
  void Open() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    open_ = true;
  }
  void Pass() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    entered_ = true;
    mu_.Await(absl::Condition(&open_));
  }
  // Somebody has come since it was closed.
  void AwaitEntered() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&entered_));
  }

 private:
  absl::Mutex mu_;
  bool open_ ABSL_GUARDED_BY(mu_) = true;
  bool entered_ ABSL_GUARDED_BY(mu_) = false;
};

// A device that ends no job while its gate is closed.
class GatedExecutor : public DeviceExecutor {
 public:
  GatedExecutor(std::shared_ptr<DeviceExecutor> device, Gate* gate)
      : device_(std::move(device)), gate_(gate) {}

  absl::Status Submit(ComputeJob job, DoneCallback done) override {
    return device_->Submit(std::move(job),
                           [gate = gate_, done = std::move(done)](ComputeDone result) mutable {
                             gate->Pass();
                             done(std::move(result));
                           });
  }
  void Rest() override { device_->Rest(); }
  ExecutorProgress progress() const override { return device_->progress(); }
  void Shutdown() override { device_->Shutdown(); }

 private:
  const std::shared_ptr<DeviceExecutor> device_;
  Gate* const gate_;
};

class GatedLoader : public ShardLoader {
 public:
  explicit GatedLoader(const ModelShardLoaderOptions& options) : loader_(options) {}

  absl::StatusOr<LoadedShard> Load(const ShardOrder& order, const Progress& progress) override {
    loads_.Pass();
    reads_.fetch_add(1);
    absl::StatusOr<LoadedShard> loaded = loader_.Load(order, progress);
    if (loaded.ok()) {
      loaded->executor = std::make_shared<GatedExecutor>(
          std::move(loaded->executor), &devices_[static_cast<size_t>(order.layers.begin)]);
    }
    return loaded;
  }

  void OpenAllGates() {
    loads_.Open();
    for (Gate& device : devices_) device.Open();
  }

  Gate& loads() { return loads_; }
  int reads() const { return reads_.load(); }
  // Of the shard that begins with this layer.
  Gate& device(int32_t layer) { return devices_[static_cast<size_t>(layer)]; }

 private:
  ModelShardLoader loader_;
  Gate loads_;
  std::atomic<int> reads_ = 0;
  std::array<Gate, kLayers> devices_;
};

struct Answer {
  std::vector<int32_t> tokens;
  grpc::Status status;
};

// A ring of nodes that hold one model, and the calls a coordinator would make.
class Ring {
 public:
  Ring(int nodes, const std::string& model_path)
      : model_path_(model_path), loader_({.memory_bytes = 1 << 30, .threads = 1}) {
    const GgufFile file = GgufFile::Open(model_path).value();
    manifest_ = BuildManifest(file).value();
    for (int i = 0; i < nodes; ++i) StartNode(i);
    for (int i = 0; i < nodes; ++i) {
      const JoinedNode joined = coordinator_.Await(NameOf(i), v1::SHARD_STATE_UNSPECIFIED);
      v1::RouteStage stage;
      stage.set_node_id(NameOf(i));
      stage.set_incarnation(joined.incarnation);
      stage.set_address(joined.hello.address());
      *stage.mutable_layers() = ToProto(LayerRange{kLayers * i / nodes, kLayers * (i + 1) / nodes});
      route_.push_back(stage);
      channels_.push_back(
          grpc::CreateChannel(joined.hello.address(), grpc::InsecureChannelCredentials()));
    }
  }

  // Nobody may be held up when the nodes go.
  ~Ring() { loader_.OpenAllGates(); }

  void StartNode(int index) {
    NodeOptions options;
    options.listen = "127.0.0.1:0";
    options.coordinator = coordinator_.address();
    options.node_id = NodeId(NameOf(index));
    options.memory_bytes = 1 << 30;
    options.threads = 1;
    nodes_.push_back(Node::Start(options, &loader_, SystemClock()).value());
  }

  v1::CoordinatorMessage LoadOrder(int index) const {
    v1::CoordinatorMessage message;
    v1::LoadShard* load = message.mutable_load();
    load->set_plan_epoch(plan_epoch_);
    load->set_model_path(model_path_);
    load->set_model_id(ModelIdOf(manifest_).value());
    load->set_manifest(SerializeManifest(manifest_));
    *load->mutable_layers() = route_[static_cast<size_t>(index)].layers();
    load->set_is_head(index == 0);
    load->set_kv_pages(kPages);
    load->set_chunk_tokens_max(4);
    return message;
  }

  void Load() {
    for (int i = 0; i < size(); ++i) coordinator_.Order(NameOf(i), LoadOrder(i));
    AwaitLoaded();
  }

  // The same shards under the next plan.
  void PlanAnew() {
    ++plan_epoch_;
    for (int i = 0; i < size(); ++i) coordinator_.Order(NameOf(i), LoadOrder(i));
  }

  void AwaitLoaded() {
    for (int i = 0; i < size(); ++i) {
      const JoinedNode node =
          coordinator_.AwaitPlan(NameOf(i), plan_epoch_, v1::SHARD_STATE_LOADED);
      EXPECT_GT(node.report.bytes_total(), 0U);
      EXPECT_EQ(node.report.bytes_done(), node.report.bytes_total());
      numerics_id_ = node.report.numerics_id();
    }
  }

  void Unload() {
    v1::CoordinatorMessage message;
    message.mutable_unload()->set_plan_epoch(plan_epoch_);
    for (int i = 0; i < size(); ++i) coordinator_.Order(NameOf(i), message);
    for (int i = 0; i < size(); ++i) coordinator_.Await(NameOf(i), v1::SHARD_STATE_UNSPECIFIED);
    ++plan_epoch_;
  }

  // The node is lost, and joins again under a new incarnation.
  JoinedNode StartNewLife(int index) {
    const JoinedNode node = coordinator_.LoseAndWelcomeBack(NameOf(index));
    route_[static_cast<size_t>(index)].set_incarnation(node.incarnation);
    return node;
  }

  uint64_t IncarnationOf(int index) const {
    return route_[static_cast<size_t>(index)].incarnation();
  }

  grpc::Status Open(int index, uint64_t session, uint64_t epoch = 1) {
    return Open(index, session, epoch, IncarnationOf(index));
  }

  grpc::Status Open(int index, uint64_t session, uint64_t epoch, uint64_t incarnation) {
    v1::OpenRequest request;
    request.set_session(session);
    request.set_epoch(epoch);
    request.set_term(1);
    request.set_incarnation(incarnation);
    request.mutable_recipe()->set_model_id(ModelIdOf(manifest_).value());
    request.mutable_recipe()->set_numerics_id(numerics_id_);
    request.mutable_recipe()->set_plan_epoch(plan_epoch_);
    request.set_stage_index(static_cast<uint32_t>(index));
    for (const v1::RouteStage& stage : route_) *request.add_route() = stage;
    request.mutable_route(index)->set_incarnation(incarnation);
    request.set_tokens_max(64);
    request.set_budget_ms(60'000);
    request.set_open_seq(++opens_);
    request.set_capability(OpenCapability(FakeCoordinator::key(), request));
    if (index == 0) capabilities_[session] = request.capability();
    grpc::ClientContext context;
    v1::OpenReply reply;
    return ShardStub(index)->Open(&context, request, &reply);
  }

  v1::FenceReply Fence(int index, uint64_t session, uint64_t epoch = 1) {
    v1::FenceRequest request;
    request.set_session(session);
    request.set_epoch(epoch);
    request.set_term(1);
    request.set_incarnation(IncarnationOf(index));
    request.set_capability(FenceCapability(FakeCoordinator::key(), request));
    grpc::ClientContext context;
    v1::FenceReply reply;
    EXPECT_TRUE(ShardStub(index)->Fence(&context, request, &reply).ok());
    return reply;
  }

  v1::RunAttemptRequest RunRequestFor(uint64_t session, uint32_t new_tokens) const {
    v1::RunAttemptRequest request;
    request.set_session(session);
    request.set_epoch(1);
    request.set_term(1);
    request.set_incarnation(route_[0].incarnation());
    for (const int32_t token : {3, 1, 4, 1, 5, 9, 2, 6, 5, 3}) request.add_prompt_tokens(token);
    request.set_new_tokens_max(new_tokens);
    request.set_budget_ms(60'000);
    const auto capability = capabilities_.find(session);
    if (capability != capabilities_.end()) request.set_capability(capability->second);
    return request;
  }

  Answer Run(uint64_t session, uint32_t new_tokens) {
    for (int i = 0; i < size(); ++i) EXPECT_TRUE(Open(i, session).ok());
    grpc::ClientContext context;
    const auto reader = HeadStub()->RunAttempt(&context, RunRequestFor(session, new_tokens));
    Answer answer;
    v1::RunAttemptEvent event;
    while (reader->Read(&event)) {
      if (event.has_token()) answer.tokens.push_back(event.token().token());
    }
    answer.status = reader->Finish();
    for (int i = 0; i < size(); ++i) Fence(i, session);
    return answer;
  }

  std::unique_ptr<v1::Head::Stub> HeadStub() { return v1::Head::NewStub(channels_[0]); }
  std::unique_ptr<v1::Shard::Stub> ShardStub(int index) {
    return v1::Shard::NewStub(channels_[static_cast<size_t>(index)]);
  }

  static std::string NameOf(int index) { return absl::StrCat("node-", index); }
  int size() const { return static_cast<int>(nodes_.size()); }
  void StopNode(int index) { nodes_[static_cast<size_t>(index)].reset(); }
  FakeCoordinator& coordinator() { return coordinator_; }
  GatedLoader& loader() { return loader_; }

 private:
  const std::string model_path_;
  GatedLoader loader_;
  ModelManifest manifest_;
  FakeCoordinator coordinator_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<v1::RouteStage> route_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  uint64_t opens_ = 0;
  std::map<uint64_t, std::string> capabilities_;  // Of the head's OPENs, by session.
  std::string numerics_id_;
  uint64_t plan_epoch_ = 1;
};

std::string TinyModel(const std::string& name) {
  return MakeTinyLlama(FreshDirectory(name), {.layers = kLayers});
}

TEST(Node, TokensDoNotDependOnHowManyNodesShareTheModel) {
  const std::string model = TinyModel("ring");
  std::vector<int32_t> alone;
  for (int nodes = 1; nodes <= 3; ++nodes) {
    Ring ring(nodes, model);
    ring.Load();
    const Answer answer = ring.Run(1, 12);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.tokens.size(), 12U);
    if (nodes == 1) alone = answer.tokens;
    EXPECT_EQ(answer.tokens, alone) << nodes;
    // A second session finds the ring as the first did.
    EXPECT_EQ(ring.Run(2, 12).tokens, alone) << nodes;
  }
}

TEST(Node, AFenceGivesBackEveryPageOnEveryStage) {
  Ring ring(2, TinyModel("fence"));
  ring.Load();
  for (uint64_t session = 1; session <= 3 * kPages; ++session) {
    // Would run out of pages in a few sessions if any leaked.
    ASSERT_TRUE(ring.Open(0, session).ok()) << session;
    ASSERT_TRUE(ring.Open(1, session).ok()) << session;
    for (int i = 0; i < 2; ++i) EXPECT_EQ(ring.Fence(i, session).pages_released(), 4U);
  }
  const absl::Status late = FromGrpcStatus(ring.Open(0, 1));
  EXPECT_EQ(FailureKindOf(late), FailureKind::kStaleEpoch) << late;
}

TEST(Node, ARunThatWasNotOpenedIsRefused) {
  Ring ring(1, TinyModel("unopened"));
  ring.Load();
  grpc::ClientContext context;
  const auto reader = ring.HeadStub()->RunAttempt(&context, ring.RunRequestFor(9, 4));
  v1::RunAttemptEvent event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(Node, ACallerThatHangsUpFreesTheHead) {
  Ring ring(2, TinyModel("hangup"));
  ring.Load();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(ring.Open(i, 1).ok());
  {
    grpc::ClientContext context;
    const auto reader = ring.HeadStub()->RunAttempt(&context, ring.RunRequestFor(1, 50));
    v1::RunAttemptEvent event;
    ASSERT_TRUE(reader->Read(&event));
    context.TryCancel();
    while (reader->Read(&event)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  for (int i = 0; i < 2; ++i) ring.Fence(i, 1);
  EXPECT_TRUE(ring.Run(2, 4).status.ok());
}

TEST(Node, ANodeThatDiesEndsTheRunAndIsNamed) {
  Ring ring(3, TinyModel("death"));
  ring.Load();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ring.Open(i, 1).ok());
  grpc::ClientContext context;
  const auto reader = ring.HeadStub()->RunAttempt(&context, ring.RunRequestFor(1, 50));
  v1::RunAttemptEvent event;
  ASSERT_TRUE(reader->Read(&event));
  ring.StopNode(1);
  while (reader->Read(&event)) {
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_TRUE(RestartMayHelp(FailureKindOf(status))) << status;
  EXPECT_EQ(FailureDetailOf(status).node, NodeId("node-1")) << status;
}

TEST(Node, ALostCoordinatorDisturbsNoRunAndFindsTheShardWhenItIsBack) {
  Ring ring(2, TinyModel("coordinator"));
  ring.Load();
  const Answer before = ring.Run(1, 40);
  Gate& device = ring.loader().device(kLayers / 2);
  device.Close();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(ring.Open(i, 2).ok());
  grpc::ClientContext context;
  const auto reader = ring.HeadStub()->RunAttempt(&context, ring.RunRequestFor(2, 40));
  device.AwaitEntered();
  ring.coordinator().Restart();
  for (int i = 0; i < 2; ++i) {
    const JoinedNode back = ring.coordinator().Await(Ring::NameOf(i), v1::SHARD_STATE_LOADED);
    EXPECT_EQ(back.hello.incarnation(), ring.IncarnationOf(i));
    EXPECT_EQ(back.hello.term_seen(), 1U);
  }
  device.Open();
  std::vector<int32_t> tokens;
  v1::RunAttemptEvent event;
  while (reader->Read(&event)) {
    if (event.has_token()) tokens.push_back(event.token().token());
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(tokens, before.tokens);
}

TEST(Node, AnUnloadedShardCanBeLoadedAgain) {
  Ring ring(2, TinyModel("reload"));
  ring.Load();
  const Answer before = ring.Run(1, 6);
  ring.Unload();
  EXPECT_EQ(FailureKindOf(FromGrpcStatus(ring.Open(0, 2))), FailureKind::kWorkerDeath);
  ring.Load();
  const Answer after = ring.Run(3, 6);
  EXPECT_TRUE(after.status.ok()) << after.status.error_message();
  EXPECT_EQ(after.tokens, before.tokens);
}

TEST(Node, ANewIncarnationEndsWhatRanAndServesFromTheSameWeights) {
  constexpr int kNodes = 3;
  Ring ring(kNodes, TinyModel("lives"));
  ring.Load();
  const Answer before = ring.Run(1, 12);
  ASSERT_TRUE(before.status.ok()) << before.status.error_message();
  uint64_t session = 2;
  for (int lost = 0; lost < kNodes; ++lost) {
    Gate& device = ring.loader().device(kLayers * lost / kNodes);
    device.Close();
    for (int i = 0; i < kNodes; ++i) ASSERT_TRUE(ring.Open(i, session).ok());
    grpc::ClientContext context;
    const auto reader = ring.HeadStub()->RunAttempt(&context, ring.RunRequestFor(session, 50));
    device.AwaitEntered();

    const uint64_t old_life = ring.IncarnationOf(lost);
    const JoinedNode back = ring.StartNewLife(lost);
    EXPECT_EQ(back.hello.shard().state(), v1::SHARD_STATE_LOADED);
    v1::RunAttemptEvent event;
    while (reader->Read(&event)) {
    }
    const absl::Status cut = FromGrpcStatus(reader->Finish());
    // The head says why; of another node its neighbour saw only that the link broke.
    EXPECT_EQ(FailureKindOf(cut), lost == 0 ? FailureKind::kWorkerDeath : FailureKind::kStreamReset)
        << cut;
    EXPECT_EQ(FailureDetailOf(cut).node.value(), Ring::NameOf(lost)) << cut;
    for (int i = 0; i < kNodes; ++i) {
      if (i != lost) ring.Fence(i, session);
    }
    for (int i = 0; i < kNodes; ++i) ring.coordinator().AwaitAllPagesFree(Ring::NameOf(i));
    const absl::Status late = FromGrpcStatus(ring.Open(lost, session + 1, 1, old_life));
    EXPECT_EQ(FailureKindOf(late), FailureKind::kWorkerDeath) << late;

    // The old life's job is still on the device when the new life's first attempt opens.
    ASSERT_TRUE(ring.Open(lost, session + 1).ok());
    device.Open();
    const Answer after = ring.Run(session + 1, 12);
    EXPECT_TRUE(after.status.ok()) << after.status.error_message();
    EXPECT_EQ(after.tokens, before.tokens) << "after node " << lost;
    ring.coordinator().AwaitAllPagesFree(Ring::NameOf(lost));
    session += 2;
  }
}

TEST(Node, ALoadGoesOnThroughANewIncarnation) {
  Ring ring(2, TinyModel("load"));
  ring.loader().loads().Close();
  for (int i = 0; i < 2; ++i) ring.coordinator().Order(Ring::NameOf(i), ring.LoadOrder(i));
  ring.loader().loads().AwaitEntered();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ring.StartNewLife(i).hello.shard().state(), v1::SHARD_STATE_LOADING);
  }
  ring.loader().loads().Open();
  ring.AwaitLoaded();
  const Answer answer = ring.Run(1, 6);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens.size(), 6U);
}

TEST(Node, AnotherPlanWithTheSameShardsReadsNothingAndGivesTheSameTokens) {
  Ring ring(3, TinyModel("replan"));
  ring.Load();
  const Answer before = ring.Run(1, 12);
  ASSERT_EQ(ring.loader().reads(), 3);
  // An attempt of the old plan does not outlive it, and nobody is blamed.
  ring.loader().device(0).Close();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ring.Open(i, 2).ok());
  grpc::ClientContext context;
  const auto reader = ring.HeadStub()->RunAttempt(&context, ring.RunRequestFor(2, 50));
  ring.loader().device(0).AwaitEntered();
  ring.PlanAnew();
  ring.AwaitLoaded();
  v1::RunAttemptEvent event;
  while (reader->Read(&event)) {
  }
  const absl::Status cut = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(FailureKindOf(cut), FailureKind::kCacheMiss) << cut;
  EXPECT_TRUE(FailureDetailOf(cut).node.empty()) << cut;
  ring.loader().device(0).Open();
  for (int i = 0; i < 3; ++i) ring.coordinator().AwaitAllPagesFree(Ring::NameOf(i));
  const Answer after = ring.Run(3, 12);
  EXPECT_TRUE(after.status.ok()) << after.status.error_message();
  EXPECT_EQ(after.tokens, before.tokens);
  EXPECT_EQ(ring.loader().reads(), 3);
}

TEST(Node, ALoadUnderWayGoesOnForAnotherPlan) {
  Ring ring(1, TinyModel("replan_load"));
  ring.loader().loads().Close();
  ring.coordinator().Order("node-0", ring.LoadOrder(0));
  ring.loader().loads().AwaitEntered();
  ring.PlanAnew();
  ring.loader().loads().Open();
  ring.AwaitLoaded();
  EXPECT_EQ(ring.loader().reads(), 1);
  EXPECT_TRUE(ring.Run(1, 4).status.ok());
}

TEST(Node, ANewIncarnationWithoutAShardLoadsOne) {
  Ring ring(1, TinyModel("empty"));
  EXPECT_EQ(ring.StartNewLife(0).hello.shard().state(), v1::SHARD_STATE_UNSPECIFIED);
  ring.Load();
  EXPECT_TRUE(ring.Run(1, 4).status.ok());
}

TEST(Node, AShardUnloadedWhileItLoadsLeavesRoomForTheNext) {
  Ring ring(1, TinyModel("overtaken"));
  ring.loader().loads().Close();
  ring.coordinator().Order("node-0", ring.LoadOrder(0));
  ring.loader().loads().AwaitEntered();
  ring.Unload();
  ring.loader().loads().Open();
  ring.Load();
  EXPECT_TRUE(ring.Run(1, 4).status.ok());
}

TEST(Node, AnotherFileInPlaceOfTheOrderedOneIsRefusedWithBothDigests) {
  const std::string model = TinyModel("first");
  Ring ring(1, model);
  v1::CoordinatorMessage order = ring.LoadOrder(0);
  order.mutable_load()->set_model_path(
      MakeTinyLlama(FreshDirectory("second"), {.layers = kLayers, .seed = 99}));
  ring.coordinator().Order("node-0", order);
  const JoinedNode node = ring.coordinator().Await("node-0", v1::SHARD_STATE_FAILED);
  const absl::Status failure = FromProto(node.report.failure());
  EXPECT_EQ(FailureKindOf(failure), FailureKind::kIncompatibleRecipe) << failure;
  EXPECT_THAT(std::string(failure.message()), HasSubstr(order.load().model_path()));
  EXPECT_THAT(std::string(failure.message()),
              ContainsRegex("[0-9a-f]{32}, but the model's is .*[0-9a-f]{32}"));
  // The right file is still welcome.
  ring.Load();
  EXPECT_TRUE(ring.Run(1, 4).status.ok());
}

TEST(Node, AnOrderThatCannotBeIsReportedAndTheNodeLivesOn) {
  Ring ring(1, TinyModel("order"));
  v1::CoordinatorMessage order = ring.LoadOrder(0);
  order.mutable_load()->set_kv_pages(0);
  ring.coordinator().Order("node-0", order);
  JoinedNode node = ring.coordinator().Await("node-0", v1::SHARD_STATE_FAILED);
  EXPECT_THAT(node.report.failure().message(), HasSubstr("kv_pages"));

  order = ring.LoadOrder(0);
  order.mutable_load()->set_kv_pages(1 << 30);
  ring.coordinator().Order("node-0", order);
  node = ring.coordinator().Await("node-0", v1::SHARD_STATE_FAILED);
  EXPECT_EQ(FailureKindOf(FromProto(node.report.failure())), FailureKind::kOverloaded);

  order = ring.LoadOrder(0);
  order.mutable_load()->set_model_path("/no/such/model.gguf");
  ring.coordinator().Order("node-0", order);
  node = ring.coordinator().Await("node-0", v1::SHARD_STATE_FAILED);
  EXPECT_THAT(node.report.failure().message(), HasSubstr("/no/such/model.gguf"));
  ring.Load();
}

}  // namespace
}  // namespace shardline
