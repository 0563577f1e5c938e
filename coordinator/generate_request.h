#pragma once

// A client's request, checked and tokenized: what a session needs and its core does not read.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/model_file.h"
#include "coordinator/sessions/session_words.h"
#include "shardline/v1/head.pb.h"
#include "shardline/v1/inference.pb.h"

namespace shardline {

struct PreparedRequest {
  std::shared_ptr<const ModelFile> file;
  std::vector<int32_t> prompt;  // At least one.
  uint32_t new_tokens_max = 0;  // At least one; what the context has room for.
  v1::Sampling sampling;
  std::vector<int32_t> stop_tokens;
  v1::TextRules rules;
  bool want_logits_digest = false;
  bool want_progress = false;
  bool no_drafts = false;
  bool no_prefix_cache = false;
  std::string tenant;
  absl::Duration budget;
};

// kInvalidRequest, naming the field, for anything a client must mend: an empty prompt, one that
// leaves no room in the context (with both numbers), ids outside the vocabulary, sampling
// parameters that are no numbers, rules beyond their limits. Takes time proportional to the prompt.
absl::StatusOr<PreparedRequest> PrepareRequest(const v1::GenerateRequest& request,
                                               std::shared_ptr<const ModelFile> file,
                                               int32_t context_tokens_max);

// What tells one request from another: XXH3-64 of all that decides its answer, so without
// idempotency key, reattach, deadline, progress and how it is computed.
uint64_t RequestDigest(const v1::GenerateRequest& request);

// Equal for prompts of one tenant that begin with the same page of tokens; 0 for a shorter prompt.
uint64_t AffinityOf(const PreparedRequest& request);

// Who asks, and for which session. kInvalidRequest for a tenant or key that is too long, or a
// reattach without session, with too many tokens, or with ids outside the vocabulary.
absl::StatusOr<SessionIdentity> IdentityOf(const v1::GenerateRequest& request,
                                           const PreparedRequest& prepared);

// What asks the head to run one attempt of it.
v1::RunAttemptRequest RunRequestFor(const PreparedRequest& request,
                                    const std::vector<int32_t>& delivered);

}  // namespace shardline
