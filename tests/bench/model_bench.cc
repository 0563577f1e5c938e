// A whole model in this process, against its floors.
//
//   model_bench decode MODEL.gguf     weight and KV bytes a token / time, over a plain read of the
//                                     same buffers by the same threads
//   model_bench prefill MODEL.gguf    byte products of a 512-token prompt a CPU second, over a loop
//                                     of nothing but byte dot products
//
// Floor and subject alternate; the figure is the median of the pairs' ratios.

#include <cstdio>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tests/bench/bench_model.h"
#include "tests/bench/floors.h"

namespace shardline::bench {
namespace {

constexpr int kPairs = 15;
constexpr int kDecodeTokens = 24;  // In one pair.
constexpr int32_t kPromptTokens = 512;

void Report(const char* name, const std::vector<double>& ratios, const char* detail, double value) {
  std::printf("%s: median %.3f, p10 %.3f, p90 %.3f of %zu pairs; %s %.1f\n", name,
              Quantile(ratios, 0.5), Quantile(ratios, 0.1), Quantile(ratios, 0.9), ratios.size(),
              detail, value);
  std::printf("figure %s %.3f ratio\n", name, Quantile(ratios, 0.5));
}

void Decode(BenchModel& model) {
  constexpr int32_t kStart = 128;
  model.Run(0, kStart);
  std::vector<double> ratios;
  std::vector<double> rates;
  for (int pair = 0; pair < kPairs; ++pair) {
    const auto buffers = model.BytesRead(kStart, 1);
    const double read = SecondsOf([&] {
      for (int i = 0; i < kDecodeTokens; ++i) PlainRead(buffers, model.pool());
    });
    const double decode = SecondsOf([&] {
      for (int i = 0; i < kDecodeTokens; ++i) model.Run(kStart + i, 1);
    });
    ratios.push_back(read / decode);
    rates.push_back(kDecodeTokens / decode);
  }
  Report("decode_vs_read_bandwidth", ratios, "tokens/s", Quantile(rates, 0.5));
}

void Prefill(BenchModel& model) {
  SL_CHECK(HasVnni(), "the floor of this figure needs AVX-512 VNNI");
  model.Run(0, kPromptTokens);
  std::vector<double> ratios;
  std::vector<double> rates;
  for (int pair = 0; pair < kPairs; ++pair) {
    const double peak = PeakProductsPerCpuSecond(model.pool());
    double wall = 0;
    const double cpu =
        CpuSecondsOf([&] { wall = SecondsOf([&] { model.Run(0, kPromptTokens); }); });
    ratios.push_back(model.LayerProducts(kPromptTokens) / cpu / peak);
    rates.push_back(kPromptTokens / wall);
  }
  Report("prefill_vs_int8_peak", ratios, "tokens/s", Quantile(rates, 0.5));
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  const bool decode = argc == 3 && std::strcmp(argv[1], "decode") == 0;
  const bool prefill = argc == 3 && std::strcmp(argv[1], "prefill") == 0;
  if (!decode && !prefill) {
    std::fprintf(stderr, "usage: model_bench decode|prefill MODEL.gguf\n");
    return 2;
  }
  shardline::bench::BenchModel model(argv[2], {});
  if (decode) shardline::bench::Decode(model);
  if (prefill) shardline::bench::Prefill(model);
  return 0;
}
