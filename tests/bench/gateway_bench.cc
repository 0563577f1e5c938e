// What the HTTP API adds to Inference.Generate.
//
//   gateway_bench MODEL.gguf     the same greedy answer over both, in turn: time a token and time
//   to
//                                the first one, as their clients see them

#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "kernels/thread_pool.h"
#include "tests/bench/floors.h"
#include "tests/bench/serve.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/http_calls.h"

namespace shardline::bench {
namespace {

using testing::Answer;
using testing::Cluster;
using testing::RawHttp;

constexpr int kPairs = 15;
constexpr uint32_t kTokens = 128;
constexpr char kPrompt[] = "A long story about a river:";

struct Seen {
  absl::Duration ttft;
  absl::Duration per_token;  // Behind the first.
};

// From asking to the first and the last sign of a token.
class Stopwatch {
 public:
  void Token() {
    last_ = SystemClock()->Now();
    if (!first_) first_ = last_;
  }
  Seen Read() const {
    SL_CHECK(first_.has_value());
    return {.ttft = *first_ - begun_, .per_token = (last_ - *first_) / (kTokens - 1)};
  }

 private:
  const Instant begun_ = SystemClock()->Now();
  std::optional<Instant> first_;
  Instant last_;
};

Seen OverGrpc(Cluster& cluster) {
  v1::GenerateRequest request = testing::Greedy(kPrompt, kTokens);
  request.set_want_logits_digest(false);
  Stopwatch watch;
  const Answer answer = cluster.Generate(request, [&](int) { watch.Token(); });
  SL_CHECK(answer.status.ok(), answer.status.ToString());
  return watch.Read();
}

Seen OverHttp(int port) {
  const testing::HttpJson body = {{"model", "bench"}, {"prompt", kPrompt},  {"max_tokens", kTokens},
                                  {"temperature", 0}, {"ignore_eos", true}, {"stream", true}};
  Stopwatch watch;
  RawHttp connection = RawHttp::Connect(port);
  SL_CHECK(connection.Send(testing::RequestBytes("POST", "/v1/completions", body.dump())));
  const int status = connection.ReadHead().status;
  SL_CHECK(status == 200, absl::StrCat("status ", status));
  std::string last;
  while (std::optional<std::string> chunk = connection.ReadChunk()) {
    if (chunk->empty()) break;
    const bool is_token = chunk->find("\"finish_reason\":null") != std::string::npos;
    if (is_token) watch.Token();
    last = *std::move(chunk);
  }
  SL_CHECK(last.ends_with("[DONE]\n\n"), last);
  return watch.Read();
}

struct Pair {
  Seen grpc;
  Seen http;
};

std::vector<Pair> Measure(const std::string& model) {
  v1::LoadModelRequest load;
  load.set_context_tokens_max(1024);
  const std::unique_ptr<Cluster> cluster =
      ServeModel(model, {.nodes = 2, .memory = "4GiB", .threads = 1}, std::move(load));
  const std::string& address = cluster->http_address();
  int port = 0;
  SL_CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port), address);
  OverGrpc(*cluster);
  OverHttp(port);
  std::vector<Pair> pairs;
  for (int i = 0; i < kPairs; ++i) {
    const Seen grpc = OverGrpc(*cluster);
    pairs.push_back({.grpc = grpc, .http = OverHttp(port)});
  }
  return pairs;
}

void Report(const char* name, const std::vector<double>& values, const char* unit) {
  std::printf("%s: median %.4f, p10 %.4f, p90 %.4f of %zu pairs\n", name, Quantile(values, 0.5),
              Quantile(values, 0.1), Quantile(values, 0.9), values.size());
  std::printf("figure %s %.4f %s\n", name, Quantile(values, 0.5), unit);
}

void Token(const std::string& model) {
  std::vector<double> overheads;
  std::vector<double> us;
  for (const Pair& pair : Measure(model)) {
    overheads.push_back(absl::FDivDuration(pair.http.per_token, pair.grpc.per_token) - 1);
    us.push_back(absl::ToDoubleMicroseconds(pair.grpc.per_token));
  }
  std::printf("over gRPC %.0f us a token\n", Quantile(us, 0.5));
  Report("gateway_overhead", overheads, "ratio");
}

void Ttft(const std::string& model) {
  std::vector<double> ms;
  for (const Pair& pair : Measure(model)) {
    ms.push_back(absl::ToDoubleMilliseconds(pair.http.ttft - pair.grpc.ttft));
  }
  Report("ttft_overhead_ms", ms, "ms");
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "token") == 0) {
    shardline::bench::Token(argv[2]);
  } else if (argc == 3 && std::strcmp(argv[1], "ttft") == 0) {
    shardline::bench::Ttft(argv[2]);
  } else {
    std::fprintf(stderr, "usage: gateway_bench token MODEL.gguf | ttft MODEL.gguf\n");
    return 2;
  }
  return 0;
}
