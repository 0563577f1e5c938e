#include "coordinator/gateway/request_log.h"

#include <algorithm>
#include <utility>

namespace shardline {

void RequestLog::Add(RequestRecord record) {
  absl::MutexLock lock(&mu_);
  records_.push_front(std::move(record));
  if (records_.size() > records_max_) records_.pop_back();
}

std::optional<RequestRecord> RequestLog::Find(std::string_view id) const {
  if (id.empty()) return std::nullopt;
  absl::MutexLock lock(&mu_);
  const auto found = std::find_if(
      records_.begin(), records_.end(),
      [id](const RequestRecord& record) { return record.request_id == id || record.id == id; });
  if (found == records_.end()) return std::nullopt;
  return *found;
}

std::vector<RequestRecord> RequestLog::List() const {
  absl::MutexLock lock(&mu_);
  return {records_.begin(), records_.end()};
}

}  // namespace shardline
