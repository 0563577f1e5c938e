#include "tests/e2e/chaos.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/failure.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "tests/e2e/chaos_faults.h"
#include "tests/e2e/chaos_ledger.h"
#include "tests/e2e/cluster.h"

namespace shardline::testing {
namespace {

using Outcome = ClientReport::Outcome;

constexpr absl::Duration kEndGrace = absl::Milliseconds(500);
constexpr absl::Duration kHealMax = absl::Seconds(30);
constexpr uint32_t kContextTokens = 512;

// How long this machine keeps a ready thread waiting: its busy cores are nobody's failure.
class StallMeter {
 public:
  StallMeter() : thread_([this] { Run(); }) {}
  ~StallMeter() { Stop(); }

  absl::Duration Stop() {
    if (!stop_.HasBeenNotified()) stop_.Notify();
    if (thread_.joinable()) thread_.join();
    return max_;
  }

 private:
  void Run() {
    constexpr absl::Duration kPeriod = absl::Milliseconds(5);
    for (Instant last = SystemClock()->Now(); !stop_.WaitForNotificationWithTimeout(kPeriod);) {
      const Instant now = SystemClock()->Now();
      max_ = std::max(max_, now - last - kPeriod);
      last = now;
    }
  }

  absl::Notification stop_;
  absl::Duration max_;
  std::thread thread_;
};

// An end crosses the coordinator's timer, its strand, a gRPC thread and the client's: each may have
// to wait for a core as long as the meter's thread had to.
absl::Duration Slack(absl::Duration stall_max) { return absl::Milliseconds(100) + 4 * stall_max; }

v1::LoadModelRequest Load(int shards, int replicas, int sessions_max) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("chaos");
  request.set_shards(static_cast<uint32_t>(shards));
  request.set_replicas(static_cast<uint32_t>(replicas));
  request.set_context_tokens_max(kContextTokens);
  request.set_sessions_max(static_cast<uint32_t>(sessions_max));
  return request;
}

std::vector<ClientReport> RunClients(Cluster& cluster, const ChaosOptions& options,
                                     const ChaosPlan& plan, const std::vector<Recipe>& recipes,
                                     const std::vector<ReferenceAnswer>& answers,
                                     std::atomic<int64_t>& tokens_seen) {
  std::vector<ClientReport> reports(plan.sessions.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < options.concurrency; ++i) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < plan.sessions.size(); at = next++) {
        const PlannedSession& session = plan.sessions[at];
        const auto recipe = static_cast<size_t>(session.recipe);
        reports[at] = RunClient(cluster, session, recipes[recipe], answers[recipe], tokens_seen);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return reports;
}

void CheckClient(const PlannedSession& planned, const ClientReport& client,
                 const std::vector<Recipe>& recipes, absl::Duration slack, ChaosReport& report) {
  report.violations.insert(report.violations.end(), client.violations.begin(),
                           client.violations.end());
  if (client.took > planned.deadline + kEndGrace + slack) {
    report.violations.push_back(
        absl::StrCat("a session ended ", absl::FormatDuration(client.took - planned.deadline),
                     " after its deadline (slack ", absl::FormatDuration(slack),
                     "): ", client.status.ToString()));
  }
  for (size_t i = 0; i < recipes.size(); ++i) {
    if (static_cast<int>(i) != planned.recipe &&
        absl::StrContains(client.text, recipes[i].marker)) {
      report.violations.push_back(
          absl::StrCat("another session's word ", recipes[i].marker, " in an answer"));
    }
  }
}

void CheckHealed(Cluster& cluster, const Recipe& recipe, const ReferenceAnswer& reference,
                 ChaosReport& report) {
  const bool whole = cluster.Until(kHealMax, [](Cluster& c) {
    const absl::StatusOr<v1::ClusterStatus> status = c.TryStatus();
    return status.ok() && status->nodes_ready() == static_cast<uint32_t>(c.node_count()) &&
           status->models_size() == 1 && status->models(0).state() == v1::MODEL_STATE_READY;
  });
  if (!whole) {
    const absl::StatusOr<v1::ClusterStatus> status = cluster.TryStatus();
    report.violations.push_back(
        absl::StrCat("not whole again after ", absl::FormatDuration(kHealMax), ": ",
                     status.ok() ? status->ShortDebugString() : status.status().ToString()));
  }
  const bool free = cluster.Until(kHealMax, [](Cluster& c) {
    const absl::StatusOr<v1::NodeList> nodes = c.TryListNodes();
    return nodes.ok() &&
           std::all_of(nodes->nodes().begin(), nodes->nodes().end(), [](const auto& n) {
             return n.attempts_open() == 0 && n.kv_pages_free() == n.kv_pages_total();
           });
  });
  if (!free) {
    report.violations.push_back(
        absl::StrCat("pages are not free: ", cluster.ListNodes().ShortDebugString()));
  }
  std::atomic<int64_t> ignored = 0;
  const PlannedSession probe = {.tokens = 8, .at_token = kRecipeTokens, .deadline = kHealMax};
  const ClientReport answer = RunClient(cluster, probe, recipe, reference, ignored);
  if (answer.outcome != Outcome::kCompleted || !answer.violations.empty()) {
    report.violations.push_back(
        absl::StrCat("a plain request afterwards: ", answer.status.ToString()));
  }
}

}  // namespace

std::string Summary(const ChaosReport& report) {
  std::string line =
      absl::StrFormat("seed %d: %d sessions in %s:", report.seed, report.sessions,
                      absl::FormatDuration(absl::Trunc(report.took, absl::Seconds(1))));
  for (const auto& [outcome, count] : report.outcomes) {
    absl::StrAppend(&line, " ", count, " ", OutcomeName(outcome));
  }
  const char* before = " (";
  for (const auto& [kind, count] : report.failures) {
    absl::StrAppend(&line, before, count, " ", kind);
    before = ", ";
  }
  if (!report.failures.empty()) line += ")";
  absl::StrAppend(&line, "; ", report.tokens, " tokens, ", report.restarts, " restarts (",
                  report.completed_after_restart, " completed), ", report.reattaches,
                  " re-attached; faults:");
  for (const auto& [fault, count] : report.faults) {
    absl::StrAppend(&line, " ", count, " ", FaultName(fault));
  }
  if (report.records >= 0) absl::StrAppend(&line, "; ", report.records, " records");
  absl::StrAppend(&line, "; ", report.violations.size(), " violations");
  return line;
}

ChaosReport Sum(const std::vector<ChaosReport>& reports) {
  ChaosReport sum;
  if (!reports.empty()) sum.seed = reports.front().seed;
  for (const ChaosReport& report : reports) {
    sum.sessions += report.sessions;
    for (const auto& [outcome, count] : report.outcomes) sum.outcomes[outcome] += count;
    for (const auto& [kind, count] : report.failures) sum.failures[kind] += count;
    for (const auto& [fault, count] : report.faults) sum.faults[fault] += count;
    sum.restarts += report.restarts;
    sum.completed_after_restart += report.completed_after_restart;
    sum.reattaches += report.reattaches;
    sum.tokens += report.tokens;
    sum.records += report.records;
    sum.took += report.took;
    sum.stall_max = std::max(sum.stall_max, report.stall_max);
    sum.violations.insert(sum.violations.end(), report.violations.begin(), report.violations.end());
  }
  return sum;
}

std::vector<ReferenceAnswer> AnswerAlone(const std::vector<Recipe>& recipes) {
  Cluster cluster({.nodes = 1, .threads = 2});
  const absl::Status loaded = cluster.LoadModel(Load(1, 1, 2));
  SL_CHECK(loaded.ok(), loaded.ToString());
  std::vector<ReferenceAnswer> answers;
  for (const Recipe& recipe : recipes) {
    const Answer answer = cluster.Generate(recipe.request);
    SL_CHECK(answer.status.ok(), answer.status.ToString());
    SL_CHECK(answer.tokens.size() == kRecipeTokens);
    answers.push_back({.tokens = answer.tokens, .digests = answer.digests});
  }
  return answers;
}

ChaosReport RunChaos(const ChaosOptions& options, const std::vector<Recipe>& recipes,
                     const std::vector<ReferenceAnswer>& answers) {
  const Instant started = SystemClock()->Now();
  ChaosReport report = {.seed = options.seed, .sessions = options.sessions};
  const ChaosPlan plan = MakeChaosPlan(options);
  Cluster cluster({.nodes = options.nodes, .memory = "1GiB", .proxied = true});
  report.directory = cluster.directory();
  const absl::Status loaded =
      cluster.LoadModel(Load(options.shards, options.replicas, options.concurrency + 2));
  SL_CHECK(loaded.ok(), loaded.ToString());

  StallMeter meter;
  std::atomic<int64_t> tokens_seen = 0;
  FaultDriver faults(&cluster, plan.faults, &tokens_seen);
  const std::vector<ClientReport> clients =
      RunClients(cluster, options, plan, recipes, answers, tokens_seen);
  faults.Stop();
  report.stall_max = meter.Stop();
  report.tokens = tokens_seen;
  report.faults = faults.applied();
  report.violations = faults.violations();

  for (size_t i = 0; i < clients.size(); ++i) {
    const ClientReport& client = clients[i];
    CheckClient(plan.sessions[i], client, recipes, Slack(report.stall_max), report);
    ++report.outcomes[client.outcome];
    report.restarts += client.restarts;
    report.reattaches += client.reattaches;
    if (client.restarts > 0 && client.outcome == Outcome::kCompleted) {
      ++report.completed_after_restart;
    }
    if (client.outcome == Outcome::kFailed) {
      ++report.failures[std::string(FailureKindName(FailureKindOf(client.status)))];
    }
    if (client.outcome == Outcome::kCancelled) ++report.faults[Fault::kCancel];
    if (client.outcome == Outcome::kLeft) ++report.faults[Fault::kLeave];
    if (plan.sessions[i].client == PlannedSession::Client::kHurries) {
      ++report.faults[Fault::kDeadline];
    }
  }
  CheckHealed(cluster, recipes[0], answers[0], report);
  CheckLedger(cluster, clients, report);
  if (!report.violations.empty()) cluster.KeepFiles();
  report.took = SystemClock()->Now() - started;
  return report;
}

}  // namespace shardline::testing
