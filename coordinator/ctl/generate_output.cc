#include "coordinator/ctl/generate_output.h"

#include <algorithm>
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

Json EndJson(const v1::GenerateEnd& end) {
  return {{"type", "end"},
          {"reason", ReasonText(end.reason())},
          {"text", end.text()},
          {"promptTokens", end.prompt_tokens()},
          {"generatedTokens", end.generated_tokens()},
          {"ttftUs", end.ttft_us()},
          {"totalUs", end.total_us()},
          {"prefillUs", end.timings().prefill_us()},
          {"decodeUs", end.timings().decode_us()},
          {"laps", end.timings().laps()},
          {"lapUs", end.timings().lap_us()},
          {"headComputeUs", end.timings().head_compute_us()},
          {"stageComputeUs", end.timings().stage_compute_us()}};
}

}  // namespace

std::string EventJson(const v1::GenerateEvent& event) {
  Json json;
  if (event.has_started()) json = StartedJson(event.started());
  if (event.has_token()) json = TokenJson(event.token());
  if (event.has_end()) json = EndJson(event.end());
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string StatsText(const v1::GenerateStarted& started, const v1::GenerateEnd& end) {
  std::string text = absl::StrFormat(
      "%d tokens (%s) behind a prompt of %d in %.2f s: first after %.0f ms", end.generated_tokens(),
      ReasonText(end.reason()), end.prompt_tokens(), static_cast<double>(end.total_us()) / 1e6,
      static_cast<double>(end.ttft_us()) / 1e3);
  const v1::RunTimings& timings = end.timings();
  if (timings.decode_us() > 0 && end.generated_tokens() > 1) {
    absl::StrAppendFormat(&text, ", then %.1f tokens/s",
                          static_cast<double>(end.generated_tokens() - 1) * 1e6 /
                              static_cast<double>(timings.decode_us()));
  }
  text += '\n';
  const int hops = started.route_size();
  if (timings.laps() > 0 && hops > 1) {
    const double laps = timings.laps();
    const double lap_ms = static_cast<double>(timings.lap_us()) / laps / 1e3;
    const double head_ms = static_cast<double>(timings.head_compute_us()) / laps / 1e3;
    const double stages_ms = static_cast<double>(timings.stage_compute_us()) / laps / 1e3;
    absl::StrAppendFormat(
        &text, "lap %.2f ms beside the head's %.2f ms: stages %.2f ms, %d hops of %.3f ms\n",
        lap_ms, head_ms, stages_ms, hops, std::max(0.0, lap_ms - stages_ms) / hops);
  }
  return text;
}

}  // namespace shardline
