#pragma once

// Figures of one moment, on their way to whoever watches: names, labels, values. The rules of
// names: one prefix, base units, `_total` on counters only, and every known label value from the
// start, at zero.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/histogram.h"

namespace shardline {

enum class MetricType { kCounter, kGauge, kHistogram };

struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;                    // Of counters and gauges.
  std::optional<Histogram> histogram;  // Of histograms.
};

struct MetricFamily {
  std::string name;
  std::string help;
  MetricType type = MetricType::kCounter;
  std::vector<MetricSample> samples;
};

// Events by FailureKind.
using KindCounts = std::array<uint64_t, kFailureKindCount>;

// A family of one sample without labels.
MetricFamily Counter(std::string name, std::string help, uint64_t value);
MetricFamily Gauge(std::string name, std::string help, double value);

// A family of one sample for each (label value, count).
MetricFamily LabelledCounter(std::string name, std::string help, const std::string& label,
                             const std::vector<std::pair<std::string, uint64_t>>& values);

// One sample for each failure kind, label "kind", those that never happened included.
MetricFamily CounterByKind(std::string name, std::string help, const KindCounts& counts);

}  // namespace shardline
