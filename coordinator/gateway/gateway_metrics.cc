#include "coordinator/gateway/gateway_metrics.h"

#include <string>

namespace shardline {
namespace {

MetricFamily Requests(const GatewayFigures& figures) {
  MetricFamily family{"shardline_http_requests_total",
                      "HTTP requests answered, by route template, method and status code.",
                      MetricType::kCounter,
                      {}};
  for (const auto& [key, count] : figures.requests) {
    const auto& [route, method, code] = key;
    family.samples.push_back(
        {.labels = {{"route", route}, {"method", method}, {"code", std::to_string(code)}},
         .value = static_cast<double>(count)});
  }
  return family;
}

MetricFamily Disconnects(const GatewayFigures& figures) {
  MetricFamily family{"shardline_http_client_disconnects_total",
                      "Clients that left before the answer ended, by how far it was.",
                      MetricType::kCounter,
                      {}};
  for (const auto& [key, count] : figures.disconnects) {
    family.samples.push_back({.labels = {{"route", key.first}, {"phase", key.second}},
                              .value = static_cast<double>(count)});
  }
  return family;
}

}  // namespace

std::vector<MetricFamily> GatewayMetrics(const GatewayFigures& gateway, const HttpFigures& http) {
  return {
      Requests(gateway),
      Counter("shardline_http_refusals_total",
              "Requests that the server refused itself: limits, broken HTTP, full.", http.refused),
      Gauge("shardline_http_requests_in_flight", "Requests for text that are being answered.",
            static_cast<double>(gateway.generations)),
      Gauge("shardline_http_connections", "Open client connections.",
            static_cast<double>(http.connections)),
      Gauge("shardline_http_streams", "Streams that have begun and not ended.",
            static_cast<double>(http.streams)),
      Disconnects(gateway),
      Counter("shardline_http_stream_stalls_total",
              "Streams ended because their readers did not keep up.", gateway.streams_stalled),
      Counter("shardline_http_streams_resumed_total",
              "Streams that went on behind what their client had.", gateway.resumed),
      {"shardline_time_to_first_token_seconds",
       "Arrival of a request to its first token.",
       MetricType::kHistogram,
       {{.histogram = gateway.ttft_seconds}}},
  };
}

}  // namespace shardline
