#pragma once

// The sampler state of the attempts that run: a fixed number of slots, each leased to one attempt
// for its life.
//
// A job on the device uses slots. A slot whose lease was given back meanwhile is free again only
// when that job is done, so that no two attempts ever share one. A lease has a generation: what
// comes late for an older lease of a slot finds nobody. After construction only Lease's sampler is
// new memory. Not thread-safe; the samplers travel with their jobs.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "node/sampling/sampler.h"

namespace shardline {

struct SamplerLease {
  int32_t slot = -1;
  uint64_t generation = 0;  // Of the slot, from 1.

  friend bool operator==(const SamplerLease&, const SamplerLease&) = default;
};

class SamplerSlots {
 public:
  // REQUIRES: count > 0.
  explicit SamplerSlots(size_t count);

  // None if no slot is free. REQUIRES: `sampler` is not null.
  std::optional<SamplerLease> Lease(std::shared_ptr<Sampler> sampler);

  // The attempt is over. REQUIRES: the lease stands.
  void GiveBack(const SamplerLease& lease);

  // A job uses the slot until Done, which the attempt may be over by.
  // REQUIRES: the lease stands at Use.
  std::shared_ptr<Sampler> Use(const SamplerLease& lease);
  void Done(const SamplerLease& lease);

  bool Stands(const SamplerLease& lease) const;
  size_t free_count() const { return free_.size(); }

 private:
  struct Slot {
    std::shared_ptr<Sampler> sampler;  // While it is leased.
    uint64_t generation = 0;
    int32_t jobs = 0;  // That use it.
  };

  void FreeIfIdle(int32_t slot);

  std::vector<Slot> slots_;
  std::vector<int32_t> free_;  // The lowest last; never grows beyond its first size.
};

}  // namespace shardline
