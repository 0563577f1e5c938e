#include "coordinator/gateway/event_log.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace shardline {
namespace {

// One line, and no longer than a line of a page.
std::string Line(std::string text) {
  std::string line;
  for (const char c : text) {
    if (line.size() == kEventTextBytesMax) break;
    line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  // Not in the middle of a character.
  if (line.size() < text.size()) {
    while (!line.empty() && (static_cast<unsigned char>(text[line.size()]) & 0xc0) == 0x80) {
      line.pop_back();
    }
  }
  return line;
}

}  // namespace

EventLog::EventLog(Term term, size_t events_max)
    : first_id_((term.value() << 32) + 1), events_max_(events_max), next_id_(first_id_) {}

void EventLog::Add(ClusterEvent event) {
  event.at_unix_ms = absl::ToUnixMillis(absl::Now());  // Wall time: it is for people.
  event.text = Line(std::move(event.text));
  absl::MutexLock lock(&mu_);
  event.id = next_id_++;
  events_.push_back(std::move(event));
  if (events_.size() > events_max_) events_.pop_front();
}

std::vector<ClusterEvent> EventLog::After(uint64_t id, size_t limit) const {
  absl::MutexLock lock(&mu_);
  // An id that this log has not given yet is another's, as is one of an older life.
  if (id >= next_id_) id = 0;
  auto first = std::partition_point(events_.begin(), events_.end(),
                                    [id](const ClusterEvent& event) { return event.id <= id; });
  const auto left = static_cast<size_t>(events_.end() - first);
  return {first, first + static_cast<std::ptrdiff_t>(std::min(limit, left))};
}

uint64_t EventLog::newest() const {
  absl::MutexLock lock(&mu_);
  return next_id_ == first_id_ ? 0 : next_id_ - 1;
}

}  // namespace shardline
