#pragma once

// The admin API's requests, read: a path and a body in, a call or what is wrong with it out. Pure.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/id.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/http_message.h"
#include "shardline/v1/admin.pb.h"

namespace shardline {

struct StateCall {};
struct EventsCall {
  uint64_t after = 0;  // The last timeline event seen; 0: none.
};
struct CordonCall {
  NodeId node;
  bool cordon = true;
};
struct DrainCall {
  v1::DrainNodeRequest request;
};
struct RemoveCall {
  NodeId node;
};
struct CancelCall {
  SessionId session;
  std::string reason;
};
struct PlacementCall {
  v1::PreviewModelRequest request;
};
struct LoadCall {
  v1::LoadModelRequest request;
};
struct UnloadCall {
  std::string model;
};
struct RequestListCall {};
struct RequestCall {
  std::string id;
};

using AdminCall = std::variant<StateCall, EventsCall, CordonCall, DrainCall, RemoveCall, CancelCall,
                               PlacementCall, LoadCall, UnloadCall, RequestListCall, RequestCall>;

// What a request is refused with; `allow` is the Allow header of a 405.
struct AdminRefusal {
  ApiError error;
  std::string allow;
};

// `request.path` begins with "/admin". Ids are 1 to 256 bytes without control characters; what a
// browser's page of another site sends is refused.
std::variant<AdminCall, AdminRefusal> ReadAdminCall(const HttpRequest& request);

}  // namespace shardline
