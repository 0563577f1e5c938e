#pragma once

// Serves figures to Prometheus: GET /metrics over plain HTTP, text format.
//
// Asks for the figures anew at every scrape, on a thread of its own; holds none. A scrape that gets
// none says so in `shardline_scrape_ok`, which is 1 else.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/metrics/metric.h"

namespace shardline {

class MetricsServer {
 public:
  // What the process counts now. Called on the server's threads, one at a time; it may wait for
  // the loop that owns the figures, for a second at most.
  using Collect = std::function<absl::StatusOr<std::vector<MetricFamily>>()>;

  // `listen` is host:port; port 0 takes a free one. Fails, naming the address, when it is taken.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              Collect collect);
  // Waits for a scrape that is under way.
  ~MetricsServer();

  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  int port() const;

 private:
  class Source;
  class Listener;
  MetricsServer(std::shared_ptr<Source> source, std::unique_ptr<Listener> listener);

  std::shared_ptr<Source> source_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace shardline
