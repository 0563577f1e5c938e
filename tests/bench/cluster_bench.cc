// Real processes against their floors.
//
//   cluster_bench shards MODEL.gguf            decode tokens/s of three node processes over one,
//   both
//                                              with all cores, asked in turn through a coordinator
//   cluster_bench hop MODEL.gguf GRPC_ECHO     lap time outside compute over a bare gRPC echo of
//   the
//                                              same bytes with the same compute worked in between

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/thread_pool.h"
#include "tests/bench/floors.h"
#include "tests/bench/serve.h"
#include "tests/e2e/cluster.h"

namespace shardline::bench {
namespace {

using testing::Answer;
using testing::Cluster;

constexpr int kPairs = 9;
constexpr uint32_t kTokens = 96;

std::unique_ptr<Cluster> Serve(const std::string& model, int nodes) {
  v1::LoadModelRequest request;
  request.set_context_tokens_max(1024);
  return ServeModel(model, {.nodes = nodes, .memory = "4GiB", .threads = UsableCpuCount()},
                    std::move(request));
}

v1::RunTimings Decode(Cluster& cluster) {
  v1::GenerateRequest request = testing::Greedy("A long story about a river:", kTokens);
  request.set_want_logits_digest(false);
  request.set_no_drafts(true);  // A lap is a token.
  const Answer answer = cluster.Generate(request);
  SL_CHECK(answer.status.ok(), answer.status.ToString());
  SL_CHECK(answer.end->timings().laps() > 0);
  return answer.end->timings();
}

double TokensPerSecond(const v1::RunTimings& timings) {
  return timings.laps() * 1e6 / static_cast<double>(timings.decode_us());
}

void Shards(const std::string& model) {
  const std::unique_ptr<Cluster> one = Serve(model, 1);
  const std::unique_ptr<Cluster> three = Serve(model, 3);
  Decode(*one);
  Decode(*three);
  std::vector<double> ratios;
  std::vector<double> rates;
  for (int pair = 0; pair < kPairs; ++pair) {
    const double alone = TokensPerSecond(Decode(*one));
    const double split = TokensPerSecond(Decode(*three));
    ratios.push_back(split / alone);
    rates.push_back(split);
  }
  std::printf(
      "shards3_vs_1: median %.3f, p10 %.3f, p90 %.3f of %d pairs; three shards %.1f tokens/s\n",
      Quantile(ratios, 0.5), Quantile(ratios, 0.1), Quantile(ratios, 0.9), kPairs,
      Quantile(rates, 0.5));
  std::printf("figure shards3_vs_1 %.3f ratio\n", Quantile(ratios, 0.5));
}

// Microseconds that a lap spends outside the stages' compute, a hop.
double HopUs(const v1::RunTimings& timings, int hops) {
  return static_cast<double>(timings.lap_us() - timings.stage_compute_us()) / timings.laps() / hops;
}

double EchoUs(const std::string& echo, int bytes, double work_us) {
  const testing::CommandResult result = testing::RunCommand(
      {echo, std::to_string(bytes), std::to_string(static_cast<int>(work_us)), "150"});
  double one_way_us = 0;
  SL_CHECK(result.exit_code == 0, result.err);
  SL_CHECK(absl::SimpleAtod(result.out.substr(result.out.find(' ') + 1), &one_way_us), result.out);
  return one_way_us;
}

void Hop(const std::string& model, const std::string& echo) {
  constexpr int kHops = 3;
  constexpr int kHiddenBytes = 576 * 4;  // Of SmolLM2-135M; other widths move the floor little.
  const std::unique_ptr<Cluster> three = Serve(model, kHops);
  Decode(*three);
  std::vector<double> ratios;
  std::vector<double> hops;
  std::vector<double> floors;
  for (int pair = 0; pair < kPairs; ++pair) {
    const v1::RunTimings timings = Decode(*three);
    const double work_us = static_cast<double>(timings.stage_compute_us()) / timings.laps() / kHops;
    hops.push_back(HopUs(timings, kHops));
    floors.push_back(EchoUs(echo, kHiddenBytes, work_us));
    ratios.push_back(hops.back() / floors.back());
  }
  std::printf(
      "hop_vs_grpc_echo: median %.3f, p10 %.3f, p90 %.3f of %d pairs; hop %.0f us, echo %.0f us\n",
      Quantile(ratios, 0.5), Quantile(ratios, 0.1), Quantile(ratios, 0.9), kPairs,
      Quantile(hops, 0.5), Quantile(floors, 0.5));
  std::printf("figure hop_vs_grpc_echo %.3f ratio\n", Quantile(ratios, 0.5));
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "shards") == 0) {
    shardline::bench::Shards(argv[2]);
  } else if (argc == 4 && std::strcmp(argv[1], "hop") == 0) {
    shardline::bench::Hop(argv[2], argv[3]);
  } else {
    std::fprintf(stderr, "usage: cluster_bench shards MODEL.gguf | hop MODEL.gguf GRPC_ECHO\n");
    return 2;
  }
  return 0;
}
