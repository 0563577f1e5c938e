// What a batch of sessions gains over one.
//
//   batch_bench decode MODEL.gguf    tokens/s of 16 sessions over 1, over the same gain of the
//                                    roofline: a pass is at best the longer of reading its bytes
//                                    and multiplying its rows, both measured beside it
//   batch_bench rows MODEL.gguf [FROM]   what passes of FROM to 64 rows take, for people

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tests/bench/bench_model.h"
#include "tests/bench/floors.h"

namespace shardline::bench {
namespace {

constexpr int32_t kSessions = 16;
constexpr int32_t kPosition = 128;
constexpr int32_t kPasses = 12;  // In one pair.
constexpr int kPairs = 11;

void FillKv(BenchModel& model, int32_t sessions) {
  for (int32_t position = 0; position < kPosition; ++position) {
    model.RunBatch(position, sessions);
  }
}

// All times are of the CPUs, a pass over: others may want the same cores.
double CpuSecondsOfPass(absl::FunctionRef<void(int32_t pass)> body) {
  return CpuSecondsOf([&] {
           for (int32_t pass = 0; pass < kPasses; ++pass) body(pass);
         }) /
         kPasses;
}

double SecondsOfPass(BenchModel& model, int32_t sessions) {
  return CpuSecondsOfPass([&](int32_t pass) { model.RunBatch(kPosition + pass, sessions); });
}

double SecondsToRead(BenchModel& model, int32_t sessions) {
  const auto buffers = model.BytesRead(kPosition, sessions);
  return CpuSecondsOfPass([&](int32_t) { PlainRead(buffers, model.pool()); });
}

double SecondsToMultiply(BenchModel& model, int32_t rows, double products_per_cpu_s) {
  return (model.LayerProducts(rows) + model.HeadProducts(rows)) / products_per_cpu_s;
}

void Decode(BenchModel& model) {
  SL_CHECK(HasVnni(), "the floor of this figure needs AVX-512 VNNI");
  FillKv(model, kSessions);
  std::vector<double> gains;
  std::vector<double> roofs;
  std::vector<double> ratios;
  std::vector<double> in_turn;  // The same, if a pass reads first and multiplies then.
  std::vector<double> passes;
  for (int pair = 0; pair < kPairs; ++pair) {
    const double peak = PeakProductsPerCpuSecond(model.pool());
    const double read[] = {SecondsToRead(model, 1), SecondsToRead(model, kSessions)};
    const double multiply[] = {SecondsToMultiply(model, 1, peak),
                               SecondsToMultiply(model, kSessions, peak)};
    const double one = SecondsOfPass(model, 1);
    const double many = SecondsOfPass(model, kSessions);
    gains.push_back(kSessions * one / many);
    roofs.push_back(kSessions * std::max(read[0], multiply[0]) / std::max(read[1], multiply[1]));
    ratios.push_back(gains.back() / roofs.back());
    in_turn.push_back(gains.back() * (read[1] + multiply[1]) / (read[0] + multiply[0]) / kSessions);
    passes.push_back(many);
  }
  std::printf(
      "batch16_vs_roofline: gain %.2f of a roofline gain of %.2f, p10 %.3f, p90 %.3f of %d "
      "pairs; %.0f tokens/s\n",
      Quantile(gains, 0.5), Quantile(roofs, 0.5), Quantile(ratios, 0.1), Quantile(ratios, 0.9),
      kPairs, kSessions / Quantile(passes, 0.5));
  std::printf("figure batch16_vs_roofline %.3f ratio (aim 0.85)\n", Quantile(ratios, 0.5));
  std::printf("figure batch16_vs_step_and_rows %.3f ratio (aim 0.85)\n", Quantile(in_turn, 0.5));
}

constexpr int32_t kRowsMost = 64;

void Rows(BenchModel& model, int32_t from) {
  FillKv(model, kRowsMost);
  const double peak = PeakProductsPerCpuSecond(model.pool());
  for (int32_t rows = from; rows <= kRowsMost; rows *= 2) {
    std::vector<double> layers;
    std::vector<double> finish;
    for (int pair = 0; pair < kPairs; ++pair) {
      layers.push_back(
          CpuSecondsOfPass([&](int32_t pass) { model.RunBatchLayers(kPosition + pass, rows); }));
      finish.push_back(CpuSecondsOfPass([&](int32_t) { model.FinishBatch(rows); }));
    }
    std::printf("%3d rows: layers %7.3f ms, finish %7.3f ms; read %.3f ms, multiply %.3f ms\n",
                rows, 1e3 * Quantile(layers, 0.3), 1e3 * Quantile(finish, 0.3),
                1e3 * SecondsToRead(model, rows), 1e3 * SecondsToMultiply(model, rows, peak));
  }
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  const bool decode = argc == 3 && std::strcmp(argv[1], "decode") == 0;
  const bool rows = argc >= 3 && std::strcmp(argv[1], "rows") == 0;
  const int from = argc == 4 ? std::clamp(std::atoi(argv[3]), 1, 64) : 1;
  if (!decode && !rows) {
    std::fprintf(stderr, "usage: batch_bench decode MODEL.gguf | rows MODEL.gguf [FROM]\n");
    return 2;
  }
  shardline::bench::BenchModel model(argv[2], {.sessions = 64, .context_tokens = 256});
  if (decode) shardline::bench::Decode(model);
  if (rows) shardline::bench::Rows(model, from);
  return 0;
}
