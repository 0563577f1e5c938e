#pragma once

// An exchange whose every answer carries some headers more: what was decided about the request
// before anybody knew the answer.

#include <memory>

#include "coordinator/gateway/http_message.h"

namespace shardline {

// Headers that the answer has itself are left as they are.
std::shared_ptr<HttpExchange> WithHeaders(std::shared_ptr<HttpExchange> exchange,
                                          HttpHeaders headers);

}  // namespace shardline
