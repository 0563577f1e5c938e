// What the failure semantics cost a session, part by part, over the time it takes.
//
//   semantics_bench MODEL.gguf [DIRECTORY]    DIRECTORY: for the ledger; of the working disk
//
// There is no build without them to compare with, so each part is timed alone, over what it does
// for a session of kTokens greedy tokens on kStages stages, and set against the time that session
// takes on real processes:
//
//   steps    digest and chain at both ends of every hop, checksums of every bundle
//   opens    signing and checking OPEN and FENCE of every stage
//   ledger   the durable grant and the durable terminal record
//   beats    everything an idle cluster does: heartbeats, pulses and their answers

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/clock.h"
#include "coordinator/store/sqlite_store.h"
#include "node/stage/step_chain.h"
#include "proto/wire/capability.h"
#include "proto/wire/link_codec.h"
#include "tests/bench/floors.h"
#include "tests/e2e/cluster.h"

namespace shardline::bench {
namespace {

using testing::Answer;
using testing::Cluster;

constexpr int kStages = 3;
constexpr uint32_t kTokens = 256;  // What a request gets that does not say.
constexpr int kSessions = 9;
constexpr int kHidden = 576;  // Of SmolLM2-135M.
constexpr absl::Duration kIdle = absl::Seconds(5);

// Microseconds of one hop of one token: what its sender and its receiver do for the semantics.
double StepUs() {
  constexpr int kRounds = 20'000;
  LinkBundle bundle;
  bundle.sequence = 1;
  bundle.hidden_dim = kHidden;
  bundle.rows.push_back({.key = {{SessionId(1), Epoch(1)}, StepIndex(0)},
                         .token_count = 1,
                         .hop = 1,
                         .budget = absl::Seconds(1)});
  bundle.payload = Buffer::Allocate(kHidden * sizeof(float));
  const BundleRow row = {.key = bundle.rows[0].key, .token_count = 1, .hop = 1};
  uint64_t chain = ChainStart(row.key.attempt, row.hop, Recipe{});
  const double hop = SecondsOf([&] {
    for (int i = 0; i < kRounds; ++i) {
      for (int end = 0; end < 2; ++end) {
        const uint64_t digest =
            RowDigest(row, bundle.payload->data(), static_cast<size_t>(bundle.payload->size()));
        chain = ChainNext(chain, row.key.step, digest);
      }
      // The whole codec, though a link without semantics would need most of it.
      const absl::StatusOr<LinkInput> input =
          DecodeFrame(EncodeBundle(bundle), {.hidden_dim = kHidden});
      SL_CHECK(input.ok());
    }
  });
  SL_CHECK(chain != 0);
  return hop / kRounds * 1e6;
}

// Microseconds of one OPEN and one FENCE of one stage, both ends.
double OpenUs() {
  constexpr int kRounds = 5'000;
  const absl::StatusOr<CapabilityKey> key = CapabilityKey::Make();
  SL_CHECK(key.ok());
  v1::OpenRequest open;
  open.set_session(1);
  open.set_epoch(1);
  for (int i = 0; i < kStages; ++i) open.add_route()->set_node_id(absl::StrCat("node-", i));
  v1::FenceRequest fence;
  fence.set_session(1);
  const double both = SecondsOf([&] {
    for (int i = 0; i < kRounds; ++i) {
      open.set_capability(OpenCapability(*key, open));
      fence.set_capability(FenceCapability(*key, fence));
      SL_CHECK(CheckCapability(*key, open).ok() && CheckCapability(*key, fence).ok());
    }
  });
  return both / kRounds * 1e6;
}

// Microseconds of a durable grant and a durable terminal record.
double LedgerUs(const std::string& directory) {
  constexpr int kRounds = 100;
  const std::string path = directory + "/semantics_bench.db";
  std::filesystem::remove(path);
  absl::StatusOr<std::unique_ptr<Store>> store = OpenSqliteStore(path);
  SL_CHECK(store.ok(), store.status().ToString());
  const absl::StatusOr<Term> term = (*store)->BeginTerm();
  SL_CHECK(term.ok(), term.status().ToString());
  std::vector<double> us;
  for (int i = 0; i < kRounds; ++i) {
    us.push_back(1e6 * SecondsOf([&] {
                   const absl::StatusOr<Admission> admission = (*store)->Admit(
                       *term, {.plan = PlanEpoch(1), .route = "a,b,c", .tokens_max = kTokens}, {});
                   SL_CHECK(admission.ok(), admission.status().ToString());
                   const absl::StatusOr<AttemptRecord> record =
                       (*store)->FinishAttempt(*term, admission->key,
                                               {.state = AttemptState::kCompleted,
                                                .prompt_tokens = 8,
                                                .tokens = kTokens,
                                                .work_tokens = kTokens + 8},
                                               {});
                   SL_CHECK(record.ok(), record.status().ToString());
                 }));
  }
  store->reset();
  for (const char* suffix : {"", "-wal", "-shm", "-room"}) std::filesystem::remove(path + suffix);
  return Quantile(us, 0.5);
}

// User and system seconds that a process has used.
double CpuSeconds(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string skipped;
  double user = 0;
  double system = 0;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// CPU seconds a second of a cluster that does nothing but beat.
double BeatShare(Cluster& cluster) {
  const auto used = [&] {
    double seconds = CpuSeconds(cluster.coordinator().pid());
    for (int i = 0; i < cluster.node_count(); ++i) seconds += CpuSeconds(cluster.node(i).pid());
    return seconds;
  };
  const double before = used();
  absl::Notification never;
  never.WaitForNotificationWithTimeout(kIdle);
  return (used() - before) / absl::ToDoubleSeconds(kIdle);
}

// Microseconds of a whole session, asked to answered.
double SessionUs(Cluster& cluster) {
  v1::GenerateRequest request = testing::Greedy("A long story about a river:", kTokens);
  request.set_want_logits_digest(false);
  const Answer answer = cluster.Generate(request);
  SL_CHECK(answer.status.ok(), answer.status.ToString());
  return static_cast<double>(answer.end->total_us());
}

void Run(const std::string& model, const std::string& directory) {
  Cluster cluster({.nodes = kStages, .threads = 1});
  v1::LoadModelRequest request;
  request.set_path(std::filesystem::absolute(model).string());
  request.set_shards(kStages);
  request.set_context_tokens_max(1024);
  const absl::Status loaded = cluster.LoadModel(request);
  SL_CHECK(loaded.ok(), loaded.ToString());
  SessionUs(cluster);
  std::vector<double> sessions;
  std::vector<double> steps;
  for (int i = 0; i < kSessions; ++i) {
    sessions.push_back(SessionUs(cluster));
    steps.push_back(StepUs());
  }
  const double session = Quantile(sessions, 0.5);
  const double step = Quantile(steps, 0.5) * kStages * kTokens;
  const double open = OpenUs() * kStages;
  const double ledger = LedgerUs(directory);
  const double beats = BeatShare(cluster) / sysconf(_SC_NPROCESSORS_ONLN) * session;
  const double cost = (session - step - open - ledger - beats) / session;
  std::printf(
      "semantics_cost: %.4f; a session of %u tokens takes %.1f ms, of it steps %.3f ms, opens and "
      "fences %.3f ms, ledger %.3f ms, beats %.3f ms\n",
      cost, kTokens, session / 1e3, step / 1e3, open / 1e3, ledger / 1e3, beats / 1e3);
  std::printf("figure semantics_cost %.4f ratio\n", cost);
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: semantics_bench MODEL.gguf [DIRECTORY]\n");
    return 2;
  }
  shardline::bench::Run(argv[1], argc == 3 ? argv[2] : ".");
  return 0;
}
