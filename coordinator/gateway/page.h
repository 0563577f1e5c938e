#pragma once

// The page's files as answers: what a browser may do with them, and when it has them already. Pure.

#include <optional>
#include <string_view>

#include "coordinator/gateway/http_message.h"

namespace shardline {

// Nothing unless `path` is the page or one of its files. 304 for a copy that is still the same.
std::optional<HttpResponse> PageResponse(const HttpRequest& request);

}  // namespace shardline
