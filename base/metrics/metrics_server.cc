#include "base/metrics/metrics_server.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"

namespace shardline {
namespace {

prometheus::MetricType ToPrometheus(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram ToPrometheus(const Histogram& histogram) {
  prometheus::ClientMetric::Histogram out;
  out.sample_count = histogram.count();
  out.sample_sum = histogram.sum();
  uint64_t cumulative = 0;
  for (size_t i = 0; i < histogram.bounds().size(); ++i) {
    cumulative += histogram.counts()[i];
    out.bucket.push_back({cumulative, histogram.bounds()[i]});
  }
  return out;
}

prometheus::MetricFamily ToPrometheus(const MetricFamily& family) {
  prometheus::MetricFamily out{family.name, family.help, ToPrometheus(family.type), {}};
  for (const MetricSample& sample : family.samples) {
    prometheus::ClientMetric metric;
    for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
    metric.counter.value = sample.value;
    metric.gauge.value = sample.value;
    if (sample.histogram.has_value()) metric.histogram = ToPrometheus(*sample.histogram);
    out.metric.push_back(std::move(metric));
  }
  return out;
}

}  // namespace

class MetricsServer::Source final : public prometheus::Collectable {
 public:
  explicit Source(MetricsServer::Collect collect) : collect_(std::move(collect)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const absl::StatusOr<std::vector<MetricFamily>> families = collect_();
    std::vector<prometheus::MetricFamily> out;
    out.push_back(ToPrometheus(Gauge("shardline_scrape_ok",
                                     "1 if the process answered this scrape with its figures.",
                                     families.ok() ? 1 : 0)));
    if (!families.ok()) return out;
    for (const MetricFamily& family : *families) out.push_back(ToPrometheus(family));
    return out;
  }

 private:
  const MetricsServer::Collect collect_;
};

class MetricsServer::Listener {
 public:
  // Throws, as Exposer does.
  explicit Listener(const std::string& listen) : exposer_(listen, 1) {}

  void Add(const std::shared_ptr<Source>& source) { exposer_.RegisterCollectable(source); }
  int port() const {
    const std::vector<int> ports = exposer_.GetListeningPorts();
    return ports.empty() ? 0 : ports.front();
  }

 private:
  prometheus::Exposer exposer_;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& listen,
                                                                    Collect collect) {
  std::unique_ptr<Listener> listener;
  try {  // The one place where prometheus-cpp may throw: bad addresses, and ports that are taken.
    listener = std::make_unique<Listener>(listen);
  } catch (const std::exception& error) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat("metrics-listen: cannot serve on ", listen, ": ", error.what()));
  }
  auto source = std::make_shared<Source>(std::move(collect));
  listener->Add(source);
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(source), std::move(listener)));
}

MetricsServer::MetricsServer(std::shared_ptr<Source> source, std::unique_ptr<Listener> listener)
    : source_(std::move(source)), listener_(std::move(listener)) {}

MetricsServer::~MetricsServer() { listener_.reset(); }

int MetricsServer::port() const { return listener_->port(); }

}  // namespace shardline
