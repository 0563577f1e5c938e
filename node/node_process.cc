#include "node/node_process.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "node/node.h"

namespace shardline {
namespace {

constexpr int kExitFailure = 1;
// After the first signal; the process then ends whatever still hangs.
constexpr unsigned kShutdownSecondsMax = 20;  // And the drain.

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "shardline-node: %s\n", std::string(status.message()).c_str());
  return kExitFailure;
}

void GiveUp(int) {
  constexpr char kMessage[] = "shardline-node: something hangs and cannot be stopped, leaving\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(kExitFailure);
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

}  // namespace

int RunNodeProcess(const NodeOptions& options, ShardLoader* loader) {
  // Blocked here, before any thread is started, so that none but sigwait gets them.
  const sigset_t signals = StopSignals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  std::atomic<bool> replaced = false;
  NodeEvents events;
  events.on_replaced = [&replaced](const absl::Status&) {
    replaced = true;
    kill(getpid(), SIGTERM);
  };
  absl::StatusOr<std::unique_ptr<Node>> node =
      Node::Start(options, loader, SystemClock(), std::move(events));
  if (!node.ok()) return Fail(node.status());
  LogInfo("listening", {{"address", (*node)->address()},
                        {"node", options.node_id},
                        {"coordinator", options.coordinator},
                        {"memory_bytes", options.memory_bytes},
                        {"threads", options.threads},
                        {"drafts", options.drafts ? "auto" : "off"}});
  if (!options.port_file.empty()) {
    const absl::Status written = WritePortFile(options.port_file, (*node)->address());
    if (!written.ok()) return Fail(written);
  }

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  LogInfo("stopping", {{"signal", signal_number}});
  // A second signal, or too long a wait, ends the process at once.
  signal(SIGALRM, GiveUp);
  const auto drain_seconds = static_cast<unsigned>(absl::ToInt64Seconds(options.drain_timeout));
  alarm(kShutdownSecondsMax + drain_seconds);
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  if (!replaced) (*node)->Drain(options.drain_timeout);
  node->reset();
  LogInfo("stopped");
  return replaced ? kExitFailure : 0;
}

}  // namespace shardline
