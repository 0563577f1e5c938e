// A node whose device is emulated (emulated_device.h); takes the arguments of shardline-node, and
//   SHARDLINE_EMULATED_STEP_US, SHARDLINE_EMULATED_ROW_US   what a layer takes
//   SHARDLINE_EMULATED_HIDDEN                               floats of a row between stages
// Every such node counts as a machine of its own.

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/numbers.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "node/node.h"
#include "node/node_options.h"
#include "tests/support/emulated_device.h"

namespace shardline::testing {
namespace {

double NumberFrom(const char* name) {
  const char* const text = std::getenv(name);
  double number = 0;
  SL_CHECK(text != nullptr && absl::SimpleAtod(text, &number), name);
  return number;
}

int Main(int argc, char** argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  absl::StatusOr<NodeCommandLine> line = ParseNodeCommandLine(argc, argv);
  SL_CHECK(line.ok(), line.status().ToString());
  InitLog({.level = line->options.log_level, .component = "node"});
  line->options.machine = line->options.node_id.value();
  EmulatedShardLoader loader({.step = absl::Microseconds(NumberFrom("SHARDLINE_EMULATED_STEP_US")),
                              .row = absl::Microseconds(NumberFrom("SHARDLINE_EMULATED_ROW_US"))},
                             static_cast<int32_t>(NumberFrom("SHARDLINE_EMULATED_HIDDEN")));
  const absl::StatusOr<std::unique_ptr<Node>> node =
      Node::Start(line->options, &loader, SystemClock());
  SL_CHECK(node.ok(), node.status().ToString());
  std::ofstream(line->options.port_file) << (*node)->address() << std::endl;
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  return 0;
}

}  // namespace
}  // namespace shardline::testing

int main(int argc, char** argv) { return shardline::testing::Main(argc, argv); }
