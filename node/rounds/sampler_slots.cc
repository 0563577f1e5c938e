#include "node/rounds/sampler_slots.h"

#include <utility>

#include "base/check.h"

namespace shardline {

SamplerSlots::SamplerSlots(size_t count) : slots_(count) {
  SL_CHECK(count > 0);
  free_.reserve(count);
  for (size_t i = count; i > 0; --i) free_.push_back(static_cast<int32_t>(i) - 1);
}

std::optional<SamplerLease> SamplerSlots::Lease(std::shared_ptr<Sampler> sampler) {
  SL_CHECK(sampler != nullptr);
  if (free_.empty()) return std::nullopt;
  const int32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.sampler = std::move(sampler);
  ++slot.generation;
  return SamplerLease{.slot = index, .generation = slot.generation};
}

bool SamplerSlots::Stands(const SamplerLease& lease) const {
  if (lease.slot < 0 || static_cast<size_t>(lease.slot) >= slots_.size()) return false;
  const Slot& slot = slots_[static_cast<size_t>(lease.slot)];
  return slot.generation == lease.generation && slot.sampler != nullptr;
}

void SamplerSlots::GiveBack(const SamplerLease& lease) {
  SL_CHECK(Stands(lease));
  slots_[static_cast<size_t>(lease.slot)].sampler.reset();
  FreeIfIdle(lease.slot);
}

std::shared_ptr<Sampler> SamplerSlots::Use(const SamplerLease& lease) {
  SL_CHECK(Stands(lease));
  Slot& slot = slots_[static_cast<size_t>(lease.slot)];
  ++slot.jobs;
  return slot.sampler;
}

void SamplerSlots::Done(const SamplerLease& lease) {
  Slot& slot = slots_[static_cast<size_t>(lease.slot)];
  SL_CHECK(slot.generation == lease.generation);
  SL_CHECK(slot.jobs > 0);
  --slot.jobs;
  if (slot.sampler == nullptr) FreeIfIdle(lease.slot);
}

void SamplerSlots::FreeIfIdle(int32_t slot) {
  if (slots_[static_cast<size_t>(slot)].jobs == 0) free_.push_back(slot);
}

}  // namespace shardline
