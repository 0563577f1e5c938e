#include "coordinator/gateway/generation_spec.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shardline {
namespace {

constexpr size_t kKeyBytesMax = 200;  // A choice's number is put behind it.

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// What two arrivals share if, and only if, the second is the first one asked again.
uint64_t IdentityNumber(const RequestFacts& facts, std::string_view key) {
  const std::string text =
      key.empty() ? facts.nonce : absl::StrCat(facts.key_name, "\n", std::string(key));
  return XXH3_64bits(text.data(), text.size());
}

// Prefixes are shared within a tenant: a salt makes another one of it.
std::string TenantOf(const RequestFacts& facts, const ApiCall& call) {
  if (call.cache_salt.empty()) return facts.key_name;
  return absl::StrCat(
      facts.key_name, "/",
      absl::Hex(XXH3_64bits(call.cache_salt.data(), call.cache_salt.size()), absl::kZeroPad16));
}

// The begin of the digest, without the name of the hash.
std::string ShortDigest(const ModelId& id) {
  constexpr size_t kShown = 12;
  const std::string& text = id.value();
  const size_t colon = text.find(':');
  return text.substr(colon == text.npos ? 0 : colon + 1, kShown);
}

ApiResult<std::optional<StreamPlace>> ResumePlace(std::string_view last_event_id, bool has_key,
                                                  const ApiCall& call) {
  if (last_event_id.empty()) return std::optional<StreamPlace>();
  const std::optional<StreamPlace> place = ParsePlace(last_event_id);
  if (!place.has_value()) {
    return InvalidValue("Last-Event-ID", "Last-Event-ID is not the id of an event of ours.");
  }
  if (!has_key || !call.stream) {
    return InvalidValue("Last-Event-ID",
                        "A stream goes on behind Last-Event-ID only with the Idempotency-Key and "
                        "the body it began with.");
  }
  return place;
}

}  // namespace

ApiModel ToApiModel(const GatewayModel& model) {
  return {.name = model.name,
          .tokenizer = model.file->tokenizer.get(),
          .chat_template = model.chat_template.get(),
          .context_tokens_max = model.context_tokens_max};
}

ApiResult<GenerationSpec> MakeGenerationSpec(const HttpRequest& request, ApiCall call,
                                             const GatewayModel& model, const RequestFacts& facts,
                                             const GenerationLimits& limits) {
  const std::string key(request.Header("idempotency-key"));
  if (key.size() > kKeyBytesMax || !IsPrintable(key)) {
    return InvalidValue("Idempotency-Key",
                        absl::StrCat("Idempotency-Key must be at most ", kKeyBytesMax,
                                     " printable characters without blanks."));
  }
  const std::string_view last_event_id = request.Header("last-event-id");
  ApiResult<std::optional<StreamPlace>> behind = ResumePlace(last_event_id, !key.empty(), call);
  if (!behind.ok()) return behind.error();
  const bool tell_places =
      !key.empty() && (behind->has_value() || request.Header("x-shardline-resume") == "1");

  const uint64_t number = IdentityNumber(facts, key);
  ApiResult<PreparedCall> prepared =
      PrepareCall(call, ToApiModel(model), {.seed = number, .now = facts.now});
  if (!prepared.ok()) return prepared.error();
  if (tell_places && call.stream && prepared->requests.size() > 1) {
    return InvalidValue("n", "A stream that can be resumed has one choice.");
  }
  const std::string tenant = TenantOf(facts, call);
  for (size_t i = 0; i < prepared->requests.size(); ++i) {
    v1::GenerateRequest& generate = prepared->requests[i];
    generate.set_tenant(tenant);
    if (!key.empty()) generate.set_idempotency_key(absl::StrCat(key, "#", i));
  }
  GenerationSpec spec;
  spec.request_id = facts.request_id;
  spec.endpoint = facts.endpoint;
  spec.key_name = facts.key_name;
  spec.model = model;
  spec.facts = {.id = absl::StrCat(call.kind == ApiKind::kChat ? "chatcmpl-" : "cmpl-",
                                   absl::Hex(number, absl::kZeroPad16)),
                .created_unix_s = absl::ToUnixSeconds(facts.now),
                .model = model.name,
                .weights_digest = ShortDigest(model.file->id),
                .call_id_key = number,
                .tokenizer = model.file->tokenizer.get()};
  spec.prepared = *std::move(prepared);
  spec.arrived = facts.arrived;
  spec.ping_interval = limits.ping_interval;
  spec.return_grace = key.empty() ? absl::ZeroDuration() : limits.return_grace;
  spec.tell_places = tell_places;
  spec.resume_behind = *behind;
  spec.events_queued_max = limits.events_queued_max;
  spec.call = std::move(call);
  return spec;
}

}  // namespace shardline
