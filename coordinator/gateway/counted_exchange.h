#pragma once

// An exchange that says once with which status it was answered, for whoever counts.

#include <functional>
#include <memory>

#include "coordinator/gateway/http_message.h"

namespace shardline {

// `answered` is called with the status of the first Answer or Begin, before it goes out.
std::shared_ptr<HttpExchange> Counted(std::shared_ptr<HttpExchange> exchange,
                                      std::function<void(int status)> answered);

}  // namespace shardline
