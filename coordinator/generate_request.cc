#include "coordinator/generate_request.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/prefix_chain.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "model/grammar/grammar.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

constexpr uint32_t kNewTokensDefault = 256;
constexpr int64_t kDeadlineMsDefault = 120'000;
constexpr int64_t kDeadlineMsMax = 600'000;
constexpr uint32_t kTopLogprobsMax = 20;
constexpr int kStopTokensMax = 256;
constexpr size_t kKeyBytesMax = 256;
constexpr int kStopTextsMax = 16;
constexpr size_t kStopTextBytesMax = 1024;

template <typename... Text>
absl::Status Invalid(const Text&... text) {
  return MakeFailure(FailureKind::kInvalidRequest, absl::StrCat(text...));
}

absl::Status CheckId(int32_t id, int32_t vocab_size, const char* field) {
  if (id >= 0 && id < vocab_size) return absl::OkStatus();
  return Invalid(field, ": token id ", id, " is outside the vocabulary of ", vocab_size);
}

absl::Status CheckSampling(const v1::Sampling& sampling, int32_t vocab_size) {
  const auto within = [](const char* field, float value, float low, float high) {
    if (value >= low && value <= high) return absl::OkStatus();  // False for NaN.
    return Invalid("sampling.", field, " is ", value, ", allowed are ", low, " to ", high);
  };
  SL_RETURN_IF_ERROR(within("temperature", sampling.temperature(), 0, 100));
  SL_RETURN_IF_ERROR(within("top_p", sampling.top_p(), 0, 1));
  SL_RETURN_IF_ERROR(within("min_p", sampling.min_p(), 0, 1));
  SL_RETURN_IF_ERROR(within("repetition_penalty", sampling.repetition_penalty(), 0, 100));
  SL_RETURN_IF_ERROR(within("frequency_penalty", sampling.frequency_penalty(), -100, 100));
  SL_RETURN_IF_ERROR(within("presence_penalty", sampling.presence_penalty(), -100, 100));
  if (sampling.top_logprobs() > kTopLogprobsMax) {
    return Invalid("sampling.top_logprobs is ", sampling.top_logprobs(), ", at most ",
                   kTopLogprobsMax);
  }
  for (const auto& [id, bias] : sampling.logit_bias()) {
    SL_RETURN_IF_ERROR(CheckId(id, vocab_size, "sampling.logit_bias"));
    if (!std::isfinite(bias)) return Invalid("sampling.logit_bias[", id, "] is no number");
  }
  return absl::OkStatus();
}

absl::Status CheckRules(const v1::TextRules& rules) {
  if (!rules.grammar().empty()) {
    SL_RETURN_IF_ERROR(Grammar::Parse(rules.grammar(), rules.trigger()).status());
  } else if (!rules.trigger().empty()) {
    return Invalid("rules.trigger: there is no grammar that it could begin");
  }
  if (rules.stop_texts_size() > kStopTextsMax) {
    return Invalid("rules.stop_texts has ", rules.stop_texts_size(), " texts, at most ",
                   kStopTextsMax);
  }
  for (const std::string& text : rules.stop_texts()) {
    if (text.empty()) return Invalid("rules.stop_texts: a stop text is empty");
    if (text.size() > kStopTextBytesMax) {
      return Invalid("rules.stop_texts: one has ", text.size(), " bytes, at most ",
                     kStopTextBytesMax);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> PromptOf(const v1::GenerateRequest& request,
                                              const ModelFile& file) {
  if (request.prompt_case() == v1::GenerateRequest::kText) {
    if (request.text().empty()) return Invalid("the prompt is empty");
    return file.tokenizer->Encode(request.text(), {.add_special = true, .parse_special = true});
  }
  for (const int32_t id : request.tokens().ids()) {
    SL_RETURN_IF_ERROR(CheckId(id, file.hyper.vocab_size, "prompt"));
  }
  return std::vector<int32_t>(request.tokens().ids().begin(), request.tokens().ids().end());
}

}  // namespace

absl::StatusOr<PreparedRequest> PrepareRequest(const v1::GenerateRequest& request,
                                               std::shared_ptr<const ModelFile> file,
                                               int32_t context_tokens_max) {
  PreparedRequest out;
  if (request.deadline_ms() < 0 || request.deadline_ms() > kDeadlineMsMax) {
    return Invalid("deadline_ms is ", request.deadline_ms(), ", allowed are 1 to ", kDeadlineMsMax);
  }
  out.budget =
      absl::Milliseconds(request.deadline_ms() == 0 ? kDeadlineMsDefault : request.deadline_ms());
  SL_RETURN_IF_ERROR(CheckSampling(request.sampling(), file->hyper.vocab_size));
  out.sampling = request.sampling();
  if (request.stop_tokens_size() > kStopTokensMax) {
    return Invalid("stop_tokens has ", request.stop_tokens_size(), " ids, at most ",
                   kStopTokensMax);
  }
  for (const int32_t id : request.stop_tokens()) {
    SL_RETURN_IF_ERROR(CheckId(id, file->hyper.vocab_size, "stop_tokens"));
    out.stop_tokens.push_back(id);
  }
  if (!request.ignore_eos()) {
    out.stop_tokens.insert(out.stop_tokens.end(), file->end_tokens.begin(), file->end_tokens.end());
  }
  SL_RETURN_IF_ERROR(CheckRules(request.rules()));
  out.rules = request.rules();
  out.want_logits_digest = request.want_logits_digest();
  out.want_progress = request.want_progress();
  out.no_drafts = request.no_drafts();
  out.no_prefix_cache = request.no_prefix_cache();
  if (request.tenant().size() > kTenantBytesMax) {
    return Invalid("tenant has ", request.tenant().size(), " bytes, at most ", kTenantBytesMax);
  }
  out.tenant = request.tenant();

  SL_ASSIGN_OR_RETURN(out.prompt, PromptOf(request, *file));
  if (out.prompt.empty()) return Invalid("the prompt is empty");
  const auto context = static_cast<size_t>(context_tokens_max);
  if (out.prompt.size() >= context) {
    return Invalid("the prompt has ", out.prompt.size(), " tokens and the context of ",
                   context_tokens_max, " tokens leaves no room for an answer");
  }
  const auto room = static_cast<uint32_t>(context - out.prompt.size());
  const uint32_t wanted =
      request.new_tokens_max() == 0 ? kNewTokensDefault : request.new_tokens_max();
  out.new_tokens_max = std::min(wanted, room);
  out.file = std::move(file);
  return out;
}

uint64_t RequestDigest(const v1::GenerateRequest& request) {
  v1::GenerateRequest asked = request;
  asked.clear_idempotency_key();
  asked.clear_reattach();
  asked.clear_deadline_ms();
  asked.clear_no_drafts();
  asked.clear_want_progress();
  asked.clear_no_prefix_cache();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);  // Maps have no order of their own.
    asked.SerializeToCodedStream(&out);
  }
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t AffinityOf(const PreparedRequest& request) {
  if (request.no_prefix_cache ||
      PrefixPagesToFind(static_cast<int64_t>(request.prompt.size()), kPageTokens) == 0) {
    return 0;
  }
  const uint64_t of_tenant = XXH3_64bits(request.tenant.data(), request.tenant.size());
  const uint64_t hash =
      XXH3_64bits_withSeed(request.prompt.data(), kPageTokens * sizeof(int32_t), of_tenant);
  return std::max<uint64_t>(hash, 1);
}

absl::StatusOr<SessionIdentity> IdentityOf(const v1::GenerateRequest& request,
                                           const PreparedRequest& prepared) {
  SessionIdentity out;
  if (request.idempotency_key().size() > kKeyBytesMax) {
    return Invalid("idempotency_key has ", request.idempotency_key().size(), " bytes, at most ",
                   kKeyBytesMax);
  }
  out.tenant = prepared.tenant;
  out.key = request.idempotency_key();
  out.digest = RequestDigest(request);
  if (!request.has_reattach()) return out;
  const v1::Reattach& reattach = request.reattach();
  if (reattach.session() == 0) return Invalid("reattach.session is missing");
  if (static_cast<uint32_t>(reattach.tokens_held_size()) > prepared.new_tokens_max) {
    return Invalid("reattach.tokens_held has ", reattach.tokens_held_size(),
                   " tokens, the answer at most ", prepared.new_tokens_max);
  }
  for (const int32_t id : reattach.tokens_held()) {
    SL_RETURN_IF_ERROR(CheckId(id, prepared.file->hyper.vocab_size, "reattach.tokens_held"));
  }
  out.session = SessionId(reattach.session());
  return out;
}

v1::RunAttemptRequest RunRequestFor(const PreparedRequest& request,
                                    const std::vector<int32_t>& delivered) {
  v1::RunAttemptRequest out;
  out.mutable_prompt_tokens()->Assign(request.prompt.begin(), request.prompt.end());
  out.mutable_delivered_tokens()->Assign(delivered.begin(), delivered.end());
  out.set_new_tokens_max(request.new_tokens_max);
  *out.mutable_sampling() = request.sampling;
  out.mutable_stop_tokens()->Assign(request.stop_tokens.begin(), request.stop_tokens.end());
  if (request.rules.ByteSizeLong() > 0) *out.mutable_rules() = request.rules;
  out.set_want_logits_digest(request.want_logits_digest);
  out.set_want_progress(request.want_progress);
  out.set_tenant(request.tenant);
  out.set_no_drafts(request.no_drafts);
  return out;
}

}  // namespace shardline
