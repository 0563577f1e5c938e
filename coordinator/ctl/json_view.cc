#include "coordinator/ctl/json_view.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"

namespace shardline {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string text;
  SL_CHECK(google::protobuf::util::MessageToJsonString(message, &text, options).ok());
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  SL_CHECK(!json.is_discarded());
  return json;
}

Json Envelope(const char* kind) { return {{"apiVersion", "shardline/v1"}, {"kind", kind}}; }

std::string Print(const Json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

template <typename Items>
std::string PrintList(const char* kind, const Items& items) {
  Json list = Envelope(kind);
  list["items"] = Json::array();
  for (const auto& item : items) list["items"].push_back(ToJson(item));
  return Print(list);
}

std::string PrintOne(const char* kind, const google::protobuf::Message& message) {
  Json object = Envelope(kind);
  object.update(ToJson(message));
  return Print(object);
}

}  // namespace

std::string StatusJson(const v1::ClusterStatus& status) {
  return PrintOne("ClusterStatus", status);
}
std::string NodeListJson(const v1::NodeList& nodes) { return PrintList("NodeList", nodes.nodes()); }
std::string ModelListJson(const v1::ModelList& models) {
  return PrintList("ModelList", models.models());
}
std::string ModelJson(const v1::ModelSummary& model) { return PrintOne("Model", model); }
std::string ModelPreviewJson(const v1::ModelPreview& preview) {
  return PrintOne("ModelPreview", preview);
}
std::string NewKeyJson(const std::string& secret, const std::string& line) {
  Json object = Envelope("ApiKey");
  object["key"] = secret;
  if (!line.empty()) object["line"] = line;
  return Print(object);
}
std::string ShardListJson(const v1::ShardList& shards) {
  return PrintList("ShardList", shards.shards());
}

std::string SessionListJson(const v1::SessionList& sessions) {
  return PrintList("SessionList", sessions.sessions());
}
std::string SessionJson(const std::optional<v1::SessionSummary>& live,
                        const v1::RecordList& records) {
  Json object = Envelope("Session");
  object["live"] = live.has_value() ? ToJson(*live) : Json();
  object["records"] = Json::array();
  for (const v1::LedgerRecord& record : records.records()) {
    object["records"].push_back(ToJson(record));
  }
  return Print(object);
}
std::string RecordListJson(const v1::RecordList& records) {
  return PrintList("LedgerRecordList", records.records());
}
std::string VerdictJson(const v1::LedgerVerdict& verdict) {
  return PrintOne("LedgerVerdict", verdict);
}

std::string RecordListJsonBegin() {
  return "{\n  \"apiVersion\": \"shardline/v1\",\n  \"kind\": \"LedgerRecordList\",\n  "
         "\"items\": [";
}

std::string RecordListJsonItem(const v1::LedgerRecord& record, bool is_first) {
  const std::string item = ToJson(record).dump(2, ' ', false, Json::error_handler_t::replace);
  return absl::StrCat(is_first ? "\n    " : ",\n    ",
                      absl::StrReplaceAll(item, {{"\n", "\n    "}}));
}

std::string RecordListJsonEnd(bool is_empty) { return is_empty ? "]\n}\n" : "\n  ]\n}\n"; }

}  // namespace shardline
