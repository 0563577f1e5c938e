#pragma once

// Reads a metrics page over real HTTP.

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace shardline::testing {

// The samples of a page, by name with labels as they stand there: `x_total{kind="none"}`.
using Scrape = std::map<std::string, double>;

// GET /metrics from 127.0.0.1:`port`. Fails unless the answer is 200 and every line is understood.
absl::StatusOr<Scrape> ScrapeMetrics(int port);

}  // namespace shardline::testing
