#pragma once

// The cluster as JSON: what the page draws. Field names are those of the .proto files; 64-bit
// integers are strings, as in protobuf's JSON, but for times and figures. Pure.

#include <cstdint>
#include <string>

#include <google/protobuf/message.h>

#include "coordinator/admin/cluster_view.h"
#include "coordinator/gateway/event_log.h"
#include "coordinator/gateway/request_log.h"
#include "shardline/v1/admin.pb.h"

namespace shardline {

// One moment of everything that is shown.
struct ClusterMoment {
  int64_t at_unix_ms = 0;
  ClusterView view;
  v1::SessionList sessions;
  double tokens_per_s = 0;
};

struct MomentText {
  std::string json;    // One line.
  std::string stable;  // The same without ages and clocks: equal as long as nothing happens.
};
// Of sessions the first kSessionsShown are told; the figures tell how many there are.
inline constexpr int kSessionsShown = 128;
MomentText MomentJson(const ClusterMoment& moment);

// One message, one line.
std::string MessageJson(const google::protobuf::Message& message);

std::string EventJson(const ClusterEvent& event);

// What happened when: {"requests":[…]} without stages, and one with all.
std::string RequestListJson(const std::vector<RequestRecord>& records);
std::string RequestJson(const RequestRecord& record);

}  // namespace shardline
