#pragma once

// What happened, as a hash of everything and the last events in words.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/event_queue.h"

namespace shardline::sim {

enum class TraceKind : uint8_t {
  kWake,
  kFault,
  kHeal,
  kHello,
  kWelcome,
  kRefusal,
  kBeat,
  kBeatReply,
  kNodeLost,
  kLoad,
  kLoaded,
  kReport,
  kModelState,
  kOpen,
  kOpenReply,
  kFence,
  kFenceReply,
  kRun,
  kRunToken,
  kRunEnd,
  kRunCancel,
  kLinkHello,
  kLinkWelcome,
  kLinkLost,
  kInspect,
  kStatus,
  kPulse,
  kBundle,
  kRowFailure,
  kJob,
  kGrant,
  kFinish,
  kStore,
  kStored,
  kGenerate,
  kStarted,
  kToken,
  kRestarted,
  kEnd,
  kClientGone,
  kStreamEnd,
  kCount,
};
std::string_view TraceKindName(TraceKind kind);

class Trace {
 public:
  // Times come from `queue`.
  explicit Trace(const EventQueue* queue) : queue_(queue) {}

  // `who` does it or has it happen to it; `a` and `b` are ids that matter for the kind.
  void Add(TraceKind kind, int who, uint64_t a = 0, uint64_t b = 0);

  uint64_t hash() const { return hash_; }
  uint64_t count() const { return count_; }
  // The last events, a line each.
  std::string Tail(size_t lines) const;
  // Keeps every line from here on, not only the last ones.
  void KeepAll() { keep_all_ = true; }
  std::string All() const;

 private:
  struct Entry {
    SimTime time = 0;
    uint64_t a = 0;
    uint64_t b = 0;
    int32_t who = 0;
    TraceKind kind = TraceKind::kWake;
  };
  static constexpr size_t kKept = 64;

  static std::string Line(const Entry& entry);

  const EventQueue* const queue_;
  uint64_t hash_ = 0;
  uint64_t count_ = 0;
  std::array<Entry, kKept> last_;
  bool keep_all_ = false;
  std::vector<Entry> all_;
};

}  // namespace shardline::sim
