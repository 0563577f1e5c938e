#include "node/transport/stage_conversion.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

absl::Status Invalid(const std::string& what) {
  return MakeFailure(FailureKind::kInvalidRequest, what);
}

absl::StatusOr<int32_t> ToInt32(uint32_t value, const char* field) {
  if (value > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
    return Invalid(absl::StrCat(field, ": ", value, " is out of range"));
  }
  return static_cast<int32_t>(value);
}

absl::Status CheckCount(int count, int count_max, const char* field) {
  if (count <= count_max) return absl::OkStatus();
  return Invalid(absl::StrCat(field, ": ", count, " entries; at most ", count_max));
}

absl::Status CheckCapability(const std::string& capability) {
  return CheckCount(static_cast<int>(capability.size()), kCapabilityBytesMax, "capability");
}

absl::StatusOr<absl::Duration> ToCost(double us, const char* field) {
  constexpr double kCostMaxUs = 1e9;
  if (!(us >= 0 && us <= kCostMaxUs)) return Invalid(absl::StrCat(field, ": ", us));
  return absl::Microseconds(us);
}

absl::StatusOr<SamplingParams> FromProto(const v1::Sampling& message) {
  SL_RETURN_IF_ERROR(
      CheckCount(static_cast<int>(message.logit_bias().size()), kLogitBiasMax, "logit_bias"));
  SamplingParams params;
  params.temperature = message.temperature();
  SL_ASSIGN_OR_RETURN(params.top_k, ToInt32(message.top_k(), "top_k"));
  // Fields for which 0 is the wire's word for "off".
  params.top_p = message.top_p() == 0.0F ? 1.0F : message.top_p();
  params.min_p = message.min_p();
  params.repetition_penalty =
      message.repetition_penalty() == 0.0F ? 1.0F : message.repetition_penalty();
  params.frequency_penalty = message.frequency_penalty();
  params.presence_penalty = message.presence_penalty();
  params.seed = message.seed();
  params.logit_bias.assign(message.logit_bias().begin(), message.logit_bias().end());
  std::sort(params.logit_bias.begin(), params.logit_bias.end());
  params.logprobs = message.logprobs();
  SL_ASSIGN_OR_RETURN(params.top_logprobs, ToInt32(message.top_logprobs(), "top_logprobs"));
  return params;
}

}  // namespace

v1::Recipe ToProto(const Recipe& recipe) {
  v1::Recipe message;
  message.set_model_id(recipe.model_id.value());
  message.set_numerics_id(recipe.numerics_id.value());
  message.set_plan_epoch(recipe.plan_epoch.value());
  return message;
}

Recipe FromProto(const v1::Recipe& recipe) {
  return {.model_id = ModelId(recipe.model_id()),
          .numerics_id = NumericsId(recipe.numerics_id()),
          .plan_epoch = PlanEpoch(recipe.plan_epoch())};
}

v1::OpenRequest ToProto(const OpenAttempt& open) {
  v1::OpenRequest message;
  message.set_session(open.key.session.value());
  message.set_epoch(open.key.epoch.value());
  message.set_term(open.term.value());
  message.set_incarnation(open.incarnation.value());
  *message.mutable_recipe() = ToProto(open.recipe);
  message.set_stage_index(open.stage_index);
  for (const RouteStage& stage : open.route) *message.add_route() = ToProto(stage);
  message.set_tokens_max(static_cast<uint32_t>(open.tokens_max));
  message.set_budget_ms(absl::ToInt64Milliseconds(open.budget));
  message.set_open_seq(open.open_seq);
  for (const PrefixKey& key : open.prefix_keys) message.add_prefix_keys(key.ToBytes());
  message.set_prefix_root(open.prefix_root.ToBytes());
  message.set_capability(open.capability);
  return message;
}

absl::StatusOr<OpenAttempt> FromProto(const v1::OpenRequest& request) {
  SL_RETURN_IF_ERROR(CheckCount(request.route_size(), kRouteStagesMax, "route"));
  OpenAttempt open;
  open.key = {SessionId(request.session()), Epoch(request.epoch())};
  open.term = Term(request.term());
  open.incarnation = Incarnation(request.incarnation());
  open.recipe = FromProto(request.recipe());
  open.stage_index = request.stage_index();
  for (const v1::RouteStage& message : request.route()) {
    SL_ASSIGN_OR_RETURN(RouteStage stage, FromProto(message));
    open.route.push_back(std::move(stage));
  }
  SL_ASSIGN_OR_RETURN(open.tokens_max, ToInt32(request.tokens_max(), "tokens_max"));
  open.budget = absl::Milliseconds(request.budget_ms());
  open.open_seq = request.open_seq();
  SL_RETURN_IF_ERROR(CheckCapability(request.capability()));
  open.capability = request.capability();
  SL_RETURN_IF_ERROR(CheckCount(request.prefix_keys_size(), kPromptTokensMax, "prefix_keys"));
  for (const std::string& bytes : request.prefix_keys()) {
    SL_ASSIGN_OR_RETURN(const PrefixKey key, PrefixKey::FromBytes(bytes));
    open.prefix_keys.push_back(key);
  }
  SL_ASSIGN_OR_RETURN(open.prefix_root, PrefixKey::FromBytes(request.prefix_root()));
  return open;
}

v1::OpenReply ToProto(const OpenReply& reply) {
  v1::OpenReply message;
  message.set_pages_reserved(static_cast<uint32_t>(reply.pages_reserved));
  message.set_pages_free(static_cast<uint32_t>(reply.pages_free));
  message.set_cached_tokens(static_cast<uint32_t>(reply.cached_tokens));
  return message;
}

v1::FenceReply ToProto(const FenceReply& reply) {
  v1::FenceReply message;
  message.set_pages_released(static_cast<uint32_t>(reply.pages_released));
  message.set_buffers_released(static_cast<uint32_t>(reply.buffers_released));
  message.set_pages_pinned(reply.pages_pinned);
  return message;
}

v1::RowFailure ToProto(const RowFailure& failure) {
  v1::RowFailure message;
  message.set_session(failure.key.attempt.session.value());
  message.set_epoch(failure.key.attempt.epoch.value());
  message.set_step(failure.key.step.value());
  *message.mutable_failure() = ToProto(failure.status);
  return message;
}

RowFailure FromProto(const v1::RowFailure& failure) {
  return {
      .key = {{SessionId(failure.session()), Epoch(failure.epoch())}, StepIndex(failure.step())},
      .status = FromProto(failure.failure())};
}

v1::LinkInspect ToProto(const std::vector<InspectRow>& rows) {
  v1::LinkInspect inspect;
  for (const InspectRow& row : rows) {
    v1::InspectRow* message = inspect.add_rows();
    message->set_session(row.key.session.value());
    message->set_epoch(row.key.epoch.value());
  }
  return inspect;
}

std::vector<InspectRow> FromProto(const v1::LinkInspect& inspect) {
  std::vector<InspectRow> rows;
  rows.reserve(static_cast<size_t>(inspect.rows_size()));
  for (const v1::InspectRow& row : inspect.rows()) {
    rows.push_back({.key = {SessionId(row.session()), Epoch(row.epoch())}});
  }
  return rows;
}

v1::LinkStatus ToProto(const std::vector<InspectStatus>& statuses) {
  v1::LinkStatus message;
  for (const InspectStatus& status : statuses) {
    v1::StatusRow* row = message.add_rows();
    row->set_session(status.key.session.value());
    row->set_epoch(status.key.epoch.value());
    row->set_step_next(status.step_next.value());
    row->set_chain(status.chain);
    if (!status.failure.ok()) *row->mutable_failure() = ToProto(status.failure);
  }
  return message;
}

std::vector<InspectStatus> FromProto(const v1::LinkStatus& message) {
  std::vector<InspectStatus> statuses;
  statuses.reserve(static_cast<size_t>(message.rows_size()));
  for (const v1::StatusRow& row : message.rows()) {
    InspectStatus status{.key = {SessionId(row.session()), Epoch(row.epoch())},
                         .step_next = StepIndex(row.step_next()),
                         .chain = row.chain()};
    // A failure that claims to be none is still one: nobody resumes on it.
    if (row.has_failure()) status.failure = FromProto(row.failure());
    statuses.push_back(std::move(status));
  }
  return statuses;
}

std::vector<LinkRow> ToLinkRows(const std::vector<BundleRow>& rows) {
  std::vector<LinkRow> out;
  out.reserve(rows.size());
  for (const BundleRow& row : rows) {
    out.push_back({.key = row.key,
                   .position = row.position,
                   .token_count = row.token_count,
                   .hop = static_cast<int32_t>(row.hop),
                   .budget = row.budget,
                   .flags = row.flags,
                   .compute = row.compute,
                   .chain = row.chain,
                   .prefix_key = row.prefix_key,
                   .rejected = row.rejected,
                   .stage_compute = row.stage_compute});
  }
  return out;
}

std::vector<BundleRow> FromLinkRows(const std::vector<LinkRow>& rows) {
  std::vector<BundleRow> out;
  out.reserve(rows.size());
  for (const LinkRow& row : rows) {
    out.push_back({.key = row.key,
                   .position = row.position,
                   .token_count = row.token_count,
                   .hop = static_cast<uint32_t>(row.hop),
                   .budget = row.budget,
                   .flags = row.flags,
                   .compute = row.compute,
                   .chain = row.chain,
                   .prefix_key = row.prefix_key,
                   .rejected = row.rejected,
                   .stage_compute = row.stage_compute});
  }
  return out;
}

LinkBundle ToLinkBundle(StageBundle bundle, int32_t hidden_dim) {
  SL_CHECK(bundle.tokens.empty());
  LinkBundle link;
  link.rows = ToLinkRows(bundle.rows);
  link.hidden_dim = hidden_dim;
  link.payload = std::move(bundle.hidden);
  return link;
}

StageBundle FromLinkBundle(LinkBundle bundle) {
  StageBundle stage;
  stage.rows = FromLinkRows(bundle.rows);
  stage.hidden = std::move(bundle.payload);
  return stage;
}

absl::StatusOr<RunRequest> FromProto(const v1::RunAttemptRequest& request) {
  SL_RETURN_IF_ERROR(CheckCount(request.prompt_tokens_size(), kPromptTokensMax, "prompt_tokens"));
  SL_RETURN_IF_ERROR(
      CheckCount(request.delivered_tokens_size(), kPromptTokensMax, "delivered_tokens"));
  SL_RETURN_IF_ERROR(CheckCount(request.stop_tokens_size(), kStopTokensMax, "stop_tokens"));
  RunRequest out;
  out.term = Term(request.term());
  out.incarnation = Incarnation(request.incarnation());
  SL_RETURN_IF_ERROR(CheckCapability(request.capability()));
  out.capability = request.capability();
  RunAttempt& run = out.run;
  run.key = {SessionId(request.session()), Epoch(request.epoch())};
  run.prompt.assign(request.prompt_tokens().begin(), request.prompt_tokens().end());
  run.delivered.assign(request.delivered_tokens().begin(), request.delivered_tokens().end());
  SL_ASSIGN_OR_RETURN(run.new_tokens_max, ToInt32(request.new_tokens_max(), "new_tokens_max"));
  SL_ASSIGN_OR_RETURN(run.sampling, FromProto(request.sampling()));
  run.sampling.logits_digest = request.want_logits_digest();
  run.stop_tokens.assign(request.stop_tokens().begin(), request.stop_tokens().end());
  run.budget = absl::Milliseconds(request.budget_ms());
  SL_RETURN_IF_ERROR(CheckCount(static_cast<int>(request.tenant().size()),
                                static_cast<int>(kTenantBytesMax), "tenant"));
  run.tenant = request.tenant();
  SL_ASSIGN_OR_RETURN(run.cached_tokens, ToInt32(request.cached_tokens(), "cached_tokens"));
  SL_ASSIGN_OR_RETURN(run.prefix_root, PrefixKey::FromBytes(request.prefix_root()));
  run.no_drafts = request.no_drafts();
  SL_ASSIGN_OR_RETURN(run.rounds_in_flight,
                      ToInt32(request.rounds_in_flight(), "rounds_in_flight"));
  SL_ASSIGN_OR_RETURN(run.step_cost, ToCost(request.step_us(), "step_us"));
  SL_ASSIGN_OR_RETURN(run.row_cost, ToCost(request.row_us(), "row_us"));
  SL_ASSIGN_OR_RETURN(run.rules,
                      CompileTextRules({.grammar = request.rules().grammar(),
                                        .trigger = request.rules().trigger(),
                                        .stop_texts = {request.rules().stop_texts().begin(),
                                                       request.rules().stop_texts().end()},
                                        .new_tokens_min = request.rules().new_tokens_min()}));
  run.want_progress = request.want_progress();
  return out;
}

v1::RunAttemptEvent ToProto(const TokenOut& token) {
  v1::RunAttemptEvent event;
  v1::RunToken* message = event.mutable_token();
  message->set_index(token.index);
  message->set_token(token.token.token);
  message->set_logprob(token.token.logprob);
  for (const auto& [id, logprob] : token.token.top_logprobs) {
    v1::TokenLogprob* top = message->add_top_logprobs();
    top->set_token(id);
    top->set_logprob(logprob);
  }
  message->set_logits_digest(token.token.logits_digest);
  return event;
}

v1::RunAttemptEvent ToProto(const ProgressOut& progress) {
  v1::RunAttemptEvent event;
  event.mutable_progress()->set_prompt_tokens_done(static_cast<uint32_t>(progress.tokens_done));
  event.mutable_progress()->set_prompt_tokens(static_cast<uint32_t>(progress.tokens));
  return event;
}

v1::RunAttemptEvent ToProto(const AttemptEnd& end) {
  SL_CHECK(end.status.ok());
  v1::RunAttemptEvent event;
  v1::RunEnd* message = event.mutable_end();
  message->set_reason(ToProto(end.reason));
  message->set_tokens(end.tokens);
  message->set_stop_token(end.stop_token);
  *message->mutable_timings() = ToProto(end.timings);
  return event;
}

}  // namespace shardline
