#include "node/rounds/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shardline {

bool SlotAdmission::MayRun(const Tenant& tenant) const {
  return options_.tenant_running_max == 0 || tenant.running < options_.tenant_running_max;
}

SlotAdmission::Judgement SlotAdmission::Judge(const std::string& tenant, size_t slots_free) const {
  const auto it = tenants_.find(tenant);
  const bool may_run = it == tenants_.end() || MayRun(it->second);
  const size_t waiting = it == tenants_.end() ? 0 : it->second.queue.size();
  // While a slot is free, whoever waits does so for another reason.
  if (may_run && slots_free > 0) return {AdmissionVerdict::kAdmit, {}};
  if (queued_count_ >= options_.queue_max) {
    return {AdmissionVerdict::kRefuse,
            absl::StrCat(queued_count_, " requests wait, the most there may be; tenant '", tenant,
                         "' has ", waiting, " of them")};
  }
  if (waiting >= options_.tenant_queue_max) {
    return {AdmissionVerdict::kRefuse,
            absl::StrCat(waiting, " requests of tenant '", tenant, "' wait, the most it may have; ",
                         queued_count_, " wait in all")};
  }
  return {may_run ? AdmissionVerdict::kWait : AdmissionVerdict::kSkip, {}};
}

void SlotAdmission::Enqueue(const AttemptKey& key, const std::string& tenant) {
  tenants_[tenant].queue.push_back(key);
  ++queued_count_;
}

std::optional<AttemptKey> SlotAdmission::TakeNext(size_t slots_free) {
  if (slots_free == 0 || queued_count_ == 0) return std::nullopt;
  // From the tenant after the one served last, once round.
  auto it = tenants_.upper_bound(served_last_);
  for (size_t seen = 0; seen < tenants_.size(); ++seen, ++it) {
    if (it == tenants_.end()) it = tenants_.begin();
    Tenant& tenant = it->second;
    if (tenant.queue.empty() || !MayRun(tenant)) continue;
    served_last_ = it->first;
    const AttemptKey key = tenant.queue.front();
    tenant.queue.pop_front();
    ++tenant.running;
    --queued_count_;
    return key;
  }
  return std::nullopt;
}

void SlotAdmission::LeaveQueue(const AttemptKey& key, const std::string& tenant) {
  const auto it = tenants_.find(tenant);
  SL_CHECK(it != tenants_.end());
  std::deque<AttemptKey>& queue = it->second.queue;
  const auto place = std::find(queue.begin(), queue.end(), key);
  SL_CHECK(place != queue.end());
  queue.erase(place);
  --queued_count_;
  Forget(it);
}

void SlotAdmission::LeaveSlot(const std::string& tenant) {
  const auto it = tenants_.find(tenant);
  SL_CHECK(it != tenants_.end());
  SL_CHECK(it->second.running > 0);
  --it->second.running;
  Forget(it);
}

void SlotAdmission::Forget(Tenants::iterator it) {
  if (it->second.queue.empty() && it->second.running == 0) tenants_.erase(it);
}

}  // namespace shardline
