#pragma once

// A Shardline cluster of real processes on loopback, for one test.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "shardline/v1/admin.grpc.pb.h"
#include "shardline/v1/inference.grpc.pb.h"
#include "tests/e2e/process.h"
#include "tests/e2e/tcp_proxy.h"

namespace shardline::testing {

// Everything one Generate call brought.
struct Answer {
  absl::Status status;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> digests;  // Of the logits, if asked for.
  std::vector<float> logprobs;    // If asked for.
  std::string text;
  v1::GenerateStarted started;
  std::vector<v1::GenerateRestarted> restarts;
  std::optional<v1::GenerateEnd> end;
};

class Cluster;
// Nothing is open, and all KV pages can be had, on every node that is not lost.
bool AllPagesFree(Cluster& cluster);

class Cluster {
 public:
  struct Options {
    int nodes = 3;
    std::string memory = "2GiB";         // Of each node.
    int threads = 1;                     // Of each node.
    std::vector<std::string> node_cpus;  // That a node is held on, as taskset takes them; or none.
    std::string model_dir;               // Of every node; "%d" in it becomes the node's index.
    bool proxied = false;                // Each node is reached through a TcpProxy.
    std::string coordinator_data_dir;    // Empty: in directory().
    std::vector<std::string> coordinator_arguments;  // Added to the coordinator's own.
    std::string node_binary = "shardline-node";      // Or one that takes the same arguments.
    std::vector<std::string> node_arguments;         // Added to every node's own.
  };

  explicit Cluster(const Options& options);
  ~Cluster();

  const std::string& directory() const { return directory_; }
  const std::string& coordinator_address() const { return coordinator_address_; }
  const std::string& http_address() const { return http_address_; }
  int node_count() const { return options_.nodes; }
  std::string NodeName(int index) const;
  Process& node(int index) { return *nodes_[static_cast<size_t>(index)]; }
  Process& coordinator() { return *coordinator_; }
  TcpProxy& data_proxy(int index) { return *data_proxies_[static_cast<size_t>(index)]; }
  TcpProxy& control_proxy(int index) { return *control_proxies_[static_cast<size_t>(index)]; }

  // Starts node `index` (again), with the data directory it had.
  void StartNode(int index);
  // Starts the coordinator (again), with the address and the data directory it had.
  void StartCoordinator();

  // Loads and proves a model; returns when it is ready or failed.
  absl::Status LoadModel(const v1::LoadModelRequest& request);
  absl::Status UnloadModel(const std::string& name);

  // One whole answer. `on_token` runs after every token event, `on_started` before the first.
  Answer Generate(const v1::GenerateRequest& request,
                  const std::function<void(int count)>& on_token = {},
                  const std::function<void(const v1::GenerateStarted&)>& on_started = {});
  v1::TokenIds Tokenize(const std::string& text);

  // REQUIRES: the coordinator is up.
  v1::NodeList ListNodes();
  v1::ClusterStatus Status();
  v1::ShardList ListShards();
  // As they are, also while the coordinator is away.
  absl::StatusOr<v1::NodeList> TryListNodes();
  absl::StatusOr<v1::ClusterStatus> TryStatus();

  // Asks the coordinator until `condition` is true; false after `timeout`.
  bool Until(absl::Duration timeout, const std::function<bool(Cluster&)>& condition);

  // Waits until every shard takes sessions, replicas too: a model is ready with its first ring.
  bool UntilAllProven(absl::Duration timeout);

  CommandResult Shardctl(std::vector<std::string> arguments);

  // Logs and stores stay on disk when the cluster is gone; they do anyway when a test fails.
  void KeepFiles() { keep_files_ = true; }

  // What went wrong where, for a failure message.
  std::string Logs() const;

  // Any thread; so are Generate, TryListNodes and TryStatus.
  v1::Inference::Stub& inference() { return *inference_; }
  v1::Admin::Stub& admin() { return *admin_; }

 private:
  const Options options_;
  const std::string directory_;
  bool keep_files_ = false;
  std::string coordinator_address_;
  std::string http_address_;
  std::unique_ptr<Process> coordinator_;
  std::vector<std::unique_ptr<Process>> nodes_;
  std::vector<std::unique_ptr<TcpProxy>> data_proxies_;
  std::vector<std::unique_ptr<TcpProxy>> control_proxies_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

// A request for `count` greedy tokens from `prompt`, with logits digests, never ending early.
v1::GenerateRequest Greedy(const std::string& prompt, uint32_t count);

// The golden model's path; fails the calling test, with the command to fetch it, when missing.
std::string GoldenModelPath();

}  // namespace shardline::testing
