#pragma once

// The stable machine format: {"apiVersion":"shardline/v1","kind":"NodeList","items":[…]}.
//
// Field names and number forms are protobuf's JSON mapping: lowerCamelCase, 64-bit integers as
// strings, enums by name. Fields with their default value are printed too.

#include <string>

#include "shardline/v1/admin.pb.h"

namespace shardline {

std::string StatusJson(const v1::ClusterStatus& status);
std::string NodeListJson(const v1::NodeList& nodes);
std::string ModelListJson(const v1::ModelList& models);
std::string ModelJson(const v1::ModelSummary& model);
std::string ShardListJson(const v1::ShardList& shards);

}  // namespace shardline
