#include <grpc/support/log.h>

#include <cstdio>
#include <string>
#include <utility>

#include "base/log.h"
#include "node/model_shard_loader.h"
#include "node/node_options.h"
#include "node/node_process.h"

namespace shardline {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "shardline-node: %s\n", std::string(status.message()).c_str());
  return code;
}

// gRPC's own lines go where ours go, and only if somebody debugs.
void LogGrpc(gpr_log_func_args* args) {
  LogDebug("grpc", {{"text", args->message}, {"file", args->file}, {"line", args->line}});
}

int Main(int argc, const char* const* argv) {
  absl::StatusOr<NodeCommandLine> line = ParseNodeCommandLine(argc, argv);
  if (!line.ok()) return Fail(line.status(), kExitUsage);
  if (line->print) {
    std::fputs(line->print->c_str(), stdout);
    return 0;
  }
  NodeOptions& options = line->options;
  InitLog({.level = options.log_level, .format = options.log_format, .component = "node"});
  gpr_set_log_function(LogGrpc);
  if (options.node_id.empty()) {
    absl::StatusOr<NodeId> id = ClaimNodeId(options.data_dir);
    if (!id.ok()) return Fail(id.status(), kExitFailure);
    options.node_id = *std::move(id);
  }
  ModelShardLoader loader({.model_dir = options.model_dir,
                           .memory_bytes = options.memory_bytes,
                           .threads = options.threads});
  return RunNodeProcess(options, &loader);
}

}  // namespace
}  // namespace shardline

int main(int argc, char** argv) { return shardline::Main(argc, argv); }
