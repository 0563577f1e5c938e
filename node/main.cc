#include <grpc/support/log.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "node/model_shard_loader.h"
#include "node/node.h"
#include "node/node_options.h"

namespace shardline {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
// After the first signal; the process then ends whatever still hangs.
constexpr unsigned kShutdownSecondsMax = 20;  // And the drain.

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "shardline-node: %s\n", std::string(status.message()).c_str());
  return code;
}

// gRPC's own lines go where ours go, and only if somebody debugs.
void LogGrpc(gpr_log_func_args* args) {
  LogDebug("grpc", {{"text", args->message}, {"file", args->file}, {"line", args->line}});
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

absl::Status WritePortFile(const std::string& path, const std::string& address) {
  std::ofstream file(path);
  file << address << '\n';
  file.close();
  if (file.fail()) return absl::UnavailableError("port-file: cannot write " + path);
  return absl::OkStatus();
}

int Run(const NodeOptions& options) {
  // Blocked here, before any thread is started, so that none but sigwait gets them.
  const sigset_t signals = StopSignals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  ModelShardLoader loader({.model_dir = options.model_dir,
                           .memory_bytes = options.memory_bytes,
                           .threads = options.threads});
  std::atomic<bool> replaced = false;
  NodeEvents events;
  events.on_replaced = [&replaced](const absl::Status&) {
    replaced = true;
    kill(getpid(), SIGTERM);
  };
  absl::StatusOr<std::unique_ptr<Node>> node =
      Node::Start(options, &loader, SystemClock(), std::move(events));
  if (!node.ok()) return Fail(node.status(), kExitFailure);
  LogInfo("listening", {{"address", (*node)->address()},
                        {"node", options.node_id},
                        {"coordinator", options.coordinator},
                        {"memory_bytes", options.memory_bytes},
                        {"threads", options.threads},
                        {"drafts", options.drafts ? "auto" : "off"}});
  if (!options.port_file.empty()) {
    const absl::Status written = WritePortFile(options.port_file, (*node)->address());
    if (!written.ok()) return Fail(written, kExitFailure);
  }

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  LogInfo("stopping", {{"signal", signal_number}});
  // A second signal, or too long a wait, ends the process at once.
  const auto drain_seconds = static_cast<unsigned>(absl::ToInt64Seconds(options.drain_timeout));
  alarm(kShutdownSecondsMax + drain_seconds);
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  if (!replaced) (*node)->Drain(options.drain_timeout);
  node->reset();
  LogInfo("stopped");
  return replaced ? kExitFailure : 0;
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
  return Run(options);
}

}  // namespace
}  // namespace shardline

int main(int argc, char** argv) { return shardline::Main(argc, argv); }
