#include "tests/e2e/cluster.h"

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"

namespace shardline::testing {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(20);
constexpr absl::Duration kStopTimeout = absl::Seconds(10);
constexpr absl::Duration kAskTimeout = absl::Seconds(10);

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A coordinator that comes back is found at once.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 250);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

Cluster::Cluster(const Options& options) : options_(options), directory_(MakeTestDirectory()) {
  StartCoordinator();
  const std::shared_ptr<grpc::Channel> channel = Connect(coordinator_address_);
  inference_ = v1::Inference::NewStub(channel);
  admin_ = v1::Admin::NewStub(channel);
  nodes_.resize(static_cast<size_t>(options_.nodes));
  for (int i = 0; i < options_.nodes; ++i) {
    if (options_.proxied) {
      data_proxies_.push_back(std::make_unique<TcpProxy>());
      control_proxies_.push_back(std::make_unique<TcpProxy>());
      control_proxies_.back()->SetTarget(coordinator_address_);
    }
    StartNode(i);
  }
  const bool joined = Until(kStartTimeout, [this](Cluster&) {
    return Status().nodes_ready() == static_cast<uint32_t>(options_.nodes);
  });
  SL_CHECK(joined, Logs());
}

Cluster::~Cluster() {
  for (const auto& node : nodes_) {
    if (!node) continue;
    node->Signal(SIGTERM);
    node->Signal(SIGCONT);
  }
  coordinator_->Signal(SIGTERM);
  for (const auto& node : nodes_) {
    if (node) node->Wait(kStopTimeout);
  }
  coordinator_->Wait(kStopTimeout);
  const bool failed = ::testing::Test::HasFailure();
  if (failed) std::fprintf(stderr, "%s", Logs().c_str());
  nodes_.clear();
  coordinator_.reset();
  if (!failed && !keep_files_) std::filesystem::remove_all(directory_);
}

std::string Cluster::NodeName(int index) const {
  return absl::StrCat("node-", std::string(1, static_cast<char>('a' + index)));
}

void Cluster::StartCoordinator() {
  AddressPipe pipe(directory_, "coordinator.port");
  AddressPipe http_pipe(directory_, "coordinator.http");
  const std::string data_dir = options_.coordinator_data_dir.empty()
                                   ? directory_ + "/coordinator"
                                   : options_.coordinator_data_dir;
  const std::string listen = coordinator_address_.empty() ? "127.0.0.1:0" : coordinator_address_;
  const std::string http = http_address_.empty() ? "127.0.0.1:0" : http_address_;
  std::vector<std::string> argv = {BinaryPath("shardline-coordinator"),
                                   "--listen",
                                   listen,
                                   "--data-dir",
                                   data_dir,
                                   "--port-file",
                                   pipe.path(),
                                   "--http",
                                   http,
                                   "--http-port-file",
                                   http_pipe.path()};
  argv.insert(argv.end(), options_.coordinator_arguments.begin(),
              options_.coordinator_arguments.end());
  coordinator_.reset();
  coordinator_ = std::make_unique<Process>(Process::Options{
      .argv = argv, .environment = {}, .output_path = directory_ + "/coordinator.log"});
  coordinator_address_ = pipe.Read(kStartTimeout);
  SL_CHECK(!coordinator_address_.empty(), Logs());
  http_address_ = http_pipe.Read(kStartTimeout);
  SL_CHECK(!http_address_.empty(), Logs());
}

void Cluster::StartNode(int index) {
  const std::string name = NodeName(index);
  AddressPipe pipe(directory_, name + ".port");
  const std::string coordinator =
      options_.proxied ? control_proxy(index).address() : coordinator_address_;
  std::vector<std::string> argv;
  if (!options_.node_cpus.empty()) {
    argv = {"/usr/bin/taskset", "-c", options_.node_cpus.at(static_cast<size_t>(index))};
  }
  const std::vector<std::string> node_argv = {BinaryPath(options_.node_binary),
                                              "--listen",
                                              "127.0.0.1:0",
                                              "--coordinator",
                                              coordinator,
                                              "--data-dir",
                                              directory_ + "/" + name,
                                              "--node-id",
                                              name,
                                              "--memory",
                                              options_.memory,
                                              "--threads",
                                              std::to_string(options_.threads),
                                              "--port-file",
                                              pipe.path()};
  argv.insert(argv.end(), node_argv.begin(), node_argv.end());
  if (!options_.model_dir.empty()) {
    argv.insert(argv.end(), {"--model-dir", absl::StrReplaceAll(options_.model_dir,
                                                                {{"%d", std::to_string(index)}})});
  }
  argv.insert(argv.end(), options_.node_arguments.begin(), options_.node_arguments.end());
  if (options_.proxied) argv.insert(argv.end(), {"--advertise", data_proxy(index).address()});
  auto& node = nodes_[static_cast<size_t>(index)];
  node.reset();
  node = std::make_unique<Process>(Process::Options{
      .argv = argv, .environment = {}, .output_path = absl::StrCat(directory_, "/", name, ".log")});
  const std::string address = pipe.Read(kStartTimeout);
  SL_CHECK(!address.empty(), Logs());
  if (options_.proxied) data_proxy(index).SetTarget(address);
}

absl::Status Cluster::LoadModel(const v1::LoadModelRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(absl::Minutes(2)));
  auto reader = admin_->LoadModel(&context, request);
  v1::LoadModelEvent event;
  while (reader->Read(&event)) {
  }
  return FromGrpcStatus(reader->Finish());
}

absl::Status Cluster::UnloadModel(const std::string& name) {
  grpc::ClientContext context;
  v1::UnloadModelRequest request;
  request.set_name(name);
  v1::UnloadModelReply reply;
  return FromGrpcStatus(admin_->UnloadModel(&context, request, &reply));
}

Answer Cluster::Generate(const v1::GenerateRequest& request,
                         const std::function<void(int)>& on_token,
                         const std::function<void(const v1::GenerateStarted&)>& on_started) {
  Answer answer;
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(absl::Minutes(3)));
  auto reader = inference_->Generate(&context, request);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
    if (event.has_started()) {
      answer.started = event.started();
      if (on_started) on_started(answer.started);
    }
    if (event.has_restarted()) answer.restarts.push_back(event.restarted());
    if (event.has_token()) {
      answer.tokens.push_back(event.token().token().token());
      answer.digests.push_back(event.token().token().logits_digest());
      answer.logprobs.push_back(event.token().token().logprob());
      answer.text += event.token().text();
      if (on_token) on_token(static_cast<int>(answer.tokens.size()));
    }
    if (event.has_end()) {
      answer.end = event.end();
      answer.text += event.end().text();
    }
  }
  answer.status = FromGrpcStatus(reader->Finish());
  return answer;
}

v1::TokenIds Cluster::Tokenize(const std::string& text) {
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text(text);
  v1::TokenizeReply reply;
  const grpc::Status status = inference_->Tokenize(&context, request, &reply);
  SL_CHECK(status.ok(), status.error_message());
  v1::TokenIds ids;
  *ids.mutable_ids() = reply.ids();
  return ids;
}

v1::ShardList Cluster::ListShards() {
  grpc::ClientContext context;
  v1::ShardList shards;
  const grpc::Status status = admin_->ListShards(&context, v1::ListShardsRequest(), &shards);
  SL_CHECK(status.ok(), status.error_message());
  return shards;
}

v1::NodeList Cluster::ListNodes() {
  absl::StatusOr<v1::NodeList> nodes = TryListNodes();
  SL_CHECK(nodes.ok(), nodes.status().ToString());
  return *std::move(nodes);
}

v1::ClusterStatus Cluster::Status() {
  absl::StatusOr<v1::ClusterStatus> status = TryStatus();
  SL_CHECK(status.ok(), status.status().ToString());
  return *std::move(status);
}

absl::StatusOr<v1::NodeList> Cluster::TryListNodes() {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kAskTimeout));
  v1::NodeList nodes;
  SL_RETURN_IF_ERROR(FromGrpcStatus(admin_->ListNodes(&context, v1::ListNodesRequest(), &nodes)));
  return nodes;
}

absl::StatusOr<v1::ClusterStatus> Cluster::TryStatus() {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kAskTimeout));
  v1::ClusterStatus reply;
  SL_RETURN_IF_ERROR(FromGrpcStatus(admin_->GetStatus(&context, v1::GetStatusRequest(), &reply)));
  return reply;
}

bool Cluster::Until(absl::Duration timeout, const std::function<bool(Cluster&)>& condition) {
  const Instant deadline = SystemClock()->Now() + timeout;
  absl::Notification never;  // Paces the questions; the answer decides.
  while (!condition(*this)) {
    if (SystemClock()->Now() >= deadline) return false;
    never.WaitForNotificationWithTimeout(absl::Milliseconds(20));
  }
  return true;
}

bool Cluster::UntilAllProven(absl::Duration timeout) {
  return Until(timeout, [](Cluster& cluster) {
    const v1::ShardList shards = cluster.ListShards();
    return std::all_of(shards.shards().begin(), shards.shards().end(),
                       [](const v1::ShardSummary& shard) { return shard.proven(); });
  });
}

bool AllPagesFree(Cluster& cluster) {
  const v1::NodeList nodes = cluster.ListNodes();
  return std::all_of(nodes.nodes().begin(), nodes.nodes().end(), [](const v1::NodeSummary& node) {
    if (node.state() == v1::NODE_STATE_LOST) return true;
    return node.attempts_open() == 0 && node.kv_pages_free() == node.kv_pages_total();
  });
}

CommandResult Cluster::Shardctl(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {BinaryPath("shardctl"), "--endpoint", coordinator_address_});
  return RunCommand(arguments);
}

std::string Cluster::Logs() const {
  std::string logs;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    if (entry.path().extension() != ".log") continue;
    absl::StrAppend(&logs, "---- ", entry.path().filename().string(), "\n",
                    ReadFile(entry.path().string()));
  }
  return logs;
}

v1::GenerateRequest Greedy(const std::string& prompt, uint32_t count) {
  v1::GenerateRequest request;
  request.set_text(prompt);
  request.set_new_tokens_max(count);
  request.set_ignore_eos(true);
  request.set_want_logits_digest(true);
  return request;
}

std::string GoldenModelPath() {
  const char* path = std::getenv("SHARDLINE_TEST_MODEL");
  const std::string model = path != nullptr ? path : "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  EXPECT_TRUE(std::filesystem::exists(model))
      << model << " is missing; fetch it with deploy/fetch_model.sh";
  return std::filesystem::absolute(model).string();
}

}  // namespace shardline::testing
