// How a scenario is drawn from a seed: a swarm, in which every schedule has its own few kinds of
// fault, so that rare mixtures come up and common ones do not drown them.

#include <algorithm>

#include "tests/sim/rng.h"
#include "tests/sim/scenario.h"

namespace shardline::sim {
namespace {

// Events before the first node is ready, and those of a run that nothing disturbs.
constexpr int64_t kStartEvents = 60;
constexpr int64_t kBusyEvents = 160;

SimTime DrawLength(Rng& rng) {
  // Below, around, and above every lease and timeout.
  static constexpr int64_t kMs[] = {5, 30, 120, 400, 900, 1400, 1600, 2200, 3500, 6000};
  return kMs[rng.Below(std::size(kMs))] * kMillisecond;
}

int DrawEnd(Rng& rng, int nodes) {
  const auto end = static_cast<int>(rng.Below(static_cast<uint64_t>(nodes) + 1));
  return end == nodes ? kCoordinatorEnd : end;
}

Fault DrawFault(Rng& rng, FaultKind kind, const Scenario& scenario) {
  Fault fault;
  fault.kind = kind;
  // While the cluster comes up, or in the middle of a session.
  const SessionSpec& near = scenario.sessions[rng.Below(scenario.sessions.size())];
  fault.at = rng.Chance(100) ? rng.Below(kStartEvents)
                             : near.at + rng.Below(near.budget < 300 * kMillisecond ? 40 : 130);
  fault.node = static_cast<int>(rng.Below(static_cast<uint64_t>(scenario.nodes)));
  fault.length = DrawLength(rng);
  switch (kind) {
    case FaultKind::kSlow:
      fault.amount = rng.Chance(500) ? 10 : 1000;
      break;
    case FaultKind::kNonFinite:
    case FaultKind::kMisshapen:
    case FaultKind::kDeviceLost:
      fault.amount = rng.Chance(800) ? rng.Between(1, 2) : 12;
      fault.length = 0;
      break;
    case FaultKind::kCut:
    case FaultKind::kReset:
    case FaultKind::kDelay:
      fault.node = DrawEnd(rng, scenario.nodes);
      fault.other = DrawEnd(rng, scenario.nodes);
      if (fault.other == fault.node) fault.other = (fault.node + 1) % scenario.nodes;
      if (kind == FaultKind::kDelay) fault.amount = rng.Chance(700) ? 20 : 1000;
      if (kind == FaultKind::kReset) fault.length = 0;
      break;
    case FaultKind::kForge:
      fault.amount = static_cast<int64_t>(rng.Below(6));
      fault.length = 0;
      break;
    case FaultKind::kHalfReset:
      fault.other = (fault.node + 1) % scenario.nodes;
      fault.length = 0;
      break;
    case FaultKind::kDropFrames:
    case FaultKind::kReorderFrames:
    case FaultKind::kMisroute:
      fault.other = (fault.node + 1) % scenario.nodes;
      fault.amount = rng.Chance(500) ? 100 : 400;
      break;
    case FaultKind::kRepeatFrames:
      fault.node = DrawEnd(rng, scenario.nodes);
      fault.other = static_cast<int>(rng.Below(static_cast<uint64_t>(scenario.nodes)));
      if (fault.other == fault.node) fault.other = (fault.node + 1) % scenario.nodes;
      fault.amount = rng.Chance(500) ? 100 : 700;
      break;
    case FaultKind::kCancel:
      fault.node = static_cast<int>(rng.Below(scenario.sessions.size()));
      fault.length = 0;
      break;
    case FaultKind::kDiskSlow:
      fault.amount = rng.Chance(500) ? 30 : 800;
      break;
    case FaultKind::kDrain:
      fault.length = rng.Between(0, 300) * kMillisecond;
      break;
    case FaultKind::kRebirth:
    case FaultKind::kDiskError:
    case FaultKind::kDiskUnheard:
    case FaultKind::kZombie:
      fault.length = 0;
      break;
    default:
      break;
  }
  return fault;
}

}  // namespace

Scenario DrawScenario(uint64_t seed) {
  Rng rng(seed * 0x9E3779B97F4A7C15ULL + 1);
  Scenario scenario;
  scenario.seed = seed;
  // One stage a node; or a spare; or two of each.
  scenario.stages = static_cast<int>(rng.Between(1, 3));
  scenario.replicas = rng.Chance(150) && scenario.stages <= 2 ? 2 : 1;
  scenario.nodes = scenario.stages * scenario.replicas + (rng.Chance(400) ? 1 : 0);
  scenario.resume_ms = rng.Chance(200) ? 0 : 1000;
  scenario.capabilities = !rng.Chance(200);
  scenario.linger = rng.Chance(150);
  // A few long prompts that begin alike, or several short ones.
  const bool is_long = rng.Chance(250);
  const bool is_crowd = rng.Chance(250);
  scenario.kv_pages = rng.Chance(200) ? 3 : rng.Chance(250) ? 6 : 16;
  scenario.rounds_in_flight = rng.Chance(600) ? static_cast<int>(rng.Between(1, 4)) : 0;
  scenario.prefix_cache = !rng.Chance(200);
  scenario.drafts = rng.Chance(500);
  if (rng.Chance(is_crowd ? 500 : 100)) scenario.head_slots = static_cast<int>(rng.Between(1, 2));
  if (rng.Chance(is_crowd ? 300 : 100)) scenario.head_queue = static_cast<int>(rng.Between(0, 2));
  if (rng.Chance(100)) scenario.waiting_max = static_cast<int>(rng.Between(0, 1));
  scenario.chunk_tokens_max = rng.Chance(500) ? 2 : 8;
  scenario.clock_ppm = rng.Chance(300) ? 500 : 0;
  const int64_t sessions = is_crowd ? rng.Between(4, 7) : rng.Between(1, 3);
  for (int64_t i = 0; i < sessions; ++i) {
    SessionSpec session;
    session.at = static_cast<uint64_t>(rng.Between(kStartEvents, kBusyEvents));
    session.seed = rng.Below(1000000);
    session.prompt_tokens = static_cast<int>(rng.Between(1, 12));
    session.new_tokens = static_cast<int>(rng.Between(1, 8));
    session.budget = rng.Chance(150) ? rng.Between(2, 200) * kMillisecond
                                     : rng.Between(500, 4000) * kMillisecond;
    session.key = rng.Chance(300) ? 1 : 0;
    if (is_crowd) session.at = kStartEvents + rng.Below(40);
    if (is_long) {
      static constexpr int kShared[] = {0, 8, 16, 19, 33};
      session.prompt_tokens = static_cast<int>(rng.Between(14, 40));
      session.shared_tokens = kShared[rng.Below(std::size(kShared))];
    }
    if (session.key == 0) session.tenant = static_cast<uint32_t>(rng.Below(2));
    session.poison = rng.Chance(10);
    scenario.sessions.push_back(session);
  }
  // Sometimes the same request twice.
  if (scenario.sessions.front().key != 0 && rng.Chance(600)) {
    SessionSpec again = scenario.sessions.front();
    again.at += rng.Below(150);
    scenario.sessions.push_back(again);
  }
  // A few kinds, and then a few faults of those.
  const int64_t kinds = rng.Between(0, 4);
  for (int64_t i = 0; i < kinds; ++i) {
    const auto kind = static_cast<FaultKind>(rng.Below(static_cast<uint64_t>(FaultKind::kCount)));
    const int64_t count = rng.Chance(700) ? 1 : 2;
    for (int64_t j = 0; j < count; ++j) scenario.faults.push_back(DrawFault(rng, kind, scenario));
  }
  std::stable_sort(scenario.faults.begin(), scenario.faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at < b.at; });
  return scenario;
}

}  // namespace shardline::sim
