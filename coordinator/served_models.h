#pragma once

// The models in service, as the HTTP API asks for them, each with its chat template: the file's
// own, or one that the operator named for all.
//
// A model without one that can be used is logged once, and serves all but chat. Any thread.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/gateway/gateway_models.h"
#include "coordinator/model_loads.h"

namespace shardline {

// The source that --chat-template names: a built-in, or a file. kInvalidRequest for neither.
absl::StatusOr<std::string> ReadChatTemplate(const std::string& name_or_path);

class ServedModels final : public GatewayModels {
 public:
  // `loads` outlives this. `chat_template`: Jinja in place of the files' own; empty: theirs.
  ServedModels(const ModelLoads* loads, std::string chat_template, int64_t since_unix_s)
      : loads_(loads), chat_template_(std::move(chat_template)), since_unix_s_(since_unix_s) {}

  std::optional<GatewayModel> Find(const std::string& name) const override;
  std::vector<GatewayModel> List() const override;

 private:
  using TemplatePtr = std::shared_ptr<const ChatTemplate>;

  GatewayModel ToGatewayModel(const std::string& name, const ModelLoads::Served& served) const;
  absl::StatusOr<TemplatePtr> Make(const std::shared_ptr<const ModelFile>& file) const;
  TemplatePtr TemplateOf(const std::shared_ptr<const ModelFile>& file) const
      ABSL_LOCKS_EXCLUDED(mu_);

  const ModelLoads* const loads_;
  const std::string chat_template_;
  const int64_t since_unix_s_;

  mutable absl::Mutex mu_;
  mutable std::map<ModelId, TemplatePtr> templates_ ABSL_GUARDED_BY(mu_);
};

}  // namespace shardline
