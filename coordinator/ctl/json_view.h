#pragma once

// The stable machine format: {"apiVersion":"shardline/v1","kind":"NodeList","items":[…]}.
//
// Field names and number forms are protobuf's JSON mapping: lowerCamelCase, 64-bit integers as
// strings, enums by name. Fields with their default value are printed too.

#include <optional>
#include <string>

#include "shardline/v1/admin.pb.h"

namespace shardline {

std::string StatusJson(const v1::ClusterStatus& status);
std::string NodeListJson(const v1::NodeList& nodes);
std::string ModelListJson(const v1::ModelList& models);
std::string ModelJson(const v1::ModelSummary& model);
std::string ModelPreviewJson(const v1::ModelPreview& preview);
std::string NewKeyJson(const std::string& secret, const std::string& line);
std::string ShardListJson(const v1::ShardList& shards);
std::string SessionListJson(const v1::SessionList& sessions);
// {"kind":"Session","live":{…} or null,"records":[…]}.
std::string SessionJson(const std::optional<v1::SessionSummary>& live,
                        const v1::RecordList& records);
std::string RecordListJson(const v1::RecordList& records);
std::string VerdictJson(const v1::LedgerVerdict& verdict);

// The same document as RecordListJson, in pieces: what is exported need not fit into memory.
std::string RecordListJsonBegin();
std::string RecordListJsonItem(const v1::LedgerRecord& record, bool is_first);
std::string RecordListJsonEnd(bool is_empty);

}  // namespace shardline
