#include "coordinator/ctl/json_view.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

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
std::string ShardListJson(const v1::ShardList& shards) {
  return PrintList("ShardList", shards.shards());
}

}  // namespace shardline
