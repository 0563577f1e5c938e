#include "coordinator/gateway/event_stream.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/gateway/cluster_json.h"

namespace shardline {

bool EventStream::IsDue(Instant now, const StateText& state) const {
  if (!any_sent_) return true;
  if (state.taken_at == taken_sent_) return false;
  const absl::Duration since = now - sent_at_;
  return since >= kStateSilence || (since >= kStateInterval && state.version != version_sent_);
}

std::string EventStream::Next(Instant now, const StateText& state, const EventLog& log) {
  std::string piece;
  if (IsDue(now, state)) {
    absl::StrAppend(&piece, "event: state\ndata: ", state.json, "\n\n");
    any_sent_ = true;
    version_sent_ = state.version;
    taken_sent_ = state.taken_at;
    sent_at_ = now;
  }
  for (const ClusterEvent& event : log.After(after_, kEventsAPiece)) {
    absl::StrAppend(&piece, "event: timeline\nid: ", event.id, "\ndata: ", EventJson(event),
                    "\n\n");
    after_ = event.id;
  }
  return piece;
}

uint64_t EventIdOf(std::string_view text) {
  uint64_t id = 0;
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &id) ? id : 0;
}

}  // namespace shardline
