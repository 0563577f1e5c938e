// Rings of emulated devices, where every stage has hardware of its own.
//
//   pipeline_bench decode     tokens/s of 16 sessions over 3 stages, over what the slowest stage
//                             allows with as many rounds in flight
//   pipeline_bench prefill    time to the first token of a 4K prompt on one stage, over that on 3
//                             stages with a third of the layers each
//   pipeline_bench gaps       rounds between two tokens of 16 live streams while 4 prompts fill

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tests/bench/emulated_ring.h"
#include "tests/bench/floors.h"
#include "tests/bench/streams.h"

namespace shardline::bench {
namespace {

constexpr int kStages = 3;
constexpr int kInFlight = kStages + 1;
constexpr int kSessions = 16;
constexpr int kRuns = 3;

// Of a layer: a stage of three takes 20 ms and 1 ms a row.
ShardCost LayerCost() { return {.step = absl::Milliseconds(10), .row = absl::Microseconds(500)}; }

// Rounds of all sessions' rows, dealt over the rounds in flight, as fast as one stage ends them.
double DecodeBound() {
  const int layers = kEmulatedLayers / kStages;
  const int rows = kSessions / kInFlight;
  const absl::Duration stage = layers * (LayerCost().step + rows * LayerCost().row);
  return rows / absl::ToDoubleSeconds(stage);
}

void Decode() {
  const auto ring = StartEmulatedRing({.stages = kStages, .layer_cost = LayerCost()});
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < kSessions; ++i) requests.push_back(PlainRequest(16, 96, i));
  std::vector<double> ratios;
  for (int run = 0; run < kRuns; ++run) {
    const double rate = SteadyTokensPerSecond(RunTogether(ring->inference(), requests));
    ratios.push_back(rate / DecodeBound());
    std::printf("pipeline_efficiency: %.0f tokens/s of %.0f\n", rate, DecodeBound());
  }
  std::printf("figure pipeline_efficiency %.3f ratio (aim 0.92)\n", Quantile(ratios, 0.5));
}

constexpr int kPromptTokens = 4096;

// Seconds to the first token of the long prompt, alone.
double TimeToFirst(testing::Cluster& ring, int seed) {
  const std::vector<Stream> streams =
      RunTogether(ring.inference(), {PlainRequest(kPromptTokens, 2, seed)});
  SL_CHECK(streams[0].status.ok(), streams[0].status.ToString());
  return absl::ToDoubleSeconds(streams[0].tokens[0] - streams[0].began);
}

void Prefill() {
  // Rows dominate, as they do in prompts: 256 of them take a stage of three 54 ms.
  const ShardCost layer = {.step = absl::Milliseconds(1), .row = absl::Microseconds(100)};
  std::vector<double> gains;
  const auto options = [&](int stages) {
    return EmulatedRingOptions{.stages = stages,
                               .layer_cost = layer,
                               .sessions_max = 2,
                               .context_tokens_max = kPromptTokens + 64};
  };
  const auto one = StartEmulatedRing(options(1));
  const auto three = StartEmulatedRing(options(kStages));
  for (int run = 0; run < kRuns; ++run) {
    const double alone = TimeToFirst(*one, run);
    const double split = TimeToFirst(*three, run);
    gains.push_back(alone / split);
    std::printf("prefill_pipelined: %.2f s on one stage, %.2f s on three\n", alone, split);
  }
  std::printf("figure prefill_pipelined %.2f times (aim %.2f)\n", Quantile(gains, 0.5),
              0.85 * kStages);
}

void Gaps() {
  constexpr int kPrompts = 4;
  const auto ring = StartEmulatedRing(
      {.stages = kStages,
       .layer_cost = {.step = absl::Milliseconds(2), .row = absl::Microseconds(20)},
       .sessions_max = kSessions + kPrompts,
       .context_tokens_max = 2048 + 64});
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < kSessions; ++i) requests.push_back(PlainRequest(16, 128, i));
  for (int i = 0; i < kPrompts; ++i) requests.push_back(PlainRequest(2048, 8, 100 + i));
  std::vector<double> gaps;
  for (int run = 0; run < kRuns; ++run) {
    const std::vector<Stream> streams = RunTogether(ring->inference(), requests);
    for (int i = 0; i < kSessions; ++i) {
      const Stream& stream = streams[static_cast<size_t>(i)];
      SL_CHECK(stream.status.ok(), stream.status.ToString());
      gaps.push_back(stream.end.timings().rounds_between_max());
    }
  }
  std::printf("gap_p99_rounds: median %.0f, most %.0f of %zu streams\n", Quantile(gaps, 0.5),
              Quantile(gaps, 1), gaps.size());
  std::printf("figure gap_p99_rounds %.0f rounds (bound %d)\n", Quantile(gaps, 0.99),
              2 * kInFlight);
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  const auto asked = [&](const char* name) { return argc == 2 && std::strcmp(argv[1], name) == 0; };
  if (asked("decode")) {
    shardline::bench::Decode();
  } else if (asked("prefill")) {
    shardline::bench::Prefill();
  } else if (asked("gaps")) {
    shardline::bench::Gaps();
  } else {
    std::fprintf(stderr, "usage: pipeline_bench decode|prefill|gaps\n");
    return 2;
  }
  return 0;
}
