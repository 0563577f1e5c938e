#pragma once

// The HTTP API's figures under the names that operators watch.

#include <vector>

#include "base/metrics/metric.h"
#include "coordinator/gateway/gateway_figures.h"
#include "coordinator/gateway/http_server.h"

namespace shardline {

// The full list of names.
std::vector<MetricFamily> GatewayMetrics(const GatewayFigures& gateway, const HttpFigures& http);

}  // namespace shardline
