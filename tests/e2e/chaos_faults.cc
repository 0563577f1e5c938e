#include "tests/e2e/chaos_faults.h"

#include <signal.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace shardline::testing {
namespace {

// Without a token for so long, the next fault comes anyway: waiting must not protect anybody.
constexpr absl::Duration kPatience = absl::Seconds(6);
constexpr absl::Duration kLook = absl::Milliseconds(2);

}  // namespace

FaultDriver::FaultDriver(Cluster* cluster, std::vector<PlannedFault> faults,
                         const std::atomic<int64_t>* tokens_seen)
    : cluster_(cluster), faults_(std::move(faults)), tokens_seen_(tokens_seen) {
  thread_ = std::thread([this] { Run(); });
}

FaultDriver::~FaultDriver() { Stop(); }

void FaultDriver::Stop() {
  if (!stop_.HasBeenNotified()) stop_.Notify();
  if (thread_.joinable()) thread_.join();
}

void FaultDriver::Run() {
  for (const PlannedFault& fault : faults_) {
    if (!AwaitTokens(fault.after_tokens)) break;
    CheckAlive();
    ++applied_[fault.fault];
    Apply(fault);
  }
  stop_.WaitForNotification();
  CheckAlive();
}

void FaultDriver::Apply(const PlannedFault& fault) {
  Process& node = cluster_->node(fault.node);
  TcpProxy& data = cluster_->data_proxy(fault.node);
  TcpProxy& control = cluster_->control_proxy(fault.node);
  switch (fault.fault) {
    case Fault::kKill:
      node.Signal(SIGKILL);
      Wait(fault.length);
      cluster_->StartNode(fault.node);
      break;
    case Fault::kPause:
      node.Signal(SIGSTOP);
      Wait(fault.length);
      node.Signal(SIGCONT);
      break;
    case Fault::kCut:
      data.Cut();
      control.Cut();
      Wait(fault.length);
      data.Mend();
      control.Mend();
      break;
    case Fault::kOneWay: {
      // The control path is dialled by the node: there its coordinator is the target.
      TcpProxy& path = fault.control_path ? control : data;
      path.CutOneWay(fault.control_path == fault.towards_node ? TcpProxy::Direction::kFromTarget
                                                              : TcpProxy::Direction::kToTarget);
      Wait(fault.length);
      path.Mend();
      break;
    }
    case Fault::kLink:
      data.Cut();
      Wait(fault.length);
      data.Mend();
      break;
    case Fault::kReset:
      data.Reset();
      break;
    case Fault::kMidBundle:
      data.ResetAfter(fault.bytes);
      break;
    case Fault::kCoordinator:
      cluster_->coordinator().Signal(SIGKILL);
      cluster_->coordinator().Wait(absl::Seconds(10));
      Wait(fault.length);
      cluster_->StartCoordinator();
      break;
    case Fault::kCancel:
    case Fault::kLeave:
    case Fault::kDeadline:
      break;  // Clients do these.
  }
}

bool FaultDriver::Wait(absl::Duration duration) {
  return !stop_.WaitForNotificationWithTimeout(duration);
}

bool FaultDriver::AwaitTokens(int count) {
  const int64_t goal = *tokens_seen_ + count;
  const Instant give_up = SystemClock()->Now() + kPatience;
  while (*tokens_seen_ < goal && SystemClock()->Now() < give_up) {
    if (!Wait(kLook)) return false;
  }
  return !stop_.HasBeenNotified();
}

void FaultDriver::CheckAlive() {
  for (int i = 0; i < cluster_->node_count(); ++i) {
    if (cluster_->node(i).Running()) continue;
    violations_.push_back(absl::StrCat(cluster_->NodeName(i), " ended by itself with code ",
                                       cluster_->node(i).Wait(absl::ZeroDuration())));
    cluster_->StartNode(i);
  }
  if (cluster_->coordinator().Running()) return;
  violations_.push_back(absl::StrCat("the coordinator ended by itself with code ",
                                     cluster_->coordinator().Wait(absl::ZeroDuration())));
  cluster_->StartCoordinator();
}

}  // namespace shardline::testing
