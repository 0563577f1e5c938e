#pragma once

// A coordinator of its own process's threads, on loopback, with a tiny model file beside it.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/coordinator.h"
#include "coordinator/coordinator_options.h"
#include "shardline/v1/admin.pb.h"
#include "shardline/v1/inference.pb.h"
#include "tests/coordinator/transport/fake_node.h"

namespace shardline::testing {

// One Generate call, read to its end or not at all.
struct Answer {
  absl::Status status;
  v1::GenerateStarted started;
  std::string text;  // With the end's.
  std::vector<int32_t> tokens;
  v1::GenerateEnd end;
  bool has_end = false;
};

// A Generate call that the test reads step by step.
class ClientCall {
 public:
  virtual ~ClientCall() = default;
  virtual bool Read(v1::GenerateEvent* event) = 0;
  virtual void Cancel() = 0;
  virtual absl::Status Finish() = 0;  // After Read was false.
};

class TestCluster {
 public:
  TestCluster();
  ~TestCluster();

  // Before Start.
  CoordinatorOptions& options() { return options_; }
  const std::string& model_path() const { return model_path_; }
  // While it is stopped.
  std::string store_path() const { return options_.data_dir + "/coordinator.db"; }

  absl::Status Start();
  void Stop();
  int port() const { return coordinator_->port(); }
  int metrics_port() const { return coordinator_->metrics_port(); }
  int http_port() const { return coordinator_->http_port(); }

  // Loads the tiny model over `shards` nodes and waits for the end.
  absl::Status Load(uint32_t shards, std::vector<v1::LoadModelEvent>* events = nullptr);
  // The same with any other wish. The path is filled in.
  absl::Status LoadAs(v1::LoadModelRequest request);
  absl::Status Unload(const std::string& name);

  absl::Status Cordon(const std::string& node);
  absl::Status Uncordon(const std::string& node);
  absl::StatusOr<v1::NodeSummary> Drain(const std::string& node, int64_t deadline_ms, bool wait,
                                        bool force = false);
  // Stops the coordinator; who still reads is told.
  void Shutdown() { coordinator_->Shutdown(); }

  Answer Generate(const v1::GenerateRequest& request);
  Answer Generate(const std::string& prompt);
  std::unique_ptr<ClientCall> StartGenerate(const v1::GenerateRequest& request);

  v1::ClusterStatus Status();
  v1::NodeList Nodes();
  v1::ShardList Shards();
  // Asks until the status satisfies `holds`; false after ten seconds without.
  bool WaitUntil(const std::function<bool(const v1::ClusterStatus&)>& holds);
  bool WaitUntilNodes(uint32_t ready);
  // Until `holds` is true of some session that has not ended.
  bool WaitUntilSession(const std::function<bool(const v1::SessionSummary&)>& holds);
  bool WaitUntilReady();

 private:
  struct Stubs;

  std::string directory_;
  std::string model_path_;
  CoordinatorOptions options_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Stubs> stubs_;
};

v1::GenerateRequest TextRequest(const std::string& prompt);

// "abc" as tokens of the tiny model, one a byte.
std::vector<int32_t> ByteTokens(const std::string& text);

}  // namespace shardline::testing
