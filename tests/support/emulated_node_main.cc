// A node whose device is emulated (emulated_device.h); takes the arguments of shardline-node, and
//   SHARDLINE_EMULATED_STEP_US, SHARDLINE_EMULATED_ROW_US   what a layer takes
//   SHARDLINE_EMULATED_HIDDEN                               floats of a row between stages
//   SHARDLINE_EMULATED_HANG_AFTER                           jobs; the next never ends; or unset
// Every such node counts as a machine of its own.

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "base/check.h"
#include "base/log.h"
#include "node/node_options.h"
#include "node/node_process.h"
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
  absl::StatusOr<NodeCommandLine> line = ParseNodeCommandLine(argc, argv);
  SL_CHECK(line.ok(), line.status().ToString());
  InitLog({.level = line->options.log_level, .component = "node"});
  line->options.machine = line->options.node_id.value();
  EmulatedShardLoader loader({.step = absl::Microseconds(NumberFrom("SHARDLINE_EMULATED_STEP_US")),
                              .row = absl::Microseconds(NumberFrom("SHARDLINE_EMULATED_ROW_US"))},
                             static_cast<int32_t>(NumberFrom("SHARDLINE_EMULATED_HIDDEN")));
  if (std::getenv("SHARDLINE_EMULATED_HANG_AFTER") != nullptr) {
    loader.HangAfter(static_cast<uint64_t>(NumberFrom("SHARDLINE_EMULATED_HANG_AFTER")));
  }
  return RunNodeProcess(line->options, &loader);
}

}  // namespace
}  // namespace shardline::testing

int main(int argc, char** argv) { return shardline::testing::Main(argc, argv); }
