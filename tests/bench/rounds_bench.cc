// Rounds on real devices: processes, cores and links of this machine.
//
//   rounds_bench cores DIR     tokens/s of 16 sessions on two nodes held on one core each, over one
//                              node with both; the model, of the 1B shape, is written to DIR
//   rounds_bench host MODEL    what a round of 64 sessions takes beside the computing of its rows
//   rounds_bench hog MODEL     tokens/s of one session beside a busy thread, over without

#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/thread_pool.h"
#include "node/sampling/sampler.h"
#include "tests/bench/bench_model.h"
#include "tests/bench/floors.h"
#include "tests/bench/serve.h"
#include "tests/bench/streams.h"
#include "tests/e2e/cluster.h"
#include "tests/support/tiny_llama.h"

namespace shardline::bench {
namespace {

using testing::Cluster;

std::unique_ptr<Cluster> Serve(const std::string& model, const Cluster::Options& options,
                               uint32_t sessions) {
  v1::LoadModelRequest request;
  request.set_context_tokens_max(256);
  request.set_sessions_max(sessions);
  return ServeModel(model, options, std::move(request));
}

std::vector<v1::GenerateRequest> Sessions(int count, uint32_t tokens) {
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < count; ++i) requests.push_back(PlainRequest(16, tokens, i));
  return requests;
}

// The shape of Llama 3.2 1B; random numbers, written once.
std::string BigModel(const std::string& directory) {
  const testing::TinyLlamaOptions shape = {.name = "random-1b-q4_k",
                                           .layers = 16,
                                           .hidden = 2048,
                                           .q_heads = 32,
                                           .kv_heads = 8,
                                           .ff = 8192,
                                           .context = 2048,
                                           .vocab = 128'256,
                                           .weights = GgufTensorType::kQ4_K,
                                           .embedding = GgufTensorType::kQ6_K};
  const std::string path = absl::StrCat(directory, "/", shape.name, ".gguf");
  if (std::filesystem::exists(path)) return path;
  std::printf("writing %s\n", path.c_str());
  const std::string fresh = absl::StrCat(directory, "/fresh");
  std::filesystem::create_directories(fresh);
  std::filesystem::rename(testing::MakeTinyLlama(fresh, shape), path);
  return path;
}

void Cores(const std::string& directory) {
  constexpr int kSessions = 16;
  constexpr int kRuns = 3;
  const std::string model = BigModel(directory);
  const auto one = Serve(model, {.nodes = 1, .memory = "4GiB", .threads = 2}, kSessions);
  const auto two = Serve(
      model, {.nodes = 2, .memory = "4GiB", .threads = 1, .node_cpus = {"0", "1"}}, kSessions);
  const std::vector<v1::GenerateRequest> requests = Sessions(kSessions, 24);
  std::vector<double> ratios;
  for (int run = 0; run < kRuns; ++run) {
    const double alone = SteadyTokensPerSecond(RunTogether(one->inference(), requests));
    const double split = SteadyTokensPerSecond(RunTogether(two->inference(), requests));
    std::printf("pipeline_two_cores: %.1f tokens/s on two nodes, %.1f on one\n", split, alone);
    ratios.push_back(split / alone);
  }
  std::printf("figure pipeline_two_cores %.3f ratio (aim 0.90)\n", Quantile(ratios, 0.5));
}

// Seconds that drawing the tokens of `rows` rows takes, spread over the pool.
double SecondsToSample(BenchModel& model, int32_t rows) {
  const SamplingParams greedy = {.temperature = 0.0F};
  const std::span<const int32_t> nothing;
  std::deque<Sampler> samplers;
  for (int32_t i = 0; i < rows; ++i) {
    samplers.emplace_back(greedy, model.vocab_size(), nothing, nothing);
  }
  return SecondsOf([&] {
    model.pool().ParallelFor(rows, [&](int64_t row) {
      const auto token =
          samplers[static_cast<size_t>(row)].Sample(model.LogitsOf(static_cast<int32_t>(row)), 0);
      SL_CHECK(token.ok());
    });
  });
}

double SamplerShare(const std::string& path, int32_t rows) {
  BenchModel model(path, {.sessions = rows, .context_tokens = 64});
  std::vector<double> shares;
  for (int run = 0; run < 9; ++run) {
    const double pass = SecondsOf([&] { model.RunBatch(16, rows); });
    shares.push_back(SecondsToSample(model, rows) / pass);
  }
  return Quantile(shares, 0.5);
}

// Of all streams' time between tokens, what their head neither computed nor waited for.
double SchedulerShare(const std::string& path, int sessions) {
  const auto cluster =
      Serve(path, {.nodes = 1, .threads = UsableCpuCount()}, static_cast<uint32_t>(sessions));
  const std::vector<Stream> streams = RunTogether(cluster->inference(), Sessions(sessions, 64));
  double decode_us = 0;
  double compute_us = 0;
  for (const Stream& stream : streams) {
    SL_CHECK(stream.status.ok(), stream.status.ToString());
    decode_us += static_cast<double>(stream.end.timings().decode_us());
    compute_us += static_cast<double>(stream.end.timings().head_compute_us());
  }
  std::printf("host_step_cost: %.1f tokens/s in rounds of %d sessions\n",
              SteadyTokensPerSecond(streams), sessions);
  return (decode_us - compute_us) / compute_us;
}

void Host(const std::string& path) {
  constexpr int kSessions = 64;
  const double sampler = SamplerShare(path, kSessions);
  const double scheduler = SchedulerShare(path, kSessions);
  std::printf("host_step_cost: scheduler, streams and wake-ups %.3f, sampler %.3f of a round\n",
              scheduler, sampler);
  std::printf("figure host_step_cost %.3f ratio (aim 0.02)\n", scheduler + sampler);
}

// A thread that never gives up CPU 0 by itself.
class Hog {
 public:
  Hog()
      : thread_([this] {
          cpu_set_t first;
          CPU_ZERO(&first);
          CPU_SET(0, &first);
          sched_setaffinity(0, sizeof(first), &first);
          while (!stop_.load(std::memory_order_relaxed)) {
          }
        }) {}
  ~Hog() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void HogBeside(const std::string& path) {
  constexpr int kRuns = 5;
  const auto cluster = Serve(path, {.nodes = 1, .threads = UsableCpuCount()}, 1);
  const std::vector<v1::GenerateRequest> requests = Sessions(1, 96);
  std::vector<double> ratios;
  for (int run = 0; run < kRuns; ++run) {
    const double alone = SteadyTokensPerSecond(RunTogether(cluster->inference(), requests));
    const Hog hog;
    const double beside = SteadyTokensPerSecond(RunTogether(cluster->inference(), requests));
    std::printf("hog: %.1f tokens/s beside a busy thread, %.1f without\n", beside, alone);
    ratios.push_back(beside / alone);
  }
  std::printf("figure hog %.3f ratio (aim 0.5)\n", Quantile(ratios, 0.5));
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  const auto asked = [&](const char* name) { return argc == 3 && std::strcmp(argv[1], name) == 0; };
  if (asked("cores")) {
    shardline::bench::Cores(argv[2]);
  } else if (asked("host")) {
    shardline::bench::Host(argv[2]);
  } else if (asked("hog")) {
    shardline::bench::HogBeside(argv[2]);
  } else {
    std::fprintf(stderr, "usage: rounds_bench cores DIR | host MODEL.gguf | hog MODEL.gguf\n");
    return 2;
  }
  return 0;
}
