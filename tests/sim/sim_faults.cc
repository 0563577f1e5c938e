// How faults come over a simulation, and how it heals.

#include <algorithm>
#include <utility>

#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_world.h"

namespace shardline::sim {
namespace {

// As an operator does who has drained a node.
void Replace(SimNode* node) {
  if (!node->alive() || !node->drains()) return;
  node->Kill(/*silent=*/false);
  node->Start();
}

}  // namespace

SimProcess* SimWorld::End(int number) {
  if (number == kCoordinatorEnd) return cluster_.coordinator();
  return cluster_.nodes[static_cast<size_t>(number) % cluster_.nodes.size()].get();
}

// After `length`, unless everything has healed before.
void SimWorld::Undo(SimTime length, Action action) {
  ++faults_active_;
  context_.queue.At(context_.queue.now() + length, nullptr,
                    [this, action = std::move(action)]() mutable {
                      --faults_active_;
                      if (!healed_) action();
                    });
}

void SimWorld::Apply(const Fault& fault) {
  context_.trace.Add(TraceKind::kFault, fault.node, static_cast<uint64_t>(fault.kind));
  switch (fault.kind) {
    case FaultKind::kKill:
    case FaultKind::kVanish:
    case FaultKind::kPause:
    case FaultKind::kSlow:
    case FaultKind::kHang:
    case FaultKind::kNonFinite:
    case FaultKind::kMisshapen:
    case FaultKind::kDeviceLost:
    case FaultKind::kRebirth:
    case FaultKind::kForge:
    case FaultKind::kDrain:
      return ApplyToNode(
          fault, cluster_.nodes[static_cast<size_t>(fault.node) % cluster_.nodes.size()].get());
    case FaultKind::kCut:
    case FaultKind::kPartition:
    case FaultKind::kReset:
    case FaultKind::kHalfReset:
    case FaultKind::kDelay:
    case FaultKind::kDropFrames:
    case FaultKind::kRepeatFrames:
    case FaultKind::kReorderFrames:
    case FaultKind::kMisroute:
      return ApplyToWires(fault);
    case FaultKind::kCancel:
      if (!cluster_.clients.empty()) {
        cluster_.clients[static_cast<size_t>(fault.node) % cluster_.clients.size()]->Cancel();
      }
      return;
    default:
      return ApplyToCoordinator(fault);
  }
}

void SimWorld::ApplyToNode(const Fault& fault, SimNode* node) {
  if (!node->alive()) return;
  SimDevice* const device = node->device();
  const auto count = static_cast<int>(fault.amount);
  switch (fault.kind) {
    case FaultKind::kKill:
    case FaultKind::kVanish:
      node->Kill(fault.kind == FaultKind::kVanish);
      Undo(fault.length, [node] {
        if (!node->alive()) node->Start();
      });
      return;
    case FaultKind::kPause:
      node->Pause();
      Undo(fault.length, [node] { node->Resume(); });
      return;
    case FaultKind::kRebirth:
      node->BreakJoin();
      return;
    case FaultKind::kForge:
      node->TakeForged(fault.amount);
      return;
    case FaultKind::kDrain:
      node->DrainHead(fault.length);
      Undo(fault.length + 20 * kMillisecond, [node] { Replace(node); });
      return;
    default:
      break;
  }
  if (device == nullptr) return;
  if (fault.kind == FaultKind::kSlow) {
    device->SetSlowness(fault.amount);
    Undo(fault.length, [node] {
      if (node->device() != nullptr) node->device()->SetSlowness(1);
    });
  } else if (fault.kind == FaultKind::kHang) {
    device->Hang();
    Undo(fault.length, [node] {
      if (node->device() != nullptr) node->device()->Unhang();
    });
  } else if (fault.kind == FaultKind::kNonFinite) {
    device->SpoilNext(count);
  } else if (fault.kind == FaultKind::kMisshapen) {
    device->MisshapeNext(count);
  } else if (fault.kind == FaultKind::kDeviceLost) {
    device->LoseNext(count);
  }
}

void SimWorld::ApplyToWires(const Fault& fault) {
  SimProcess* const a = End(fault.node);
  SimProcess* const b = End(fault.other);
  SimNetwork& network = cluster_.network;
  if (fault.kind == FaultKind::kPartition) {
    std::vector<SimProcess*> others;
    for (const auto& node : cluster_.nodes) others.push_back(node.get());
    for (const auto& coordinator : cluster_.coordinators) others.push_back(coordinator.get());
    for (SimProcess* other : others) {
      if (other == a) continue;
      network.Cut(*a, *other);
      network.Cut(*other, *a);
    }
    Undo(fault.length, [&network, a, others] {
      for (SimProcess* other : others) {
        if (other == a) continue;
        network.Mend(*a, *other);
        network.Mend(*other, *a);
      }
    });
    return;
  }
  if (a == b) return;
  if (fault.kind == FaultKind::kReset) return network.ResetBetween(*a, *b);
  if (fault.kind == FaultKind::kHalfReset) {
    const auto from = static_cast<size_t>(fault.node) % cluster_.nodes.size();
    const auto to = static_cast<size_t>(fault.other) % cluster_.nodes.size();
    if (cluster_.nodes[from]->alive()) {
      cluster_.nodes[from]->BreakLinksTo(cluster_.nodes[to]->id());
    }
    return;
  }
  if (fault.kind == FaultKind::kCut) {
    network.Cut(*a, *b);
    Undo(fault.length, [&network, a, b] { network.Mend(*a, *b); });
    return;
  }
  Wire& wire = network.wire(*a, *b);
  const auto amount = static_cast<int>(fault.amount);
  if (fault.kind == FaultKind::kDelay) {
    wire.late_per_mille = 300;
    wire.late = fault.amount * kMillisecond;
  } else if (fault.kind == FaultKind::kDropFrames) {
    wire.drop_per_mille = amount;
  } else if (fault.kind == FaultKind::kRepeatFrames) {
    wire.repeat_per_mille = amount;
  } else if (fault.kind == FaultKind::kReorderFrames) {
    wire.reorder_per_mille = amount;
  } else if (fault.kind == FaultKind::kMisroute) {
    wire.misroute_per_mille = amount;
  }
  Undo(fault.length, [&wire] {
    const bool cut = wire.cut;
    wire = Wire();
    wire.cut = cut;
  });
}

void SimWorld::ApplyToCoordinator(const Fault& fault) {
  SimCoordinator* const coordinator = cluster_.coordinator();
  switch (fault.kind) {
    case FaultKind::kCrash:
      if (!coordinator->alive()) return;
      coordinator->Kill();
      Undo(fault.length, [this, coordinator] {
        // Unless another one has its disk by now.
        if (!coordinator->alive() && cluster_.coordinator() == coordinator) coordinator->Start();
      });
      return;
    case FaultKind::kZombie:
      return TakeOver();
    case FaultKind::kPauseCoordinator:
      if (!coordinator->alive()) return;
      coordinator->Pause();
      Undo(fault.length, [coordinator] { coordinator->Resume(); });
      return;
    case FaultKind::kDiskFull:
      store_.SetFault(testing::StoreFault::kFull);
      Undo(fault.length, [this] { store_.SetFault(testing::StoreFault::kNone); });
      return;
    case FaultKind::kDiskError:
      store_.SetFault(testing::StoreFault::kLostWrite);
      return;
    case FaultKind::kDiskUnheard:
      store_.SetFault(testing::StoreFault::kUnheardWrite);
      return;
    case FaultKind::kDiskSlow:
      disk_.write_max = fault.amount * kMillisecond;
      Undo(fault.length, [this] { disk_.write_max = SimDisk().write_max; });
      return;
    default:
      return;
  }
}

// The old coordinator is told nothing: it works on with what it knew.
void SimWorld::TakeOver() {
  const int number = cluster_.coordinator()->number() + 1;
  if (number >= kFirstCoordinator + 4) return;
  cluster_.coordinators.push_back(
      std::make_unique<SimCoordinator>(&cluster_, &disk_, CoordinatorOptions(number)));
  cluster_.coordinator()->Start();
  for (const auto& node : cluster_.nodes) node->AbandonJoin();
}

void SimWorld::Heal() {
  healed_ = true;
  healed_at_ = context_.queue.now();
  context_.trace.Add(TraceKind::kHeal, 0);
  cluster_.network.MendAll();
  store_.SetFault(testing::StoreFault::kNone);
  disk_.write_max = SimDisk().write_max;
  for (const auto& coordinator : cluster_.coordinators) {
    coordinator->Resume();
    const bool is_newest = coordinator.get() == cluster_.coordinator();
    if (!is_newest && coordinator->alive()) coordinator->Kill();
  }
  if (!cluster_.coordinator()->alive()) cluster_.coordinator()->Start();
  for (const auto& node : cluster_.nodes) {
    node->Resume();
    if (node->drains()) Replace(node.get());
    if (!node->alive()) node->Start();
    if (node->device() == nullptr) continue;
    node->device()->SetSlowness(1);
    node->device()->Unhang();
    node->device()->SpoilNext(0);
    node->device()->MisshapeNext(0);
    node->device()->LoseNext(0);
  }
}

}  // namespace shardline::sim
