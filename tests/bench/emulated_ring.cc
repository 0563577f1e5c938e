#include "tests/bench/emulated_ring.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "tests/support/tiny_llama.h"

namespace shardline::bench {
namespace {

std::string MakeDirectory() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "shardline-emulated-XXXXXX").string();
  return mkdtemp(pattern.data());
}

NodeOptions OptionsOf(int index, int coordinator_port, const std::string& directory) {
  const std::string name = absl::StrCat("emulated-", index);
  return {.listen = "127.0.0.1:0",
          .coordinator = absl::StrCat("127.0.0.1:", coordinator_port),
          .data_dir = absl::StrCat(directory, "/", name),
          .node_id = NodeId(name),
          .memory_bytes = uint64_t{1} << 30,
          .threads = 1,
          .machine = name};
}

}  // namespace

EmulatedRing::EmulatedRing(const Options& options)
    : directory_(MakeDirectory()), loader_(options.layer_cost, kHiddenDim) {
  cluster_.options().lease = absl::Seconds(10);
  cluster_.options().heartbeat = absl::Milliseconds(250);
  absl::Status status = cluster_.Start();
  SL_CHECK(status.ok(), status.ToString());
  for (int i = 0; i < options.stages; ++i) {
    absl::StatusOr<std::unique_ptr<Node>> node =
        Node::Start(OptionsOf(i, cluster_.port(), directory_), &loader_, SystemClock());
    SL_CHECK(node.ok(), node.status().ToString());
    nodes_.push_back(*std::move(node));
  }
  SL_CHECK(cluster_.WaitUntilNodes(static_cast<uint32_t>(options.stages)));
  v1::LoadModelRequest request;
  request.set_path(testing::MakeTinyLlama(
      directory_, {.layers = kLayers,
                   .hidden = 32,
                   .q_heads = 1,
                   .kv_heads = 1,
                   .context = static_cast<int32_t>(options.context_tokens_max)}));
  request.set_shards(static_cast<uint32_t>(options.stages));
  request.set_sessions_max(options.sessions_max);
  request.set_context_tokens_max(options.context_tokens_max);
  status = cluster_.LoadAs(request);
  SL_CHECK(status.ok(), status.ToString());
  inference_ = v1::Inference::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", cluster_.port()), grpc::InsecureChannelCredentials()));
}

EmulatedRing::~EmulatedRing() {
  inference_.reset();
  nodes_.clear();
  cluster_.Stop();
  std::filesystem::remove_all(directory_);
}

}  // namespace shardline::bench
