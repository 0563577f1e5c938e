#include "coordinator/served_models.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/log.h"

namespace shardline {
namespace {

std::string TextOf(const Tokenizer& tokenizer, const std::optional<int32_t>& id) {
  return id.has_value() ? std::string(tokenizer.TokenBytes(*id)) : std::string();
}

}  // namespace

absl::StatusOr<std::string> ReadChatTemplate(const std::string& name_or_path) {
  const absl::StatusOr<std::string_view> built_in = BuiltInChatTemplate(name_or_path);
  if (built_in.ok()) return std::string(*built_in);
  std::ifstream file(name_or_path, std::ios::binary);
  if (!file) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat("--chat-template: \"", name_or_path,
                     "\" is no file, nor a built-in: ", std::string(built_in.status().message())));
  }
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::optional<GatewayModel> ServedModels::Find(const std::string& name) const {
  const std::map<std::string, ModelLoads::Served> all = loads_->InService();
  if (name.empty() && all.size() == 1) {
    return ToGatewayModel(all.begin()->first, all.begin()->second);
  }
  const auto found = all.find(name);
  if (found == all.end()) return std::nullopt;
  return ToGatewayModel(found->first, found->second);
}

std::vector<GatewayModel> ServedModels::List() const {
  std::vector<GatewayModel> models;
  for (const auto& [name, served] : loads_->InService()) {
    models.push_back(ToGatewayModel(name, served));
  }
  return models;
}

GatewayModel ServedModels::ToGatewayModel(const std::string& name,
                                          const ModelLoads::Served& served) const {
  return {.name = name,
          .file = served.file,
          .chat_template = TemplateOf(served.file),
          .context_tokens_max = served.context_tokens_max,
          .created_unix_s = since_unix_s_};
}

absl::StatusOr<ServedModels::TemplatePtr> ServedModels::Make(
    const std::shared_ptr<const ModelFile>& file) const {
  if (chat_template_.empty()) {
    if (file->chat_template == nullptr) return absl::NotFoundError(file->why_no_chat_template);
    return TemplatePtr(file, file->chat_template.get());  // Lives as long as its file.
  }
  return ChatTemplate::Create({.source = chat_template_,
                               .tool_source = {},
                               .bos_token = TextOf(*file->tokenizer, file->tokenizer->bos_id()),
                               .eos_token = TextOf(*file->tokenizer, file->tokenizer->eos_id())});
}

ServedModels::TemplatePtr ServedModels::TemplateOf(
    const std::shared_ptr<const ModelFile>& file) const {
  {
    absl::MutexLock lock(&mu_);
    const auto found = templates_.find(file->id);
    if (found != templates_.end()) return found->second;
  }
  absl::StatusOr<TemplatePtr> made = Make(file);
  if (!made.ok()) {
    LogWarning("no chat with this model", {{"model", file->name}, {"reason", made.status()}});
    made = TemplatePtr();
  }
  absl::MutexLock lock(&mu_);
  return templates_.emplace(file->id, *std::move(made)).first->second;
}

}  // namespace shardline
