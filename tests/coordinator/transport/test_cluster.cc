#include "tests/coordinator/transport/test_cluster.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "proto/wire/failure_conversion.h"
#include "shardline/v1/admin.grpc.pb.h"
#include "shardline/v1/inference.grpc.pb.h"
#include "tests/support/tiny_llama.h"

namespace shardline::testing {
namespace {

constexpr absl::Duration kWaitMax = absl::Seconds(10);

class SyncClientCall final : public ClientCall {
 public:
  SyncClientCall(v1::Inference::Stub* stub, const v1::GenerateRequest& request)
      : reader_(stub->Generate(&context_, request)) {}

  bool Read(v1::GenerateEvent* event) override { return reader_->Read(event); }
  void Cancel() override { context_.TryCancel(); }
  absl::Status Finish() override { return FromGrpcStatus(reader_->Finish()); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>> reader_;
};

}  // namespace

struct TestCluster::Stubs {
  std::unique_ptr<v1::Admin::Stub> admin;
  std::unique_ptr<v1::Inference::Stub> inference;
};

TestCluster::TestCluster() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "shardline-cluster-XXXXXX").string();
  directory_ = mkdtemp(pattern.data());
  model_path_ = MakeTinyLlama(directory_, {.layers = 4, .context = 512});
  options_.listen = "127.0.0.1:0";
  options_.http = "127.0.0.1:0";
  options_.data_dir = directory_ + "/data";
  options_.heartbeat = absl::Milliseconds(50);
  options_.lease = absl::Milliseconds(2000);
  options_.drain = absl::Seconds(1);
  options_.replan_after = absl::InfiniteDuration();  // A test that loses nodes for good says so.
}

TestCluster::~TestCluster() {
  Stop();
  std::filesystem::remove_all(directory_);
}

absl::Status TestCluster::Start() {
  absl::StatusOr<std::unique_ptr<Coordinator>> coordinator =
      Coordinator::Start(options_, SystemClock());
  if (!coordinator.ok()) return coordinator.status();
  coordinator_ = *std::move(coordinator);
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port()),
                                                 grpc::InsecureChannelCredentials(), args);
  stubs_ = std::make_unique<Stubs>();
  stubs_->admin = v1::Admin::NewStub(channel);
  stubs_->inference = v1::Inference::NewStub(channel);
  return absl::OkStatus();
}

void TestCluster::Stop() {
  stubs_.reset();
  coordinator_.reset();
}

absl::Status TestCluster::Load(uint32_t shards, std::vector<v1::LoadModelEvent>* events) {
  v1::LoadModelRequest request;
  request.set_path(model_path_);
  request.set_shards(shards);
  grpc::ClientContext context;
  const auto reader = stubs_->admin->LoadModel(&context, request);
  v1::LoadModelEvent event;
  while (reader->Read(&event)) {
    if (events != nullptr) events->push_back(event);
  }
  return FromGrpcStatus(reader->Finish());
}

absl::Status TestCluster::LoadAs(v1::LoadModelRequest request) {
  request.set_path(model_path_);
  grpc::ClientContext context;
  const auto reader = stubs_->admin->LoadModel(&context, request);
  v1::LoadModelEvent event;
  while (reader->Read(&event)) {
  }
  return FromGrpcStatus(reader->Finish());
}

absl::Status TestCluster::Unload(const std::string& name) {
  v1::UnloadModelRequest request;
  request.set_name(name);
  v1::UnloadModelReply reply;
  grpc::ClientContext context;
  return FromGrpcStatus(stubs_->admin->UnloadModel(&context, request, &reply));
}

absl::Status TestCluster::Cordon(const std::string& node) {
  v1::CordonNodeRequest request;
  request.set_node_id(node);
  v1::NodeSummary reply;
  grpc::ClientContext context;
  return FromGrpcStatus(stubs_->admin->CordonNode(&context, request, &reply));
}

absl::Status TestCluster::Uncordon(const std::string& node) {
  v1::UncordonNodeRequest request;
  request.set_node_id(node);
  v1::NodeSummary reply;
  grpc::ClientContext context;
  return FromGrpcStatus(stubs_->admin->UncordonNode(&context, request, &reply));
}

absl::StatusOr<v1::NodeSummary> TestCluster::Drain(const std::string& node, int64_t deadline_ms,
                                                   bool wait, bool force) {
  v1::DrainNodeRequest request;
  request.set_node_id(node);
  request.set_deadline_ms(deadline_ms);
  request.set_wait(wait);
  request.set_force(force);
  v1::NodeSummary reply;
  grpc::ClientContext context;
  const absl::Status status = FromGrpcStatus(stubs_->admin->DrainNode(&context, request, &reply));
  if (!status.ok()) return status;
  return reply;
}

Answer TestCluster::Generate(const v1::GenerateRequest& request) {
  Answer answer;
  const std::unique_ptr<ClientCall> call = StartGenerate(request);
  v1::GenerateEvent event;
  while (call->Read(&event)) {
    if (event.has_started()) answer.started = event.started();
    if (event.has_token()) {
      answer.text += event.token().text();
      answer.tokens.push_back(event.token().token().token());
    }
    if (event.has_end()) {
      answer.end = event.end();
      answer.has_end = true;
      answer.text += event.end().text();
    }
  }
  answer.status = call->Finish();
  return answer;
}

Answer TestCluster::Generate(const std::string& prompt) { return Generate(TextRequest(prompt)); }

std::unique_ptr<ClientCall> TestCluster::StartGenerate(const v1::GenerateRequest& request) {
  return std::make_unique<SyncClientCall>(stubs_->inference.get(), request);
}

v1::ClusterStatus TestCluster::Status() {
  grpc::ClientContext context;
  v1::ClusterStatus status;
  stubs_->admin->GetStatus(&context, {}, &status);
  return status;
}

v1::NodeList TestCluster::Nodes() {
  grpc::ClientContext context;
  v1::NodeList nodes;
  stubs_->admin->ListNodes(&context, {}, &nodes);
  return nodes;
}

v1::ShardList TestCluster::Shards() {
  grpc::ClientContext context;
  v1::ShardList shards;
  stubs_->admin->ListShards(&context, {}, &shards);
  return shards;
}

bool TestCluster::WaitUntil(const std::function<bool(const v1::ClusterStatus&)>& holds) {
  const Instant until = SystemClock()->Now() + kWaitMax;
  while (SystemClock()->Now() < until) {  // Each question waits its turn on the coordinator's loop.
    if (holds(Status())) return true;
    std::this_thread::yield();
  }
  return false;
}

bool TestCluster::WaitUntilNodes(uint32_t ready) {
  return WaitUntil([ready](const v1::ClusterStatus& s) { return s.nodes_ready() == ready; });
}

bool TestCluster::WaitUntilSession(const std::function<bool(const v1::SessionSummary&)>& holds) {
  return WaitUntil([&](const v1::ClusterStatus&) {
    grpc::ClientContext context;
    v1::SessionList list;
    stubs_->admin->ListSessions(&context, {}, &list);
    for (const v1::SessionSummary& session : list.sessions()) {
      if (holds(session)) return true;
    }
    return false;
  });
}

bool TestCluster::WaitUntilReady() {
  return WaitUntil([](const v1::ClusterStatus& status) {
    return status.models_size() == 1 && status.models(0).state() == v1::MODEL_STATE_READY;
  });
}

v1::GenerateRequest TextRequest(const std::string& prompt) {
  v1::GenerateRequest request;
  request.set_text(prompt);
  return request;
}

std::vector<int32_t> ByteTokens(const std::string& text) {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(kTinyFirstByte + static_cast<uint8_t>(c));
  return tokens;
}

}  // namespace shardline::testing
