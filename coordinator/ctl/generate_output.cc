#include "coordinator/ctl/generate_output.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shardline {
namespace {

using Json = nlohmann::ordered_json;

std::string ReasonText(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    default:
      return "unknown";
  }
}

Json StartedJson(const v1::GenerateStarted& started) {
  Json json = {{"type", "started"},        {"session", started.session()},
               {"epoch", started.epoch()}, {"planEpoch", started.plan_epoch()},
               {"model", started.model()}, {"promptTokens", started.prompt_tokens()},
               {"route", Json::array()}};
  for (const v1::RouteStage& stage : started.route()) {
    json["route"].push_back({{"node", stage.node_id()},
                             {"incarnation", stage.incarnation()},
                             {"begin", stage.layers().begin()},
                             {"end", stage.layers().end()}});
  }
  return json;
}

Json TokenJson(const v1::GenerateToken& token) {
  Json json = {{"type", "token"},
               {"index", token.token().index()},
               {"token", token.token().token()},
               {"text", token.text()}};
  if (token.token().logprob() != 0) json["logprob"] = token.token().logprob();
  if (!token.token().top_logprobs().empty()) {
    json["topLogprobs"] = Json::array();
    for (const v1::TokenLogprob& top : token.token().top_logprobs()) {
      json["topLogprobs"].push_back({{"token", top.token()}, {"logprob", top.logprob()}});
    }
  }
  if (token.token().logits_digest() != 0) {
    json["logitsDigest"] = absl::StrFormat("%016x", token.token().logits_digest());
  }
  return json;
}

// No digits that mean nothing.
double Tenths(double value) { return std::round(value * 10) / 10; }

Json EndJson(const v1::GenerateEnd& end, const v1::GenerateStarted& started) {
  const GenerateFigures figures = FiguresOf(started, end);
  return {{"type", "end"},
          {"reason", ReasonText(end.reason())},
          {"text", end.text()},
          {"promptTokens", end.prompt_tokens()},
          {"cachedTokens", end.cached_tokens()},
          {"generatedTokens", end.generated_tokens()},
          {"ttftUs", end.ttft_us()},
          {"totalUs", end.total_us()},
          {"prefillUs", end.timings().prefill_us()},
          {"decodeUs", end.timings().decode_us()},
          {"laps", end.timings().laps()},
          {"lapUs", end.timings().lap_us()},
          {"headComputeUs", end.timings().head_compute_us()},
          {"stageComputeUs", end.timings().stage_compute_us()},
          {"tokensPerS", Tenths(figures.tokens_per_s)},
          {"hops", figures.hops},
          {"layersUsPerLap", Tenths(figures.layers_us)},
          {"hopUs", Tenths(figures.hop_us)},
          {"finishUsPerLap", Tenths(figures.finish_us)}};
}

// "0.045", "4.46", "31.2": three digits that mean something.
std::string Milliseconds(double us) {
  const double ms = us / 1e3;
  if (ms < 0.1) return absl::StrFormat("%.3f ms", ms);
  return ms < 10 ? absl::StrFormat("%.2f ms", ms) : absl::StrFormat("%.1f ms", ms);
}

std::string Count(uint32_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string PromptText(const v1::GenerateEnd& end) {
  std::string text = absl::StrCat("a prompt of ", end.prompt_tokens());
  if (end.cached_tokens() > 0) absl::StrAppend(&text, ", ", end.cached_tokens(), " of them cached");
  return text;
}

}  // namespace

GenerateFigures FiguresOf(const v1::GenerateStarted& started, const v1::GenerateEnd& end) {
  const v1::RunTimings& timings = end.timings();
  const double laps = timings.laps();
  if (timings.laps() == 0) return {};
  GenerateFigures figures;
  figures.hops = started.route_size() > 1 ? static_cast<uint32_t>(started.route_size()) : 0;
  if (timings.decode_us() > 0) {
    figures.tokens_per_s = laps * 1e6 / static_cast<double>(timings.decode_us());
  }
  figures.layers_us = static_cast<double>(timings.stage_compute_us()) / laps;
  // Each node has its own clock, so that a sum may come out a little above the whole.
  const double between = static_cast<double>(timings.lap_us() - timings.stage_compute_us());
  if (figures.hops > 0) figures.hop_us = std::max(0.0, between) / laps / figures.hops;
  const double outside = static_cast<double>(timings.decode_us() - timings.lap_us());
  figures.finish_us = std::max(0.0, outside) / laps;
  return figures;
}

std::string EventJson(const v1::GenerateEvent& event, const v1::GenerateStarted& started) {
  Json json;
  if (event.has_started()) json = StartedJson(event.started());
  if (event.has_token()) json = TokenJson(event.token());
  if (event.has_end()) json = EndJson(event.end(), started);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string StatsText(const v1::GenerateStarted& started, const v1::GenerateEnd& end) {
  const GenerateFigures figures = FiguresOf(started, end);
  if (end.generated_tokens() == 0) {
    return absl::StrCat("no token behind ", PromptText(end),
                        ": the model ended its answer at once\n");
  }
  std::string text =
      absl::StrCat(Count(end.generated_tokens(), "token"), " behind ", PromptText(end), ": ");
  if (figures.tokens_per_s > 0)
    absl::StrAppendFormat(&text, "%.1f tokens/s, ", figures.tokens_per_s);
  absl::StrAppendFormat(&text, "first token after %.0f ms\n",
                        static_cast<double>(end.ttft_us()) / 1e3);
  if (end.timings().laps() == 0) return text;
  absl::StrAppend(&text, "a lap: ", Milliseconds(figures.layers_us), " of layers, ");
  if (figures.hops > 0) {
    absl::StrAppend(&text, Count(figures.hops, "hop"), " of ", Milliseconds(figures.hop_us), ", ");
  }
  absl::StrAppend(&text, Milliseconds(figures.finish_us),
                  " of norm, lm_head and sampling at the head\n");
  return text;
}

}  // namespace shardline
