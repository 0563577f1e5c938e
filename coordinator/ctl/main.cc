// shardctl: the operator's command line.

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "coordinator/ctl/exit_code.h"
#include "coordinator/ctl/shardctl.h"

namespace {

// The coordinator sees the connection go and ends what belongs to it; loads go on.
void LeaveOnInterrupt(int) { _exit(static_cast<int>(shardline::ExitCode::kInterrupted)); }

int TerminalColumns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGINT, LeaveOnInterrupt);
  setenv("GRPC_VERBOSITY", "NONE", 0);  // Errors are told once, in our words.
  signal(SIGPIPE, SIG_DFL);
  const shardline::CtlTerminal terminal{.in = &std::cin,
                                        .out = &std::cout,
                                        .err = &std::cerr,
                                        .out_is_terminal = isatty(STDOUT_FILENO) == 1,
                                        .err_is_terminal = isatty(STDERR_FILENO) == 1,
                                        .no_color = std::getenv("NO_COLOR") != nullptr,
                                        .columns = TerminalColumns()};
  return shardline::RunShardctl(std::vector<std::string>(argv + 1, argv + argc), terminal);
}
