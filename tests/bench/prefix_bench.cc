// What a cached prefix saves.
//
//   prefix_bench MODEL.gguf     time to first token with nine tenths of the prompt cached over the
//                               same prompt computed whole, beside the share that is not cached

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/version.h"
#include "kernels/thread_pool.h"
#include "tests/bench/floors.h"
#include "tests/bench/serve.h"
#include "tests/e2e/cluster.h"

namespace shardline::bench {
namespace {

using testing::Answer;
using testing::Cluster;

constexpr int kPairs = 9;
constexpr size_t kPromptTokens = 1280;
constexpr size_t kSharedTokens = 1152;
static_assert(kSharedTokens % kPageTokens == 0 && kSharedTokens * 10 == kPromptTokens * 9);

std::unique_ptr<Cluster> Serve(const std::string& model, int nodes) {
  v1::LoadModelRequest request;
  request.set_context_tokens_max(2048);
  return ServeModel(model, {.nodes = nodes, .memory = "4GiB", .threads = UsableCpuCount()},
                    std::move(request));
}

// `count` tokens of a text about `topic`.
std::vector<int32_t> Text(Cluster& cluster, const std::string& topic, size_t count) {
  std::string text;
  for (int i = 0; i < 400; ++i) absl::StrAppend(&text, "Line ", i, " is about ", topic, ".\n");
  const v1::TokenIds ids = cluster.Tokenize(text);
  std::vector<int32_t> tokens(ids.ids().begin(), ids.ids().end());
  SL_CHECK(tokens.size() >= count);
  tokens.resize(count);
  return tokens;
}

// Microseconds to the first token.
double Ttft(Cluster& cluster, const std::vector<int32_t>& prompt, bool cold) {
  v1::GenerateRequest request = testing::Greedy("", 1);
  request.set_want_logits_digest(false);
  request.mutable_tokens()->mutable_ids()->Assign(prompt.begin(), prompt.end());
  request.set_no_prefix_cache(cold);
  const Answer answer = cluster.Generate(request);
  SL_CHECK(answer.status.ok(), answer.status.ToString());
  const uint32_t cached = cold ? 0 : kSharedTokens;
  SL_CHECK(answer.end->cached_tokens() == cached, "cached ", answer.end->cached_tokens(), " after ",
           answer.restarts.size(), " restarts\n", cluster.Logs());
  return static_cast<double>(answer.end->ttft_us());
}

double Measure(const std::string& model, int nodes) {
  const std::unique_ptr<Cluster> cluster = Serve(model, nodes);
  const std::vector<int32_t> shared = Text(*cluster, "a river", kSharedTokens);
  v1::GenerateRequest warm = testing::Greedy("", 1);
  warm.mutable_tokens()->mutable_ids()->Assign(shared.begin(), shared.end());
  warm.mutable_tokens()->add_ids(shared.front());
  const Answer warmed = cluster->Generate(warm);
  SL_CHECK(warmed.status.ok(), warmed.status.ToString());
  std::vector<double> ratios;
  std::vector<double> colds;
  std::vector<double> hits;
  for (int pair = 0; pair < kPairs; ++pair) {
    // Each prompt ends in its own way, so that no more than the shared part is found.
    std::vector<int32_t> prompt = shared;
    const std::vector<int32_t> own =
        Text(*cluster, absl::StrCat("pair ", pair), kPromptTokens - kSharedTokens);
    prompt.push_back(1000 + pair);
    prompt.insert(prompt.end(), own.begin(), own.end() - 1);
    colds.push_back(Ttft(*cluster, prompt, true));
    hits.push_back(Ttft(*cluster, prompt, false));
    ratios.push_back(hits.back() / colds.back());
  }
  std::printf(
      "prefix_hit_ttft, %d node%s: median %.3f, p10 %.3f, p90 %.3f of %d pairs; hit %.1f ms, "
      "cold %.1f ms of %zu tokens; the share not cached is %.3f\n",
      nodes, nodes == 1 ? "" : "s", Quantile(ratios, 0.5), Quantile(ratios, 0.1),
      Quantile(ratios, 0.9), kPairs, Quantile(hits, 0.5) / 1e3, Quantile(colds, 0.5) / 1e3,
      kPromptTokens, 1 - static_cast<double>(kSharedTokens) / kPromptTokens);
  return Quantile(ratios, 0.5);
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: prefix_bench MODEL.gguf\n");
    return 2;
  }
  shardline::bench::Measure(argv[1], 3);
  std::printf("figure prefix_hit_ttft %.3f ratio\n", shardline::bench::Measure(argv[1], 1));
  return 0;
}
