// shardline-coordinator: parses the command line, runs the coordinator until it is told to stop.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/coordinator.h"
#include "coordinator/coordinator_options.h"

namespace shardline {
namespace {

// A disk that hangs must not keep a process that was told to stop. Beyond the drain.
constexpr unsigned kShutdownSecondsMax = 15;

// SIGINT and SIGTERM are taken by Wait alone; call before any thread starts.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

void GiveUp(int) {
  constexpr char kMessage[] = "error: shutdown took too long, leaving\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(1);
}

// From here on the process ends: at once on a second signal, and at last when the time is up.
void LimitShutdown(const sigset_t& signals, absl::Duration drain) {
  signal(SIGALRM, GiveUp);
  alarm(kShutdownSecondsMax + static_cast<unsigned>(absl::ToInt64Seconds(drain)));
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

// Written in one piece, so that the file may also be a named pipe. True when there is no file.
bool TellAddress(const char* flag, const std::string& path, const std::string& listen, int port) {
  if (path.empty()) return true;
  std::ofstream file(path);
  file << listen.substr(0, listen.rfind(':')) << ':' << port << std::endl;
  if (file.fail()) std::fprintf(stderr, "error: %s: cannot write %s\n", flag, path.c_str());
  return !file.fail();
}

int Main(int argc, char** argv) {
  const CoordinatorCommand command = ParseCoordinatorCommand(argc, argv);
  if (!command.run) {
    std::fputs(command.text.c_str(), command.exit_code == 0 ? stdout : stderr);
    return command.exit_code;
  }
  const CoordinatorOptions& options = command.options;
  setenv("GRPC_VERBOSITY", "NONE", 0);  // Errors are told once, in our words.
  InitLog({.level = options.log_level, .format = options.log_format, .component = "coordinator"});
  const sigset_t signals = BlockStopSignals();

  absl::StatusOr<std::unique_ptr<Coordinator>> coordinator =
      Coordinator::Start(options, SystemClock());
  if (!coordinator.ok()) {
    const std::string message(coordinator.status().message());
    std::fprintf(stderr, "error: %s\n", message.c_str());
    return 1;
  }
  const bool told =
      TellAddress("port-file", options.port_file, options.listen, (*coordinator)->port()) &&
      TellAddress("http-port-file", options.http_port_file, options.http,
                  (*coordinator)->http_port());
  if (!told) return 1;
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  LogInfo("stopping", {{"signal", signal_number}});
  LimitShutdown(signals, options.drain);
  (*coordinator)->Shutdown();
  return 0;
}

}  // namespace
}  // namespace shardline

int main(int argc, char** argv) { return shardline::Main(argc, argv); }
