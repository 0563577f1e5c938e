// Who may include whom. The table is the arrows of the design: a room lists the rooms it may look
// into; what is not listed is forbidden. The longest matching room of a file decides.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tidy/source_tree.h"

namespace shardline::testing {
namespace {

struct Room {
  std::string_view path;
  std::vector<std::string_view> may_include;  // Prefixes of our own paths, its own room apart.
  bool core = false;                          // Sans-IO: see ForbiddenInCore.
};

const std::vector<Room>& Rooms() {
  static const auto* const rooms = new std::vector<Room>{
      {"base", {}},
      {"base/metrics", {"base"}},
      {"proto/wire", {"base", "shardline/v1"}},
      {"model", {"base"}},
      {"model/jinja", {"base"}, true},
      {"model/grammar", {"base", "model/tokenizer"}, true},
      {"kernels", {"base"}},
      {"node/kv", {"base"}, true},
      {"node/sampling",
       {"base", "kernels/argmax.h", "kernels/exp_weights.h", "model/grammar", "model/tokenizer"},
       true},
      {"node/stage", {"base", "node/kv", "node/sampling"}, true},
      {"node/rounds", {"base", "model/grammar", "node/kv", "node/sampling", "node/stage"}, true},
      {"node/pulse", {"base"}, true},
      {"node/exec", {"base", "model", "kernels", "node/stage/compute_job.h", "node/sampling"}},
      {"node/transport",
       {"base", "proto/wire", "shardline/v1", "node/stage", "node/rounds", "node/sampling",
        "node/pulse"}},
      {"node", {"base", "proto/wire", "shardline/v1", "model", "kernels", "node"}},
      {"coordinator/membership", {"base"}, true},
      {"coordinator/placement", {"base", "model"}, true},
      {"coordinator/routing", {"base", "coordinator/membership", "coordinator/placement"}, true},
      {"coordinator/sessions", {"base", "coordinator/routing"}, true},
      {"coordinator/store", {"base"}},
      {"coordinator/transport",
       {"base", "proto/wire", "shardline/v1", "coordinator/membership", "coordinator/routing",
        "coordinator/sessions", "coordinator/placement", "coordinator/store"}},
      {"coordinator/admin",
       {"base", "proto/wire", "shardline/v1", "coordinator/membership", "coordinator/routing",
        "coordinator/sessions", "coordinator/placement", "coordinator/store",
        "coordinator/transport"}},
      {"coordinator/gateway",
       {"base", "proto/wire", "shardline/v1", "model", "coordinator/admin",
        "coordinator/ctl/views.h", "coordinator/generate_request.h", "coordinator/membership",
        "coordinator/model_file.h", "coordinator/placement", "coordinator/routing",
        "coordinator/sessions", "coordinator/store", "coordinator/task_thread.h",
        "coordinator/transport", "coordinator/wake_timer.h", "coordinator/web"}},
      {"coordinator/web", {"base"}},
      {"coordinator/ctl", {"base", "proto/wire", "shardline/v1", "coordinator/gateway/api_keys.h"}},
      {"coordinator", {"base", "proto/wire", "shardline/v1", "model", "coordinator"}},
  };
  return *rooms;
}

// Where each third party lives; a header prefix seen elsewhere is a violation.
struct Guest {
  std::string_view include;
  std::vector<std::string_view> homes;
};

const std::vector<Guest>& Guests() {
  static const auto* const guests = new std::vector<Guest>{
      {"<grpc",
       {"proto/wire", "node/transport", "node/node.cc", "node/main.cc", "coordinator/transport",
        "coordinator/admin", "coordinator/ctl", "coordinator/coordinator.cc", "tests"}},
      {"<cuda", {"kernels/cuda"}},
      {"<nccl", {"kernels/collective"}},
      {"<prometheus/", {"base/metrics"}},
      {"<sqlite3.h>", {"coordinator/store", "tests/coordinator/store", "tests/support"}},
      {"<boost/",
       {"coordinator/gateway/http_listener.cc", "coordinator/gateway/http_listener.h",
        "coordinator/gateway/http_parser.cc", "coordinator/gateway/http_server.cc"}},
      {"<hwy/", {"kernels", "tests/kernels", "tests/bench", "tests/node/exec"}},
      {"<pcre2.h>", {"model/tokenizer"}},
      {"<openssl/",
       {"base/prefix_chain.cc", "coordinator/gateway", "coordinator/store", "model/manifest.cc",
        "proto/wire/capability.cc", "tests/model/jinja", "tests/support"}},
      {"<spdlog/", {"base/log.cc"}},
      {"<immintrin.h>", {"kernels", "tests/kernels", "tests/bench"}},
      {"<regex>", {}},
  };
  return *guests;
}

// "x" and <x> are one third party.
std::string Normalised(std::string_view include) {
  return "<" + std::string(include.substr(1, include.size() - 2)) + ">";
}

const Room* RoomOf(std::string_view path) {
  const Room* best = nullptr;
  for (const Room& room : Rooms()) {
    if (IsBelow(path, room.path) && (!best || room.path.size() > best->path.size())) best = &room;
  }
  return best;
}

bool IsOurs(std::string_view target) {
  constexpr std::string_view kOurs[] = {"base/",    "proto/", "shardline/v1/", "model/",
                                        "kernels/", "node/",  "coordinator/",  "tests/"};
  return std::any_of(std::begin(kOurs), std::end(kOurs),
                     [target](std::string_view prefix) { return target.starts_with(prefix); });
}

// A core sees the standard library, Abseil and base less what knows threads or the world's clock.
std::optional<std::string> ForbiddenInCore(std::string_view include) {
  const std::string normal = Normalised(include);
  for (const std::string_view banned :
       {"<thread>", "<mutex>", "<atomic>", "<condition_variable>", "<future>", "<base/clock.h>",
        "<base/mailbox.h>", "<base/metrics/", "<base/strand.h>", "<absl/synchronization/",
        "<absl/time/clock.h>", "<grpc", "<google/protobuf", "<unistd.h>", "<sys/", "<fstream>",
        "<random>"}) {
    if (normal.starts_with(banned)) return "a core must not see " + normal;
  }
  if (normal.find(".pb.h") != std::string::npos) return "a core must not see " + normal;
  return std::nullopt;
}

// Why `path` may not hold `include`; nothing if it may.
std::optional<std::string> Violation(std::string_view path, std::string_view include) {
  const std::string normal = Normalised(include);
  for (const Guest& guest : Guests()) {
    if (!normal.starts_with(guest.include)) continue;
    const bool at_home = std::any_of(guest.homes.begin(), guest.homes.end(),
                                     [path](std::string_view home) { return IsBelow(path, home); });
    if (!at_home) return normal + " is not at home here";
  }
  const Room* room = RoomOf(path);
  if (room == nullptr) return std::nullopt;  // tests and deploy look into every room.
  if (room->core) {
    if (auto reason = ForbiddenInCore(include)) return reason;
  }
  const std::string_view target = include.substr(1, include.size() - 2);
  if (!IsOurs(target)) return std::nullopt;
  if (IsBelow(target, room->path)) return std::nullopt;
  const bool allowed =
      std::any_of(room->may_include.begin(), room->may_include.end(),
                  [target](std::string_view prefix) { return IsBelow(target, prefix); });
  if (allowed) return std::nullopt;
  return std::string(room->path) + " must not look into " + std::string(target);
}

TEST(IncludeRulesTest, EveryIncludeFollowsTheArrows) {
  for (const SourceFile& file : SourceTree()) {
    if (!IsCpp(file.path)) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string_view include = IncludeOf(file.lines[i]);
      if (include.empty()) continue;
      if (const auto reason = Violation(file.path, include)) {
        ADD_FAILURE() << file.path << ":" << i + 1 << ": " << *reason;
      }
    }
  }
}

TEST(IncludeRulesTest, EveryRoomOfTheTableExists) {
  for (const Room& room : Rooms()) {
    EXPECT_TRUE(std::any_of(SourceTree().begin(), SourceTree().end(), [&](const SourceFile& file) {
      return IsBelow(file.path, room.path);
    })) << room.path;
  }
}

// The checker itself: what must be refused is refused, what must pass passes.
TEST(IncludeRulesTest, TheCheckerSeesPlantedViolations) {
  EXPECT_TRUE(Violation("node/stage/x.cc", "\"coordinator/store/store.h\""));
  EXPECT_TRUE(Violation("coordinator/routing/x.cc", "\"node/kv/hot_kv_manager.h\""));
  EXPECT_TRUE(Violation("base/x.h", "\"model/gguf_file.h\""));
  EXPECT_TRUE(Violation("node/stage/x.cc", "<thread>"));
  EXPECT_TRUE(Violation("node/rounds/x.cc", "\"base/clock.h\""));
  EXPECT_TRUE(Violation("node/kv/x.h", "\"shardline/v1/link.pb.h\""));
  EXPECT_TRUE(Violation("model/x.cc", "<grpcpp/grpcpp.h>"));
  EXPECT_TRUE(Violation("node/exec/x.cc", "\"sqlite3.h\""));
  EXPECT_TRUE(Violation("tests/model/x.cc", "<regex>"));
  EXPECT_TRUE(Violation("node/exec/x.cc", "\"node/stage/stage_core.h\""));
  EXPECT_FALSE(Violation("node/exec/x.cc", "\"node/stage/compute_job.h\""));
  EXPECT_FALSE(Violation("node/stage/x.cc", "\"node/kv/hot_kv_manager.h\""));
  EXPECT_FALSE(Violation("node/node.cc", "\"node/exec/executor.h\""));
  EXPECT_FALSE(Violation("node/transport/x.cc", "<grpcpp/grpcpp.h>"));
}

}  // namespace
}  // namespace shardline::testing
