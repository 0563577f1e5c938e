#pragma once

// From a client's request for text to what runs it: the body's call, made into one call a choice,
// and what headers add: who asks, whether asking again is asking once, where a broken stream was.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/instant.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/api_request.h"
#include "coordinator/gateway/gateway_models.h"
#include "coordinator/gateway/generation.h"
#include "coordinator/gateway/http_message.h"

namespace shardline {

// What is known of a request beside itself.
struct RequestFacts {
  std::string request_id;  // x-request-id.
  std::string endpoint;    // Template of its path.
  std::string key_name;    // Of the API key: the tenant.
  std::string nonce;       // Never the same twice.
  Instant arrived;
  absl::Time now;  // For people, and for templates.
};

struct GenerationLimits {
  absl::Duration ping_interval;
  absl::Duration return_grace;  // Of a client that gave an idempotency key.
  size_t events_queued_max = 4096;
};

// All but the numbers of its calls. 400 for headers that cannot be: an idempotency key past 200
// bytes or not printable, a Last-Event-ID that is no place or has no key or stream beside it.
// The same key and body give the same seed and the same answer's id, so that a retry is one.
ApiResult<GenerationSpec> MakeGenerationSpec(const HttpRequest& request, ApiCall call,
                                             const GatewayModel& model, const RequestFacts& facts,
                                             const GenerationLimits& limits);

// As the text endpoints need it, too.
ApiModel ToApiModel(const GatewayModel& model);

}  // namespace shardline
