#include "tests/sim/sim_world.h"

#include <csetjmp>
#include <csignal>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"

namespace shardline::sim {
namespace {

constexpr uint64_t kEventsMax = 60000;  // More than any healthy schedule needs.
constexpr uint64_t kWalkEvery = 64;     // Events between two full walks.
constexpr SimTime kGrace = 500 * kMillisecond;
constexpr SimTime kSlack = 1 * kSecond;  // Of a bound, for wires and disks.
constexpr SimTime kQuietBound = 8 * kSecond;
constexpr SimTime kLossyBound = 40 * kSecond;  // A step lost without a word has but its timer.
constexpr SimTime kProbeBound = 15 * kSecond;
constexpr SimTime kProbeRetry = 200 * kMillisecond;

NodeId NameOfNode(int number) { return NodeId(absl::StrCat("n", number)); }

}  // namespace

SimWorld::SimWorld(const Scenario& scenario)
    : scenario_(scenario),
      context_(scenario.seed),
      cluster_(&context_),
      checker_(&cluster_, &store_),
      disk_clock_(&context_.queue),
      store_(&disk_clock_) {
  context_.checker = &checker_;
  disk_.store = &store_;
  session_order_.resize(scenario_.sessions.size());
  std::iota(session_order_.begin(), session_order_.end(), 0);
  std::stable_sort(session_order_.begin(), session_order_.end(), [this](size_t a, size_t b) {
    return scenario_.sessions[a].at < scenario_.sessions[b].at;
  });
}

SimWorld::~SimWorld() = default;

SimCoordinatorOptions SimWorld::CoordinatorOptions(int number) const {
  SimCoordinatorOptions options;
  options.number = number;
  options.kv_pages = scenario_.kv_pages;
  options.replicas = scenario_.replicas;
  options.rounds_in_flight = scenario_.rounds_in_flight;
  options.prefix_cache = scenario_.prefix_cache;
  options.sessions.admission.waiting_max = scenario_.waiting_max;
  for (int i = 0; i < scenario_.stages * scenario_.replicas; ++i) {
    const int stage = i / scenario_.replicas;
    options.shards.push_back({.node = NameOfNode(i),
                              .layers = {.begin = kLayersTotal * stage / scenario_.stages,
                                         .end = kLayersTotal * (stage + 1) / scenario_.stages},
                              .is_head = stage == 0,
                              .bytes = 100});
  }
  return options;
}

void SimWorld::Build() {
  for (int i = 0; i < scenario_.nodes; ++i) {
    SimNodeOptions options{.id = NameOfNode(i),
                           .number = i,
                           .kv_pages = scenario_.kv_pages,
                           .chunk_tokens_max = scenario_.chunk_tokens_max,
                           .resume_timeout = absl::Milliseconds(scenario_.resume_ms),
                           .capabilities = scenario_.capabilities,
                           .drafts = scenario_.drafts,
                           .head_slots = scenario_.head_slots,
                           .head_queue = scenario_.head_queue};
    if (scenario_.clock_ppm != 0) {
      options.rate_ppm =
          static_cast<int>(context_.rng.Between(-scenario_.clock_ppm, scenario_.clock_ppm));
    }
    cluster_.nodes.push_back(std::make_unique<SimNode>(&cluster_, options));
  }
  cluster_.coordinators.push_back(
      std::make_unique<SimCoordinator>(&cluster_, &disk_, CoordinatorOptions(kFirstCoordinator)));
  for (size_t i = 0; i < scenario_.sessions.size(); ++i) {
    cluster_.clients.push_back(
        std::make_unique<SimClient>(&cluster_, scenario_.sessions[i], static_cast<int>(i)));
  }
  const bool attacks =
      std::any_of(scenario_.faults.begin(), scenario_.faults.end(), [](const Fault& fault) {
        return fault.kind == FaultKind::kForge || fault.kind == FaultKind::kMisroute ||
               fault.kind == FaultKind::kDropFrames || fault.kind == FaultKind::kReorderFrames;
      });
  if (attacks) checker_.AllowAttacks();
  cluster_.coordinator()->Start();
  for (const std::unique_ptr<SimNode>& node : cluster_.nodes) node->Start();
}

bool SimWorld::Step() {
  const uint64_t index = context_.queue.executed();
  while (sessions_asked_ < session_order_.size()) {
    SimClient& client = *cluster_.clients[session_order_[sessions_asked_]];
    if (client.spec().at > index) break;
    ++sessions_asked_;
    client.Ask();
  }
  while (!healed_ && faults_applied_ < scenario_.faults.size() &&
         scenario_.faults[faults_applied_].at <= index) {
    Apply(scenario_.faults[faults_applied_++]);
  }
  if (!context_.queue.RunNext()) {
    checker_.Fail(30, "nothing is going to happen any more");
    return false;
  }
  if (index % kWalkEvery == 0) checker_.CheckAll();
  if (index > kEventsMax) checker_.Fail(30, "it goes on and on");
  return !checker_.violation().has_value();
}

bool SimWorld::AllOver() const {
  return std::all_of(cluster_.clients.begin(), cluster_.clients.end(),
                     [](const auto& client) { return client->over(); });
}

bool SimWorld::Quiet() const {
  const SessionsCore* sessions = cluster_.coordinator()->sessions();
  if (sessions == nullptr || !sessions->idle() || !cluster_.coordinator()->settled()) return false;
  return std::all_of(cluster_.nodes.begin(), cluster_.nodes.end(), [](const auto& node) {
    return node->stage() == nullptr || node->stage()->kv().pages_held() == 0;
  });
}

template <typename Done>
bool SimWorld::StepUntil(SimTime until, Done done) {
  while (!done()) {
    if (context_.queue.now() > until) return false;
    if (!Step()) return true;
  }
  return true;
}

void SimWorld::RunFaults() {
  while (sessions_asked_ < session_order_.size() || faults_applied_ < scenario_.faults.size() ||
         faults_active_ > 0) {
    const bool all_over = sessions_asked_ == session_order_.size() && AllOver();
    if (all_over && !(scenario_.linger && faults_active_ > 0)) break;
    if (!Step()) return;
  }
}

void SimWorld::RunToTheEnd() {
  SimTime bound = healed_at_;
  for (const std::unique_ptr<SimClient>& client : cluster_.clients) {
    bound = std::max(bound, client->asked_at() + client->spec().budget);
  }
  bound += kGrace + kSlack;
  if (!StepUntil(bound, [this] { return AllOver(); })) {
    checker_.Fail(25, "a client has heard no end by its deadline and grace");
  }
  over_at_ = context_.queue.executed();
  if (checker_.violation()) return;
  if (!StepUntil(bound + (checker_.attacks() ? kLossyBound : kQuietBound),
                 [this] { return Quiet(); })) {
    checker_.Fail(30, "sessions or pages are left over long after everything healed");
  }
}

void SimWorld::RunProbe() {
  const SimTime bound = context_.queue.now() + kProbeBound;
  while (!checker_.violation()) {
    const SessionSpec spec = {
        .seed = scenario_.seed, .prompt_tokens = 3, .new_tokens = 2, .budget = 2 * kSecond};
    cluster_.clients.push_back(
        std::make_unique<SimClient>(&cluster_, spec, static_cast<int>(cluster_.clients.size())));
    SimClient& probe = *cluster_.clients.back();
    probe.Ask();
    StepUntil(bound + 5 * kSecond, [&probe] { return probe.over(); });
    if (probe.phase() == ClientPhase::kCompleted) break;
    if (context_.queue.now() > bound) {
      checker_.Fail(30, absl::StrCat("no fresh session completes after everything healed: ",
                                     std::string(probe.failure().message())));
      break;
    }
    const SimTime next = context_.queue.now() + kProbeRetry;
    StepUntil(next + kSecond, [&] { return context_.queue.now() >= next; });
  }
}

Outcome SimWorld::Run(bool keep_all) {
  if (keep_all) context_.trace.KeepAll();
  Build();
  RunFaults();
  if (!checker_.violation()) {
    Heal();
    RunToTheEnd();
  }
  if (!checker_.violation()) RunProbe();
  if (!checker_.violation()) {
    const SimTime bound = context_.queue.now() + (checker_.attacks() ? kLossyBound : kQuietBound);
    if (!StepUntil(bound, [this] { return Quiet(); })) {
      checker_.Fail(17, "the last session left something");
    }
    if (!checker_.violation()) checker_.CheckQuiet();
  }
  Outcome outcome{.violation = checker_.violation(),
                  .trace_hash = context_.trace.hash(),
                  .events = context_.queue.executed(),
                  .session_events = over_at_,
                  .time = context_.queue.now(),
                  .counts = checker_.counts()};
  if (!outcome.ok()) outcome.tail = context_.trace.Tail(50);
  if (keep_all) outcome.all = context_.trace.All();
  return outcome;
}

namespace {

thread_local sigjmp_buf abort_jump;
thread_local bool abort_expected = false;

void OnAbort(int signal) {
  if (abort_expected) siglongjmp(abort_jump, 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

Outcome RunScenario(const Scenario& scenario, bool keep_all) {
  std::signal(SIGABRT, OnAbort);
  // What an aborted run owns is left behind: it cannot be trusted to be taken down.
  auto* world = new SimWorld(scenario);
  if (sigsetjmp(abort_jump, 1) != 0) {
    abort_expected = false;
    Outcome outcome;
    outcome.violation = Violation{.invariant = 0, .what = "a check of our own failed"};
    return outcome;
  }
  abort_expected = true;
  Outcome outcome = world->Run(keep_all);
  abort_expected = false;
  delete world;
  return outcome;
}

}  // namespace shardline::sim
