#pragma once

// Who may take a sampler slot next, and who waits for one: a bounded queue, tenants in turn.
//
// A request is judged whole before anything of it runs:
//   kAdmit   a slot is free and it is its turn
//   kWait    no slot is free: it waits, and so does whoever comes after it
//   kSkip    its tenant runs as many as it may: it waits, and others may pass it
//   kRefuse  the queue, or its tenant's share of it, is full; the shortage says which
//
// Within a tenant the order is that of arrival; a tenant that waits is served at least once while
// every other is served once. Knows keys and names only. Holds no clock; not thread-safe.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/id.h"

namespace shardline {

struct SlotAdmissionOptions {
  size_t queue_max = 256;         // Requests that wait.
  size_t tenant_queue_max = 64;   // Of one tenant.
  size_t tenant_running_max = 0;  // Slots that one tenant may hold; 0: all.
};

enum class AdmissionVerdict { kAdmit, kWait, kSkip, kRefuse };

class SlotAdmission {
 public:
  struct Judgement {
    AdmissionVerdict verdict = AdmissionVerdict::kRefuse;
    // Of a refusal: "256 requests wait, the most there may be; tenant 'x' has 64 of them".
    std::string shortage;
  };

  explicit SlotAdmission(const SlotAdmissionOptions& options) : options_(options) {}

  // What becomes of a request that arrives now. Changes nothing.
  Judgement Judge(const std::string& tenant, size_t slots_free) const;

  // Takes `key` into the queue. REQUIRES: Judge did not refuse, and TakeNext follows.
  void Enqueue(const AttemptKey& key, const std::string& tenant);

  // The next to run while slots are free; its tenant holds one slot more from now on.
  std::optional<AttemptKey> TakeNext(size_t slots_free);

  // A request left the queue, or gave its slot back. Neither allocates.
  // REQUIRES: it was there, of that tenant.
  void LeaveQueue(const AttemptKey& key, const std::string& tenant);
  void LeaveSlot(const std::string& tenant);

  size_t queued_count() const { return queued_count_; }

 private:
  struct Tenant {
    std::deque<AttemptKey> queue;
    size_t running = 0;
  };
  using Tenants = std::map<std::string, Tenant>;

  bool MayRun(const Tenant& tenant) const;
  void Forget(Tenants::iterator it);

  const SlotAdmissionOptions options_;
  Tenants tenants_;  // Those that wait or run.
  size_t queued_count_ = 0;
  std::string served_last_;
};

}  // namespace shardline
