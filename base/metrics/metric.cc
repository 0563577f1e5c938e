#include "base/metrics/metric.h"

namespace shardline {

MetricFamily Counter(std::string name, std::string help, uint64_t value) {
  return {std::move(name),
          std::move(help),
          MetricType::kCounter,
          {{.value = static_cast<double>(value)}}};
}

MetricFamily Gauge(std::string name, std::string help, double value) {
  return {std::move(name), std::move(help), MetricType::kGauge, {{.value = value}}};
}

MetricFamily LabelledCounter(std::string name, std::string help, const std::string& label,
                             const std::vector<std::pair<std::string, uint64_t>>& values) {
  MetricFamily family{std::move(name), std::move(help), MetricType::kCounter, {}};
  for (const auto& [text, count] : values) {
    family.samples.push_back({.labels = {{label, text}}, .value = static_cast<double>(count)});
  }
  return family;
}

MetricFamily CounterByKind(std::string name, std::string help, const KindCounts& counts) {
  std::vector<std::pair<std::string, uint64_t>> values;
  for (int32_t kind = 0; kind < kFailureKindCount; ++kind) {
    values.emplace_back(FailureKindName(static_cast<FailureKind>(kind)),
                        counts[static_cast<size_t>(kind)]);
  }
  return LabelledCounter(std::move(name), std::move(help), "kind", values);
}

}  // namespace shardline
